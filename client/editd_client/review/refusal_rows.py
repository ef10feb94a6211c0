"""The refusals between the rows of a timeline.

A refusal is above the newest listed transaction of its time. Rows are counted from 0 for the newest, as in
`timeline`; the list has the rows of the transactions and the refusals together.

A transaction has a rank: the number of listed transactions up to it. If every transaction is listed, its seq
serves as well, since only differences of ranks count.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from editd_client.review.timeline import RefusalRow

REFUSALS_MAX = 500  # the daemon keeps no more


class RefusalRows:
    """The refusals, newest first, at most `REFUSALS_MAX` of them.

    `ranks` has the rank of the head of each; without it, every transaction is listed.
    """

    def __init__(self, refusals: Iterable[RefusalRow] = (), ranks: Mapping[int, int] | None = None) -> None:
        self._rows = sorted(refusals, key=lambda one: one.number, reverse=True)[:REFUSALS_MAX]
        self._ranks = [one.head if ranks is None else ranks[one.head] for one in self._rows]
        self._newest: int | None = None  # the rank that `_above` and `_places` are for
        self._above: list[int] = []  # the transactions above each refusal
        self._places: list[int] = []  # the row of each in the list

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, one: object) -> bool:
        return one in self._rows

    def at(self, row: int, newest: int) -> tuple[int, RefusalRow | None]:
        """Return the transaction's row for a row of the list, and the refusal if it is one.

        `newest` is the rank of the newest transaction. The row below a refusal is its transaction's.
        """
        self._place(newest)
        number = bisect_left(self._places, row)
        is_refusal = number < len(self._places) and self._places[number] == row
        return row - number, self._rows[number] if is_refusal else None

    def row_of(self, transaction_row: int, newest: int) -> int:
        """Return the row of the list for a transaction's row."""
        self._place(newest)
        return transaction_row + bisect_right(self._above, transaction_row)

    def row_of_refusal(self, one: RefusalRow, newest: int) -> int:
        """Return the row of the list for a refusal."""
        self._place(newest)
        return self._places[self._rows.index(one)]

    def _place(self, newest: int) -> None:
        if self._newest != newest:
            self._newest = newest
            self._above = [max(0, newest - rank) for rank in self._ranks]
            self._places = [above + number for number, above in enumerate(self._above)]
