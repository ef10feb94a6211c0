"""The refusals between the rows of a timeline that lists every transaction.

A refusal is above the newest transaction of its time. Rows are counted from 0 for the newest, as in
`timeline`; the rows of the list are those of the transactions and the refusals together.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from editd_client.review.timeline import RefusalRow

REFUSALS_MAX = 500  # the daemon keeps no more


class RefusalRows:
    """The refusals, newest first, at most `REFUSALS_MAX` of them."""

    def __init__(self, refusals: Iterable[RefusalRow] = ()) -> None:
        self._rows = sorted(refusals, key=lambda one: one.number, reverse=True)[:REFUSALS_MAX]
        self._head: int | None = None  # that `_above` and `_places` are for
        self._above: list[int] = []  # the transactions above each refusal
        self._places: list[int] = []  # the row of each in the list

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, one: object) -> bool:
        return one in self._rows

    def add(self, one: RefusalRow) -> None:
        """Add the newest refusal."""
        self._rows = [one, *self._rows][:REFUSALS_MAX]
        self._head = None

    def at(self, row: int, head: int) -> tuple[int, RefusalRow | None]:
        """Return the transaction's row for a row of the list, and the refusal if it is one.

        `head` is the newest transaction. The row below a refusal is that of its transaction.
        """
        self._place(head)
        number = bisect_left(self._places, row)
        is_refusal = number < len(self._places) and self._places[number] == row
        return row - number, self._rows[number] if is_refusal else None

    def row_of(self, transaction_row: int, head: int) -> int:
        """Return the row of the list for a transaction's row."""
        self._place(head)
        return transaction_row + bisect_right(self._above, transaction_row)

    def row_of_refusal(self, one: RefusalRow, head: int) -> int:
        """Return the row of the list for a refusal."""
        self._place(head)
        return self._places[self._rows.index(one)]

    def _place(self, head: int) -> None:
        if self._head != head:
            self._head = head
            self._above = [max(0, head - one.head) for one in self._rows]
            self._places = [above + number for number, above in enumerate(self._above)]
