"""The tools: their descriptions for a model, and the conversion of a call to a request.

editd's own come first, then the tools of other systems, which the daemon answers for.
Arguments have the protocol's names and meaning, without the connection's arguments (session, actor, request
id); the protocol's types check them. Paths may also be absolute.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Struct

from editd.wire import messages
from editd.wire.codec import convert
from editd_client.errors import refusal
from editd_client.mcp import conversion
from editd_client.mcp.conversion import unknown_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from editd_client.client import Client
    from editd_client.mcp import Options
    from editd_client.mcp.conversion import ToolResult, Typed

Undoing = TypeVar("Undoing", messages.Undo, messages.Redo, messages.Rollback)

READ_BYTES_MAX = 1 << 18  # a larger file must be read by lines
LEASE_SECONDS = 300.0
DIALECTS = "dialects.json"  # written by tests/dialects/page.py, so that the tools are listed without a daemon


_GLOB = re.compile(r"[*?\[{]")


class ToolCall(Struct, frozen=True):
    """One call: its arguments, checked for unknown names, and the client and connection that it uses."""

    arguments: dict[str, Any]
    client: Client
    session: str
    root: str
    request_id: str
    may_undo_others: bool = False
    wait: float = 0.0  # seconds for the decision of a reviewer
    is_elicited: bool = False  # the user has allowed it in a form
    tree: str = ""  # the repository inside the workspace that has the client's folder

    def to_request(self, kind: type[Typed], **more: Any) -> Typed:
        """Return the arguments, and `more`, as that request. Raises EditdError that names the field."""
        return conversion.to_request({**self.arguments, **more}, kind)

    def path(self, path: str) -> str:
        """Return a path relative to the root; an absolute one below the root is converted.

        Raises EditdError for a path that a client in a repository inside may mean relative to that.
        """
        for root in (self.root, os.path.realpath(self.root)):
            if path.startswith(root + "/"):
                return os.path.relpath(path, root)
        is_doubtful = self.tree and not path.startswith((f"{self.tree}/", "/")) and not _GLOB.search(path)
        if is_doubtful and not os.path.lexists(os.path.join(self.root, path)):
            raise refusal(
                "invalid_params",
                f"{path} is not in the workspace {self.root}, and paths are relative to it.",
                hint=f"In your repository it is {self.tree}/{path}. Name any other by its absolute path.",
                data={"path": path},
            )
        return path

    def paths(self, paths: list[str] | None) -> list[str] | None:
        return None if paths is None else [self.path(path) for path in paths]


class McpTool(Struct, frozen=True):
    """One tool: its description for MCP, and its function."""

    name: str
    description: str
    schema: Mapping[str, Any]
    run: Callable[[ToolCall], ToolResult]
    is_read_only: bool = False
    is_destructive: bool = False
    is_idempotent: bool = False
    is_own: bool = True  # a dialect's tool checks its arguments itself
    title: str = ""
    output: Mapping[str, Any] = msgspec.field(default_factory=dict)
    reaching: frozenset[str] = frozenset()  # arguments for the work of others

    def arguments(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call. Raises EditdError (`invalid_params`) for a wrong name."""
        return (
            conversion.check_arguments(self.name, self.schema, arguments) if self.is_own else dict(arguments)
        )


# ── Schemas ───────────────────────────────────────────────────────────────────────────────────


def _object(required: tuple[str, ...] = (), /, **properties: Any) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**schema, "required": list(required)} if required else schema


def _of(kind: str, description: str = "", **more: Any) -> dict[str, Any]:
    return {"type": kind, **({"description": description} if description else {}), **more}


_TX = {"anyOf": [{"type": "integer"}, {"type": "string"}]}  # some clients warn about a list of types
_LINE = _of("integer", minimum=1)
_PATHS = _of("array", items={"type": "string"})
_DRY_RUN = _of("boolean", "Show the changes, make none")
_FORCE = _of("boolean", "Also undo lines that later transactions have changed")


