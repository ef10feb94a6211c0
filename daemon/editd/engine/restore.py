"""Restore: bring the workspace, or some paths, back to their content right after a transaction.

A file that is not in the history stays as it is. A file that already has the wanted content is not written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from editd.engine.external_changes import recorded_state
from editd.engine.undo import HistoryWalker
from editd.engine.undo_selection import seq_at
from editd.errors import FileMissing
from editd.store.index_tables import LogQuery
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
    """Return the transaction to restore, and the changes that lead back to it.

    Raises UnknownTransaction, InvalidParams, HistoryDamaged, and FileMissing for a path that was never in
    the history.
    """
    seq = history.find(seq_at(request.to, history)).seq
    touched = list(history.index.changed_paths(seq, int(history.head)))
    if request.paths is not None:
        wanted = frozenset(request.paths)
        touched = [path for path in touched if is_among(path, wanted)]
        covered = {ancestor for path in touched for ancestor in (path, *folders_of(path))}
        for path in request.paths:
            if path not in covered:
                touched += _unchanged(path, history)
    changes = [
        Change(path, current(path), recorded_state(held_after(path, seq, history), history))
        for path in sorted(set(touched))
    ]
    return seq, _with_moves([change for change in changes if change.before != change.after], seq, history)


def _with_moves(changes: Sequence[Change], seq: Seq, history: History) -> tuple[Change, ...]:
    """Return the changes with moves: a file that was moved after `seq` is moved back.

    If several files were merged into one, it goes back to the path with the same content.
    """
    past = HistoryWalker(history)
    gone = {change.path: change.before for change in changes if change.after is None}
    moved: dict[WorkspacePath, Change] = {}  # by the path of the file now
    for change in changes if gone else ():
        if change.after is None:
            continue
        present_path, exists = past.follow_path(change.path, seq)
        if not exists or present_path not in gone:
            continue
        if present_path not in moved or change.after == gone[present_path]:
            moved[present_path] = change
    sources = {change.path: present_path for present_path, change in moved.items()}
    return tuple(Change(c.path, c.before, c.after, sources.get(c.path)) for c in changes)


def held_after(path: WorkspacePath, seq: int, history: History) -> Entry | None:
    """Return the recorded content of `path` right after `seq`, or None.

    A file that entered the history later (kind `baseline`) is assumed to have had that content before.
    """
    index = history.index
    if index.touch_at(path, seq) is None:
        later = index.touch_after(path, seq)
        if later is not None and later[1].before is None and index.kind_of(later[0]) == "baseline":
            return later[1].after
    return history.entry_at(path, seq)


def _unchanged(path: WorkspacePath, history: History) -> list[WorkspacePath]:
    """Return `path` if it is a recorded file, and nothing if it is a folder or was deleted before.

    No later transaction changed it, but the file on disk may differ. Raises FileMissing if the path was never
    in the history, because a misspelled path must not look like success.
    """
    if history.entry(path) is not None:
        return [path]
    files, folders = history.folder_at_head(path.text)
    if not files and not folders and not history.index.log(LogQuery(paths=(path,)), 1):
        raise FileMissing(
            f"{path} was never in the history.",
            hint="Check the path with `log`. Paths are relative to the workspace's root.",
            data={"path": path.text},
        )
    return []
