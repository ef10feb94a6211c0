"""The timeline: the transactions of a query, with a cursor and marks that new transactions do not move."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Self

from editd_client.review.feed import Feed, FeedRequest
from editd_client.review.query import is_named

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from editd.wire.messages import BriefTransaction, RefusalEntry
    from editd_client.review.query import TransactionQuery

AHEAD = 60  # rows that are fetched beyond those in view


@dataclass(frozen=True, slots=True)
class TimelineRow:
    """One transaction in the form of a list, as plain values."""

    seq: int
    id: str
    time: datetime
    kind: str
    who: str
    path: str | None  # the only file, or the first
    files_count: int
    added: int | None  # None: unknown
    deleted: int | None
    subject: str
    undone_by: int | None
    undoes: tuple[int, ...]
    proposal: int | None
    rule: str | None  # the rule that let it land
    commit: str | None  # the commit that it was published in
    reviewed_by: str | None  # the person who has marked it
    is_unreviewed: bool  # work of an agent, in force, that no person has approved or marked

    @classmethod
    def of(cls, one: BriefTransaction) -> Self:
        """Return the row of a transaction from a `log` with `brief`."""
        rule, person = (getattr(one.approved_by, name, None) for name in ("rule", "actor"))
        marked = getattr(one.reviewed_by, "actor", None)
        is_work = one.session is not None and one.undone_by is None and one.kind != "claim"
        return cls(
            seq=one.seq,
            id=one.id,
            time=datetime.fromisoformat(one.time),
            kind=one.kind,
            who=one.session or one.actor,
            path=one.path if isinstance(one.path, str) else None,
            files_count=one.files_count if isinstance(one.files_count, int) else 0,
            added=one.added if isinstance(one.added, int) else None,
            deleted=one.deleted if isinstance(one.deleted, int) else None,
            subject=one.message.partition("\n")[0],
            undone_by=one.undone_by,
            undoes=tuple(one.undoes),
            proposal=one.proposal if isinstance(one.proposal, int) else None,
            rule=rule,
            commit=getattr(one.published, "commit", None),
            reviewed_by=marked,
            is_unreviewed=is_work and person is None and marked is None,
        )

    @property
    def files(self) -> str:
        """The file, or the number of files."""
        return self.path or "" if self.files_count == 1 else f"{self.files_count} files"


@dataclass(frozen=True, slots=True)
class RefusalRow:
    """A refused edit in the form of a list, as plain values."""

    number: int  # since the daemon began
    time: datetime
    method: str
    error: str
    who: str
    paths: tuple[str, ...]
    text: str  # of the refusal
    head: int  # the newest transaction at that time
    attempt: str = ""  # the text that it would have put into the files

    @property
    def sentence(self) -> str:
        """The refusal in one line: the author and the reason."""
        return f"{self.who} was refused: {self.text.partition(chr(10))[0]}"

    @classmethod
    def of(cls, one: RefusalEntry) -> Self:
        """Return the row of an entry of `log.refusals`."""
        return cls(
            number=one.number, time=datetime.fromisoformat(one.time), method=one.method,
            error=one.error, who=one.session or one.actor or "unknown", paths=tuple(one.paths),
            text=one.message, head=one.head, attempt=one.attempt,
        )  # fmt: skip


def matching_refusals(refusals: Iterable[RefusalRow], query: TransactionQuery) -> list[RefusalRow]:
    """Return the refusals that match a query: none if it is about kinds, messages or reviews."""
    if query.kind or query.grep or query.is_unreviewed:
        return []
    whose = (*query.session, *query.actor)
    return [
        one
        for one in refusals
        if is_named(one.who, whose) and (not query.path or any(query.is_below(path) for path in one.paths))
    ]


def with_refusals(
    rows: Sequence[TimelineRow], refusals: Iterable[RefusalRow], *, is_end: bool
) -> list[TimelineRow | RefusalRow]:
    """Return transactions, newest first, with the refusals between them: each above its `head`.

    Those that are older than the oldest row come last if the history ends there (`is_end`).
    """
    left = sorted(refusals, key=lambda one: one.number, reverse=True)
    merged: list[TimelineRow | RefusalRow] = []
    for row in rows:
        while left and left[0].head >= row.seq:
            merged.append(left.pop(0))
        merged.append(row)
    return [*merged, *left] if is_end else merged


@dataclass(slots=True)
class Timeline:
    """The rows in view, the cursor and the marked transactions. Row 0 is the newest."""

    feed: Feed = field(default_factory=Feed)
    cursor: int = 0  # a position of the feed
    marks: set[int] = field(default_factory=set)  # seqs
    is_following: bool = True  # the cursor moves to each new transaction

    @property
    def count(self) -> int:
        return self.feed.count

    @property
    def selected(self) -> TimelineRow | None:
        """The row at the cursor, if it has been fetched."""
        return self.at(self.cursor_row)

    @property
    def cursor_row(self) -> int:
        """The number of the cursor's row, from 0 for the newest."""
        return max(0, self.count - 1 - self.cursor)

    def at(self, row: int) -> TimelineRow | None:
        """Return a row, or None if it has not been fetched or does not exist."""
        entry = self.feed.row(self.count - 1 - row) if 0 <= row < self.count else None
        return None if entry is None else TimelineRow.of(entry)

    def seq_at(self, row: int) -> int | None:
        """Return the seq of a row, also before it has been fetched if every transaction is listed."""
        if self.feed.query.is_empty:
            return self.feed.head - row if 0 <= row < self.count else None
        shown = self.at(row)
        return None if shown is None else shown.seq

    def move(self, rows: int) -> None:
        """Move the cursor down, towards older transactions, or up. At the newest it follows again."""
        self._put(self.cursor_row + rows)
        self.is_following = self.cursor_row == 0 and rows < 0

    def newest(self) -> None:
        """Move to the newest transaction, and follow."""
        self._put(0)
        self.is_following = True

    def oldest(self) -> None:
        """Move to the oldest transaction."""
        self._put(self.count - 1)
        self.is_following = False

    def put(self, row: int) -> None:
        """Move the cursor to a row."""
        self._put(row)
        self.is_following = False

    def go_to(self, seq: int) -> bool:
        """Move to a transaction. Return False if it is not in the list, as far as that is known."""
        position = self.feed.position_of(seq)
        if position is None:
            return False
        self.cursor, self.is_following = position, False
        return True

    def toggle_mark(self) -> None:
        """Mark the transaction at the cursor, or remove its mark. Its row may not have been fetched yet."""
        seq = self.seq_at(self.cursor_row)
        if seq is not None:
            self.marks ^= {seq}

    def restart(self, query: TransactionQuery) -> None:
        """List the transactions of another query, from the newest on."""
        self.feed.restart(query)
        self.cursor, self.is_following = 0, True
        self.marks.clear()

    def requests(self, first_row: int, rows: int) -> list[FeedRequest]:
        """Return the calls for the rows in view, and for some around them."""
        high = self.count - 1 - first_row
        return self.feed.requests(high + AHEAD, high - rows - AHEAD)

    def follow_newest(self) -> None:
        """Move the cursor to the newest transaction if it follows. Call it after a change of the feed."""
        if self.is_following:
            self._put(0)
        self.cursor = min(max(0, self.cursor), max(0, self.count - 1))

    def _put(self, row: int) -> None:
        row = min(max(0, row), max(0, self.count - 1))
        self.cursor = max(0, self.count - 1 - row)