def answer_schema(**properties: Any) -> dict[str, Any]:
    """Return the schema of a tool's structured result, which is a refusal's if the call is refused."""
    return {
        "type": "object",
        "properties": {
            **properties,
            "error": _of("string", "Of a refusal, as are message and data"),
            "message": _of("string"),
            "data": _of("object"),
        },
    }


_NUMBER_OR_NULL = {"anyOf": [{"type": "integer"}, {"type": "null"}]}
_TEXT_OR_NULL = {"anyOf": [{"type": "string"}, {"type": "null"}]}
_ITEMS = _of("array", items={"type": "object"})
CHANGES: dict[str, Any] = {
    "transaction": _NUMBER_OR_NULL,
    "files": _ITEMS,
    "merged": _of("array", items={"type": "string"}),
    "warnings": _of("array", items={"type": "string"}),
    "proposal": _of("integer", "If it waits for review"),
    "changed_by": {**_ITEMS, "description": "Transactions of others since the files were read"},
    "diff": _of("string"),
}
_UNDONE = answer_schema(**CHANGES, conflicts=_ITEMS, by_time=_ITEMS)


# ── Editing and reading ───────────────────────────────────────────────────────────────────────

_EDIT = {
    "type": "object",
    "properties": {
        "op": _of("string", enum=list(conversion.EDITS)),
        "path": _of("string", "The file; for all but patch"),
        "old": _of("string", "replace: exact text in the file"),
        "new": _of("string", "replace: the new text"),
        "count": _of("integer", "replace: exact number of occurrences of `old` (default: 1)"),
        "content": _of("string", "write: the whole file, new or one that you have read"),
        "patch": _of("string", "patch: unified diff of any number of files"),
        "to": _of("string", "move: the new path"),
        "executable": _of("boolean", "chmod"),
    },
    "required": ["op"],
}

_APPLY = _object(
    ("edits",),
    edits=_of("array", items=_EDIT),
    message=_of("string", "Reason for the edit, kept in the log"),
    on_stale=_of(
        "string", "If a file changed since you read it: refuse, or merge", enum=["reject", "merge"]
    ),
    dry_run=_DRY_RUN,
    proposal=_of("integer", "Replace this open proposal of yours"),
)  # fmt: skip


def _apply(call: ToolCall) -> ToolResult:
    asked = call.to_request(messages.Apply, edits=conversion.edits_of(call.arguments["edits"], _EDIT))
    edits = [_guard(_with_relative_paths(edit, call)) for edit in asked.edits]
    result = call.client.apply(
        edits,
        message=asked.message,
        on_stale=asked.on_stale,
        dry_run=asked.dry_run,
        diff=asked.dry_run,
        request_id=call.request_id,
        proposal=asked.proposal or None,
        wait=call.wait or None,
    )
    return conversion.edit_result(result, is_dry_run=asked.dry_run)


def _guard(edit: messages.AnyEdit) -> messages.AnyEdit:
    """Return the edit as a model means it.

    A replacement is guarded by its old text only, as in other systems' tools. A whole text keeps the form of
    the file.
    """
    match edit:
        case messages.Replace():
            return msgspec.structs.replace(edit, guard="text")
        case messages.Write():
            return msgspec.structs.replace(edit, keep_form=True)
        case _:
            return edit


def _with_relative_paths(edit: messages.AnyEdit, call: ToolCall) -> messages.AnyEdit:
    names = [name for name in ("path", "to") if hasattr(edit, name)]
    return msgspec.structs.replace(edit, **{name: call.path(getattr(edit, name)) for name in names})


