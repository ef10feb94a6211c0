"""The newest transactions in memory, so that an undo of one of them needs no query of the index.

They are consecutive and end with the newest one. So what they say about later transactions is complete.
A question that needs an older transaction has no answer here (None), and the index answers it.
"""

from __future__ import annotations

from collections import deque
from operator import attrgetter
from typing import TYPE_CHECKING

from msgspec.structs import replace

from editd.store.index_tables import UndoQuery

if TYPE_CHECKING:
    from editd.values.path import WorkspacePath
    from editd.values.transaction import Seq, Transaction

_PATH = attrgetter("path.raw")  # the order of the index
KEPT_MAX = 64  # transactions
TOUCHES_MAX = 1_000  # paths in all of them, some 0.5 MB
FEW_TOUCHES = 10  # paths of a transaction that may wait in `news`


class RecentTransactions:
    """The newest transactions. The writer appends to `news`, and calls `take_in` when there is much in it."""

    def __init__(self) -> None:
        self.news: list[Transaction] = []  # since the last question: an edit without a question costs no call
        self._kept: deque[Transaction] = deque()
        self._touches = 0
        self._touched: dict[WorkspacePath, Seq] = {}  # the newest transaction in memory that touched a path

    def take_in(self) -> None:
        """Note the transactions since the last question."""
        for transaction in self.news:
            self._add(transaction)
        self.news.clear()

    def _add(self, transaction: Transaction) -> None:
        """Note the newest transaction, and drop the oldest ones if there are too many."""
        if self._kept and self._kept[-1].seq + 1 != transaction.seq:
            self._drop_all()
        self._kept.append(transaction)
        self._touches += len(transaction.touches)
        for touch in transaction.touches:
            self._touched[touch.path] = transaction.seq
            if touch.source is not None:
                self._touched[touch.source] = transaction.seq
        while len(self._kept) > KEPT_MAX or self._touches > TOUCHES_MAX:
            self._drop(self._kept.popleft())

    def _drop(self, oldest: Transaction) -> None:
        self._touches -= len(oldest.touches)
        for touch in oldest.touches:
            for path in (touch.path, touch.source):
                if path is not None and self._touched.get(path) == oldest.seq:
                    del self._touched[path]

    def clear(self) -> None:
        self.news.clear()
        self._drop_all()

    def _drop_all(self) -> None:
        self._kept.clear()
        self._touched.clear()
        self._touches = 0

    def transaction(self, seq: int) -> Transaction | None:
        """Return the transaction with this number if it is in memory, as it was made."""
        if self.news:
            self.take_in()
        if not self._kept or not self._kept[0].seq <= seq <= self._kept[-1].seq:
            return None
        return self._kept[seq - self._kept[0].seq]

    def find_untouched(self, seq: int) -> Transaction | None:
        """Return the transaction with this number if it is in memory, and no later one undoes any of it."""
        transaction = self.transaction(seq)
        if transaction is None:
            return None
        for later in range(seq - self._kept[0].seq + 1, len(self._kept)):
            if seq in self._kept[later].undoes:
                return None
        return _in_order(transaction)

    def newest_in_force(self, chosen: UndoQuery) -> Transaction | None:
        """Return the newest transaction that matches `chosen` and is not undone.

        None also stands for *unknown*: it may be older, only some paths of a transaction may be undone, or
        `chosen` has other filters than kinds and sessions.
        """
        if chosen != UndoQuery(chosen.kinds, chosen.sessions):
            return None
        if self.news:
            self.take_in()
        undone: set[Seq] = set()
        for transaction in reversed(self._kept):
            if transaction.parts:
                return None
            if transaction.seq in undone:
                continue
            is_match = not chosen.sessions or transaction.authorship.session in chosen.sessions
            if is_match and transaction.kind in chosen.kinds:
                return _in_order(transaction)
            undone.update(transaction.undoes)
        return None

    def has_stayed(self, path: WorkspacePath, seq: int) -> bool:
        """Return whether no transaction after `seq` touched `path`. False also stands for *unknown*."""
        if self.news:
            self.take_in()
        if not self._kept or seq + 1 < self._kept[0].seq:
            return False
        return self._touched.get(path, -1) <= seq


def _in_order(transaction: Transaction) -> Transaction:
    """Return the transaction with its changes in the order of the index."""
    if len(transaction.touches) < 2:
        return transaction
    return replace(transaction, touches=tuple(sorted(transaction.touches, key=_PATH)))
