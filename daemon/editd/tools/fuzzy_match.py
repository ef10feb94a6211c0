"""Where blocks of lines stand in a text, exactly or nearly, all of them together.

wcgw's way of matching. Each block is looked for after the one before it: exactly; else line by line
with tolerances that cost points; else so and without regard to blank lines. Of all the ways to place
the blocks the cheapest is meant.

Never guesses between two ways that cost the same. Its work is bounded, see `COMPARISONS_MAX`: ways are
counted from the last block to the first, not tried out.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from editd.errors import TooLarge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

POINTS_MAX = 1000  # what a way of placing the blocks may cost
COMPARISONS_MAX = 1_000_000  # of lines in one call, beside those that grow with the text: within a second
PLACES_MAX = 50_000  # of one call's blocks; a block that is in so many says nothing


class FuzzyBlock(Struct, frozen=True):
    """Lines to be found, and those that take their place; `line` is where it begins in the argument."""

    number: int  # from 1
    line: int
    search: tuple[str, ...]
    replacement: tuple[str, ...]


class BlockPosition(NamedTuple):
    """Lines from `start` up to, not including, `end`, and what it costs to take them for the block's.

    A tuple, since there may be very many of them.
    """

    start: int
    end: int
    points: int = 0
    kinds: frozenset[str] = frozenset()
    is_loose: bool = False  # without regard to blank lines


# ── All blocks together ────────────────────────────────────────────────────────────────────────────


class BlockNotFound(Struct, frozen=True):
    """No way to place the blocks that costs at most POINTS_MAX; `points` None: no way at all."""

    block: FuzzyBlock
    points: int | None = None


class BlockAmbiguous(Struct, frozen=True):
    """Ways that cost the same, which part at this block; or it is in too many places to tell."""

    block: FuzzyBlock
    places: Sequence[BlockPosition]


Chosen = list[tuple[FuzzyBlock, BlockPosition]]


class _Stage:
    """The places of one block, in lists by how near they are.

    For a given first line those count that begin there or later, of the first list that has any.
    """

    def __init__(self, block: FuzzyBlock, lists: Sequence[list[BlockPosition]]) -> None:
        self.block = block
        self._lists = lists
        self._starts = [[place.start for place in places] for places in lists]
        self._best: list[list[tuple[int, int]]] = []

    def weigh(self, following: _Stage | None) -> None:
        """Work out what the cheapest way costs from each place on, and how many such ways there are."""
        for places in self._lists:
            best: list[tuple[int, int]] = []
            for place in reversed(places):
                points, ways = self._through(place, following)
                if best and best[-1][0] <= points:
                    ways = min(best[-1][1] + (ways if best[-1][0] == points else 0), 2)
                    points = best[-1][0]
                best.append((points, ways))
            self._best.append(best[::-1])

    def best(self, line: int) -> tuple[int, int]:
        """The points of the cheapest way for this block and those after it from that line on, and whether
        there is one such way, or two and more; without a way, the points are beyond all others."""
        for starts, best in zip(self._starts, self._best, strict=True):
            index = bisect_left(starts, line)
            if index < len(starts):
                return best[index]
        return _NEVER

    def cheapest(self, line: int, following: _Stage | None) -> list[BlockPosition]:
        """The places that a cheapest way from that line on leads through."""
        points, _ = self.best(line)
        for places, starts in zip(self._lists, self._starts, strict=True):
            index = bisect_left(starts, line)
            if index < len(starts):
                return [p for p in places[index:] if self._through(p, following)[0] == points]
        return []

    @staticmethod
    def _through(place: BlockPosition, following: _Stage | None) -> tuple[int, int]:
        points, ways = (0, 1) if following is None else following.best(place.end)
        return points + place.points, ways


_NEVER = (1 << 60, 1)  # more points than any lines can cost


def place_together(
    lines: Sequence[str], blocks: Sequence[FuzzyBlock], work: ComparisonBudget
) -> Chosen | BlockNotFound | BlockAmbiguous:
    """Place the blocks one after the other, by the cheapest way if there is one such way."""
    listed = _Lines(lines, {line for block in blocks for line in block.search}, work)
    stages: list[_Stage] = []
    starts, room = [0], PLACES_MAX
    for block in blocks:
        lists = _reachable(listed, block, starts)
        room -= sum(map(len, lists))
        if room < 0:
            return BlockAmbiguous(block, max(lists, key=len))
        starts = sorted({place.end for places in lists for place in places})
        if not starts:
            return BlockNotFound(block)
        stages.append(_Stage(block, lists))
    following: list[_Stage | None] = [*stages[1:], None]
    for stage, after in zip(reversed(stages), reversed(following), strict=True):
        stage.weigh(after)
    points, ways = stages[0].best(0)
    chosen: Chosen = []
    for stage, after in zip(stages, following, strict=True):
        places = stage.cheapest(chosen[-1][1].end if chosen else 0, after)
        if ways > 1 and points <= POINTS_MAX and len(places) > 1:
            return BlockAmbiguous(stage.block, places)
        chosen.append((stage.block, places[0]))
    if points > POINTS_MAX:
        return BlockNotFound(max(chosen, key=lambda pair: pair[1].points)[0], points)
    return chosen


def _reachable(lines: _Lines, block: FuzzyBlock, starts: Sequence[int]) -> list[list[BlockPosition]]:
    """The places of the block that count for any of these first lines; nearly only where it must be."""
    lists = []
    waiting = starts
    for find in (lines.exact, lines.near, lines.loose):
        places = find(block.search, waiting[0])
        lists.append(places)
        waiting = waiting[bisect_right(waiting, places[-1].start) :] if places else waiting
        if not waiting:
            break
    return lists


# ── Places of one block ────────────────────────────────────────────────────────────────────────────


class _Lines:
    """The lines of a text, and where those stand that are looked for."""

    def __init__(self, lines: Sequence[str], wanted: Iterable[str], work: ComparisonBudget) -> None:
        self._lines = lines
        self._work = work
        self._exact: Mapping[str, list[int]] = {line: [] for line in wanted}
        work.spend(len(lines) // 8)
        for number, line in enumerate(lines):
            if line in self._exact:
                self._exact[line].append(number)

    def exact(self, search: Sequence[str], first: int) -> list[BlockPosition]:
        """Where the lines stand as they are from the line `first` on, in order."""
        size, goal = len(search), list(search)
        rarest = min(range(size), key=lambda index: len(self._exact[search[index]]))
        hits = self._exact[search[rarest]]
        starts = [hit - rarest for hit in hits[bisect_left(hits, first + rarest) :]]
        self._work.spend(len(starts) * size)
        return [
            BlockPosition(start, start + size)
            for start in starts
            if self._lines[start : start + size] == goal
        ]

    def near(self, search: Sequence[str], first: int) -> list[BlockPosition]:
        """Where they stand when each line may match by a tolerance."""
        return self._near(self._lines, search, self._numbers, first)

    def loose(self, search: Sequence[str], first: int) -> list[BlockPosition]:
        """Where they do so when the blank lines of both are left out."""
        wanted = [line for line in search if line.strip()]
        if not wanted:
            return []
        kept, lines, numbers = self._inked
        return [
            BlockPosition(
                kept[place.start], kept[place.end - 1] + 1, place.points, place.kinds, is_loose=True
            )
            for place in self._near(lines, wanted, numbers, bisect_left(kept, first))
        ]

    def _near(
        self, lines: Sequence[str], search: Sequence[str], numbers: _Numbers, first: int
    ) -> list[BlockPosition]:
        alike = [self._work.alike(line) for line in search]
        rarest = min(
            range(len(search)), key=lambda index: sum(len(numbers.get(line, ())) for line in alike[index])
        )
        last = len(lines) - len(search)
        hits = sorted(number for line in alike[rarest] for number in numbers.get(line, ()))
        starts = [
            hit - rarest
            for hit in hits[bisect_left(hits, first + rarest) : bisect_right(hits, last + rarest)]
        ]
        self._work.spend(len(starts) * len(search))
        known = [self._work.tolerances(line) for line in search]
        places = (_judged(start, lines, known) for start in starts)
        return [place for place in places if place is not None]

    @cached_property
    def _numbers(self) -> _Numbers:
        """The numbers of each line that may be taken for one that is looked for."""
        self._work.spend(len(self._lines) // 4)
        self._work.learn(self._lines)
        numbers: dict[str, list[int]] = {}
        for wanted in self._exact:
            numbers.update((line, []) for line in self._work.alike(wanted))
        for number, line in enumerate(self._lines):
            if line in numbers:
                numbers[line].append(number)
        return numbers

    @cached_property
    def _inked(self) -> tuple[list[int], list[str], _Numbers]:
        """The lines that are not blank: their numbers, they themselves, and where they stand among them."""
        kept = [number for number, line in enumerate(self._lines) if line.strip()]
        ranks = {number: rank for rank, number in enumerate(kept)}
        numbers = {
            line: [ranks[number] for number in found] for line, found in self._numbers.items() if line.strip()
        }
        return kept, [self._lines[number] for number in kept], numbers


_Numbers = dict[str, list[int]]


def _judged(start: int, lines: Sequence[str], known: Sequence[_Known]) -> BlockPosition | None:
    """What it costs to take the lines from `start` on for those looked for; None where they are others."""
    points, kinds = 0, set[str]()
    for offset, tolerances in enumerate(known, start):
        tolerance = tolerances[lines[offset]]
        if tolerance is None:
            return None
        if tolerance.points:
            points += tolerance.points
            kinds.add(tolerance.kind)
    return BlockPosition(start, start + len(known), points, frozenset(kinds - {""}))


# ── Tolerances ─────────────────────────────────────────────────────────────────────────────────────


class Tolerance(Struct, frozen=True):
    """Two lines are the same where their forms are; `kind` is the warning's, empty for none."""

    kind: str
    points: int
    form: Callable[[str], str]