def _read(call: ToolCall) -> ToolResult:
    asked = call.to_request(messages.Read)
    path = call.path(asked.path)
    if asked.start_line is None and asked.end_line is None and asked.at is None:
        size = call.client.stat([path]).files[0].size or 0
        if size > READ_BYTES_MAX:
            raise refusal(
                "too_large",
                f"{path} has {size} bytes, more than the {READ_BYTES_MAX} of one call.",
                hint="Read a part of it with start_line and end_line.",
                data={"path": path, "size": size},
            )
    result = call.client.read(
        path, at=asked.at, start_line=asked.start_line, end_line=asked.end_line, as_text=True
    )
    return conversion.content(result, asked.start_line, asked.end_line)


# ── Undo ──────────────────────────────────────────────────────────────────────────────────────


def _undo(call: ToolCall) -> ToolResult:
    options, asked = _undo_options(call, messages.Undo)
    result = call.client.undo(asked.tx, paths=call.paths(asked.paths), last=asked.last, **options)
    return conversion.undo_result(result, is_dry_run=asked.dry_run)


def _redo(call: ToolCall) -> ToolResult:
    options, asked = _undo_options(call, messages.Redo)
    return conversion.undo_result(call.client.redo(**options), is_dry_run=asked.dry_run)


def _rollback(call: ToolCall) -> ToolResult:
    call.arguments.setdefault("session", call.session)
    options, asked = _undo_options(call, messages.Rollback)
    result = call.client.rollback(
        asked.session,
        since=asked.since,
        include_published=asked.include_published,
        include_by_time=asked.include_by_time,
        **options,
    )
    return conversion.undo_result(result, is_dry_run=asked.dry_run)


def _undo_options(call: ToolCall, kind: type[Undoing]) -> tuple[dict[str, Any], Undoing]:
    """Return the options that each of the three requests has, and the arguments as that request."""
    force = call.arguments.pop("force", False)
    if not isinstance(force, bool):
        raise refusal("invalid_params", "`force` must be true or false.", data={"field": "force"})
    asked = call.to_request(kind)
    options = {
        "dry_run": asked.dry_run,
        "on_conflict": "force" if force else "fail",
        "own_only": not call.may_undo_others,
        "elicited": call.is_elicited or None,
        "request_id": call.request_id,
        "wait": call.wait or None,
    }
    return options, asked


# ── Inspect ───────────────────────────────────────────────────────────────────────────────────


def _log(call: ToolCall) -> ToolResult:
    asked = call.to_request(messages.Log, limit=call.arguments.get("limit", 20))
    result = call.client.log(
        limit=asked.limit,
        before=asked.before,
        path=call.paths([asked.path] if isinstance(asked.path, str) else asked.path),
        session=asked.session,
        actor=asked.actor,
    )
    return conversion.log(result)


def _diff(call: ToolCall) -> ToolResult:
    asked = call.to_request(messages.Diff)
    paths = call.paths(asked.paths)
    return conversion.diff(call.client.diff(asked.from_, asked.to, paths=paths, decoded=True))


def _blame(call: ToolCall) -> ToolResult:
    start_line, end_line = (_line_number(call, name) for name in ("start_line", "end_line"))
    asked = call.to_request(messages.Blame)
    path = call.path(asked.path)
    return conversion.blame(path, call.client.blame(path), start_line, end_line)


def _line_number(call: ToolCall, name: str) -> int | None:
    value = call.arguments.pop(name, None)
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value > 0):
        return value
    raise refusal("invalid_params", f"`{name}` must be the number of a line, from 1.", data={"field": name})


# ── Leases ────────────────────────────────────────────────────────────────────────────────────


