"""cli.loop_factory: the daemon runs on uvloop if that is installed, and on asyncio's own loop without it."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

from editd.cli import loop_factory
from support.workplace import workplace, write

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

STAND_IN = """
import asyncio, pathlib

def new_event_loop():
    pathlib.Path({made!r}).touch()
    return asyncio.new_event_loop()
"""


def test_without_uvloop_the_loop_is_that_of_asyncio(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert loop_factory() is None


def test_the_loop_is_made_by_uvloop_if_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    uvloop = ModuleType("uvloop")
    uvloop.new_event_loop = object()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "uvloop", uvloop)
    assert loop_factory() is uvloop.new_event_loop


def test_a_daemon_with_uvloop_runs_on_its_loop(tmp_path: Path) -> None:
    made = tmp_path / "made"
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages/uvloop.py").write_text(STAND_IN.format(made=str(made)))
    with workplace(tmp_path / "place", {"a.txt": "0\n"}) as place:
        place.is_forked = False
        place.variables["PYTHONPATH"] = f"{tmp_path / 'packages'}:{place.environment['PYTHONPATH']}"
        with place.start() as client:
            assert made.exists()
            client.apply([write("a.txt", "1\n")])
