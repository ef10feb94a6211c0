"""Restore: bring the workspace, or some paths, back to their content right after a transaction.

A file that is not in the history stays as it is. A file that already has the wanted content is not written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from editd.advice import Advice, method_term
from editd.engine.undo_selection import seq_at, times_warning
from editd.errors import FileMissing, InvalidParams, NothingToUndo
from editd.store.index_tables import LogQuery
from editd.store.path_history import HistoryWalker, entry_after, is_recorded
from editd.store.recorded_state import recorded_state
from editd.values.content import Change
from editd.values.path import WorkspacePath, folders_of, is_among
from editd.values.transaction import Seq, entry_number
from editd.wire.messages import BEFORE_NEWEST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from editd.engine.commands import Restore
    from editd.store.history import History
    from editd.values.content import FileState


def restore(
    request: Restore, history: History, current: Callable[[WorkspacePath], FileState | None]
) -> tuple[str, tuple[Change[FileState], ...], tuple[str, ...]]:
    """Return the name of the restored state, the changes that lead back to it, and warnings.

    Raises UnknownTransaction, InvalidParams, HistoryDamaged, and FileMissing for a path that was never in
    the history.
    """
    if request.to == BEFORE_NEWEST:
        return "the versions before the newest changes", _before_newest(request, history, current), ()
    if request.files is not None:
        return f"entry {request.to}", _to_entry(request, request.files, history, current), ()
    seq = history.find(seq_at(request.to, history)).seq
    warnings = times_warning(None, request.to, history)
    return f"transaction {seq}", _to_transaction(request, seq, history, current), warnings


def _to_transaction(
    request: Restore, seq: Seq, history: History, current: Callable[[WorkspacePath], FileState | None]
) -> tuple[Change[FileState], ...]:
    touched = _choose(request, history.index.changed_paths(seq, int(history.head)), history)
    changes = [
        Change(path, current(path), recorded_state(entry_after(path, seq, history), history))
        for path in touched
    ]
    return _with_moves([change for change in changes if change.before != change.after], seq, history)


def _before_newest(
    request: Restore, history: History, current: Callable[[WorkspacePath], FileState | None]
) -> tuple[Change[FileState], ...]:
    """Return the changes that take each named path back to the state before its newest change.

    A file in a named folder that is named itself has its own state. Raises NothingToUndo.
    """
    changes: dict[WorkspacePath, Change[FileState]] = {}
    for path in sorted(request.paths or (), key=lambda path: path.text.count("/")):
        alone = replace(request, paths=(path,))
        for known in [known for known in changes if is_among(known, frozenset((path,)))]:
            del changes[known]
        seq = Seq(state_before(request, path, history))
        changes |= {change.path: change for change in _to_transaction(alone, seq, history, current)}
    return tuple(changes[path] for path in sorted(changes))


def state_before(request: Restore, path: WorkspacePath, history: History) -> int:
    """Return the transaction after which `path` had the content that a restore brings back.

    Raises UnknownTransaction, InvalidParams, and NothingToUndo for a path without a change.
    """
    if request.to != BEFORE_NEWEST:
        return int(history.find(seq_at(request.to, history)).seq)
    named = [one for one in request.paths or () if is_among(path, frozenset((one,)))]
    if not named:
        raise InvalidParams("`to: before_newest` needs `paths`.", hint="Name the files to restore.")
    nearest = max(named, key=lambda one: one.text.count("/"))
    newest = history.index.log(LogQuery(paths=(nearest,)), 1, files=False)
    if not newest or newest[0].kind == "baseline":
        raise NothingToUndo(
            f"{nearest} has no change.",
            hint=Advice("Use ", method_term("log"), " to see the history."),
            data={"path": nearest.text},
        )
    return int(newest[0].seq) - 1


def _to_entry(
    request: Restore,
    files: Mapping[WorkspacePath, FileState | None],
    history: History,
    current: Callable[[WorkspacePath], FileState | None],
) -> tuple[Change[FileState], ...]:
    """Return the changes that lead to an entry of the log, whose differing files are known."""
    changes: list[Change[FileState]] = []
    for path in _choose(request, files, history):
        now = current(path)
        after = files[path] if path in files else recorded_state(history.entry(path), history)
        if now is not None and after is not None and after.permissions is None:
            after = now.with_mode(after.mode).with_content(after.content)
        if now != after:
            changes.append(Change(path, now, after))
    number = entry_number(str(request.to))
    known = None if number is None else history.index.entry(number)
    seq = None if known is None else known[0]
    return tuple(changes) if seq is None else _with_moves(changes, Seq(seq), history)


def _choose(request: Restore, touched: Iterable[WorkspacePath], history: History) -> list[WorkspacePath]:
    """Return the touched paths that a restore is about, and the paths that it names. Raises FileMissing."""
    chosen = list(touched)
    if request.paths is not None:
        wanted = frozenset(request.paths)
        chosen = [path for path in chosen if is_among(path, wanted)]
        covered = {ancestor for path in chosen for ancestor in (path, *folders_of(path))}
        for path in request.paths:
            if path not in covered:
                chosen += _recorded_file(path, history)
    return sorted(set(chosen))


def _with_moves(
    changes: Sequence[Change[FileState]], seq: Seq, history: History
) -> tuple[Change[FileState], ...]:
    """Return the changes with moves: a file that was moved after `seq` is moved back.

    If several files were merged into one, it goes back to the path with the same content.
    """
    past = HistoryWalker(history)
    gone = {change.path: change.before for change in changes if change.after is None}
    moved: dict[WorkspacePath, Change[FileState]] = {}  # by the path of the file now
    for change in changes if gone else ():
        if change.after is None:
            continue
        now = past.follow_path(change.path, seq)
        if not now.exists or now.path not in gone:
            continue
        if now.path not in moved or change.after == gone[now.path]:
            moved[now.path] = change
    sources = {change.path: present_path for present_path, change in moved.items()}
    return tuple(Change(c.path, c.before, c.after, sources.get(c.path)) for c in changes)


def _recorded_file(path: WorkspacePath, history: History) -> list[WorkspacePath]:
    """Return `path` if it is a recorded file, and nothing if it is a folder or was deleted before.

    No later transaction changed it, but the file on disk may differ. Raises FileMissing if the path was never
    in the history, because a misspelled path must not look like success.
    """
    if history.entry(path) is not None:
        return [path]
    if not is_recorded(path, history):
        raise FileMissing(
            f"{path} was never in the history.",
            hint=Advice(
                "Check the path with ", method_term("log"), ". Paths are relative to the workspace's root."
            ),
            data={"path": path.text},
        )
    return []
