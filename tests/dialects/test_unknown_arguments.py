"""An argument that a tool does not have: refused by every dialect, with the nearest name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from editd.tool_api.dialect_registry import DIALECTS
from editd.wire.messages import Tool
from editd_client.errors import EditdError
from recorded import rooted
from test_through_the_socket import edits_already_made

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd_client.client import Client
    from support.workplace import Workplace

TEXT = "one\ntwo\nthree\n"
CALLS = {
    (edit.dialect, edit.tool): edit.args for edit in edits_already_made().values() if isinstance(edit, Tool)
} | {("wcgw", "ReadFiles"): {"file_paths": ["{ROOT}/a.txt"], "thread_id": "t1"}}
CLAUDE = ("claude", "str_replace_based_edit_tool")


@pytest.fixture
def client(place: Workplace) -> Iterator[Client]:
    place.write({"a.txt": TEXT})
    with place.start() as found:
        yield found
    place.stop()


def refused(client: Client, place: Workplace, name: tuple[str, str], args: dict[str, Any]) -> EditdError:
    call = Tool(dialect=name[0], tool=name[1], args=rooted(args, str(place.root)))
    with pytest.raises(EditdError) as refusal:
        client.apply([call], session="s")
    assert place.files()["a.txt"].decode() == TEXT
    return refusal.value


def test_each_tool_of_each_dialect_is_tried() -> None:
    assert CALLS.keys() == {(name, tool.name) for name in DIALECTS for tool in DIALECTS[name].tools}


@pytest.mark.parametrize("name", CALLS, ids="-".join)
def test_no_tool_ignores_an_argument(client: Client, place: Workplace, name: tuple[str, str]) -> None:
    refusal = refused(client, place, name, CALLS[name] | {"colour": "red"})
    assert (refusal.name, refusal.data["argument"]) == ("invalid_params", "colour")
    assert "It takes" in refusal.data["hint"]


@pytest.mark.parametrize(
    ("name", "args", "wrong", "near"),
    [
        (CLAUDE, {"command": "str_replace", "path": "a.txt", "old_str": "two"}, "new_string", "new_str"),
        (CLAUDE, {"command": "str_replace", "path": "a.txt", "old_str": "two"}, "insert_text", None),
        (CLAUDE, {"command": "undo_edit", "path": "a.txt"}, "old_str", None),
        (
            ("roo", "search_and_replace"),
            {"path": "a.txt", "search": "o", "replace": "0"}, "startLine", "start_line",
        ),
        (
            ("serena", "replace_content"),
            {"relative_path": "a.txt", "needle": "o", "repl": "0", "mode": "literal"},
            "allowMultipleOccurrences", "allow_multiple_occurrences",
        ),
        (
            ("gemini", "replace"),
            {
                "file_path": "{ROOT}/a.txt", "instruction": "x", "old_string": "two", "new_string": "2",
                "allow_multiple": False,
            },
            "expected_replacements", "allow_multiple",
        ),
    ],
)  # fmt: skip
def test_the_refusal_names_the_nearest_argument(
    client: Client,
    place: Workplace,
    name: tuple[str, str],
    args: dict[str, Any],
    wrong: str,
    near: str | None,
) -> None:
    refusal = refused(client, place, name, args | {wrong: 2 if wrong == "startLine" else "2"})
    assert refusal.data["argument"] == wrong
    assert refusal.data.get("similar") == near
    assert near is None or f"`{near}`" in refusal.data["hint"]


def test_an_argument_that_the_clients_of_an_original_add_is_accepted(
    client: Client, place: Workplace
) -> None:
    added = {"modified_by_user": False, "wait_for_previous": True}
    args = {"file_path": f"{place.root}/a.txt", "instruction": "x", "old_string": "two", "new_string": "2"}
    client.apply([Tool(dialect="gemini", tool="replace", args=args | added)])
    diff = "------- SEARCH\n2\n=======\n3\n+++++++ REPLACE"
    args = {"path": "a.txt", "diff": diff, "task_progress": "- [x] two"}
    client.apply([Tool(dialect="cline", tool="replace_in_file", args=args)])
    assert place.files()["a.txt"].decode() == "one\n3\nthree\n"
