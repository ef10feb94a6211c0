"""The schemas of editd's own tools have the names and types of the messages that the tools send."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from editd.wire import messages
from editd_client.mcp.conversion import EDITS
from editd_client.mcp.tools import OWN

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

REQUESTS: Mapping[str, tuple[type[messages.Message], ...]] = {
    "apply_edits": (messages.Apply,),
    "read_file": (messages.Read,),
    "undo": (messages.Undo,),
    "redo": (messages.Redo,),
    "rollback_session": (messages.Rollback,),
    "log": (messages.Log,),
    "diff": (messages.Diff,),
    "blame": (messages.Blame,),
    "lease": (messages.LeaseAcquire, messages.LeaseRenew, messages.LeaseRelease),
    "proposal_status": (messages.ProposalWait,),
    "withdraw_proposal": (messages.ProposalWithdraw,),
}
OF_TOOLS = {  # arguments that no message has in this form
    ("undo", "force"): "`on_conflict`",
    ("redo", "force"): "`on_conflict`",
    ("rollback_session", "force"): "`on_conflict`",
    ("blame", "start_line"): "the tool leaves out the other lines",
    ("blame", "end_line"): "the tool leaves out the other lines",
    ("lease", "action"): "which of the four requests",
    ("proposal_status", "wait"): "`timeout`",
}
TYPES = {tool.name: tool.schema["properties"] for tool in OWN}


def types_in(schema: Mapping[str, Any]) -> Iterator[str]:
    """Yield the JSON types that a schema allows, but for null."""
    for one in schema.get("anyOf", (schema,)):
        if "enum" in one:
            yield from {"string" if isinstance(value, str) else "integer" for value in one["enum"]}
        elif "$ref" in one:
            yield "object"
        elif one.get("type") != "null":
            yield one["type"]


def types_of(kind: type[messages.Message], name: str) -> set[str]:
    """Return the JSON types that a message allows for a field."""
    field = next(one for one in msgspec.structs.fields(kind) if one.encode_name == name)
    (schema,), _ = msgspec.json.schema_components([field.type])
    return set(types_in(schema))


def names_of(kind: type[messages.Message]) -> set[str]:
    return {one.encode_name for one in msgspec.structs.fields(kind)}


def test_each_tool_has_its_requests() -> None:
    assert set(TYPES) == set(REQUESTS)


@pytest.mark.parametrize("tool", REQUESTS)
def test_an_argument_has_a_type_that_its_request_takes(tool: str) -> None:
    for name, schema in TYPES[tool].items():
        kinds = [kind for kind in REQUESTS[tool] if name in names_of(kind)]
        assert bool(kinds) != ((tool, name) in OF_TOOLS), name
        for kind in kinds:
            assert set(types_in(schema)) <= types_of(kind, name), (kind, name)


def test_an_argument_of_an_edit_has_a_type_that_the_edit_takes() -> None:
    edit = TYPES["apply_edits"]["edits"]["items"]
    assert set(edit["properties"]["op"]["enum"]) == set(EDITS)
    for name, schema in edit["properties"].items():
        kinds = [kind for kind in EDITS.values() if name in names_of(kind)]
        assert kinds or name == "op", name
        for kind in kinds:
            assert set(types_in(schema)) <= types_of(kind, name), (kind, name)


@pytest.mark.parametrize("tool", [tool for tool, kinds in REQUESTS.items() if len(kinds) == 1])
def test_a_tool_needs_what_its_request_needs(tool: str) -> None:
    required = {one.encode_name for one in msgspec.structs.fields(REQUESTS[tool][0]) if one.required}
    schema = next(one.schema for one in OWN if one.name == tool)
    assert set(schema.get("required", ())) >= required - {"session"}
