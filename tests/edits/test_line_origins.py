"""edits.line_changes: the lines that were there before, and where, as git tells it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from editd.edits.line_changes import UnchangedRun, count_lines, unchanged_runs
from editd.store.line_blame import divide

LINES = st.lists(st.sampled_from([b"a\n", b"b\n", b"c\n", b"\n"]), max_size=12)


def check(before: bytes, after: bytes, expected: dict[int, int]) -> None:
    assert lines_found(before, after) == expected


def lines_found(before: bytes, after: bytes) -> dict[int, int]:
    runs = unchanged_runs(before, after)
    return {run.start + step: run.origin + step for run in runs for step in range(run.count)}


@pytest.mark.parametrize(("content", "lines"), [(b"", 0), (b"a", 1), (b"a\n", 1), (b"a\nb", 2), (b"\n\n", 2)])
def test_a_last_line_needs_no_line_end(content: bytes, lines: int) -> None:
    assert count_lines(content) == lines


def test_lines_behind_an_insertion_are_found_further_up() -> None:
    check(b"1\n2\n3\n", b"1\nnew\nnew\n2\n3\n", {0: 0, 3: 1, 4: 2})


def test_lines_behind_a_deletion_are_found_further_down() -> None:
    check(b"1\n2\n3\n4\n", b"1\n4\n", {0: 0, 1: 3})


def test_a_line_that_was_changed_was_not_there() -> None:
    check(b"1\n2\n3\n", b"1\ntwo\n3\n", {0: 0, 2: 2})


def test_a_line_that_got_its_line_end_is_another_line() -> None:
    check(b"1\n2", b"1\n2\n3\n", {0: 0})


def test_what_was_empty_had_no_lines_and_what_is_binary_has_none_that_are_known() -> None:
    check(b"", b"1\n", {})
    check(b"1\n\0", b"1\n2\n", {})
    check(b"1\n\0", b"1\n\0", {0: 0, 1: 1})


def test_only_the_lines_that_are_asked_for_are_looked_for() -> None:
    unchanged = unchanged_runs(b"1\n2\n3\n4\n", b"0\n1\n2\n4\n")
    kept, others = divide([UnchangedRun(11, 1, 1), UnchangedRun(13, 3, 1)], unchanged)
    assert (kept, others) == ([UnchangedRun(11, 0, 1), UnchangedRun(13, 3, 1)], [])


@settings(deadline=None)
@given(LINES, LINES, st.lists(st.integers(0, 11), max_size=12))
def test_wanted_lines_are_divided_into_the_old_and_the_new_ones(
    before: list[bytes], after: list[bytes], wanted: list[int]
) -> None:
    old, new = b"".join(before), b"".join(after)
    lines = [UnchangedRun(100 + place, line, 1) for place, line in enumerate(wanted) if line < len(after)]
    kept, others = divide([*lines, UnchangedRun(0, 0, len(after))], unchanged_runs(old, new))
    origins = lines_found(old, new)
    asked = {run.start: run.origin for run in lines} | {line: line for line in range(len(after))}
    expected = {now: origins[line] for now, line in asked.items() if line in origins}
    assert {run.start + step: run.origin + step for run in kept for step in range(run.count)} == expected
    assert {run.start + step for run in others for step in range(run.count)} == asked.keys() - expected.keys()


@settings(deadline=None)  # a loaded machine is no fault
@given(LINES, LINES)
def test_what_is_found_is_the_same_line_and_their_order_stays(
    before: list[bytes], after: list[bytes]
) -> None:
    found = lines_found(b"".join(before), b"".join(after))
    assert all(before[there] == after[here] for here, there in found.items())
    assert list(found.values()) == sorted(set(found.values()))
    assert len(found) == len(after) or before != after
