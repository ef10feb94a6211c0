"""How much work a request is, estimated before it is planned, for the scheduling of requests."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from editd.engine.commands import Apply, Arrive, Undo
from editd.engine.undo_selection import ByTransaction, LastUndoOf, Latest, newest_of
from editd.errors import Refused
from editd.values.path import WorkspacePath
from editd.wire import messages

if TYPE_CHECKING:
    from editd.engine.commands import Write
    from editd.engine.undo_selection import Scope
    from editd.store.history import History
    from editd.tool_api.tool_set import ToolSet
    from editd.values.transaction import Transaction
    from editd.workspace.reader import WorkspaceReader

EDIT_BYTES = 4096  # weight of an edit without its content: 100 edits take as long as 400 KB
TEXT_EDIT_BYTES = 1024  # of LSP's text edits, each placed separately
MERGED_BYTES = 512 * 1024  # of an undo with later changes of its files: it merges, or searches for the cause
PATCH_BYTES = 1024 * 1024  # estimated, because the touched files are not known yet
UNDO_BYTES = 2 * 1024 * 1024  # likewise: it may be any number of files
UNDO_TOUCHES_MAX = 16  # paths of an undone transaction whose bytes are counted; more of them are heavy
TOOL_BYTES = 1024 * 1024  # a tool may search a long file many times
WEIGHT_MAX = 2 * 1024 * 1024  # a request of this weight is large, so no more of its files are looked at
PASS_BYTES = 1024  # of arguments: a tool may go through the file once for each


def weight_of(request: Write, history: History, tree: WorkspaceReader, tooling: ToolSet) -> int:
    """Estimate how many bytes a request will read, hash and write, up to `WEIGHT_MAX` or a little more."""
    if isinstance(request, Undo):
        return _weight_of_undo(request.scope, history)
    if not isinstance(request, Apply):
        return _weight_of_arrival(request) if isinstance(request, Arrive) else UNDO_BYTES
    total = len(request.edits) * EDIT_BYTES
    for edit in request.edits:
        if total >= WEIGHT_MAX:
            break
        if isinstance(edit, messages.Write):
            total += len(edit.content)
        elif isinstance(edit, messages.Patch):
            total += len(edit.patch) + PATCH_BYTES
        elif isinstance(edit, messages.Tool):
            total += _weight_of_tool(edit, tree, tooling)
        else:
            total += len(edit.edits) * TEXT_EDIT_BYTES if isinstance(edit, messages.EditText) else 0
            with contextlib.suppress(Refused, OSError):
                entry = tree.entry(WorkspacePath.parse(edit.path))
                total += 0 if entry is None else entry.size
    return total


def _weight_of_tool(call: messages.Tool, tree: WorkspaceReader, tooling: ToolSet) -> int:
    """Return the weight of a call by the size of its file, if its tool's work is in proportion to that."""
    with contextlib.suppress(Refused, OSError):
        given = call.args.get(tooling.tool(call).searched)
        entry = tree.entry(tooling.paths.parse(given)) if isinstance(given, str) else None
        if entry is not None and entry.kind == "file":
            arguments = sum(len(value) for value in call.args.values() if isinstance(value, str))
            return (entry.size + PASS_BYTES) * (1 + arguments // PASS_BYTES)
    return TOOL_BYTES


def _weight_of_arrival(request: Arrive) -> int:
    return sum(EDIT_BYTES + (0 if state is None else len(state.content)) for state in request.after.values())


def _weight_of_undo(scope: Scope, history: History) -> int:
    """Return the weight of an undo of one transaction, if that is the named or the newest one.

    The files count as the history has them: an undo reads the recorded state, and what others did to it since
    is merged, or refused.
    """
    try:
        target = _single_target(scope, history)
    except Refused:  # planning raises the same refusal
        return EDIT_BYTES
    if target is None or len(target.touches) > UNDO_TOUCHES_MAX:
        return UNDO_BYTES
    total, has_stayed = 0, True
    for touch in target.touches:
        total += EDIT_BYTES
        for side in (touch.before, touch.after):
            total += 0 if side is None else history.size_of(side.version)
        has_stayed = has_stayed and history.index.has_stayed(touch.path, target.seq)
    return total if has_stayed else total + MERGED_BYTES


def _single_target(scope: Scope, history: History) -> Transaction | None:
    """Return the only transaction that an undo is about, or None if it may be about several or many paths.

    Raises UnknownTransaction.
    """
    if isinstance(scope, ByTransaction):
        seq = scope.tx if isinstance(scope.tx, int) else history.seq_of(scope.tx)
        return history.index.small(seq, UNDO_TOUCHES_MAX)
    if isinstance(scope, LastUndoOf) and scope.is_named:  # not always the newest of the query
        return None
    if isinstance(scope, LastUndoOf) or (isinstance(scope, Latest) and scope.last == 1):
        return history.index.newest_in_force(newest_of(scope))
    return None
