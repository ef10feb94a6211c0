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


def test_a_new_refusal_is_above_and_an_old_one_is_forgotten() -> None:
    rows = RefusalRows(refusal(number, 3) for number in range(1, REFUSALS_MAX + 1))
    rows.add(refusal(REFUSALS_MAX + 1, 5))
    assert len(rows) == REFUSALS_MAX
    assert rows.at(0, 5)[1] == refusal(REFUSALS_MAX + 1, 5)
    assert rows.at(REFUSALS_MAX + 1, 5) == (2, refusal(2, 3))
