"""Line changes between two texts, and the collisions of two sets of them.

Git's merge reports a conflict for changes of adjacent lines. Here two changes collide only if both change
the same lines, or insert lines at the same point. Changes of adjacent lines are both kept.
Lines end with LF, as in git. libgit2 computes the differences (xdiff).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Literal

import pygit2
from msgspec import Struct
from msgspec.structs import replace
from pygit2.enums import DiffOption

from editd.edits.comparison import limit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


Lines = tuple[bytes, ...]  # each with its line end; only a text's last line may lack it
Winner = Literal["ours", "theirs"]
LINES_SHOWN_MAX = 20  # of each side of a collision
CONTEXT_LINES = 3  # around a hunk that is shown, as in git


class LineChange(Struct, frozen=True):
    """One contiguous change: a range of lines of the base (half open, from 0), and the new lines."""

    start: int
    end: int
    first_line: int  # in the new text, from 1; the line before, if no lines are left
    lines: Lines

    @property
    def is_insertion(self) -> bool:
        return self.start == self.end


class Collision(Struct, frozen=True):
    """Lines of the base (half open, from 0) that both sides changed, and the version of each side."""

    start: int
    end: int
    base: Lines
    ours: Lines
    theirs: Lines
    first_line: int  # of ours, from 1; the line before, if ours has no lines

    @property
    def last_line(self) -> int:
        """The last line of ours, from 1."""
        return max(self.first_line + len(self.ours) - 1, self.first_line)

    def hunk(self) -> str:
        """Return a diff hunk from the base to ours; bytes that are not UTF-8 become surrogate escapes."""
        old = f"-{self.start + bool(self.base)},{len(self.base)}"
        new = f"+{self.first_line},{len(self.ours)}"
        return f"@@ {old} {new} @@\n{_format('-', self.base)}{_format('+', self.ours)}"


class JoinedText(Struct, frozen=True):
    """Both sides' changes in one text; each collision holds the winner's lines."""

    content: bytes
    collisions: tuple[Collision, ...]
    collided: tuple[LineChange, ...] = ()  # the changes of theirs that collide


def lines_of(content: bytes) -> Lines:
    """Split a text into lines, each with its line end."""
    *ended, last = content.split(b"\n")
    return (*(line + b"\n" for line in ended), *([last] if last else ()))


@limit(list[LineChange])
def hunks_between(before: bytes, after: bytes) -> list[LineChange]:
    """Return the changes from one text to another, without context, in their order."""
    lines = lines_of(after)
    patch = pygit2.Patch.create_from(before, after, flag=DiffOption.FORCE_TEXT, context_lines=0)
    changes = []
    for hunk in patch.hunks:
        # For a range without lines, git gives the line before it.
        start = hunk.old_start - (1 if hunk.old_lines else 0)
        new = lines[hunk.new_start - 1 : hunk.new_start - 1 + hunk.new_lines] if hunk.new_lines else ()
        changes.append(LineChange(start, start + hunk.old_lines, hunk.new_start, new))
    return changes


def reverse(before: bytes, after: bytes) -> list[LineChange]:
    """Return the changes from `after` back to `before`, in the order of `hunks_between`."""
    lines = lines_of(before)
    return [
        LineChange(
            start := hunk.first_line - bool(hunk.lines),
            start + len(hunk.lines),
            hunk.start + (not hunk.is_insertion),
            lines[hunk.start : hunk.end],
        )
        for hunk in hunks_between(before, after)
    ]


def shown_hunks(before: bytes, after: bytes) -> list[str]:
    """Return each change of `hunks_between` as a diff hunk, with context (see `show`)."""
    return show(lines_of(before), hunks_between(before, after))


def show(lines: Lines, hunks: Sequence[LineChange], context: int = CONTEXT_LINES) -> list[str]:
    """Return each change of `lines` as a diff hunk; bytes that are not UTF-8 become surrogate escapes.

    Context never reaches into the next hunk, so that each hunk applies without the others.
    """
    ends = [0, *(hunk.end for hunk in hunks)]
    starts = [*(hunk.start for hunk in hunks[1:]), len(lines)]
    shown = []
    for hunk, floor, ceiling in zip(hunks, ends, starts, strict=False):
        above = lines[max(floor, hunk.start - context) : hunk.start]
        below = lines[hunk.end : min(ceiling, hunk.end + context)]
        around = len(above) + len(below)
        old, new = hunk.end - hunk.start + around, len(hunk.lines) + around
        old_start = hunk.start - len(above) + bool(old)
        new_start = hunk.first_line + (not hunk.lines) - len(above) - (not new)
        body = (
            _sign(" ", above) + _sign("-", lines[hunk.start : hunk.end])
            + _sign("+", hunk.lines) + _sign(" ", below)
        )  # fmt: skip
        shown.append(f"@@ -{old_start},{old} +{new_start},{new} @@\n" + "".join(body))
    return shown


def apply_changes(base: bytes, hunks: Iterable[LineChange]) -> bytes:
    """Return `base` with some of its changes applied."""
    lines = lines_of(base)
    return b"".join(changed_lines(lines, 0, len(lines), hunks))


def changed_lines(lines: Lines, start: int, end: int, hunks: Iterable[LineChange]) -> Lines:
    """Return the lines from `start` to `end` with `hunks`, changes of those lines, applied."""
    result: list[bytes] = []
    for hunk in hunks:
        result += (*lines[start : hunk.start], *hunk.lines)
        start = hunk.end
    return (*result, *lines[start:end])


def join(
    base: bytes, ours: bytes, theirs: bytes | Sequence[LineChange], winner: Winner = "ours"
) -> JoinedText:
    """Join the changes base→ours and base→theirs; `winner` wins each collision."""
    if isinstance(theirs, bytes):
        return _joined_texts(base, ours, theirs, winner)
    return _join(base, hunks_between(base, ours), theirs, winner)


@limit(JoinedText)
def _joined_texts(base: bytes, ours: bytes, theirs: bytes, winner: Winner) -> JoinedText:
    return _join(base, hunks_between(base, ours), hunks_between(base, theirs), winner)


def _join(
    base: bytes, ours: Sequence[LineChange], their_hunks: Sequence[LineChange], winner: Winner
) -> JoinedText:
    lines = lines_of(base)
    our_hunks = list(_fitted_between(ours, lines, their_hunks))
    joined: list[bytes] = []
    collisions: list[Collision] = []
    lost: list[LineChange] = []
    at = 0
    for mine, yours in clusters(our_hunks, their_hunks, OverlapRule(len(lines))):
        start, end = bounds([*mine, *yours])
        joined += lines[at:start]
        at = end
        our_lines, their_lines = (changed_lines(lines, start, end, hunks) for hunks in (mine, yours))
        if mine and yours and our_lines != their_lines:
            first_line = _first_line(mine, start)
            collisions.append(Collision(start, end, lines[start:end], our_lines, their_lines, first_line))
            lost += yours
        joined += our_lines if mine and (not yours or winner == "ours") else their_lines
    joined += lines[at:]
    return JoinedText(b"".join(joined), tuple(collisions), tuple(lost))


class Side(Struct):
    """The extent of one side's changes in a cluster. It suffices to compare the next change with them."""

    insertion: int = -1  # the place of the last insertion
    end: int = -1  # the last line of the other changes
    has_open_end: bool = False  # such a change leaves the last line without a line end

    def add(self, hunk: LineChange) -> None:
        if hunk.is_insertion:
            self.insertion = hunk.start
            return
        self.end = max(self.end, hunk.end)
        self.has_open_end |= bool(hunk.lines) and not hunk.lines[-1].endswith(b"\n")


