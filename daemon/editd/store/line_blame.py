"""Blame: the transaction that introduced each line of a file.

The search starts at the newest version of the file and follows the index back, through moves. A line that
the previous version has is passed on to that version. The other lines came with the current transaction.

An undo brings back lines that are older than itself. They are searched in the file before the transactions
that the undo takes back, so that they keep their author. If a file returns to an earlier version (by a
checkout there and back, `git stash pop` or a restore), its lines keep the authors of that version.

A file may have many versions, so `run_for` works for a limited time and can be called again. Lines are kept
as runs, because a large file has many lines and few changes.
"""

from __future__ import annotations

import heapq
import time
from bisect import bisect_right
from typing import TYPE_CHECKING, Protocol

from editd.edits.comparison import NeedsComparison
from editd.edits.line_changes import UnchangedRun, count_lines, unchanged_runs
from editd.errors import HistoryDamaged
from editd.values.content import with_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from editd.store.git_repository import HistoryStart
    from editd.store.index import Index
    from editd.values.content import Change, Entry, Version
    from editd.values.path import WorkspacePath

TAKEN_BACK_MAX = 50  # transactions of one undo that are searched; the undo gets the lines from others
TAKING_BACK = ("undo", "redo", "rollback")
CONTENTS_MAX = 8  # cached versions: the current one and its predecessors

Lines = list[UnchangedRun]  # `start` is a line of the file now, `origin` a line of the older version


class LineHistory(Protocol):
    """The parts of a history that the search for the origin of lines needs."""

    @property
    def index(self) -> Index: ...

    @property
    def floor(self) -> HistoryStart: ...

    @property
    def head(self) -> int: ...

    def entry_at(self, path: WorkspacePath, seq: int) -> Entry | None: ...

    def content(self, version: Version) -> bytes | None: ...

    def is_dropped(self, version: Version) -> bool: ...


def divide(lines: Lines, unchanged: Sequence[UnchangedRun]) -> tuple[Lines, Lines]:
    """Divide lines of a version into those in `unchanged` runs, with their origins, and the others."""
    kept: Lines = []
    others: Lines = []
    ends = [run.start + run.count for run in unchanged]
    for line in lines:
        at, end, ahead = line.origin, line.origin + line.count, line.start - line.origin
        index = bisect_right(ends, at)
        while at < end:
            run = unchanged[index] if index < len(unchanged) else None
            start = end if run is None else min(max(run.start, at), end)
            if start > at:
                others.append(UnchangedRun(at + ahead, at, start - at))
            if run is None or start == end:
                break
            stop = min(run.start + run.count, end)
            kept.append(UnchangedRun(start + ahead, run.origin + start - run.start, stop - start))
            at, index = stop, index + 1
    return kept, others


