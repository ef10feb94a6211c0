"""The live list of the matching transactions, requested in windows when they come into view.

A row has a **position**, counted from the oldest matching transaction. New transactions go above, so the
position of a row never changes, and a reader who does not follow stays on the same transaction.

F1  Memory is bounded: at most WINDOWS_MAX windows of rows are kept, for any number of transactions.
F2  The seqs of the history have no gaps, so a window of all transactions is found without the ones above.
    With a query, a window is found from the nearest known seq above it, at most SKIP_MAX rows at a time.
F3  An answer to a request from before `restart` is ignored.

Sends nothing: `requests` returns the calls, `receive` takes their results. Does not match a query itself:
the daemon counts and lists.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from editd_client import requests
from editd_client.review.query import TransactionQuery

if TYPE_CHECKING:
    from editd.wire.messages import BriefTransaction, Kind, LogCountResult, Transaction
    from editd_client.prepared_call import PreparedCall

WINDOW = 200  # rows; the most that `log` counts the lines of
WINDOWS_MAX = 20
SKIP_MAX = 10_000  # rows of one `log`, its own limit
CHANGING: tuple[Kind, ...] = ("undo", "redo", "rollback", "restore")  # they change what earlier rows show


@dataclass(frozen=True, slots=True)
class FeedRequest:
    """A call that the feed needs. `high` is the position of its first, newest row."""

    call: PreparedCall[Any]
    what: Literal["count", "rows", "skip"]
    high: int = 0
    low: int = 0
    epoch: int = 0


class Feed:
    """The rows of a query, in windows. `count` is their number, `head` the newest transaction counted."""

    def __init__(self, query: TransactionQuery | None = None) -> None:
        self.query = query or TransactionQuery()
        self.count = 0
        self.head = -1
        self.is_counted = False
        self._announced = -1  # the newest transaction that the daemon has reported
        self.epoch = 0  # a number for the time since `restart`
        self._windows: OrderedDict[int, dict[int, BriefTransaction]] = OrderedDict()
        self._oldest_seqs: dict[int, int] = {}  # of a window with a query: the seq of its oldest row
        self._outdated: set[int] = set()  # windows whose rows are shown until they are fetched again
        self._sent: set[tuple[str, int]] = set()

    def restart(self, query: TransactionQuery | None = None) -> None:
        """Count and fetch everything again, with another query if one is given."""
        self.query = self.query if query is None else query
        self.count, self.head, self.is_counted = 0, -1, False
        self.epoch += 1
        self._windows.clear()
        self._oldest_seqs.clear()
        self._outdated.clear()
        self._sent.clear()

    def announce(self, seq: int, kind: Kind = "edit") -> None:
        """Note a new transaction. One that changes earlier rows outdates all windows."""
        self._announced = max(self._announced, seq)
        if kind in CHANGING:
            self.outdate()
        if self.is_counted and self.query.is_empty and self._announced > self.head:
            self.count += self._announced - self.head  # F2
            self.head = self._announced

    def outdate(self) -> None:
        """Fetch the rows again. What an `is:unreviewed` lists may be others now."""
        if self.query.is_unreviewed:
            self.restart()
        else:
            self._outdated |= self._windows.keys()

    def row(self, position: int) -> BriefTransaction | None:
        """Return the row at a position, or None if it has not been fetched."""
        rows = self._windows.get(position // WINDOW)
        if rows is None:
            return None
        self._windows.move_to_end(position // WINDOW)
        return rows.get(position)

    def position_of(self, seq: int) -> int | None:
        """Return the position of a transaction, or None if that is not known."""
        if self.query.is_empty and self.is_counted:
            position = self.count - 1 - (self.head - seq)
            return position if 0 <= position < self.count else None
        for rows in self._windows.values():
            for position, row in rows.items():
                if row.seq == seq:
                    return position
        return None

    def requests(self, high: int, low: int) -> list[FeedRequest]:
        """Return the calls for the rows between two positions that are not fetched or requested yet."""
        if not self.is_counted or (self._announced > self.head and not self.query.is_empty):
            counting = requests.log_count(**self.query.params, after=self.head if self.is_counted else None)
            unsent = self._unsent(FeedRequest(counting, "count", epoch=self.epoch))
            if not self.is_counted:
                return unsent
        else:
            unsent = []
        high, low = min(high, self.count - 1), max(low, 0)
        for window in range(high // WINDOW, low // WINDOW - 1, -1):
            asked = self._window_request(window)
            unsent += [] if asked is None else self._unsent(asked)
        return unsent

    def receive(self, request: FeedRequest, result: Any) -> None:
        """Take the result of a call: a LogCountResult, or a LogResult."""
        if request.epoch != self.epoch:
            return  # F3
        self._sent.discard(_key(request))
        if request.what == "count":
            self._take_count(result)
        else:
            self._take_rows(request, result.transactions)

    def note_failure(self, request: FeedRequest) -> None:
        """Note that a call has failed, so that it is made again."""
        self._sent.discard(_key(request))

    def _unsent(self, request: FeedRequest) -> list[FeedRequest]:
        if _key(request) in self._sent:
            return []
        self._sent.add(_key(request))
        return [request]

    def _take_count(self, result: LogCountResult) -> None:
        self.count = result.count + (self.count if self.is_counted else 0)
        self.head = result.head
        self._announced = max(self._announced, self.head)
        self.is_counted = True

    def _window_request(self, window: int) -> FeedRequest | None:
        rows = {} if window in self._outdated else self._windows.get(window, {})
        bottom, top = window * WINDOW, min(self.count, (window + 1) * WINDOW) - 1
        missing = [position for position in range(bottom, top + 1) if position not in rows]
        if not missing:
            return None
        high, low = missing[-1], missing[0]
        before = self._seq_above(high, rows)
        if before is None:
            return self._skip_request(window)
        call = requests.log(**self.query.params, before=before, limit=high - low + 1, brief=True, stat=True)
        return FeedRequest(call, "rows", high, low, self.epoch)

    def _seq_above(self, position: int, rows: dict[int, BriefTransaction]) -> int | None:
        """Return a seq above a position's, and not above the next position's, if it is known."""
        if position == self.count - 1:
            return self.head + 1
        if self.query.is_empty:
            return self.head - (self.count - 1 - position) + 1
        if position + 1 in rows:
            return rows[position + 1].seq
        return self._oldest_seqs.get((position + 1) // WINDOW) if (position + 1) % WINDOW == 0 else None

    def _skip_request(self, window: int) -> FeedRequest:
        """Return the call that finds the seqs between the nearest known one and a window."""
        known = min((one for one in self._oldest_seqs if one > window), default=None)
        high = self.count - 1 if known is None else known * WINDOW - 1
        before = self.head + 1 if known is None else self._oldest_seqs[known]
        low = max((window + 1) * WINDOW, high - SKIP_MAX + 1)
        call = requests.log(**self.query.params, before=before, limit=high - low + 1, brief=True)
        return FeedRequest(call, "skip", high, low, self.epoch)

    def _take_rows(self, request: FeedRequest, transactions: list[Transaction]) -> None:
        if len(transactions) < request.high - request.low + 1:
            self.restart()  # the history was compacted meanwhile
            return
        rows = {request.high - number: one for number, one in enumerate(transactions)}
        for position, one in rows.items():
            if position % WINDOW == 0:
                self._oldest_seqs[position // WINDOW] = one.seq
        if request.what == "rows":
            window = request.high // WINDOW
            self._windows.setdefault(window, {}).update(rows)
            self._windows.move_to_end(window)
            self._outdated.discard(window)
        while len(self._windows) > WINDOWS_MAX:
            dropped, _ = self._windows.popitem(last=False)
            self._outdated.discard(dropped)


def _key(request: FeedRequest) -> tuple[str, int]:
    return request.what, request.high // WINDOW if request.what == "rows" else 0