class TouchRule(Struct, frozen=True):
    """The rule of git: two changes collide if they share a line or are adjacent."""

    def collides(self, hunk: LineChange, others: Side) -> bool:
        """Return whether a change collides with one of the changes before it."""
        return hunk.start <= max(others.insertion, others.end)


class OverlapRule(Struct, frozen=True):
    """The rule of `join`: two changes collide if they change the same line, or insert lines at one point."""

    lines: int  # of the base

    def collides(self, hunk: LineChange, others: Side) -> bool:
        """Return whether a change collides with one of the changes before it."""
        if others.end > hunk.start:
            return True
        # Lines can be inserted after the last line only if it keeps its line end.
        is_behind_open_end = hunk.start == self.lines and others.has_open_end
        return hunk.is_insertion and (others.insertion == hunk.start or is_behind_open_end)


def clusters(
    ours: Sequence[LineChange], theirs: Sequence[LineChange], rule: TouchRule | OverlapRule
) -> Iterator[tuple[list[LineChange], list[LineChange]]]:
    """Yield groups of colliding changes in their order, each as the changes of ours and of theirs."""
    order = [(hunk, 0) for hunk in ours] + [(hunk, 1) for hunk in theirs]
    cluster: tuple[list[LineChange], list[LineChange]] = ([], [])
    sides = Side(), Side()
    for hunk, side in sorted(order, key=lambda pair: (pair[0].start, pair[0].end)):
        if any(cluster) and not rule.collides(hunk, sides[1 - side]):
            yield cluster
            cluster = ([], [])
            sides = Side(), Side()
        cluster[side].append(hunk)
        sides[side].add(hunk)
    if any(cluster):
        yield cluster


def touching(
    hunks: Iterable[LineChange], others: Sequence[LineChange]
) -> Iterator[tuple[LineChange, Sequence[LineChange]]]:
    """Yield each change with the `others` that share a line with it or are adjacent. Both rise."""
    first = 0
    for hunk in hunks:
        while first < len(others) and others[first].end < hunk.start:
            first += 1
        last = first
        while last < len(others) and others[last].start <= hunk.end:
            last += 1
        yield hunk, others[first:last]


def is_same(first: LineChange, second: LineChange) -> bool:
    """Return whether two changes replace the same lines by equal ones."""
    return (first.start, first.end, first.lines) == (second.start, second.end, second.lines)