class LineBlame:
    """A search for the transaction of each line, in steps. `seqs` has the result so far."""

    def __init__(
        self,
        history: LineHistory,
        path: WorkspacePath,
        version: Version,
        wanted: range | None = None,
        through: int | None = None,
    ) -> None:
        """Blame the lines of `path`, which holds `version` after transaction `through` (None: the newest).

        If `wanted` is given, blame only the lines with these indexes, as far as there are such lines.
        """
        self._history = history
        self._contents: dict[Version, bytes] = {}
        lines = count_lines(self._content(version))
        self.seqs = [history.floor.seq] * lines  # of each line; an untouched line is the baseline's
        self.gaps: set[int] = set()
        """The transactions after left out contents: lines that these had may count as theirs."""
        self._suspects: dict[tuple[int, WorkspacePath], tuple[Change[Entry], Lines]] = {}
        self._order: list[tuple[int, WorkspacePath]] = []  # a heap: the newest transaction first
        searched = range(lines) if not wanted else range(wanted.start, min(wanted.stop, lines))
        newest = int(history.head) if through is None else through
        self._suspect(path, newest, [UnchangedRun(searched.start, searched.start, len(searched))])

    def run_for(self, seconds: float) -> bool:
        """Continue the search for about `seconds`. Return whether it is complete.

        Raises NeedsComparison, and can then be called again with its result.
        """
        until = time.monotonic() + seconds
        while self._order:
            negative, path = heapq.heappop(self._order)
            touch, lines = self._suspects[-negative, path]
            try:
                self._attribute(-negative, touch, lines)
            except NeedsComparison:
                heapq.heappush(self._order, (negative, path))
                raise
            del self._suspects[-negative, path]
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
            self._suspects[seq, path][1].extend(lines)
            return
        self._suspects[seq, path] = touch, list(lines)
        heapq.heappush(self._order, (-seq, path))

    def _attribute(self, seq: int, touch: Change[Entry], lines: Lines) -> None:
        """Pass on the lines that the parents have. Attribute the others to this transaction."""
        assert touch.after is not None, "a file that is blamed was not deleted last"
        # An edit that writes an earlier text again is its author. A checkout or a restore is not.
        is_edit = self._history.index.origin_of(seq).kind == "edit"
        left = None if is_edit else self._replacement_before(touch.path, touch.after.version, seq)
        if left is not None:
            self._suspect(touch.path, left - 1, lines)
            return
        passed: list[tuple[WorkspacePath, int, Lines]] = []
        for parent in self._parents(seq, touch):
            path, before, entry = self._readable(*parent, seq)
            if entry is None or not lines:
                continue
            kept, lines = self._divide(entry.version, touch.after.version, lines)
            passed.append((path, before, kept))
        for path, before, kept in passed:  # after the last comparison, which may have to wait for its result
            self._suspect(path, before, kept)
        for run in lines:
            self.seqs[run.start : run.start + run.count] = [seq] * run.count

    def _readable(
        self, path: WorkspacePath, before: int, seq: int
    ) -> tuple[WorkspacePath, int, Entry | None]:
        """Return a parent of transaction `seq` with its content, or the newest one before a gap."""
        entry = self._history.entry_at(path, before)
        while entry is not None and self._history.is_dropped(entry.version):
            self.gaps.add(seq)
            path, before, entry = self._older(path, before)
        return path, before, entry

    def _older(self, path: WorkspacePath, through: int) -> tuple[WorkspacePath, int, Entry | None]:
        """Return the state of a file before the newest transaction up to `through` that touched it.

        The path is its path then, and the number the last transaction before that one.
        """
        latest = self._history.index.touch_at(path, through)
        if latest is None:
            return path, through, None
        seq, touch = latest
        if touch.source is not None and touch.before is None:
            return touch.source, seq - 1, self._history.entry_at(touch.source, seq - 1)
        return path, seq - 1, touch.before

    def _replacement_before(self, path: WorkspacePath, version: Version, seq: int) -> int | None:
        """Return the newest transaction before `seq` that replaced `version` at `path`.

        Return None if there is none, or if that transaction moved the file away.
        """
        index = self._history.index
        left = index.version_left_by(path, version, seq)
        if left is None or left <= self._history.floor.seq:
            return None
        return None if any(at == left for at, _ in index.moves_from(path)) else left

    def _divide(self, before: Version, after: Version, lines: Lines) -> tuple[Lines, Lines]:
        """Divide lines of `after` into lines that `before` has, with their numbers there, and the others."""
        if before == after:
            return lines, []
        return divide(lines, unchanged_runs(self._content(before), self._content(after)))

    def _parents(self, seq: int, touch: Change[Entry]) -> Iterator[tuple[WorkspacePath, int]]:
        """Yield the previous homes of the lines: a path, and the transaction after which to read it."""
        if touch.before is not None:
            yield touch.path, seq - 1
        if touch.source is not None:
            yield touch.source, seq - 1
        if self._history.index.origin_of(seq).kind not in TAKING_BACK:
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
        known = self._contents.pop(version, None)
        content = self._history.content(version) if known is None else known
        if content is None:
            raise HistoryDamaged(
                f"The history no longer has the content {version[:12]}.",
                hint="Restore the git objects of your repository from a clone or a backup: only they had it.",
                data={"version": version},
            )
        content = self._contents[version] = with_lines(content)
        if len(self._contents) > CONTENTS_MAX:
            del self._contents[next(iter(self._contents))]
        return content
