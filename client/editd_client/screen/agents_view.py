"""The view of the agents: each session with its activity, its newest transactions, and the grants."""

from __future__ import annotations

import secrets
from datetime import datetime
from typing import TYPE_CHECKING

from editd_client import requests
from editd_client.conversations.grant import allow, revoke
from editd_client.conversations.leases import end_leases
from editd_client.conversations.pause import pause, resume
from editd_client.conversations.publication import publish
from editd_client.conversations.reversal import reverse, rollback_of
from editd_client.conversations.review_mark import mark
from editd_client.conversations.session_end import close
from editd_client.review.agents import OUTSIDE, AgentRow, Agents, matching_agents, totals
from editd_client.review.query import TransactionQuery, is_named
from editd_client.review.timeline import RefusalRow, TimelineRow
from editd_client.screen.asker import ScreenAsker
from editd_client.screen.detail import Detail
from editd_client.screen.lines import Line, TextSpan, plain, wrap_texts
from editd_client.screen.patch_lines import PatchLine
from editd_client.screen.refusals import refusal_lines, show_refusals
from editd_client.screen.rows import Drawing, activity, agent_line, agent_work, timeline_line

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator
    from typing import Any

    from editd.wire.messages import GrantEntry, StatusResult, Transaction
    from editd_client.review.actions import View
    from editd_client.screen.desk import ReviewDesk

NEWEST = 5  # transactions of the session at the cursor
REFUSED = 3  # refusals of it
GRANTS_SHOWN = 3  # below the list
EMPTY = ("No session is open. An agent opens one: editctl mcp, or editctl integrate.",)