def bounds(hunks: Sequence[LineChange]) -> tuple[int, int]:
    """Return the range of lines (half open, from 0) from the first change to the last."""
    return min(hunk.start for hunk in hunks), max(hunk.end for hunk in hunks)


def _fitted_between(
    hunks: Iterable[LineChange], lines: Lines, others: Sequence[LineChange]
) -> Iterator[LineChange]:
    """Move and split changes so that they collide with as few of the `others` as possible. All rise."""
    starts = [other.start for other in others]
    insertions = [other.start for other in others if other.is_insertion]
    for hunk in hunks:
        before = bisect_left(starts, hunk.start) - 1
        moved = hunk
        if hunk.is_insertion and before >= 0 and hunk.start < others[before].end:
            moved = _moved_aside(hunk, lines, others[before])
        yield from _line_by_line(moved, insertions)


def _moved_aside(hunk: LineChange, lines: Lines, around: LineChange) -> LineChange:
    """Move an insertion out of lines that the other side changes, if it fits before or after them.

    Among repeated lines, one insertion has several equal places, and a diff picks the last.
    """
    new, count = hunk.lines, len(hunk.lines)
    up, room = 0, hunk.start - around.start
    while up < room and lines[hunk.start - 1 - up] == new[(count - 1 - up) % count]:
        up += 1
    if up == room:
        return _move(hunk, -up)
    down, room = 0, around.end - hunk.start
    while down < room and lines[hunk.start + down] == new[down % count]:
        down += 1
    return _move(hunk, down) if down == room else hunk


def _move(hunk: LineChange, by: int) -> LineChange:
    """Move an insertion along equal lines; its own lines rotate."""
    turn = by % len(hunk.lines)
    return replace(
        hunk,
        start=hunk.start + by,
        end=hunk.end + by,
        first_line=hunk.first_line + by,
        lines=hunk.lines[turn:] + hunk.lines[:turn],
    )


def _line_by_line(hunk: LineChange, insertions: Sequence[int]) -> Iterator[LineChange]:
    """Split a change that keeps the number of lines into single lines, so that only equal lines collide.

    A change into which the other side inserts lines stays whole. `insertions` are the places of these.
    """
    following = bisect_right(insertions, hunk.start)
    is_amid = following < len(insertions) and insertions[following] < hunk.end
    if is_amid or hunk.end - hunk.start != len(hunk.lines):
        yield hunk
        return
    for index, line in enumerate(hunk.lines):
        start = hunk.start + index
        yield LineChange(start, start + 1, hunk.first_line + index, (line,))


def _first_line(hunks: Sequence[LineChange], start: int) -> int:
    """Map the base line `start` to its line number, from 1, in the text with `hunks` applied."""
    first = hunks[0]
    return max(first.first_line - (first.start - start), 1) if first.lines else max(first.first_line, 1)


def _format(sign: str, lines: Lines) -> str:
    """Format at most LINES_SHOWN_MAX lines of a diff."""
    more = len(lines) - LINES_SHOWN_MAX
    text = "".join(_sign(sign, lines[:LINES_SHOWN_MAX]))
    return text + (f"\\ {more} more lines\n" if more > 0 else "")


def _sign(sign: str, lines: Lines) -> list[str]:
    return [
        sign
        + (line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n").decode(
            "utf-8", "surrogateescape"
        )
        for line in lines
    ]


# Line origins: the lines of a text that its previous version has too, as in `git blame`.
#
# Lines end with LF, as in git. libgit2 computes the differences (xdiff).


def count_lines(content: bytes) -> int:
    """Return the number of lines; the last one needs no line end."""
    return content.count(b"\n") + (bool(content) and not content.endswith(b"\n"))


class UnchangedRun(Struct, frozen=True):
    """Lines of a text that its previous version has too, from 0: the first one in both, and their number."""

    start: int
    origin: int
    count: int


def unchanged_runs(before: bytes, after: bytes) -> list[UnchangedRun]:
    """Return the lines of `after` that `before` has too, in their order.

    Content with a NUL has no lines: all of it is new unless both contents are equal.
    """
    if before == after:
        return [UnchangedRun(0, 0, count_lines(after))]
    if b"\0" in before or b"\0" in after:
        return []
    return _unchanged_runs(before, after)


@limit(list[UnchangedRun])
def _unchanged_runs(before: bytes, after: bytes) -> list[UnchangedRun]:
    runs: list[UnchangedRun] = []
    start = origin = 0
    patch = pygit2.Patch.create_from(before, after, flag=DiffOption.FORCE_TEXT, context_lines=0)
    for hunk in patch.hunks:
        # For a range without lines, git gives the line before it.
        end = hunk.new_start - (1 if hunk.new_lines else 0)
        if end > start:
            runs.append(UnchangedRun(start, origin, end - start))
        start = end + hunk.new_lines
        origin = hunk.old_start - (1 if hunk.old_lines else 0) + hunk.old_lines
    total = count_lines(after)
    if total > start:
        runs.append(UnchangedRun(start, origin, total - start))
    return runs
