"""Tests of `tools.fuzzy_match`, against the same rules written as plainly as can be."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from editd.errors import TooLarge
from editd.tools.fuzzy_match import (
    PLACES_MAX,
    POINTS_MAX,
    BlockAmbiguous,
    BlockNotFound,
    BlockPosition,
    ComparisonBudget,
    FuzzyBlock,
    place_together,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from editd.tools.fuzzy_match import Chosen


def blocks_of(*searches: Sequence[str]) -> list[FuzzyBlock]:
    return [FuzzyBlock(number, 0, tuple(search), ()) for number, search in enumerate(searches, 1)]


def placed(lines: Sequence[str], *searches: Sequence[str]) -> Chosen | BlockNotFound | BlockAmbiguous:
    blocks = blocks_of(*searches)
    return place_together(lines, blocks, ComparisonBudget(blocks, len(lines)))


def check(lines: Sequence[str], search: Sequence[str], points: int, *kinds: str, at: int = 0) -> None:
    """The one block is taken for as many lines from `at` on."""
    found = placed(lines, search)
    assert isinstance(found, list)
    assert [place for _, place in found] == [BlockPosition(at, at + len(search), points, frozenset(kinds))]


# ── One block ──────────────────────────────────────────────────────────────────────────────────────


def test_lines_that_stand_there_exactly_cost_nothing() -> None:
    check(["a", "b", "c"], ["b", "c"], 0, at=1)


@pytest.mark.parametrize(
    ("line", "wanted", "points", "kinds"),
    [
        ("a \t", "a", 1, ()),
        ("    a", "a", 10, ("indentation",)),
        ("a", "12 a", 5, ("line_numbers",)),
        ("a", "١٢ a", 5, ("line_numbers",)),
        ("“a…”", '"a..."', 5, ("confusable_chars",)),
        ("f( a )", "f(a)", 50, ("all_spaces",)),
        ("  a", " a ", 50, ("all_spaces",)),
        ("a\u00a0b", "ab", 50, ("all_spaces",)),
    ],
)
def test_a_line_may_differ_by_one_tolerance(
    line: str, wanted: str, points: int, kinds: tuple[str, ...]
) -> None:
    check([line, "other"], [wanted], points, *kinds)
    check([wanted, "other"], [line], points, *kinds)


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("a", "A"), ("a", "12: a"), ("a", " 12 a"), ("  a", "12 a"), ("'a", "  ‘a"), ("a", "„a"),
        ("ab", "a\u200bb"), ("é", "e\u0301"),
    ],
)  # fmt: skip
def test_tolerances_do_not_add_up_and_there_are_no_others(line: str, wanted: str) -> None:
    assert placed([line, "other"], [wanted]) == BlockNotFound(blocks_of([wanted])[0])


def test_each_line_of_a_block_is_charged_the_same_one_twice_too() -> None:
    check(["  a", "b", "  a"], ["a", "b", "a"], 20, "indentation")


def test_what_stands_there_exactly_is_taken_before_what_is_near() -> None:
    check(["  a", "a", "a "], ["a"], 0, at=1)


def test_of_near_places_the_cheapest_is_taken_and_between_equal_ones_nothing() -> None:
    check(["  a", "a ", "f"], ["a"], 1, at=1)
    found = placed(["a ", "a\t"], ["a"])
    assert isinstance(found, BlockAmbiguous)
    assert [place.start for place in found.places] == [0, 1]


def test_places_that_overlap_are_several() -> None:
    assert isinstance(placed(["a", "a", "a"], ["a", "a"]), BlockAmbiguous)


def test_blank_lines_do_not_matter_where_nothing_else_fits() -> None:
    found = placed(["", "a", " ", "b", ""], ["a", "b", ""], ["c"])
    assert isinstance(found, BlockNotFound)
    assert found.block.number == 2
    found = placed(["", "a", " ", "b", "c"], ["a", "", "", "b"])
    assert isinstance(found, list)
    assert found[0][1] == BlockPosition(1, 4, is_loose=True)


def test_a_block_of_blank_lines_only_needs_as_many() -> None:
    assert isinstance(placed(["a", "b"], ["", ""]), BlockNotFound)
    check(["a", " ", "", "b"], ["", ""], 1, at=1)


def test_more_than_the_allowed_points_is_missing_just_as_many_is_not() -> None:
    lines = [f"  {number}" for number in range(101)]
    check(lines, [line.strip() for line in lines[:100]], POINTS_MAX, "indentation")
    found = placed(lines, [line.strip() for line in lines])
    assert isinstance(found, BlockNotFound)
    assert found.points == POINTS_MAX + 10


# ── Several blocks ─────────────────────────────────────────────────────────────────────────────────


def test_a_block_is_looked_for_after_the_one_before_it() -> None:
    found = placed(["b", "a", "b"], ["a"], ["b"])
    assert isinstance(found, list)
    assert [place.start for _, place in found] == [1, 2]
    assert placed(["b", "a"], ["a"], ["b"]) == BlockNotFound(blocks_of(["a"], ["b"])[1])


def test_a_later_block_may_tell_which_place_is_meant() -> None:
    found = placed(["h", "t", "h", "t", "q"], ["h"], ["t"], ["h"], ["t"])
    assert isinstance(found, list)
    assert [place.start for _, place in found] == [0, 1, 2, 3]


def test_where_the_ways_part_is_told() -> None:
    found = placed(["top", "cat", "dog", "cat", "end"], ["top"], ["cat"], ["end"])
    assert isinstance(found, BlockAmbiguous)
    assert found.block.number == 2
    assert [place.start for place in found.places] == [1, 3]


def test_the_block_that_stops_every_way_is_told() -> None:
    assert placed(["x", "a", "b", "x"], ["a"], ["b"], ["a"]) == BlockNotFound(
        blocks_of(["a"], ["b"], ["a"])[2]
    )


# ── The rules, written plainly ─────────────────────────────────────────────────────────────────────

ALIKE = {"‘": "'", "“": '"', "…": "...", "–": "-"}
FORMS: list[tuple[str, int, Callable[[str], str]]] = [
    ("", 0, str),
    ("", 1, str.rstrip),
    ("indentation", 10, str.lstrip),
    ("line_numbers", 5, lambda line: re.sub(r"^\d+ ", "", line).rstrip()),
    ("confusable_chars", 5, lambda line: "".join(ALIKE.get(sign, sign) for sign in line).rstrip()),
    ("all_spaces", 50, lambda line: re.sub(r"\s", "", line)),
]


def tried_out(
    lines: Sequence[str], blocks: Sequence[FuzzyBlock], start: int = 0
) -> Iterator[list[BlockPosition]]:
    """Yield every way to place the blocks."""
    if not blocks:
        yield []
        return
    for place in places(lines, blocks[0].search, start):
        for rest in tried_out(lines, blocks[1:], place.end):
            yield [place, *rest]


def places(lines: Sequence[str], search: Sequence[str], start: int) -> list[BlockPosition]:
    near = near_places(lines, search, start)
    exact = [place for place in near if tuple(lines[place.start : place.end]) == tuple(search)]
    if exact or near:
        return exact or near
    kept = [number for number in range(start, len(lines)) if lines[number].strip()]
    wanted = [line for line in search if line.strip()]
    loose = near_places([lines[number] for number in kept], wanted, 0) if wanted else []
    return [BlockPosition(kept[p.start], kept[p.end - 1] + 1, p.points, p.kinds, True) for p in loose]


def near_places(lines: Sequence[str], search: Sequence[str], start: int) -> list[BlockPosition]:
    found = []
    for first in range(start, len(lines) - len(search) + 1):
        points, kinds = 0, set()
        for line, wanted in zip(lines[first:], search, strict=False):
            fits = [(kind, cost) for kind, cost, form in FORMS if form(line) == form(wanted)]
            if not fits:
                break
            kinds.add(fits[0][0])
            points += fits[0][1]
        else:
            found.append(BlockPosition(first, first + len(search), points, frozenset(kinds - {""})))
    return found


LINES = st.sampled_from(
    ["a", "b", "  a", "a ", "\ta", "1 a", "22 b", "12 ", "", " ", "‘a", "'a", "a b", "ab", "a  b"]
)


@settings(max_examples=600)
@given(
    st.lists(LINES, max_size=12),
    st.lists(st.lists(LINES, min_size=1, max_size=3), min_size=1, max_size=4),
)
def test_the_outcome_is_that_of_trying_out_every_way(lines: list[str], searches: list[list[str]]) -> None:
    ways = list(tried_out(lines, blocks_of(*searches)))
    found = placed(lines, *searches)
    if not ways:
        assert isinstance(found, BlockNotFound)
        reached = max(n for n in range(len(searches)) if list(tried_out(lines, blocks_of(*searches[:n]))))
        assert found == BlockNotFound(blocks_of(*searches)[reached])
        return
    costs = [sum(place.points for place in way) for way in ways]
    best = [way for way, cost in zip(ways, costs, strict=True) if cost == min(costs)]
    if len(best) > 1:
        assert isinstance(found, BlockAmbiguous)
        index = found.block.number - 1
        assert set(found.places) == {way[index] for way in best}
        assert len(found.places) > 1
    else:
        assert isinstance(found, list)
        assert [place for _, place in found] == best[0]


# ── What it costs ──────────────────────────────────────────────────────────────────────────────────


def seconds(lines: Sequence[str], searches: Sequence[Sequence[str]]) -> float:
    start = time.process_time()
    placed(lines, *searches)
    return time.process_time() - start


def test_fifty_blocks_of_ten_lines_in_ten_thousand_take_well_under_a_second() -> None:
    lines = ["    }" if number % 3 else f"    call({number})" for number in range(10_000)]
    searches = [lines[first : first + 10] for first in range(0, 10_000, 200)]
    assert seconds(lines, searches) < 3
    assert seconds(lines, [[line.strip() for line in search] for search in searches]) < 3


def test_equal_lines_do_not_explode() -> None:
    assert seconds(["x"] * 10_000, [["x"] * 10] * 50) < 3
    assert seconds(["x"] * 10_000, [[" " * number + "x" for number in range(1, 11)]] * 50) < 3


def test_a_block_that_is_in_too_many_places_is_several_without_weighing_them() -> None:
    found = placed(["x"] * (PLACES_MAX + 2), ["x"], ["never looked at"])
    assert isinstance(found, BlockAmbiguous)
    assert found.block.number == 1
    assert len(found.places) == PLACES_MAX + 2


def test_too_many_comparisons_are_refused_each_time() -> None:
    variants = [" " * number + "x" for number in range(1_000)]
    for _ in range(2):
        with pytest.raises(TooLarge) as caught:
            placed(["x\t"] * 4_000, variants)
        assert caught.value.hint