def _lease(call: ToolCall) -> ToolResult:
    action = call.arguments.pop("action")
    ttl = call.arguments.pop("ttl", LEASE_SECONDS)
    match action:
        case "acquire":
            taken = call.to_request(messages.LeaseAcquire, ttl=ttl)
            paths = call.paths(taken.paths) or []
            return conversion.lease(call.client.lease_acquire(paths, taken.ttl, wait=taken.wait), "Leased:")
        case "renew":
            renewed = call.to_request(messages.LeaseRenew, ttl=ttl)
            return conversion.lease(call.client.lease_renew(renewed.lease, renewed.ttl), "Renewed:")
        case "release":
            released = call.to_request(messages.LeaseRelease)
            call.client.lease_release(released.lease)
            return conversion.answer(f"Released {released.lease}.", lease=released.lease)
        case "list":
            call.to_request(messages.LeaseList)
            return conversion.leases(call.client.lease_list())
        case _:
            raise refusal(
                "invalid_params",
                "`action` must be acquire, renew, release or list.",
                data={"field": "action"},
            )


# ── Proposals ─────────────────────────────────────────────────────────────────────────────────


def _proposal_status(call: ToolCall) -> ToolResult:
    asked = call.to_request(messages.ProposalWait, timeout=call.arguments.pop("wait", 0))
    return conversion.proposal(call.client.proposal_wait(asked.proposal, timeout=asked.timeout))


def _withdraw(call: ToolCall) -> ToolResult:
    asked = call.to_request(messages.ProposalWithdraw)
    call.client.proposal_withdraw(asked.proposal)
    return conversion.answer(f"Proposal {asked.proposal} is withdrawn.", proposal=asked.proposal)


