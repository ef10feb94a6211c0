"""The linear sweeps of `edits.line_changes` and `edits.merge` against the loops that they replaced.

The loops compare each change with each of the other side. They are the oracle, kept only here.
"""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from editd.edits import line_changes as sweeps
from editd.edits.line_changes import (
    Collision,
    JoinedText,
    LineChange,
    OverlapRule,
    TouchRule,
    bounds,
    changed_lines,
    hunks_between,
    is_same,
    join,
    lines_of,
    reverse,
    touching,
)
from editd.edits.merge import Region, _regions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from editd.edits.line_changes import Lines, Winner

    Sides = tuple[bytes, bytes, bytes]

LINES = st.lists(st.sampled_from([b"a\n", b"b\n", b"\n", b"c\n"]), max_size=24).map(b"".join)
ENDS = st.sampled_from([b"", b"", b"z"])
TEXTS = st.builds(bytes.__add__, LINES, ENDS)


@st.composite
def edited(draw: st.DrawFn) -> Sides:
    """Return a base, and two texts that a few changes made of it."""
    base = draw(TEXTS)
    return base, draw(changes_of(base)), draw(changes_of(base))


@st.composite
def changes_of(draw: st.DrawFn, base: bytes) -> bytes:
    lines = list(lines_of(base))
    for _ in range(draw(st.integers(0, 6))):
        at = draw(st.integers(0, len(lines)))
        lines[at : at + draw(st.integers(0, 5))] = draw(
            st.lists(st.sampled_from([b"a\n", b"b\n"]), max_size=4)
        )
    return b"".join(lines)


SIDES = st.one_of(st.tuples(TEXTS, TEXTS, TEXTS), edited())


@given(SIDES, st.sampled_from(["ours", "theirs"]))
def test_join_gives_what_the_loops_gave(sides: Sides, winner: Winner) -> None:
    assert join(*sides, winner) == old_join(*sides, winner)


@given(SIDES, st.data())
def test_join_of_some_reversed_hunks_gives_what_the_loops_gave(sides: Sides, data: st.DataObject) -> None:
    """An undo joins some hunks of a transaction, in reverse, with the present file."""
    hunks = reverse(sides[1], sides[0])
    some = [hunk for hunk in hunks if data.draw(st.booleans())]
    assert join(sides[0], sides[2], some) == old_join(sides[0], sides[2], some)


@given(SIDES)
def test_the_regions_of_a_conflict_are_those_that_the_loops_found(sides: Sides) -> None:
    assert _regions(*sides) == old_regions(*sides)


@given(SIDES)
def test_clusters_are_those_that_the_loops_found(sides: Sides) -> None:
    base, ours, theirs = sides
    lines, mine, yours = lines_of(base), hunks_between(base, ours), hunks_between(base, theirs)
    for rule, old_rule in ((TouchRule(), old_touch), (OverlapRule(len(lines)), partial(old_overlap, lines))):
        assert list(sweeps.clusters(mine, yours, rule)) == list(old_clusters(mine, yours, old_rule))


@given(SIDES)
def test_the_changes_that_touch_one_are_those_that_the_loops_found(sides: Sides) -> None:
    base, ours, theirs = sides
    mine, yours = hunks_between(base, ours), hunks_between(base, theirs)
    assert [(hunk, list(near)) for hunk, near in touching(mine, yours)] == [
        (hunk, [other for other in yours if old_touch(hunk, other)]) for hunk in mine
    ]


@pytest.mark.parametrize("seed", range(4))
def test_a_long_text_with_few_distinct_lines_gives_what_the_loops_gave(seed: int) -> None:
    dice = random.Random(seed)
    rows = [b"%d,ok\n" % number for number in range(dice.choice([2, 3, 8]))]
    base, ours, theirs = (b"".join(dice.choices(rows, k=1_200)) for _ in range(3))
    for sides in ((base, ours, theirs), (base, ours, base[:-40]), (base * 2, base + ours, theirs + base)):
        assert join(*sides) == old_join(*sides)
        assert _regions(*sides) == old_regions(*sides)


@pytest.mark.parametrize("copies", [1, 4])
def test_the_work_grows_with_the_changes_and_not_with_their_square(copies: int) -> None:
    """The rule of a cluster is asked once for each change, and each pair that touches is seen once."""
    dice = random.Random(copies)
    rows = [b"%d,ok\n" % number for number in range(8)]
    base, ours, theirs = (b"".join(dice.choices(rows, k=2_000 * copies)) for _ in range(3))
    mine, yours = hunks_between(base, ours), hunks_between(base, theirs)
    asked = CountingRule(TouchRule())
    for _ in sweeps.clusters(mine, yours, asked):  # type: ignore[arg-type]
        continue
    assert asked.count <= len(mine) + len(yours)
    assert sum(len(near) for _, near in touching(mine, yours)) <= 2 * (len(mine) + len(yours))


