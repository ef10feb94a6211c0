"""engine.weight: a request that may take long is told from one that the loop can carry out itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from editd.server.engine_queue import HEAVY_BYTES
from editd.tools.api import DIALECTS, ToolSet
from editd.wire.messages import Tool
from harness import Harness, apply

if TYPE_CHECKING:
    from pathlib import Path

    from editd.engine.engine import Engine

SMALL, LARGE = "line\n" * 2_000, "line\n" * 30_000


def is_heavy(engine: Engine, dialect: str, tool: str, **args: object) -> bool:
    return engine.weight(apply(Tool(dialect=dialect, tool=tool, args=args))) >= HEAVY_BYTES


def serena(path: str, needle: str = "line\n") -> dict[str, object]:
    return {"relative_path": path, "needle": needle, "repl": "new\n", "mode": "literal"}


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    harness = Harness(tmp_path)
    harness.baseline({"small": SMALL, "large": LARGE, "folder/file": "text\n"})
    (harness.root / "link").symlink_to("large")
    opened = harness.open()
    opened.tooling = ToolSet(DIALECTS, str(harness.root))
    return opened


def test_a_tool_that_goes_once_through_its_file_weighs_what_the_file_does(engine: Engine) -> None:
    assert not is_heavy(engine, "serena", "replace_content", **serena("small"))
    assert not is_heavy(engine, "cline", "replace_in_file", path=f"{engine.tooling.root}/small", diff="")
    assert not is_heavy(engine, "claude", "str_replace_based_edit_tool", command="view", path="small")


def test_many_blocks_may_each_go_through_the_file(engine: Engine) -> None:
    assert not is_heavy(engine, "cline", "replace_in_file", path="large", diff="x" * 1_000)
    assert is_heavy(engine, "cline", "replace_in_file", path="large", diff="x" * 10_000)


@pytest.mark.parametrize("path", ["link", "folder", "missing", "../outside", ""])
def test_a_call_whose_file_is_not_known_beforehand_is_heavy(engine: Engine, path: str) -> None:
    assert is_heavy(engine, "serena", "replace_content", **serena(path))


def test_a_tool_that_compares_passages_is_heavy(engine: Engine) -> None:
    assert is_heavy(engine, "gemini", "replace", file_path="small", old_string="line", new_string="new")
    assert is_heavy(engine, "nobody", "knows", path="small")