class AgentsView:
    """The sessions, and the one at the cursor."""

    name: View = "agents"

    def __init__(self, desk: ReviewDesk) -> None:
        self.desk = desk
        self._asker = ScreenAsker(desk)
        self.agents = Agents()
        self.detail = Detail()
        self.query = TransactionQuery()
        self.is_loaded = False
        self._newest: dict[str, list[Transaction]] = {}
        self._refusals: dict[str, list[RefusalRow]] = {}
        self.has_summary = False  # the state of the daemon is in view
        self._status: StatusResult | None = None
        self._is_outdated = True
        self._is_fetching = False

    # ── The list ──

    @property
    def rows(self) -> list[AgentRow]:
        query = self.query
        return [
            row
            for row in matching_agents(self.agents.rows, query.grep)
            if is_named(row.name, query.session) and is_named(row.actor, query.actor)
        ]

    @property
    def count(self) -> int:
        return len(self.rows)

    @property
    def cursor_row(self) -> int:
        selected = self.agents.selected
        rows = self.rows
        return rows.index(selected) if selected in rows else 0

    @property
    def selected(self) -> AgentRow | None:
        rows = self.rows
        return rows[self.cursor_row] if rows else None

    def move(self, rows: int) -> None:
        self.put(self.cursor_row + rows)

    def put(self, row: int) -> None:
        rows = self.rows
        if rows:
            self.agents.cursor = self.agents.rows.index(rows[min(max(0, row), len(rows) - 1)])

    def second(self, number: int, width: int) -> Line | None:
        rows = self.rows
        return agent_work(rows[number], Drawing(width, self.desk.clock)) if number < len(rows) else None

    def row(self, number: int, width: int, *, has_second: bool = False) -> Line | None:
        rows = self.rows
        if number < len(rows):
            drawing = Drawing(width, self.desk.clock, number == self.cursor_row, has_second=has_second)
            return agent_line(rows[number], drawing)
        if rows or number:
            return None
        lines = wrap_texts(EMPTY if self.is_loaded else ("…",), width)
        return lines[number] if number < len(lines) else None

    def title(self) -> str:
        return f"AGENTS {totals(self.agents.rows)[0]}"

    # ── The daemon ──

    def reload(self) -> None:
        """Fetch the sessions again, soon."""
        self._is_outdated = True
        self._newest.clear()

    @property
    def is_wanting(self) -> bool:
        """Whether the sessions are outdated, or the newest transactions of one are missing."""
        return self._is_outdated or self._name_to_fetch() is not None

    def pump(self, *, is_visible: bool) -> None:
        """Fetch the sessions, and the newest transactions of the one at the cursor."""
        del is_visible  # the count is
        if not self._is_fetching and self.is_wanting:
            self._is_fetching = True
            self.desk.begin(self._fetch)

    def _name_to_fetch(self) -> str | None:
        row = self.selected
        return None if row is None or row.name in self._newest else row.name

    async def _fetch(self) -> None:
        try:
            if self._is_outdated:
                self._is_outdated = False
                results = [await self.desk.ask(call) for call in self.agents.requests(self.desk.clock.now())]
                self.agents.receive(*results)  # type: ignore[arg-type]
                self.is_loaded = True
                if self.has_summary:
                    self._status = await self.desk.ask(requests.status())
            while (name := self._name_to_fetch()) is not None:
                which = {"kind": "outside"} if name == OUTSIDE else {"session": name}
                call = requests.log(**which, limit=NEWEST, brief=True, stat=True)  # type: ignore[arg-type]
                self._newest[name] = (await self.desk.ask(call)).transactions
                refused = requests.log_refusals(session=name, limit=REFUSED)
                self._refusals[name] = [*map(RefusalRow.of, (await self.desk.ask(refused)).refusals)]
        finally:
            self._is_fetching = False
            self.desk.redraw()

    # ── The details ──

    def draw(self, width: int) -> None:
        """Make the lines about the session at the cursor, and the grants."""
        row = self.selected
        lines = [] if row is None else list(self._about(row, width))
        lines += self._grants()
        self.detail.show(row and row.name, lines, lambda: map(PatchLine, lines))

    def _about(self, row: AgentRow, width: int) -> Iterator[Line]:
        sign, words, look = activity(row)
        actor = f" · {plain(row.actor)}" if row.actor not in ("", row.name) else ""
        yield Line((TextSpan(f" {plain(row.name)}", "title"), TextSpan(actor, "dim")))
        yield Line((TextSpan(f"   {sign} {words} {self.desk.clock.age(row.since)}", look),))
        if row.proposals:
            names = ", ".join(f"P{number}" for number in row.proposals)
            yield Line((TextSpan(f"   open: {names}", "warning"),))
        if row.missed:
            yield Line((TextSpan(f"   {row.missed_text}", "warning"),))
        for lease in self.agents.leases_of(row.name):
            paths = " ".join(map(plain, lease.paths))
            yield Line(
                (TextSpan(f"   lease {paths} until {self.desk.clock.time_of_day(_time(lease.expires))}"),)
            )
        if row.edits and row.name != OUTSIDE:
            yield Line((TextSpan(f"   {row.edits - row.undone} in force, {row.undone} undone", "dim"),))
        newest = self._newest.get(row.name, [])
        if newest:
            yield Line(())
            yield Line((TextSpan(f" {plain(row.name)}, the last {len(newest)}", "bold"),))
            for one in newest:
                yield timeline_line(TimelineRow.of(one), one.seq, Drawing(width, self.desk.clock))

        refusals = self._refusals.get(row.name, [])
        if refusals:
            yield Line(())
            yield Line((TextSpan(" Refused lately", "bold"), TextSpan("   ! lists all", "dim", "!")))
            for refusal in refusals:
                yield from refusal_lines(refusal, self.desk.clock)

    def _grants(self) -> Iterator[Line]:
        if not self.agents.grants:
            return
        yield Line(())
        yield Line((TextSpan(" Grants: these edits land without a decision", "bold"),))
        for grant in self.agents.grants:
            whose, paths, rest = self._grant(grant)
            text = f"   {grant.grant}  {whose}: {paths}, {rest}"
            yield Line((TextSpan(text), TextSpan("   X takes it back", "dim", "X")))

    def _grant(self, grant: GrantEntry) -> tuple[str, str, str]:
        """Return whose edits a grant is about, their paths, and what is left of it."""
        left = [
            f"{count} {unit} left"
            for count, unit in ((grant.uses, "edits"), (grant.lines, "lines"))
            if count is not None
        ]
        end = f"until {self.desk.clock.time_of_day(_time(grant.expires))}"
        whose = plain(grant.session) if grant.session else "anybody"
        return whose, " ".join(map(plain, grant.paths)), ", ".join([end, *left])

    def summary(self, row: int, _width: int) -> Line | None:
        """Return a line of the pane below the agents: the newest grants, and the state of the daemon."""
        grants = self.agents.grants
        lines = [Line((TextSpan(f" GRANTS {len(grants)}", "bold"),))]
        for grant in grants[-GRANTS_SHOWN:]:
            whose, paths, rest = self._grant(grant)
            lines.append(Line((TextSpan(f" {whose} {paths} "), TextSpan(rest, "dim"))))
        if self._status is not None:
            history, watcher = self._status.history, self._status.watcher
            size = f"{history['transactions']:,} transactions, {history['bytes'] / 1e6:,.1f} MB"
            state = self._status.reason or f"{self._status.state}, watcher {watcher['state']}"
            lines += [Line(()), Line((TextSpan(" DAEMON", "bold"),)), Line((TextSpan(f" {size}"),))]
            lines.append(Line((TextSpan(f" {plain(state)}"),)))
        return lines[row] if row < len(lines) else None

    def words(self) -> dict[str, str]:
        """Return the words of some keys in the bottom lines."""
        return {} if self.agents.grants else {"X": ""}

    # ── Keys ──

    def key(self, key: str, *, is_in_detail: bool) -> Coroutine[Any, Any, None] | None:
        """Carry out a key. Return the work that it starts."""
        del is_in_detail
        if key == "X":
            return self._revoke()
        row = self.selected
        work = {
            "R": self._rollback, "A": self._allow, "L": self._end_leases, "K": self._close,
            "m": self._publish, "P": self._pause, "M": self._review, "!": self._show_refusals,
        }.get(key)  # fmt: skip
        if work is None or row is None:
            return None
        if row.name == OUTSIDE:
            self.desk.say("Other programs have no session.", is_error=True)
            return None
        return work(row)

    async def _rollback(self, row: AgentRow) -> None:
        await reverse(self._asker, rollback_of(row.name), request_id=secrets.token_hex(16))

    async def _allow(self, row: AgentRow) -> None:
        await allow(self._asker, row.name, "**")
        self.reload()

    async def _end_leases(self, row: AgentRow) -> None:
        await end_leases(self._asker, row.name)

    async def _pause(self, row: AgentRow) -> None:
        """Refuse the edits of a session, or make them proposals; or let a paused one go on."""
        if row.pause is None:
            await pause(self._asker, row.name)
        else:
            await resume(self._asker, row.name)

    async def _review(self, row: AgentRow) -> None:
        await mark(self._asker, sessions=[row.name])

    async def _show_refusals(self, row: AgentRow) -> None:
        await show_refusals(self.desk, row.name)

    async def _close(self, row: AgentRow) -> None:
        await close(self._asker, row.name)

    async def _publish(self, row: AgentRow) -> None:
        await publish(self._asker, row.name, session=row.name)

    async def _revoke(self) -> None:
        await revoke(self._asker, [one.grant for one in self.agents.grants])
        self.reload()


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