_NUMBER = re.compile(r"^\d+ ")
_LOOK_ALIKES = str.maketrans(
    dict.fromkeys("\u2018\u2019\u201b\u2032", "'")
    | dict.fromkeys("\u201c\u201d\u201f\u2033", '"')
    | dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-")
    | {"\u201a": ",", "\u2039": "<", "\u203a": ">", "\u2026": "..."}
)


def without_number(line: str) -> str:
    """The line without the number that a listing put before it, and without white space at its end."""
    return (_NUMBER.sub("", line, count=1) if line[:1].isdecimal() else line).rstrip()


def _with_plain_characters(line: str) -> str:
    return (line if line.isascii() else line.translate(_LOOK_ALIKES)).rstrip()


def _without_white_space(line: str) -> str:
    return "".join(line.split())


_EXACT = Tolerance("", 0, str)
_TOLERANCES = (
    Tolerance("", 1, str.rstrip),
    Tolerance("indentation", 10, str.lstrip),
    Tolerance("line_numbers", 5, without_number),
    Tolerance("confusable_chars", 5, _with_plain_characters),
    Tolerance("all_spaces", 50, _without_white_space),
)
_WIDE = _TOLERANCES[2:]  # what any tolerance takes for the same, one of these does


class _Known(dict[str, Tolerance | None]):
    """The first tolerance by which each line is the same as the wanted one; None for none."""

    def __init__(self, wanted: str) -> None:
        super().__init__({wanted: _EXACT})
        self._forms = [(tolerance, tolerance.form(wanted)) for tolerance in _TOLERANCES]

    def __missing__(self, line: str) -> Tolerance | None:
        same = (tolerance for tolerance, form in self._forms if tolerance.form(line) == form)
        found = self[line] = next(same, None)
        return found


