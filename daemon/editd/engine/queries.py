"""Queries of the files and the history, blame, and the net effect of transactions. Read-only."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from editd.errors import NotAFile, PathOutside
from editd.store.path_history import entry_after
from editd.store.recorded_state import shown_state
from editd.values.content import Change
from editd.values.path import is_among

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from editd.edits.pending_changes import PendingChanges
    from editd.store.history import History
    from editd.store.index_tables import LogQuery
    from editd.values.content import Entry, FileState
    from editd.values.path import WorkspacePath
    from editd.values.transaction import Seq, Transaction
    from editd.workspace.reader import WorkspaceReader


class Queries:
    """The read-only queries of one workspace."""

    def __init__(self, history: History, tree: WorkspaceReader) -> None:
        self._history = history
        self._tree = tree

    def states(
        self, paths: Iterable[WorkspacePath], pending: PendingChanges | None = None
    ) -> list[FileState | None]:
        """Return the state of each path, None for a folder and the like. Notes no read.

        The files are the present ones, with the pending changes on top.
        """
        put = {} if pending is None else pending.states
        return [put[path] if path in put else self._now(path, put) for path in paths]

    def _now(self, path: WorkspacePath, put: Mapping[WorkspacePath, FileState | None]) -> FileState | None:
        try:
            here = self._tree.resolve_folder(path)
            return put[here] if here in put else self._tree.read(here)
        except NotAFile:
            return None

    def transactions(
        self, wanted: LogQuery, limit: int, *, files: bool = True
    ) -> tuple[list[Transaction], bool]:
        """Return the newest `limit` matching transactions, and whether there are more.

        Without `files`, the transactions have no touches.
        """
        matches = self._history.index.log(wanted, limit + 1, files=files)
        return matches[:limit], len(matches) > limit

    def changes_between(
        self, start: int, end: int | None, paths: Sequence[WorkspacePath] | None = None
    ) -> tuple[Change[FileState], ...]:
        """Return the changes between two transactions. If `end` is None, compare with the present files."""
        through = self._history.head if end is None else end
        low, high = min(start, through), max(start, through)
        changes: list[Change[FileState]] = []
        wanted = None if paths is None else frozenset(paths)
        candidates = set(self._history.index.changed_paths(low, high))
        if end is None and paths is not None:
            candidates.update(paths)
        for path in sorted(candidates):
            if wanted is not None and not is_among(path, wanted):
                continue
            before = shown_state(entry_after(path, start, self._history), self._history)
            after = self._now_or_at(path, end)
            if before != after:
                changes.append(Change(path, before, after))
        return tuple(changes)

    def with_present_files(
        self, changes: Sequence[Change[FileState]], through: int, paths: Sequence[WorkspacePath] | None
    ) -> tuple[Change[FileState], ...]:
        """Return changes to the files after transaction `through` as changes to the present files."""
        before = {change.path: change.before for change in changes}
        touched = {
            *before,
            *self._history.index.changed_paths(through, int(self._history.head)),
            *(paths or ()),
        }
        found: list[Change[FileState]] = []
        for path in sorted(touched):
            known = before[path] if path in before else self._now_or_at(path, through)
            now = self._now_or_at(path, None)
            if known != now:
                found.append(Change(path, known, now))
        return tuple(found)

    def _now_or_at(self, path: WorkspacePath, end: int | None) -> FileState | None:
        if end is not None:
            return shown_state(self._history.entry_at(path, end), self._history)
        try:
            return self._tree.read(path)
        except (NotAFile, PathOutside):  # now a folder, or below a symlink
            return None


def changes_of(transaction: Transaction, history: History) -> tuple[Change[FileState], ...]:
    """Return the changes of a transaction, with their content (`shown_state`). Raises HistoryDamaged."""
    return tuple(
        Change(
            touch.path,
            shown_state(touch.before, history),
            shown_state(touch.after, history),
            touch.source,
        )
        for touch in transaction.touches
    )


# Net changes: the transactions of a session, or of a range, as runs of changes for each path. Pure.
#
# The changes of others are left out. If another author changed a file between two of the transactions, the
# path has two runs, and each run is merged separately.

_SPAN = re.compile(r"\b(\d{1,18})(?:-(\d{1,18}))?\b")


class PathChanges(Struct, frozen=True):
    """A run: the states of one path, first to last, without a change by another author in between.

    If `source` is set, the file was moved from there to `path`, and the first state is the source's.
    """

    path: WorkspacePath
    states: tuple[Entry | None, ...]
    seqs: tuple[int, ...]  # the transaction of each state except the first
    source: WorkspacePath | None = None


def effective(transactions: Iterable[Transaction]) -> list[Transaction]:
    """Return the transactions that are in force, each with the touches that are in force.

    An undone transaction or path is left out, and its undo as well. An undo of another author's work is kept.
    """
    by_seq = {transaction.seq: transaction for transaction in transactions if transaction.kind != "baseline"}
    in_force: list[Transaction] = []
    for transaction in by_seq.values():
        if transaction.undone_by is not None or _cancels_out(transaction, by_seq):
            continue
        left = tuple(touch for touch in transaction.touches if touch.undone_by is None)
        if left:
            in_force.append(replace(transaction, touches=left))
    return in_force


def path_changes(transactions: Iterable[Transaction]) -> list[PathChanges]:
    """Return the runs of `transactions`, which are in rising order. Merge the runs in their order."""
    runs: list[_GrowingRun] = []
    last: dict[WorkspacePath, _GrowingRun] = {}
    for transaction in transactions:
        by_path = {touch.path: touch for touch in transaction.touches}
        moved = {touch.source for touch in transaction.touches if _is_move(touch, by_path)}
        for touch in transaction.touches:
            if touch.path in moved:
                last.pop(touch.path, None)
                continue
            known = last.get(touch.path)
            if touch.source is not None and touch.source in moved:
                states = [by_path[touch.source].before, touch.after]
                known = _GrowingRun(touch.path, states, [], touch.source)
                runs.append(known)
            elif known is not None and _is_same(known.states[-1], touch.before):
                known.states.append(touch.after)
            else:
                known = _GrowingRun(touch.path, [touch.before, touch.after], [])
                runs.append(known)
            known.seqs.append(int(transaction.seq))
            last[touch.path] = known
    return [PathChanges(run.path, tuple(run.states), tuple(run.seqs), run.source) for run in runs]


def format_ranges(seqs: Iterable[Seq] | Iterable[int]) -> str:
    """Return numbers as text with ranges: `3-5, 9`."""
    parts: list[list[int]] = []
    for seq in sorted(seqs):
        if parts and seq == parts[-1][1] + 1:
            parts[-1][1] = seq
        else:
            parts.append([seq, seq])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


def numbers_in(spans: str, wanted: Sequence[int]) -> set[int]:
    """Return the `wanted` numbers that a text by `format_ranges` has."""
    numbers: set[int] = set()
    for first, last in _SPAN.findall(spans):
        numbers |= {seq for seq in wanted if int(first) <= seq <= int(last or first)}
    return numbers


class _GrowingRun(Struct):
    path: WorkspacePath
    states: list[Entry | None]
    seqs: list[int]
    source: WorkspacePath | None = None


def _cancels_out(transaction: Transaction, by_seq: Mapping[Seq, Transaction]) -> bool:
    """Return whether it only undoes transactions of `by_seq` that are no longer in force."""
    return bool(transaction.undoes) and all(
        seq in by_seq
        and _is_undone(by_seq[seq], {part.path for part in transaction.parts if part.seq == seq})
        for seq in transaction.undoes
    )


def _is_undone(transaction: Transaction, paths: set[WorkspacePath]) -> bool:
    """Return whether these paths of a transaction are undone. An empty set means all paths."""
    return transaction.undone_by is not None or all(
        touch.undone_by is not None for touch in transaction.touches if not paths or touch.path in paths
    )


def _is_move(touch: Change[Entry], by_path: dict[WorkspacePath, Change[Entry]]) -> bool:
    """Return whether the file left its path for a free path."""
    source = None if touch.source is None else by_path.get(touch.source)
    return source is not None and source.after is None and touch.before is None and touch.after is not None


def _is_same(first: Entry | None, second: Entry | None) -> bool:
    if first is None or second is None:
        return first is second
    return (first.mode, first.version) == (second.mode, second.version)
