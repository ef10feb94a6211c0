"""The joint placement of blocks of lines in a text, exactly or approximately, as in wcgw.

Each block is matched after the block before it: exactly; failing that, line by line with tolerances that
cost points; failing that, also without blank lines. The cheapest way to place all blocks wins.

Never guesses between two ways of equal cost. The work is bounded by `COMPARISONS_MAX`: the ways are
counted from the last block to the first, not enumerated.
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

POINTS_MAX = 1000  # of one way to place the blocks
COMPARISONS_MAX = 1_000_000  # of lines in one call, beside those linear in the text: under a second
PLACES_MAX = 50_000  # of all blocks in one call; a block with so many places locates nothing


class FuzzyBlock(Struct, frozen=True):
    """Lines to find, and their replacement; `line` is the block's first line in the argument."""

    number: int  # from 1
    line: int
    search: tuple[str, ...]
    replacement: tuple[str, ...]


class BlockPosition(NamedTuple):
    """A match of a block, the lines from `start` up to, not including, `end`, with its cost.

    A tuple, because there may be very many of them.
    """

    start: int
    end: int
    points: int = 0
    kinds: frozenset[str] = frozenset()
    is_loose: bool = False  # blank lines were ignored


# ── All blocks together ────────────────────────────────────────────────────────────────────────────


class BlockNotFound(Struct, frozen=True):
    """The lack of a way to place the blocks for at most POINTS_MAX; `points` None: of any way."""

    block: FuzzyBlock
    points: int | None = None


class BlockAmbiguous(Struct, frozen=True):
    """Several ways of equal cost that differ at this block, or a block with too many places."""

    block: FuzzyBlock
    places: Sequence[BlockPosition]


Chosen = list[tuple[FuzzyBlock, BlockPosition]]


class _Stage:
    """The places of one block, in lists from exact to loose.

    For a given first line, the places from that line on count, in the first list that has any.
    """

    def __init__(self, block: FuzzyBlock, lists: Sequence[list[BlockPosition]]) -> None:
        self.block = block
        self._lists = lists
        self._starts = [[position.start for position in places] for places in lists]
        self._best: list[list[tuple[int, int]]] = []

    def weigh(self, following: _Stage | None) -> None:
        """Compute the cost of the cheapest way from each place on, and the number of such ways."""
        for places in self._lists:
            best: list[tuple[int, int]] = []
            for position in reversed(places):
                points, ways = self._through(position, following)
                if best and best[-1][0] <= points:
                    ways = min(best[-1][1] + (ways if best[-1][0] == points else 0), 2)
                    points = best[-1][0]
                best.append((points, ways))
            self._best.append(best[::-1])

    def best(self, line: int) -> tuple[int, int]:
        """Return the points of the cheapest way for this block and the next ones, from `line` on.

        The second number is 1 for one such way, 2 for more. Returns _NEVER if there is no way.
        """
        for starts, best in zip(self._starts, self._best, strict=True):
            index = bisect_left(starts, line)
            if index < len(starts):
                return best[index]
        return _NEVER

    def cheapest(self, line: int, following: _Stage | None) -> list[BlockPosition]:
        """Return the places of this block on the cheapest ways from `line` on."""
        points, _ = self.best(line)
        for places, starts in zip(self._lists, self._starts, strict=True):
            index = bisect_left(starts, line)
            if index < len(starts):
                return [p for p in places[index:] if self._through(p, following)[0] == points]
        return []

    @staticmethod
    def _through(position: BlockPosition, following: _Stage | None) -> tuple[int, int]:
        points, ways = (0, 1) if following is None else following.best(position.end)
        return points + position.points, ways


_NEVER = (1 << 60, 1)  # more points than any lines can cost


