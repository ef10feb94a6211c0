"""Restore: the workspace, or some paths, as the history says they were right after a transaction.

Only what the history knows is looked at: a file that it never saw stays, and one that holds already what it
is to hold is not written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from editd.engine.external_changes import recorded_state
from editd.engine.undo import HistoryWalker
from editd.engine.undo_selection import seq_at
from editd.errors import FileMissing
from editd.store.index import LogQuery
from editd.values.changeset import Change
from editd.values.path import folders_of, is_among

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from editd.engine.commands import Restore
    from editd.store.history import History
    from editd.values.content import FileState
    from editd.values.path import WorkspacePath
    from editd.values.transaction import Entry, Seq


def restore(
    request: Restore, history: History, current: Callable[[WorkspacePath], FileState | None]
) -> tuple[Seq, tuple[Change, ...]]:
    """The transaction that is meant, and the changes that lead back to it.

    Raises UnknownTransaction, InvalidParams, HistoryDamaged, and FileMissing for a path that the history
    knows nothing of.
    """
    seq = history.find(seq_at(request.to, history)).seq
    touched = list(history.index.changed_paths(seq, int(history.head)))
    if request.paths is not None:
        wanted = frozenset(request.paths)
        touched = [path for path in touched if is_among(path, wanted)]
        reached = {place for path in touched for place in (path, *folders_of(path))}
        for given in request.paths:
            if given not in reached:
                touched += _unchanged(given, history)
    changes = [
        Change(path, current(path), recorded_state(held_after(path, seq, history), history))
        for path in sorted(set(touched))
    ]
    return seq, _with_moves([change for change in changes if change.before != change.after], seq, history)


def _with_moves(changes: Sequence[Change], seq: Seq, history: History) -> tuple[Change, ...]:
    """The same; a file that was moved after `seq`, and is not to be there any more, is moved back.

    One file goes back to one path: if more than one came together in it, to that whose bytes it has.
    """
    past = HistoryWalker(history)
    gone = {change.path: change.before for change in changes if change.after is None}
    moved: dict[WorkspacePath, Change] = {}  # by where it is moved back from
    for change in changes if gone else ():
        if change.after is None:
            continue
        here, is_there = past.follow_path(change.path, seq)
        if is_there and here in gone and (here not in moved or change.after == gone[here]):
            moved[here] = change
    sources = {change.path: here for here, change in moved.items()}
    return tuple(Change(c.path, c.before, c.after, sources.get(c.path)) for c in changes)


def held_after(path: WorkspacePath, seq: int, history: History) -> Entry | None:
    """What `path` held right after `seq`, as far as the history knows.

    A file that came into it later as it was (kind `baseline`) is taken to have been so all along.
    """
    index = history.index
    if index.touch_at(path, seq) is None:
        later = index.touch_after(path, seq)
        if later is not None and later[1].before is None and index.kind_of(later[0]) == "baseline":
            return later[1].after
    return history.entry_at(path, seq)


def _unchanged(path: WorkspacePath, history: History) -> list[WorkspacePath]:
    """What no later transaction has changed at `path`: the file, which may differ for all that.

    A path that never was in the history is refused: a wrong name would else look like success.
    """
    if history.entry(path) is not None:
        return [path]
    files, folders = history.folder_at_head(path.text)
    if not files and not folders and not history.index.log(LogQuery(paths=(path,)), 1):
        raise FileMissing(
            f"The history knows nothing of {path}.",
            hint="`log` with a path shows what happened to it; paths are relative to the workspace's root.",
            data={"path": path.text},
        )
    return []