class ComparisonBudget:
    """What is known and spent while blocks are placed in a text of so many lines."""

    def __init__(self, blocks: Sequence[FuzzyBlock], lines: int) -> None:
        wanted = {line for block in blocks for line in block.search}
        self._by_form: list[dict[str, list[str]]] = [
            {tolerance.form(line): [] for line in wanted} for tolerance in _WIDE
        ]
        self._learnt: set[str] = set()
        self._known: dict[str, _Known] = {}
        self._left = COMPARISONS_MAX + 4 * lines

    def learn(self, lines: Sequence[str]) -> None:
        """Take these into account for `alike`."""
        new = set(lines).difference(self._learnt)
        for tolerance, table in zip(_WIDE, self._by_form, strict=True):
            for line, form in zip(new, map(tolerance.form, new), strict=True):
                if form in table:
                    table[form].append(line)
        self._learnt |= new

    def alike(self, wanted: str) -> set[str]:
        """The lines learnt that some tolerance takes for the wanted one."""
        tables = zip(_WIDE, self._by_form, strict=True)
        found = [table[tolerance.form(wanted)] for tolerance, table in tables]
        self.spend(sum(map(len, found)))
        return set().union(*found)

    def tolerances(self, wanted: str) -> _Known:
        if wanted not in self._known:
            self._known[wanted] = _Known(wanted)
        return self._known[wanted]

    def spend(self, comparisons: int) -> None:
        """TooLarge where too much has been spent."""
        self._left -= comparisons
        if self._left < 0:
            raise TooLarge(
                f"To place these blocks takes more than {COMPARISONS_MAX:,} comparisons of lines.",
                hint="Send fewer blocks at once, in the file's order, each with a line that is rare in it.",
                data={"comparisons_max": COMPARISONS_MAX},
            )
