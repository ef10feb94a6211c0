"""Tests of `edits.comparison`: the amount of comparing in a turn, and the results of another process."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from editd.edits.comparison import (
    DIRECT_COST_MAX,
    TURN,
    TURN_COST_MAX,
    Comparison,
    ComparisonTurn,
    NeedsComparison,
    NeedsThread,
    charge,
    compute,
    cost_of,
    decode_result,
    encode_result,
)
from editd.edits.diff import line_counts, unified_diff
from editd.edits.line_changes import hunks_between, join, unchanged_runs
from editd.edits.merge import merge, merge_lines
from editd.errors import Timeout
from editd.values.content import FileState
from editd.values.path import WorkspacePath

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def rows(lines: int, seed: int) -> bytes:
    """Return a text of many lines and few distinct ones, as a log or a CSV."""
    return b"".join(random.Random(seed).choices([b"%d,ok\n" % number for number in range(8)], k=lines))


BASE, OURS, THEIRS = (rows(12_000, seed) for seed in range(3))
PATH = WorkspacePath.parse("a")
CALLS: list[Callable[[bytes, bytes, bytes], object]] = [
    merge,
    merge_lines,
    join,
    lambda base, ours, _: hunks_between(base, ours),
    lambda base, ours, _: unchanged_runs(base, ours),
    lambda base, ours, _: unified_diff(PATH, FileState(base), FileState(ours)),
    lambda base, ours, _: unified_diff(PATH, FileState(base + b"\0"), FileState(ours + b"\0" * 4_000_000)),
    lambda base, ours, _: line_counts(FileState(base), FileState(ours)),
]


@pytest.fixture
def turn() -> Iterator[ComparisonTurn]:
    turn = ComparisonTurn()
    before = TURN.set(turn)
    yield turn
    TURN.reset(before)


@pytest.mark.parametrize("call", CALLS)
def test_each_comparison_of_many_lines_waits_for_another_process_and_takes_its_result(
    call: Callable[[bytes, bytes, bytes], object],
) -> None:
    expected, turn = call(BASE, OURS, THEIRS), ComparisonTurn()
    before = TURN.set(turn)
    asked = 0
    try:
        while True:
            try:
                result = call(BASE, OURS, THEIRS)
                break
            except NeedsComparison as need:
                asked += 1
                turn.results[need.comparison] = decode_result(need.comparison, encode_result(need.comparison))
    finally:
        TURN.reset(before)
    assert (result, 1 <= asked <= 2) == (expected, True)


def test_a_change_of_few_lines_is_compared_at_once(turn: ComparisonTurn) -> None:
    ours = BASE.replace(b"3,ok\n", b"3,no\n", 1)
    assert len(hunks_between(BASE, ours)) == 1
    assert turn.left == TURN_COST_MAX - cost_of(Comparison("hunks_between", (BASE, ours)))


def test_the_cost_is_a_count_of_work() -> None:
    """It depends on the texts alone, and not on the time that a machine takes."""
    few = cost_of(Comparison("hunks_between", (BASE, BASE + b"more\n")))
    assert few < DIRECT_COST_MAX < cost_of(Comparison("hunks_between", (BASE, OURS)))
    minified = (b"var a=1;" * 4_096, b"var b=2;" * 4_096)
    assert cost_of(Comparison("hunks_between", minified)) < DIRECT_COST_MAX
    equal = b"a\n" * 1_000_000
    assert cost_of(Comparison("hunks_between", (equal, equal + b"b\n"))) > DIRECT_COST_MAX


def test_many_small_comparisons_of_one_turn_have_a_limit_together(turn: ComparisonTurn) -> None:
    texts = [rows(900, seed) for seed in range(40)]

    def compare_all() -> None:
        for text in texts:
            hunks_between(b"", text)

    with pytest.raises(NeedsComparison) as needed:
        compare_all()
    done = texts.index(needed.value.comparison.arguments[1])  # type: ignore[arg-type]
    assert 5 < done < 39
    turn.begin({**turn.results, needed.value.comparison: compute(needed.value.comparison)})
    with pytest.raises(NeedsComparison) as needed:
        compare_all()
    assert needed.value.comparison.arguments[1] == texts[2 * done + 1], "a result is computed again"


def test_a_refused_comparison_is_a_refusal(turn: ComparisonTurn) -> None:
    with pytest.raises(NeedsComparison) as needed:
        merge(BASE, OURS, THEIRS)
    turn.results[needed.value.comparison] = Timeout("It was stopped.")
    with pytest.raises(Timeout, match="stopped"):
        merge(BASE, OURS, THEIRS)


def test_other_work_on_texts_moves_to_a_thread_if_the_turn_can_move(turn: ComparisonTurn) -> None:
    charge(b"a\n" * 1_000_000)  # the turn of a batch: nothing else can carry it out
    turn.begin()
    charge(b"a\n" * 1_000)
    with pytest.raises(NeedsThread):
        charge(b"a\n" * 1_000_000)
