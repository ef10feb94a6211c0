"""Blame: which transaction each line of a file came with.

The versions of the file are gone through newest first, through moves, by the index of what touched its path.
A line that was in the version before goes on to that one; what is left came with the transaction at hand.
An undo brings back lines that are older than it: those are looked for in what the file was before the
transactions that it takes back, so that they stay with the one who wrote them. If a file returns to a
version that it had before (a checkout there and back, `git stash pop`, a restore), its lines keep
the authors of that version.

Made for files with many versions: `go_on` works for so long, and can be called again.
"""

from __future__ import annotations

import heapq
import time
from typing import TYPE_CHECKING

from editd.edits.line_origins import count_lines, unchanged_lines
from editd.errors import HistoryDamaged

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd.store.history import History
    from editd.values.content import Version
    from editd.values.path import WorkspacePath
    from editd.values.transaction import Touch

TAKEN_BACK_MAX = 50  # transactions of one undo whose files are looked at; lines from others are the undo's
TAKING_BACK = ("undo", "redo", "rollback")
CONTENTS_MAX = 8  # versions at hand: the one looked at, and those before it

Lines = dict[int, int]  # line of the file now → where it is in the version at hand


class LineBlame:
    def __init__(
        self, history: History, path: WorkspacePath, version: Version, wanted: range | None = None
    ) -> None:
        """Blame the lines of `path`, which holds `version` after the newest transaction.

        If `wanted` is given, blame only the lines with these indexes.
        """
        self._history = history
        self._contents: dict[Version, bytes] = {}
        lines = count_lines(self._content(version))
        self.seqs = [history.floor.seq] * lines  # of each line; what nobody touched is the baseline's
        self._suspects: dict[tuple[int, WorkspacePath], tuple[Touch, Lines]] = {}
        self._order: list[tuple[int, WorkspacePath]] = []  # a heap: the newest transaction first
        self._suspect(path, int(history.head), {line: line for line in (wanted or range(lines))})

    def go_on(self, seconds: float) -> bool:
        """Go on for about so long; return whether all is known."""
        until = time.monotonic() + seconds
        while self._order:
            negative, path = heapq.heappop(self._order)
            touch, lines = self._suspects.pop((-negative, path))
            self._judge(-negative, touch, lines)
            if time.monotonic() > until:
                break
        return not self._order

    def _suspect(self, path: WorkspacePath, through: int, lines: Lines) -> None:
        """Somebody who touched `path` up to `through` wrote these lines, or it is the baseline."""
        found = self._history.index.touch_at(path, through)
        if found is None or not lines:
            return
        seq, touch = found
        if (seq, path) in self._suspects:
            self._suspects[seq, path][1].update(lines)
            return
        self._suspects[seq, path] = touch, lines
        heapq.heappush(self._order, (-seq, path))

    def _judge(self, seq: int, touch: Touch, lines: Lines) -> None:
        """Pass on the lines that were there before; the others came with this transaction."""
        assert touch.after is not None, "a file that is blamed was not deleted last"
        # Who writes a text that was there before is its author. A checkout, a restore and the like are not.
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
        """The newest transaction before `seq` that changed `version` at `path`; None if that moved it."""
        index = self._history.index
        left = index.version_left_by(path, version, seq)
        if left is None or left <= self._history.floor.seq:
            return None
        return None if any(at == left for at, _ in index.moves_from(path)) else left

    def _kept(self, before: Version, after: Version, lines: Lines) -> Lines:
        if before == after:
            return lines
        here = sorted(lines.items(), key=lambda pair: pair[1])
        places = unchanged_lines(self._content(before), self._content(after), [place for _, place in here])
        return {line: places[place] for line, place in here if place in places}

    def _parents(self, seq: int, touch: Touch) -> Iterator[tuple[WorkspacePath, int]]:
        """Where the lines may have been before: a path, and right after which transaction."""
        if touch.before is not None:
            yield touch.path, seq - 1
        if touch.source is not None:
            yield touch.source, seq - 1
        if self._history.index.made(seq).kind not in TAKING_BACK:
            return
        undoing = self._history.index.transaction(seq)
        for undone in () if undoing is None else undoing.undoes[:TAKEN_BACK_MAX]:
            if undone > self._history.floor.seq:  # else what it took back is compacted
                yield self._name_before(touch, seq, undone), undone - 1
                moves = self._history.index.moves_from(touch.path)
                yield from ((to, seq - 1) for at, to in moves if at == undone)  # it stood there until now

    def _name_before(self, touch: Touch, seq: int, undone: int) -> WorkspacePath:
        """What the file that `seq` touched was called before `undone`, which `seq` takes back."""
        index, path = self._history.index, touch.source or touch.path
        if index.touch_in(touch.path, undone) is not None:
            return touch.path
        while moves := [(at, move) for at, move in index.moves_to(path) if undone <= at < seq]:
            seq, move = moves[-1]
            path = move.source or path
        return path

    def _content(self, version: Version) -> bytes:
        found = self._contents.pop(version, None)
        if found is None:
            found = self._history.content(version)
        if found is None:
            raise HistoryDamaged(
                f"The history no longer has the content {version[:12]}.",
                hint="It was only in the repository's own git objects, and those were removed.",
                data={"version": version},
            )
        self._contents[version] = found
        if len(self._contents) > CONTENTS_MAX:
            del self._contents[next(iter(self._contents))]
        return found