OWN: tuple[McpTool, ...] = (
    McpTool(
        "apply_edits",
        "Edit file or files: all edits together or none, in order, as one transaction that can be undone "
        "alone. Use it for every change of files here, with the edits that belong together in one call. "
        'Example: {"edits": [{"op": "replace", "path": "app.py", "old": "tries = 3", "new": "tries = 9"}]}. '
        "Others may edit too. A replace uses the current content. Any other edit of a file that changed "
        "since you read it is refused as stale, with the changes, or merged.",
        _APPLY,
        _apply,
        is_destructive=True,
        title="Edit files",
        output=answer_schema(**CHANGES),
    ),
    McpTool(
        "read_file",
        "Read file: a text file, whole or some lines. editd remembers the version, so that your edits are "
        "refused if others change the file afterwards.",
        _object(
            ("path",), path=_of("string"), start_line=_LINE, end_line=_LINE,
            at={**_TX, "description": "The transaction right after which to read it (default: now)"},
        ),
        _read,
        is_read_only=True,
        is_idempotent=True,
        title="Read a file",
        output=answer_schema(
            path=_of("string"), version=_of("string"), size=_of("integer", "Bytes"), encoding=_TEXT_OR_NULL,
            eol=_of("string"), lines=_of("integer", "Of the whole file, if you read a part"),
            content={"description": "The text; {base64} if it is not UTF-8"},
            unsaved={**_ITEMS, "description": "Editors with unsaved changes of it, and the lines"},
        ),
    ),
    McpTool(
        "undo",
        "Undo your newest edit, or any transaction of yours, however old. Later changes by anyone are kept. "
        "If they touch the same lines, the undo is refused.",
        _object(
            tx={**_TX, "description": "Number of the transaction in the log"},
            paths={**_PATHS, "description": "Only these files of `tx`"},
            last=_of("integer", "Number of your newest edits to undo"), dry_run=_DRY_RUN, force=_FORCE,
        ),
        _undo,
        is_destructive=True,
        title="Undo",
        output=_UNDONE,
    ),
    McpTool(
        "redo",
        "Take back your newest undo.",
        _object(dry_run=_DRY_RUN, force=_FORCE),
        _redo,
        is_destructive=True,
        title="Redo",
        output=_UNDONE,
    ),
    McpTool(
        "rollback_session",
        "Rollback: take back all your work here, as one transaction. The work of others stays, and so does "
        "published work.",
        _object(
            session=_of("string", "Another session, in place of yours"),
            since={**_TX, "description": "First transaction to roll back"},
            include_published=_of("boolean", "Also published work; the commit stays"),
            include_by_time=_of("boolean", "Also changes during your commands that may be someone else's"),
            dry_run=_DRY_RUN, force=_FORCE,
        ),
        _rollback,
        is_destructive=True,
        title="Roll back this session",
        output=_UNDONE,
        reaching=frozenset({"session"}),
    ),
    McpTool(
        "log",
        "List the transactions with their authors, newest first: edits, undos, and changes by other programs "
        "(`outside`).",
        _object(
            path=_of("string", "A file or folder"), session=_of("string"), actor=_of("string"),
            limit=_of("integer", "Default: 20"), before=_of("integer", "Only older than this transaction"),
        ),
        _log,
        is_read_only=True,
        is_idempotent=True,
        title="Show the history",
        output=answer_schema(transactions=_ITEMS, more=_of("boolean", "Whether older ones exist")),
    ),
    McpTool(
        "diff",
        "Show the changes after transaction `from` (default: the start) up to `to` (default: now).",
        _object(**{"from": _TX, "to": _TX, "paths": _PATHS}),
        _diff,
        is_read_only=True,
        is_idempotent=True,
        title="Show differences",
        output=answer_schema(diff=_of("string"), files=_ITEMS),
    ),
    McpTool(
        "blame",
        "Blame: show the transaction and author of each line of a file.",
        _object(("path",), path=_of("string"), start_line=_LINE, end_line=_LINE),
        _blame,
        is_read_only=True,
        is_idempotent=True,
        title="Show the author of each line",
        output=answer_schema(path=_of("string"), version=_of("string"), lines=_ITEMS),
    ),
    McpTool(
        "lease",
        "Lease paths, to keep others from editing them for a while: acquire, renew, release, or list "
        "who has leases.",
        _object(
            ("action",), action=_of("string", enum=["acquire", "renew", "release", "list"]),
            paths={**_PATHS, "description": "acquire: paths or globs such as src/**"},
            ttl=_of("number", "Duration in seconds (default: 300)"),
            wait=_of("number", "acquire: seconds to wait if others have it"),
            lease=_of("string", "renew, release: name of the lease"),
        ),
        _lease,
        title="Lease paths",
        output=answer_schema(
            lease=_of("string"), token=_of("integer"), expires=_of("string"), leases=_ITEMS,
            waiting=_of("integer"),
        ),
    ),
    McpTool(
        "proposal_status",
        "Show what a reviewer decided about a proposal of yours.",
        _object(
            ("proposal",), proposal=_of("integer"),
            wait=_of("number", "Seconds to wait for the decision"),
        ),
        _proposal_status,
        is_read_only=True,
        is_idempotent=True,
        title="Show a proposal",
        output=answer_schema(
            proposal=_of("integer"), state=_of("string"), transaction=_NUMBER_OR_NULL, files=_ITEMS,
            comments=_ITEMS, reviewer_diff=_of("string"),
        ),
    ),
    McpTool(
        "withdraw_proposal",
        "Take back a proposal of yours.",
        _object(("proposal",), proposal=_of("integer")),
        _withdraw,
        title="Withdraw a proposal",
        output=answer_schema(proposal=_of("integer")),
    ),
)  # fmt: skip


def tool_named(name: str, tools: Mapping[str, McpTool]) -> McpTool:
    """Return one of the offered tools. Raises EditdError for another name."""
    if name not in tools:
        raise conversion.unknown_name("tool", name, list(tools))
    return tools[name]


def offered_tools(options: Options, *, may_ask: bool = False) -> list[McpTool]:
    """Return the tools that a client gets.

    The arguments for others' work are left out, unless the server was started for it, or may ask the user.
    """
    reaches = options.may_undo_others or may_ask
    own = list(OWN) if reaches else [_without(tool, tool.reaching) for tool in OWN]
    if options.dialects:
        own += tools_of([*known_dialects(), *options.described], options.dialects)
    return [tool for tool in own if options.offers(tool.name, tool.is_read_only)]


