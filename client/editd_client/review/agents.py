"""The agents: each session that is open or was used lately, its activity, and the other programs.

A session waits, runs a command, is connected, or is idle, in this order. Agents that need the reviewer
come first, then the others by their last transaction.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal, Self

from msgspec import UnsetType

from editd_client import requests

if TYPE_CHECKING:
    from collections.abc import Sequence

    from editd.wire.messages import (
        GrantEntry,
        LeaseEntry,
        LeaseListResult,
        LogCountResult,
        LogResult,
        PauseEntry,
        ReviewGrantsResult,
        SessionActivity,
        SessionEntry,
        SessionListResult,
    )
    from editd_client.prepared_call import PreparedCall

Doing = Literal["review", "lease", "command", "connected", "idle", "closed", "outside"]
OUTSIDE = "outside"  # the actor of changes by other programs
CLOSED_SECONDS = 86_400  # closed sessions are listed for a day after their last use


@dataclass(frozen=True, slots=True)
class AgentRow:
    """One session, or the other programs, as plain values."""

    name: str
    actor: str
    doing: Doing
    what: str  # the command, the proposals or the leases that it is about
    since: datetime | None  # when it began to wait, or the command to run
    last_seq: int | None
    last_time: datetime | None
    edits: int
    undone: int
    added: int | None  # lines in force; None: unknown
    deleted: int | None
    proposals: tuple[int, ...]
    leases: tuple[str, ...]
    is_closed: bool = False
    pause: PauseEntry | None = None
    missed: int = 0  # calls whose beginning or end did not come

    @classmethod
    def of(cls, entry: SessionEntry) -> Self:
        """Return the row of a session from a `session.list` with `activity`."""
        activity = None if isinstance(entry.activity, UnsetType) else entry.activity
        doing, subject = _doing(entry, activity)
        last = None if activity is None else activity.last
        return cls(
            name=entry.session,
            actor=entry.actor or "",
            doing=doing,
            what=subject,
            since=None
            if activity is None or activity.since is None
            else datetime.fromisoformat(activity.since),
            last_seq=None if last is None else last.seq,
            last_time=datetime.fromisoformat(entry.used if last is None else last.time),
            edits=0 if activity is None else activity.edits,
            undone=0 if activity is None else activity.edits - activity.in_force,
            added=None if activity is None else activity.added,
            deleted=None if activity is None else activity.deleted,
            proposals=() if activity is None else tuple(activity.proposals),
            leases=() if activity is None else tuple(activity.leases),
            is_closed=entry.state == "closed",
            pause=entry.paused,
            missed=0 if activity is None else activity.missed,
        )

    @classmethod
    def of_outside(cls, count: int, result: LogResult) -> Self:
        """Return the row of the other programs, by the number of their transactions and the newest one."""
        last = result.transactions[0] if result.transactions else None
        return cls(
            name=OUTSIDE, actor=OUTSIDE, doing="outside", what="other programs", since=None,
            last_seq=None if last is None else last.seq,
            last_time=None if last is None else datetime.fromisoformat(last.time),
            edits=count, undone=0, added=None, deleted=None, proposals=(), leases=(),
        )  # fmt: skip

    @property
    def pause_text(self) -> str:
        """The pause in words, or nothing."""
        if self.pause is None:
            return ""
        reason = f": {self.pause.reason}" if self.pause.reason else ""
        effect = "edits are refused" if self.pause.action == "refuse" else "edits wait for a reviewer"
        return f"paused by {self.pause.by}, {effect}{reason}"

    @property
    def missed_text(self) -> str:
        """The missed calls in words, or nothing."""
        if not self.missed:
            return ""
        return f"{self.missed} call{'s' * (self.missed != 1)} missed: changes may be recorded as outside"

    @property
    def needs_reviewer(self) -> bool:
        """Whether a proposal of the session is open."""
        return bool(self.proposals)


def _doing(entry: SessionEntry, activity: SessionActivity | None) -> tuple[Doing, str]:
    if entry.state == "closed":
        numbers = () if activity is None else activity.proposals
        return ("review", " ".join(f"P{number}" for number in numbers)) if numbers else ("closed", "")
    if activity is not None and activity.waits_for == "review":
        return "review", " ".join(f"P{number}" for number in activity.proposals)
    if activity is not None and activity.waits_for == "lease":
        holders = f" of {', '.join(activity.holders)}" if activity.holders else ""
        return "lease", " ".join(activity.wants) + holders
    if activity is not None and activity.running:
        return "command", activity.running[-1]
    return ("connected", "") if entry.connections else ("idle", "")


@dataclass(slots=True)
class Agents:
    """The sessions their activity, the grants and the leases, and a cursor that stays on its session."""

    rows: list[AgentRow] = field(default_factory=list)
    grants: list[GrantEntry] = field(default_factory=list)
    leases: list[LeaseEntry] = field(default_factory=list)
    cursor: int = 0

    @property
    def selected(self) -> AgentRow | None:
        return self.rows[self.cursor] if self.cursor < len(self.rows) else None

    def move(self, rows: int) -> None:
        self.cursor = min(max(0, self.cursor + rows), max(0, len(self.rows) - 1))

    def leases_of(self, session: str) -> list[LeaseEntry]:
        """Return the leases of a session, with their ends."""
        return [lease for lease in self.leases if lease.session == session]

    @staticmethod
    def requests(now: datetime | None = None) -> tuple[PreparedCall[object], ...]:
        """Return the calls whose results `receive` takes, in this order."""
        since = datetime.fromtimestamp((now or datetime.now(UTC)).timestamp() - CLOSED_SECONDS, UTC)
        return (
            requests.session_list(activity=True, closed=since.isoformat()),
            requests.log_count(kind="outside"),
            requests.log(kind="outside", limit=1, brief=True),
            requests.review_grants(),
            requests.lease_list(),
        )  # type: ignore[return-value]

    def receive(
        self, sessions: SessionListResult, outside: LogCountResult, newest: LogResult,
        grants: ReviewGrantsResult, leases: LeaseListResult,
    ) -> None:  # fmt: skip
        """Take the results of `requests`."""
        selected = self.selected
        rows = sorted(map(AgentRow.of, sessions.sessions), key=_place)
        if outside.count:
            rows.append(AgentRow.of_outside(outside.count, newest))
        rows.sort(key=lambda row: row.is_closed and not row.needs_reviewer)
        self.rows, self.grants, self.leases = rows, grants.grants, leases.leases
        names = [row.name for row in rows]
        if selected is not None and selected.name in names:
            self.cursor = names.index(selected.name)
        self.move(0)


def _place(row: AgentRow) -> tuple[bool, float]:
    return not row.needs_reviewer, -(row.last_time.timestamp() if row.last_time is not None else 0.0)


def matching_agents(rows: Sequence[AgentRow], text: str) -> list[AgentRow]:
    """Return the sessions with a text in their name or their actor's name."""
    sought = text.strip().casefold()
    return [row for row in rows if sought in row.name.casefold() or sought in row.actor.casefold()]


def totals(rows: Sequence[AgentRow]) -> tuple[int, int]:
    """Return the number of open sessions, and of proposals that wait."""
    return sum(not row.is_closed and row.name != OUTSIDE for row in rows), sum(
        len(row.proposals) for row in rows
    )
