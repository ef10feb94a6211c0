"""Queries of the files and the history, blame, and the net effect of transactions. Read-only."""

from __future__ import annotations

import heapq
import re
import time
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from editd.edits.line_changes import count_lines, unchanged_lines
from editd.engine.external_changes import recorded_state
from editd.engine.path_history import held_after
from editd.errors import HistoryDamaged, NotAFile, PathOutside
from editd.values.content import Change
from editd.values.path import is_among

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from editd.store.history import History
    from editd.store.index_tables import LogQuery
    from editd.values.content import Entry, FileState, Version
    from editd.values.path import WorkspacePath
    from editd.values.transaction import Seq, Transaction
    from editd.workspace.reader import WorkspaceReader


class Queries:
    """The read-only queries of one workspace."""

    def __init__(self, history: History, tree: WorkspaceReader) -> None:
        self._history = history
        self._tree = tree

    def states(self, paths: Sequence[WorkspacePath]) -> list[FileState | None]:
        """Return the present state of each path, None for a folder and the like. Notes no read."""
        states: list[FileState | None] = []
        for path in paths:
            try:
                states.append(self._tree.read(self._tree.resolve_folder(path)))
            except NotAFile:
                states.append(None)
        return states

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
            before = recorded_state(held_after(path, start, self._history), self._history)
            after = self._now_or_at(path, end)
            if before != after:
                changes.append(Change(path, before, after))
        return tuple(changes)

    def _now_or_at(self, path: WorkspacePath, end: int | None) -> FileState | None:
        if end is not None:
            return recorded_state(self._history.entry_at(path, end), self._history)
        try:
            return self._tree.read(path)
        except (NotAFile, PathOutside):  # now a folder, or below a symlink
            return None


def changes_of(transaction: Transaction, history: History) -> tuple[Change[FileState], ...]:
    """Return the changes of a transaction, with their content. Raises HistoryDamaged."""
    return tuple(
        Change(
            touch.path,
            recorded_state(touch.before, history),
            recorded_state(touch.after, history),
            touch.source,
        )
        for touch in transaction.touches
    )


# Blame: the transaction that introduced each line of a file.
#
# The search starts at the newest version of the file and follows the index back, through moves. A line that
# the previous version has is passed on to that version. The other lines came with the current transaction.
# An undo brings back lines that are older than itself. They are searched in the file before the
# transactions that the undo takes back, so that they keep their author. If a file returns to an earlier
# version (by a checkout there and back, `git stash pop` or a restore), its lines keep the authors of that
# version.
#
# A file may have many versions, so `run_for` works for a limited time and can be called again.

TAKEN_BACK_MAX = 50  # transactions of one undo that are searched; the undo gets the lines from others
TAKING_BACK = ("undo", "redo", "rollback")
CONTENTS_MAX = 8  # cached versions: the current one and its predecessors

Lines = dict[int, int]  # line number in the file now → line number in the older version


