"""Public reports about undo, history and git in tools that let agents edit files; one test for each.

Each docstring names the report: the repository and its number. Through the real socket, and real git.
"""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING, Any

import pytest

from crash_checks import wait_until
from editd_client.errors import EditdError
from socket_attacks import Siege

if TYPE_CHECKING:
    from collections.abc import Callable

    from workplace import Workplace


def refused(ask: Callable[..., object], *given: Any, **more: Any) -> EditdError:
    with pytest.raises(EditdError) as refusal:
        ask(*given, **more)
    return refusal.value


FILES = 5_000
UNDO_SECONDS_MAX, MEMORY_TIMES_MAX = 2.0, 1.2


def test_the_undo_of_a_mass_deletion_takes_minutes(place: Workplace, is_long: bool) -> None:
    """An undo of 1,000 files took 68.91 s (anomalyco/opencode#47029).

    `tests/engine/test_changes_by_time.py` counts the work, without a clock.
    """
    count = FILES if is_long else 500
    files = {f"d/{number // 100}/{number}": f"{number}\n" * 50 for number in range(count)}
    place.write(files)
    with place.start() as client:
        client.settle()
        name = client.exec_begin("rm -r d", session="agent").exec
        shutil.rmtree(place.root / "d")
        client.exec_end(name, 0)
        assert place.process is not None
        daemon = Siege(place, place.process.pid)
        before = daemon.memory()
        began = time.monotonic()
        assert len(client.rollback("agent").files) == count
        seconds = time.monotonic() - began
        assert place.files() == {path: text.encode() for path, text in files.items()}
        if is_long:
            assert seconds < UNDO_SECONDS_MAX
            wait_until(lambda: daemon.memory() < MEMORY_TIMES_MAX * before, "memory is given back")


def test_what_is_taken_back_is_told_in_one_screen(place: Workplace) -> None:
    """Its messages listed every file of node_modules."""
    names = [f"{number:03}" for number in range(300)]
    with place.start() as client:
        client.settle()
        place.write(dict.fromkeys(names, "a person's"))
        client.settle()
        name = client.exec_begin("rm *", session="agent").exec
        for path in names:
            (place.root / path).unlink()
        client.exec_end(name, 0)
        refusal = refused(client.rollback, "agent")
    assert refusal.name == "nothing_to_undo"
    assert "009 (" in refusal.message
    assert " and 290 more." in refusal.message


def test_an_install_and_an_uninstall_of_one_agent_are_not_its_own(place: Workplace) -> None:
    """I had tried the package first. So the agent's install and uninstall of it were taken for mine."""
    package = {f"node_modules/p/{number}.js": "x" for number in range(20)}
    place.write({"package.json": "{}", "index.js": "1"})
    with place.start() as client:
        client.settle()
        place.write(package)
        client.settle()
        shutil.rmtree(place.root / "node_modules")
        client.settle()
        for command, made in (("npm install p", package), ("npm uninstall p", {"index.js": "2"})):
            name = client.exec_begin(command, session="agent").exec
            shutil.rmtree(place.root / "node_modules", ignore_errors=True)
            place.write(made)
            client.exec_end(name, 0)
        result = client.rollback("agent")
    assert result.warnings == []
    assert [file.path for file in result.files] == ["index.js"]
    assert place.files() == {"package.json": b"{}", "index.js": b"1"}
