"""The choice of the waiting transactions to push next, and to keep back.

A server may refuse a push for one of its transactions. Each further push has half as many, until that one is
alone, and it is kept back when it was refused twice. A minute later, or on request, it is sent again. An
entry that no host could use is never sent.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from editd.remote.entries import flaw_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from editd.remote.entries import SettledAside, Tentative
    from editd.remote.waiting_list import WaitingList
    from editd.values.transaction import CommitId

LANDED_MAX = 1000  # transactions of one push
KEPT_BACK_SECONDS = 60.0  # then the server is asked again to take what it has refused
_CHECKED = (
    "The server checks `.gitattributes` and `.gitmodules`, also those in the log already. Delete or shorten "
    "the file, or turn off `receive.fsckObjects` on the server."
)
_CHECKS = ("gitattributes", "gitmodules")  # in the names of these checks of git-fsck(1)


def with_way_out(words: str) -> str:
    """Return git's words, with a hint if they name a check of a file's content."""
    return f"{words} {_CHECKED}" if any(check in words.lower() for check in _CHECKS) else words


class PushSelection:
    """The transactions that are kept back, each with its reason, and the size of the next push."""

    def __init__(self) -> None:
        self.batch = LANDED_MAX  # transactions of the next push
        self.is_searching = False  # for the transaction that the server refuses: the next push has fewer
        self._refused: dict[CommitId, str] = {}  # by the server, alone, with its words
        self._refused_at = 0.0  # the time of the last of these refusals
        self._suspect: CommitId | None = None  # refused alone, by the last push
        self._flaws: dict[CommitId, str] = {}  # of own transactions, as other hosts would read them
        self._checked = 0  # the last transaction whose flaws are known

    @property
    def reasons(self) -> dict[CommitId, str]:
        """The reason for each transaction, the server's reasons first."""
        return self._refused | self._flaws

    def is_refused(self, origin: CommitId) -> bool:
        """Return whether the server has refused this transaction alone."""
        return origin in self._refused

    def sendable(self, waiting: WaitingList) -> list[Tentative]:
        """Return the waiting transactions, except transactions kept back and their dependents."""
        if self._refused and time.monotonic() - self._refused_at > KEPT_BACK_SECONDS:
            self._refused.clear()
        for one in waiting:
            if one.seq > self._checked and (flaw := flaw_of(one)) is not None:
                self._flaws[one.origin] = flaw
            self._checked = max(self._checked, one.seq)
        reasons = self.reasons
        if not reasons:
            return list(waiting)
        kept = (one for one in waiting if one.origin in reasons)
        _, dependent = waiting.connected(change.path for one in kept for change in one.changes)
        left_out = set(dependent)
        return [one for one in waiting if one not in left_out]

    def sendable_decisions(self, decisions: Iterable[SettledAside]) -> list[SettledAside]:
        """Return the decisions that a host could use.

        An entry that no host can use decides nothing, so its decision would be sent again and again.
        """
        usable: list[SettledAside] = []
        for one in decisions:
            if (flaw := flaw_of(one)) is None:
                usable.append(one)
            else:
                self._flaws[one.origin] = flaw
        return usable

    def send_again(self) -> None:
        """Have the next push send what the server has refused."""
        self._refused.clear()

    def note_refused(self, batch: Sequence[Tentative], words: str) -> None:
        """Halve the next push, to find the refused transaction; keep it back if it is refused twice alone.

        Once could be a connection that broke, and then later work of this host would land before it.
        """
        self.is_searching = len(batch) > 1
        if len(batch) > 1:
            self.batch = len(batch) // 2
        elif batch and batch[0].origin != self._suspect:
            self._suspect = batch[0].origin
        elif batch:
            self._refused[batch[0].origin] = words
            self._refused_at = time.monotonic()

    def note_landed(self) -> None:
        """Push twice as many next."""
        self.batch = min(2 * self.batch, LANDED_MAX)