class LineBlame:
    """A search for the transaction of each line, in steps. `seqs` has the result so far."""

    def __init__(
        self, history: History, path: WorkspacePath, version: Version, wanted: range | None = None
    ) -> None:
        """Blame the lines of `path`, which holds `version` after the newest transaction.

        If `wanted` is given, blame only the lines with these indexes.
        """
        self._history = history
        self._contents: dict[Version, bytes] = {}
        lines = count_lines(self._content(version))
        self.seqs = [history.floor.seq] * lines  # of each line; an untouched line is the baseline's
        self._suspects: dict[tuple[int, WorkspacePath], tuple[Change[Entry], Lines]] = {}
        self._order: list[tuple[int, WorkspacePath]] = []  # a heap: the newest transaction first
        self._suspect(path, int(history.head), {line: line for line in (wanted or range(lines))})

    def run_for(self, seconds: float) -> bool:
        """Continue the search for about `seconds`. Return whether it is complete."""
        until = time.monotonic() + seconds
        while self._order:
            negative, path = heapq.heappop(self._order)
            touch, lines = self._suspects.pop((-negative, path))
            self._attribute(-negative, touch, lines)
            if time.monotonic() > until:
                break
        return not self._order

    def _suspect(self, path: WorkspacePath, through: int, lines: Lines) -> None:
        """Queue these lines for the newest transaction up to `through` that touched `path`, if any."""
        latest = self._history.index.touch_at(path, through)
        if latest is None or not lines:
            return
        seq, touch = latest
        if (seq, path) in self._suspects:
            self._suspects[seq, path][1].update(lines)
            return
        self._suspects[seq, path] = touch, lines
        heapq.heappush(self._order, (-seq, path))

    def _attribute(self, seq: int, touch: Change[Entry], lines: Lines) -> None:
        """Pass on the lines that the parents have. Attribute the others to this transaction."""
        assert touch.after is not None, "a file that is blamed was not deleted last"
        # An edit that writes an earlier text again is its author. A checkout or a restore is not.
        is_edit = self._history.index.made(seq).kind == "edit"
        left = None if is_edit else self._left_by(touch.path, touch.after.version, seq)
        if left is not None:
            self._suspect(touch.path, left - 1, lines)
            return
        for path, before in self._parents(seq, touch):
            entry = self._history.entry_at(path, before)
            if entry is None or not lines:
                continue
            kept = self._kept(entry.version, touch.after.version, lines)
            self._suspect(path, before, kept)
            lines = {line: here for line, here in lines.items() if line not in kept}
        for line in lines:
            self.seqs[line] = seq

    def _left_by(self, path: WorkspacePath, version: Version, seq: int) -> int | None:
        """Return the newest transaction before `seq` that replaced `version` at `path`.

        Return None if there is none, or if that transaction moved the file away.
        """
        index = self._history.index
        left = index.version_left_by(path, version, seq)
        if left is None or left <= self._history.floor.seq:
            return None
        return None if any(at == left for at, _ in index.moves_from(path)) else left

    def _kept(self, before: Version, after: Version, lines: Lines) -> Lines:
        if before == after:
            return lines
        in_order = sorted(lines.items(), key=lambda pair: pair[1])
        origins = unchanged_lines(self._content(before), self._content(after), [at for _, at in in_order])
        return {line: origins[at] for line, at in in_order if at in origins}

    def _parents(self, seq: int, touch: Change[Entry]) -> Iterator[tuple[WorkspacePath, int]]:
        """Yield the previous homes of the lines: a path, and the transaction after which to read it."""
        if touch.before is not None:
            yield touch.path, seq - 1
        if touch.source is not None:
            yield touch.source, seq - 1
        if self._history.index.made(seq).kind not in TAKING_BACK:
            return
        undoing = self._history.index.transaction(seq)
        for undone in () if undoing is None else undoing.undoes[:TAKEN_BACK_MAX]:
            if undone > self._history.floor.seq:  # the older ones are compacted
                yield self._name_before(touch, seq, undone), undone - 1
                moves = self._history.index.moves_from(touch.path)
                yield from ((to, seq - 1) for at, to in moves if at == undone)  # its path until this undo

    def _name_before(self, touch: Change[Entry], seq: int, undone: int) -> WorkspacePath:
        """Return the path, before transaction `undone`, of the file that `seq` touched. `seq` undoes it."""
        index, path = self._history.index, touch.source or touch.path
        if index.touch_in(touch.path, undone) is not None:
            return touch.path
        while moves := [(at, move) for at, move in index.moves_to(path) if undone <= at < seq]:
            seq, move = moves[-1]
            path = move.source or path
        return path

    def _content(self, version: Version) -> bytes:
        content = self._contents.pop(version, None)
        if content is None:
            content = self._history.content(version)
        if content is None:
            raise HistoryDamaged(
                f"The history no longer has the content {version[:12]}.",
                hint="Restore the git objects of your repository from a clone or a backup: only they had it.",
                data={"version": version},
            )
        self._contents[version] = content
        if len(self._contents) > CONTENTS_MAX:
            del self._contents[next(iter(self._contents))]
        return content


# Net changes: the transactions of a session, or of a range, as runs of changes for each path. Pure.
#
# The changes of others are left out. If another author changed a file between two of the transactions, the
# path has two runs, and each run is merged separately.

_SPAN = re.compile(r"\b(\d{1,18})(?:-(\d{1,18}))?\b")


class PathChanges(Struct, frozen=True):
    """A run: the states of one path, first to last, without a change by another author in between.

    If `source` is set, the file was moved from there to `path`, and the first state is that of the source.
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
