"""engine.weight: a request that may take long is told from one that the loop can carry out itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from editd.engine.commands import Undo
from editd.engine.undo_selection import BySession, ByTransaction, Latest
from editd.engine.weight import UNDO_TOUCHES_MAX
from editd.server.engine_queue import HEAVY_BYTES, LARGE_BYTES
from editd.tool_api.dialect_registry import DIALECTS
from editd.tool_api.tool_paths import ToolPaths
from editd.tool_api.tool_set import ToolSet
from editd.values.transaction import Authorship
from editd.wire.messages import Tool
from support.harness import Harness, apply, done, write

if TYPE_CHECKING:
    from pathlib import Path

    from editd.engine.engine import Engine
    from editd.engine.undo_selection import Scope

SMALL, LARGE = "line\n" * 2_000, "line\n" * 30_000


def is_heavy(engine: Engine, dialect: str, tool: str, **args: object) -> bool:
    return engine.weight(apply(Tool(dialect=dialect, tool=tool, args=args))) >= HEAVY_BYTES


def serena(path: str, needle: str = "line\n") -> dict[str, object]:
    return {"relative_path": path, "needle": needle, "repl": "new\n", "mode": "literal"}


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    harness = Harness(tmp_path)
    harness.baseline({"small": SMALL, "large": LARGE, "folder/file": "text\n"})
    (harness.root / "link").symlink_to("large")
    return harness


@pytest.fixture
def engine(harness: Harness) -> Engine:
    opened = harness.open()
    opened.tooling = ToolSet(DIALECTS, ToolPaths(str(harness.root)))
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


def weight_of_undo(engine: Engine, scope: Scope) -> int:
    return engine.weight(Undo(Authorship("ann", None, ""), "connection 1", scope))


def test_the_undo_of_a_named_transaction_weighs_what_its_files_do(engine: Engine) -> None:
    made = done(engine, apply(write("small", "new\n")))
    scopes = (ByTransaction(made.seq), ByTransaction(str(made.seq)), ByTransaction(made.id), Latest(None))
    assert len({weight_of_undo(engine, scope) for scope in scopes}) == 1
    assert weight_of_undo(engine, ByTransaction(made.seq)) < HEAVY_BYTES
    for number in range(100):  # then it is in the index alone
        done(engine, apply(write(f"other {number}", "new\n")))
    assert weight_of_undo(engine, ByTransaction(made.seq)) < LARGE_BYTES
    assert weight_of_undo(engine, ByTransaction("no id")) < HEAVY_BYTES


def test_an_undo_weighs_what_the_history_has_of_its_files(engine: Engine, harness: Harness) -> None:
    made = done(engine, apply(write("small", "x" * 100_000)))
    weight = weight_of_undo(engine, ByTransaction(made.seq))
    assert 100_000 < weight < HEAVY_BYTES
    (harness.root / "small").unlink()
    assert weight_of_undo(engine, ByTransaction(made.seq)) == weight


def test_an_undo_that_may_need_a_merge_or_a_search_does_not_hold_up_the_loop(engine: Engine) -> None:
    made = done(engine, apply(write("small", "new\n")))
    done(engine, apply(write("small", "newer\n")))
    assert HEAVY_BYTES <= weight_of_undo(engine, ByTransaction(made.seq)) < LARGE_BYTES


def test_an_undo_of_many_files_is_large(engine: Engine) -> None:
    edits = [write(f"many/{number}", "new\n") for number in range(UNDO_TOUCHES_MAX + 1)]
    made = done(engine, apply(*edits, session="s"))
    assert weight_of_undo(engine, ByTransaction(made.seq)) >= LARGE_BYTES
    assert weight_of_undo(engine, BySession("s")) >= LARGE_BYTES
