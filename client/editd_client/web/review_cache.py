"""The state of the daemon as a browser was shown it last, so that one decision is not fetched five times.

An event outdates what it may have changed, and so does the result of the browser's own decision. The later of
the two changes nothing. A page that is opened outdates everything, as any other form does. While no events
come, nothing is kept.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from editd.wire.codec import convert
from editd.wire.messages import ProposalEntry
from editd_client.review.proposals import ProposalRows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from editd.wire.messages import ProposalGetResult
    from editd_client.aio import AsyncClient
    from editd_client.session_state import Happening

LIST_MAX = 1000  # proposals in one answer of the daemon
SHOWN_MAX = 4  # proposals with their texts


class ReviewCounts(NamedTuple):
    """The numbers of waiting proposals and of open sessions, and the newest transaction."""

    proposals: int
    sessions: int
    head: int


class ReviewCache:
    """The waiting proposals, the shown ones and the counts. `is_told` says whether the events come."""

    def __init__(self, reviewer: AsyncClient, is_told: Callable[[], bool]) -> None:
        self._reviewer, self._is_told = reviewer, is_told
        self._listing = asyncio.Lock()  # one task fetches, and the others wait for its result
        self._showing = asyncio.Lock()
        self._rows: ProposalRows | None = None
        self._meanwhile: list[ProposalEntry] | None = None  # the events since the list was asked for
        self._shown: dict[int, ProposalGetResult] = {}
        self._news: dict[int, ProposalEntry] | None = None  # the events since a proposal was asked for
        self._counts: ReviewCounts | None = None
        self._is_count_known = False  # of proposals
        self._head = 0  # the newest transaction of an event or a decision
        self._changes = 0  # of all proposals
        self._count_changes = 0
        self._session_changes = 0

    async def entries(self) -> Sequence[ProposalEntry]:
        """Return every proposal that waits, newest first."""
        async with self._listing:
            rows = self._rows if self._is_told() else None
            if rows is None:
                changes = self._changes
                meanwhile: list[ProposalEntry] = []
                self._meanwhile = meanwhile
                try:
                    rows = ProposalRows(await self._fetched())
                finally:
                    self._meanwhile = None
                for entry in meanwhile:  # the answer may be older
                    rows.put(entry)
                self._rows = rows if changes == self._changes else None
            return rows.entries

    async def _fetched(self) -> list[ProposalEntry]:
        listed = await self._reviewer.proposal_list(limit=LIST_MAX)
        entries = list(listed.proposals)
        while listed.more:
            listed = await self._reviewer.proposal_list(limit=LIST_MAX, before=entries[-1].proposal)
            entries += listed.proposals
        return entries

    async def proposal(self, number: int) -> ProposalGetResult:
        """Return a proposal with its texts. Raises EditdError (`unknown_proposal`)."""
        async with self._showing:
            shown = self._shown.get(number) if self._is_told() else None
            if shown is None:
                changes = self._changes
                news: dict[int, ProposalEntry] = {}
                self._news = news
                try:
                    shown = await self._reviewer.proposal_get(number, content=True)
                finally:
                    self._news = None
                if changes == self._changes and _is_same(shown, news.get(number)):
                    self._shown[number] = shown
                while len(self._shown) > SHOWN_MAX:
                    del self._shown[next(iter(self._shown))]
            return shown

    async def counts(self) -> ReviewCounts:
        """Return the counts. Call it after `entries`, which has the number of proposals."""
        counts = self._counts if self._is_told() else None
        if counts is None or (self._rows is None and not self._is_count_known):
            changes = self._changes, self._count_changes
            sessions = self._session_changes
            status = await self._reviewer.status()
            counts = ReviewCounts(status.proposals, status.sessions, status.head)
            self._is_count_known = changes == (self._changes, self._count_changes)
            self._counts = counts if sessions == self._session_changes else None
        proposals = counts.proposals if self._rows is None else len(self._rows)
        return ReviewCounts(proposals, counts.sessions, max(counts.head, self._head))

    # ── Changes ──

    def take(self, happening: Happening) -> None:
        """Take an event of the daemon."""
        match happening.event:
            case "transaction" if happening.transaction is not None:
                self._landed(happening.transaction.seq)
            case "proposal" if self._is_empty:
                self._outdate_count()
            case "proposal":
                self._decided(convert(happening.data["proposal"], ProposalEntry))
            case "session":
                self._session_changes += 1
                self._counts = None
            case "resync" | "shutdown":
                self.lose()

    @property
    def _is_empty(self) -> bool:
        """Whether no proposal is kept or fetched, as for a browser that is closed."""
        return self._rows is None and not self._shown and self._meanwhile is None and self._news is None

    def decided(self, entry: ProposalEntry, seq: int | None) -> None:
        """Take the result of the browser's own decision, and the transaction that it has made."""
        if seq is not None:
            self._landed(seq)
        self._decided(entry)

    def outdate(self) -> None:
        """Fetch everything again when it is needed."""
        self._changes += 1
        self._session_changes += 1
        self._rows = self._counts = None
        self._shown.clear()

    def lose(self) -> None:
        """Fetch everything again, and know no transaction: the next daemon may have another history."""
        self.outdate()
        self._head = 0

    def _landed(self, seq: int) -> None:
        """Outdate the views of all proposals, unless the transaction is known already."""
        if seq > self._head:
            self._changes += 1
            self._head = seq
            self._rows = None
            self._shown.clear()

    def _outdate_count(self) -> None:
        self._count_changes += 1
        self._is_count_known = False

    def _decided(self, entry: ProposalEntry) -> None:
        """Put a proposal into the list, and outdate its texts if they differ from it."""
        if self._meanwhile is not None:
            self._meanwhile.append(entry)
        if self._news is not None:
            self._news[entry.proposal] = entry
        self._outdate_count()
        if self._rows is not None:
            self._rows.put(entry)
        shown = self._shown.get(entry.proposal)
        if shown is not None and not _is_same(shown, entry):
            del self._shown[entry.proposal]


def _is_same(shown: ProposalGetResult, entry: ProposalEntry | None) -> bool:
    """Return whether a proposal is as an event has it; without an event it is."""
    names = () if entry is None else ProposalEntry.__struct_fields__
    return all(getattr(shown, name) == getattr(entry, name) for name in names)
