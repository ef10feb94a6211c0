"""The refusals between the transactions of a timeline."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from editd_client.review.refusal_rows import REFUSALS_MAX, RefusalRows
from editd_client.review.timeline import RefusalRow

TIME = datetime(2026, 11, 25, tzinfo=UTC)


def refusal(number: int, head: int) -> RefusalRow:
    return RefusalRow(number, TIME, "apply", "stale", "agent", ("a",), "It changed.", head)


@given(st.integers(0, 20).flatmap(lambda head: st.tuples(st.just(head), st.lists(st.integers(0, head)))))
def test_each_row_is_a_transaction_or_a_refusal_above_its_transaction(case: tuple[int, list[int]]) -> None:
    head, heads = case
    rows = RefusalRows(refusal(number, one) for number, one in enumerate(sorted(heads), 1))
    found = [rows.at(row, head) for row in range(head + 1 + len(rows))]
    assert [transaction for transaction, one in found if one is None] == list(range(head + 1))
    assert [one.number for _, one in found if one is not None] == list(range(len(heads), 0, -1))
    for row, (transaction, one) in enumerate(found):
        if one is None:
            assert rows.row_of(transaction, head) == row
        else:
            assert (one.head, rows.row_of_refusal(one, head)) == (head - transaction, row)


def test_in_a_filtered_list_a_refusal_is_above_the_newest_match_of_its_time() -> None:
    """The matches are the transactions 2, 5 and 9; 10 and more are not counted yet."""
    ranks = {1: 0, 2: 1, 7: 2, 9: 3}
    rows = RefusalRows((refusal(number, head) for number, head in enumerate(ranks, 1)), ranks)
    found = [rows.at(row, 3) for row in range(3 + len(rows))]
    kinds = [transaction if one is None else f"head {one.head}" for transaction, one in found]
    assert kinds == ["head 9", 0, "head 7", 1, "head 2", 2, "head 1"]
    assert [rows.row_of(row, 3) for row in range(3)] == [1, 3, 5]


def test_an_old_refusal_is_forgotten() -> None:
    rows = RefusalRows(refusal(number, 3) for number in range(1, REFUSALS_MAX + 2))
    assert len(rows) == REFUSALS_MAX
    assert rows.at(0, 5) == (0, None)
    assert rows.at(REFUSALS_MAX + 1, 5) == (2, refusal(2, 3))
