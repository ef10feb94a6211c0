"""What `editctl mcp` is made of, where no daemon is needed to see it."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import UNSET
from msgspec.structs import replace

import editd_client.mcp
import refusals
from editd.advice import Advice, option_term
from editd.server import convert
from editd.tool_api.dialect_registry import DIALECTS
from editd.wire.messages import (
    ApplyResult,
    ApprovedBy,
    DialectEntry,
    InTheWay,
    ProposedResult,
    ToolEntry,
    Transaction,
    UndoResult,
)
from editd_client.errors import EditdError, refusal
from editd_client.mcp import conversion
from editd_client.mcp.client_sessions import choose_workspace
from editd_client.mcp.tools import OWN, known_dialects, tools_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from support.workplace import Workplace

PACKAGE = Path(editd_client.mcp.__path__[0])


def entry(name: str, *tools: str) -> DialectEntry:
    schema = {"type": "object"}
    listed = [
        ToolEntry(
            name=tool, description="", schema=schema, read_only=False, destructive=True, idempotent=False
        )
        for tool in tools
    ]
    return DialectEntry(name=name, description="", tools=listed)


def test_a_name_that_two_have_gets_its_dialect_s_before_it() -> None:
    known = [entry("a", "replace", "view"), entry("b", "replace", "undo"), entry("c", "replace")]
    assert [tool.name for tool in tools_of(known, ["b", "a", "b"])] == [
        "b_replace", "b_undo", "a_replace", "view",
    ]  # fmt: skip
    assert [tool.name for tool in tools_of(known, ["c"])] == ["replace"]
    with pytest.raises(EditdError, match="There are a, b, c"):
        tools_of(known, ["d"])


def test_an_edit_that_waits_for_a_check_says_that_it_lands_by_itself() -> None:
    waiting = ProposedResult(
        proposal=7, state="open", revision=1, view="v", rule="tested", lands_after=["pytest"]
    )
    result = ApplyResult(transaction=None, files=[], proposal=waiting)
    said = conversion.edit_result(result).texts[0]
    assert "Proposal 7 waits for review (rule: tested). Nothing is written." in said
    assert "It lands by itself once pytest has passed." in said
    asked = replace(result, proposal=replace(waiting, lands_after=[]))
    assert "by itself" not in conversion.edit_result(asked).texts[0]
    made = Transaction(
        seq=1, id="", kind="edit", actor="claude", session=None, message="", time="2026-01-01T00:00:00Z",
        undoes=[], undone_by=None, request_id=None,
    )  # fmt: skip
    landed = replace(result, transaction=made, approved_by=ApprovedBy(rule="tested"))
    assert "The rule tested let it land after its check." in conversion.edit_result(landed).texts[0]
    plain = replace(landed, proposal=UNSET)
    assert "after its check" not in conversion.edit_result(plain).texts[0], (
        "a rule without a check let it land"
    )


def test_the_tools_of_the_dialects_are_the_daemon_s() -> None:
    assert known_dialects() == convert.dialects(DIALECTS.values()).dialects


def test_no_schema_has_a_list_of_types() -> None:
    """Gemini CLI warns about each: `anyOf` says the same."""
    tools = [*OWN, *tools_of(known_dialects(), list(DIALECTS))]
    assert len(tools) == len(OWN) + sum(len(dialect.tools) for dialect in DIALECTS.values())
    for tool in tools:
        for schema in (tool.schema, tool.output):
            assert list(lists_of_types(schema)) == [], tool.name
    assert list(lists_of_types({"a": [{"type": ["integer", "string"]}]})) == [["integer", "string"]]


def lists_of_types(schema: object) -> Iterator[list[Any]]:
    """Each `type` in a schema that is a list."""
    if isinstance(schema, dict):
        if isinstance(schema.get("type"), list):
            yield schema["type"]
        for part in schema.values():
            yield from lists_of_types(part)
    if isinstance(schema, list | tuple):
        for part in schema:
            yield from lists_of_types(part)


def test_no_refusal_names_what_is_in_no_tool_s_schema(place: Workplace) -> None:
    strangers = re.compile(
        r"\b(base|own_only|on_conflict|overwrite|hello|use force(?!:))\b"
        r"|`(session|lease|exec)\.|`(read|stat|write|show)`"
    )
    for name, (_, said) in refusals.answers(place).items():
        error = said["error"]
        if name in ("parse_error", "invalid_request", "method_not_found"):
            continue  # of what no tool sends
        data = error["data"]["data"] if "data" in error else {}
        found = conversion.refusal_result(EditdError(error["code"], name, error["message"], data))
        assert not strangers.search(found.texts[0].partition("\n")[0]), found.texts[0]
        assert not strangers.search(found.data["data"].get("hint", "")), found.data


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two repositories with folders in them, and a home."""
    for name in ("one/src", "one/.git", "two/src", "two/.git", "home", "with space/é"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("EDITD_WORKSPACE", raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("here", "named", "roots", "expected"),
    [
        ("one", None, [], "one"),
        ("one", None, ["two/src"], "two"),
        ("home", None, ["two"], "two"),
        ("one", "two", ["one"], "two"),
        ("two/src", None, ["one", "two"], "two"),
        ("home", None, ["one", "two"], "one"),
        ("with space", None, ["one", "two"], "one"),
        ("one", None, ["nowhere"], "one"),
        ("one", None, ["with space/é"], "with space/é"),
    ],
)
def test_the_workspace_is_what_is_named_else_the_root_else_here(
    folders: Path,
    monkeypatch: pytest.MonkeyPatch,
    here: str,
    named: str | None,
    roots: Sequence[str],
    expected: str,
) -> None:
    monkeypatch.chdir(folders / here)
    uris = [(folders / root).as_uri() for root in roots]
    chosen = choose_workspace(None if named is None else str(folders / named), uris)
    assert chosen.root == str((folders / expected).resolve())


def test_a_root_that_is_no_folder_of_this_machine_does_not_count(
    folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folders / "one")
    for uri in ("https://example.org/two", f"file://elsewhere{folders}/two", "file:///dev/null"):
        assert choose_workspace(None, [uri]).root == str((folders / "one").resolve())
    monkeypatch.setenv("EDITD_WORKSPACE", str(folders / "two"))
    assert choose_workspace(None, [(folders / "one").as_uri()]).root == str((folders / "two").resolve())


def test_a_refusal_says_what_helps_and_what_is_long_is_cut() -> None:
    nearest = {"start_line": 7, "text": "x" * 10_000}
    found = conversion.refusal_result(EditdError(3, "no_match", "Not there.", {"nearest": nearest}))
    assert found.is_refusal
    assert found.texts[0].startswith("Not there.\nNearest passage, line 7:\nxxx")
    assert len(found.texts[0]) < 5_000
    assert found.data["data"]["nearest"] == nearest
    hint = Advice("Use ", option_term("on_conflict", "force"), ".")
    forced = conversion.refusal_result(refusal("conflict", "No.", hint=hint, data={"files": []}))
    assert forced.texts == ("No. Use force: true.",)
    assert forced.data["data"] == {"files": [], "hint": "Use force: true."}


def test_text_that_is_not_utf_8_can_be_sent() -> None:
    found = conversion.answer("caf\udce9", content="caf\udce9")
    assert found.texts == (r"caf\xe9",)
    assert found.data == {"content": {"base64": "Y2Fm6Q=="}}


def test_the_sdk_is_imported_in_one_module() -> None:
    for file in (*PACKAGE.glob("*.py"), PACKAGE.parent / "cli/mcp.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            wanted = {name.split(".")[0] for name in names} & {"mcp", "mcp_types", "anyio", "pydantic"}
            assert not wanted or file.name == "server.py", f"{file.name} imports {wanted}"


@pytest.mark.parametrize(
    ("needs", "said"), [([2, 3], "b, in the way: 3; undo 2, 3 first."), ([], "b, in the way: 3.")]
)
def test_a_conflict_says_what_to_undo_first_only_if_that_is_known(needs: list[int], said: str) -> None:
    conflict = InTheWay(path="b", blocking=[3], needs=needs, reason="lines")
    result = UndoResult(transaction=None, files=[], conflicts=[conflict])
    assert conversion.undo_result(result, is_dry_run=True).texts[-1].splitlines()[-1] == said