class CountingRule:
    """A rule of clusters that counts how often it is asked."""

    def __init__(self, rule: TouchRule) -> None:
        self.rule = rule
        self.count = 0

    def collides(self, hunk: LineChange, others: sweeps.Side) -> bool:
        self.count += 1
        return self.rule.collides(hunk, others)


# The loops.


def old_join(
    base: bytes, ours: bytes, theirs: bytes | Sequence[LineChange], winner: Winner = "ours"
) -> JoinedText:
    lines = lines_of(base)
    their_hunks = hunks_between(base, theirs) if isinstance(theirs, bytes) else theirs
    our_hunks = [
        part
        for hunk in hunks_between(base, ours)
        for part in old_line_by_line(old_moved_aside(hunk, lines, their_hunks), their_hunks)
    ]
    joined: list[bytes] = []
    collisions: list[Collision] = []
    lost: list[LineChange] = []
    at = 0
    for mine, yours in old_clusters(our_hunks, their_hunks, partial(old_overlap, lines)):
        start, end = bounds([*mine, *yours])
        joined += lines[at:start]
        at = end
        our_lines, their_lines = (changed_lines(lines, start, end, hunks) for hunks in (mine, yours))
        if mine and yours and our_lines != their_lines:
            first = mine[0]
            number = first.first_line - (first.start - start) if first.lines else first.first_line
            collisions.append(Collision(start, end, lines[start:end], our_lines, their_lines, max(number, 1)))
            lost += yours
        joined += our_lines if mine and (not yours or winner == "ours") else their_lines
    joined += lines[at:]
    return JoinedText(b"".join(joined), tuple(collisions), tuple(lost))


def old_clusters(
    ours: Sequence[LineChange],
    theirs: Sequence[LineChange],
    collide: Callable[[LineChange, LineChange], bool],
) -> Iterator[tuple[list[LineChange], list[LineChange]]]:
    sides = [(hunk, 0) for hunk in ours] + [(hunk, 1) for hunk in theirs]
    cluster: tuple[list[LineChange], list[LineChange]] = ([], [])
    for hunk, side in sorted(sides, key=lambda pair: (pair[0].start, pair[0].end)):
        if any(cluster) and not any(collide(hunk, other) for other in cluster[1 - side]):
            yield cluster
            cluster = ([], [])
        cluster[side].append(hunk)
    if any(cluster):
        yield cluster


def old_touch(first: LineChange, second: LineChange) -> bool:
    return first.start <= second.end and second.start <= first.end


def old_overlap(lines: Lines, first: LineChange, second: LineChange) -> bool:
    if first.is_insertion and second.is_insertion:
        return first.start == second.start
    if first.start < second.end and second.start < first.end:
        return True
    before, after = (first, second) if first.end <= second.start else (second, first)
    return after.start == len(lines) and bool(before.lines) and not before.lines[-1].endswith(b"\n")


def old_moved_aside(hunk: LineChange, lines: Lines, others: Iterable[LineChange]) -> LineChange:
    around = [other for other in others if other.start < hunk.start < other.end]
    if not hunk.is_insertion or not around:
        return hunk
    moved = hunk
    while around[0].start < moved.start and lines[moved.start - 1] == moved.lines[-1]:
        moved = old_moved(moved, -1, (moved.lines[-1], *moved.lines[:-1]))
    if moved.start == around[0].start:
        return moved
    moved = hunk
    while moved.start < around[0].end and lines[moved.start] == moved.lines[0]:
        moved = old_moved(moved, 1, (*moved.lines[1:], moved.lines[0]))
    return moved if moved.start == around[0].end else hunk


def old_moved(hunk: LineChange, by: int, lines: Lines) -> LineChange:
    return replace(
        hunk, start=hunk.start + by, end=hunk.end + by, first_line=hunk.first_line + by, lines=lines
    )


def old_line_by_line(hunk: LineChange, others: Iterable[LineChange]) -> Iterator[LineChange]:
    is_amid = any(other.is_insertion and hunk.start < other.start < hunk.end for other in others)
    if is_amid or hunk.end - hunk.start != len(hunk.lines):
        yield hunk
        return
    for index, line in enumerate(hunk.lines):
        start = hunk.start + index
        yield LineChange(start, start + 1, hunk.first_line + index, (line,))


def old_regions(base: bytes, ours: bytes, theirs: bytes) -> tuple[Region, ...]:
    others = hunks_between(base, theirs)
    return tuple(
        Region(max(hunk.first_line, 1), max(hunk.first_line + len(hunk.lines) - 1, hunk.first_line, 1))
        for hunk in hunks_between(base, ours)
        if any(old_touch(hunk, other) and not is_same(hunk, other) for other in others)
    )