def place_together(
    lines: Sequence[str], blocks: Sequence[FuzzyBlock], work: ComparisonBudget
) -> Chosen | BlockNotFound | BlockAmbiguous:
    """Place the blocks one after another, in the cheapest way if it is unique."""
    listed = _Lines(lines, {line for block in blocks for line in block.search}, work)
    stages: list[_Stage] = []
    starts, room = [0], PLACES_MAX
    for block in blocks:
        lists = _reachable(listed, block, starts)
        room -= sum(map(len, lists))
        if room < 0:
            return BlockAmbiguous(block, max(lists, key=len))
        starts = sorted({position.end for places in lists for position in places})
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
    """Return the places of the block for these first lines; approximate ones only for lack of exact ones."""
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
    """The lines of a text, with an index of the lines of the blocks."""

    def __init__(self, lines: Sequence[str], wanted: Iterable[str], work: ComparisonBudget) -> None:
        self._lines = lines
        self._work = work
        self._exact: Mapping[str, list[int]] = {line: [] for line in wanted}
        work.spend(len(lines) // 8)
        for number, line in enumerate(lines):
            if line in self._exact:
                self._exact[line].append(number)

    def exact(self, search: Sequence[str], first: int) -> list[BlockPosition]:
        """Return the exact matches from the line `first` on, in order."""
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
        """Return the matches with tolerances for each line."""
        return self._near(self._lines, search, self._numbers, first)

    def loose(self, search: Sequence[str], first: int) -> list[BlockPosition]:
        """Return the matches with tolerances after removing the blank lines from both sides."""
        wanted = [line for line in search if line.strip()]
        if not wanted:
            return []
        kept, lines, numbers = self._text_lines
        return [
            BlockPosition(
                kept[position.start],
                kept[position.end - 1] + 1,
                position.points,
                position.kinds,
                is_loose=True,
            )
            for position in self._near(lines, wanted, numbers, bisect_left(kept, first))
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
        places = (_judge(start, lines, known) for start in starts)
        return [position for position in places if position is not None]

    @cached_property
    def _numbers(self) -> _Numbers:
        """The index of each line that is similar to a line of the blocks."""
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
    def _text_lines(self) -> tuple[list[int], list[str], _Numbers]:
        """The lines that are not blank: their numbers, their texts, and an index of them."""
        kept = [number for number, line in enumerate(self._lines) if line.strip()]
        ranks = {number: rank for rank, number in enumerate(kept)}
        numbers = {
            line: [ranks[number] for number in hits] for line, hits in self._numbers.items() if line.strip()
        }
        return kept, [self._lines[number] for number in kept], numbers


_Numbers = dict[str, list[int]]


def _judge(start: int, lines: Sequence[str], known: Sequence[_Known]) -> BlockPosition | None:
    """Compare the lines from `start` on with a block; return the match with its cost, or None."""
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
    """A form that may make two lines equal; `kind` is the warning's, empty for no warning."""

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
    """Return the line without the line number of a listing, and without trailing white space."""
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
_WIDE = _TOLERANCES[2:]  # lines that are equal in any form are equal in a wide one


class _Known(dict[str, Tolerance | None]):
    """The first tolerance whose form makes each line equal the wanted one; None for none."""

    def __init__(self, wanted: str) -> None:
        super().__init__({wanted: _EXACT})
        self._forms = [(tolerance, tolerance.form(wanted)) for tolerance in _TOLERANCES]

    def __missing__(self, line: str) -> Tolerance | None:
        equal = (tolerance for tolerance, form in self._forms if tolerance.form(line) == form)
        first = self[line] = next(equal, None)
        return first


class ComparisonBudget:
    """The comparisons left for placing blocks in a text, and a cache of results."""

    def __init__(self, blocks: Sequence[FuzzyBlock], lines: int) -> None:
        wanted = {line for block in blocks for line in block.search}
        self._by_form: list[dict[str, list[str]]] = [
            {tolerance.form(line): [] for line in wanted} for tolerance in _WIDE
        ]
        self._learnt: set[str] = set()
        self._known: dict[str, _Known] = {}
        self._left = COMPARISONS_MAX + 4 * lines

    def learn(self, lines: Sequence[str]) -> None:
        """Index these lines for `alike`."""
        new = set(lines).difference(self._learnt)
        for tolerance, table in zip(_WIDE, self._by_form, strict=True):
            for line, form in zip(new, map(tolerance.form, new), strict=True):
                if form in table:
                    table[form].append(line)
        self._learnt |= new

    def alike(self, wanted: str) -> set[str]:
        """Return the indexed lines that equal `wanted` in some tolerance's form."""
        tables = zip(_WIDE, self._by_form, strict=True)
        groups = [table[tolerance.form(wanted)] for tolerance, table in tables]
        self.spend(sum(map(len, groups)))
        return set().union(*groups)

    def tolerances(self, wanted: str) -> _Known:
        if wanted not in self._known:
            self._known[wanted] = _Known(wanted)
        return self._known[wanted]

    def spend(self, comparisons: int) -> None:
        """Subtract comparisons from the budget; TooLarge if it is exhausted."""
        self._left -= comparisons
        if self._left < 0:
            raise TooLarge(
                f"Placing these blocks takes more than {COMPARISONS_MAX:,} comparisons of lines.",
                hint="Send fewer blocks at once, in the file's order, each with a line that is rare in it.",
                data={"comparisons_max": COMPARISONS_MAX},
            )