def listing(tool: McpTool) -> dict[str, Any]:
    """Return the tool as `tools/list` answers it."""
    return {
        "name": tool.name,
        "title": tool.title,
        "description": tool.description,
        "inputSchema": dict(tool.schema),
        "outputSchema": dict(tool.output),
        "annotations": {
            "readOnlyHint": tool.is_read_only,
            # MCP: only a tool that changes something can be destructive
            **({} if tool.is_read_only else {"destructiveHint": tool.is_destructive}),
            "idempotentHint": tool.is_idempotent,
            "openWorldHint": False,
        },
    }


def _without(tool: McpTool, names: frozenset[str]) -> McpTool:
    properties = {name: about for name, about in tool.schema["properties"].items() if name not in names}
    return msgspec.structs.replace(tool, schema={**tool.schema, "properties": properties})


# ── The tools of other systems ────────────────────────────────────────────────────────────────

_ANSWER = answer_schema(
    answer={"type": "string", "description": "The tool's answer in its own words"}, **CHANGES
)


def known_dialects() -> list[messages.DialectEntry]:
    """Return the dialects from the file beside this one, as the daemon describes them."""
    with open(os.path.join(os.path.dirname(__file__), DIALECTS), "rb") as file:
        return convert(json.load(file), messages.DialectsResult).dialects


def offered_names(chosen: Sequence[str], described: Iterable[messages.DialectEntry] = ()) -> list[str]:
    """Return the names of editd's own tools and of the chosen dialects' tools.

    Raises EditdError (`invalid_params`) for an unknown dialect.
    """
    entries = [*known_dialects(), *described] if chosen else []
    names = {entry.name: [tool.name for tool in entry.tools] for entry in entries}
    return [tool.name for tool in OWN] + [name for _, _, name in _name_tools(chosen, names)]


def tools_of(entries: Iterable[messages.DialectEntry], chosen: Sequence[str]) -> list[McpTool]:
    """Return the tools of the chosen dialects, in that order.

    Raises EditdError (`invalid_params`) for an unknown dialect.
    """
    known = {(entry.name, tool.name): tool for entry in entries for tool in entry.tools}
    names = {entry.name: [tool.name for tool in entry.tools] for entry in entries}
    return [
        McpTool(
            name,
            (tool := known[dialect, original]).description,
            tool.schema,
            _runner(dialect, original),
            is_read_only=tool.read_only,
            is_destructive=tool.destructive,
            is_idempotent=tool.idempotent,
            is_own=False,
            title=f"{original} ({dialect})",
            output=_ANSWER,
        )
        for dialect, original, name in _name_tools(chosen, names)
    ]


def _name_tools(chosen: Sequence[str], tools: Mapping[str, Sequence[str]]) -> list[tuple[str, str, str]]:
    """Return each tool of the chosen dialects: its dialect, its name there, and its name here.

    If two dialects, or a dialect and editd, share a name, it gets the dialect's name as a prefix
    (`cline_replace`).
    """
    for dialect in chosen:
        if dialect not in tools:
            raise unknown_name("dialect", dialect, list(tools))
    picked = [(dialect, tool) for dialect in dict.fromkeys(chosen) for tool in tools[dialect]]
    times = Counter([*(tool for _, tool in picked), *(tool.name for tool in OWN)])
    return [(dialect, tool, tool if times[tool] == 1 else f"{dialect}_{tool}") for dialect, tool in picked]


def _runner(dialect: str, tool: str) -> Callable[[ToolCall], ToolResult]:
    def run(call: ToolCall) -> ToolResult:
        edit = messages.Tool(dialect=dialect, tool=tool, args=call.arguments)
        result = call.client.apply([edit], request_id=call.request_id, wait=call.wait or None)
        text: Any = result.answers[0] if isinstance(result.answers, list) else None
        return conversion.edit_result(result, says=text or "")

    return run
