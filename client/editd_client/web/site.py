"""The content of each address: the calls to the daemon, and the page of their results."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from editd_client import requests
from editd_client.errors import refusal
from editd_client.file_text import text_of
from editd_client.review.agents import OUTSIDE, Agents, matching_agents
from editd_client.review.proposals import matching
from editd_client.review.query import QueryError, TransactionQuery
from editd_client.review.refusal_rows import REFUSALS_MAX
from editd_client.review.timeline import RefusalRow, TimelineRow, matching_refusals, with_refusals
from editd_client.web import agents_page, blame_page, proposal_page, timeline_page
from editd_client.web.layout import HeaderCounts, Page

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from editd_client.web.markup import Html
    from editd_client.web.visitor import Visitor

ROWS = 100  # transactions of a page
PROPOSALS = 100  # proposals of a page
NOTHING: Mapping[str, str] = {}


async def page_at(path: str, query: Mapping[str, str], visitor: Visitor, workspace: str) -> Page:
    """Return the page at an address. Raises EditdError, `unknown_proposal` and the like for no such thing."""
    desk = Desk(visitor, workspace)
    parts = path.strip("/").split("/")
    match parts:
        case [""]:
            return await desk.proposals(None, query)
        case ["proposals", number]:
            return await desk.proposals(_number(number), query)
        case ["timeline"]:
            return await desk.timeline(query)
        case ["transactions", seq]:
            return await desk.transaction(_number(seq), query)
        case ["refusals", number]:
            return await desk.refusal(_number(number), query)
        case ["blame"]:
            return await desk.blame(query)
        case ["agents"]:
            return await desk.agents(query)
    raise NoSuchPage(path)


class NoSuchPage(Exception):
    """An address without a page."""


class Desk:
    """The pages of one workspace for one visitor."""

    def __init__(self, visitor: Visitor, workspace: str) -> None:
        self._visitor = visitor
        self._workspace = workspace

    async def proposals(
        self, number: int | None, query: Mapping[str, str] = NOTHING, detail: Html | None = None
    ) -> Page:
        """Return the list of open proposals, with the numbered proposal, by default the newest.

        The address of the page has the number, so that a newer proposal does not take its place.
        """
        waiting = await self._visitor.cache.entries()
        frame = await self._frame()  # after the list, which has the number of proposals
        text, error = query.get("q", ""), ""
        try:
            entries = matching(waiting, TransactionQuery.parse(text))
        except QueryError as wrong:
            entries, error = [], str(wrong)
        before = _optional(query.get("before", ""))
        if before is not None:
            entries = [one for one in entries if one.proposal < before]
        if number is None and entries:
            number = entries[0].proposal
        older = entries[PROPOSALS - 1].proposal if len(entries) > PROPOSALS else None
        at = "/" if number is None else f"/proposals/{number}"
        is_live = detail is None
        if detail is None:
            detail = (
                proposal_page.nothing_selected(error)
                if number is None
                else await self.proposal(number, path=query.get("path"))
            )
        title = "Proposals" if number is None else f"P{number}"
        return Page(
            _with_query(at, query, ("path", "q", "before")), title, "proposals", frame,
            proposal_page.proposal_list(
                entries[:PROPOSALS], number, query=text, before=before, older=older
            ),
            detail, is_live,
        )  # fmt: skip

    async def proposal(self, number: int, **given: Any) -> Html:
        """Return a proposal; `given` goes to `proposal_detail`."""
        shown = await self._visitor.cache.proposal(number)
        request_id = self._visitor.request_id(number, shown.view, shown.revision)
        trial = self._visitor.trials.of(number)
        return await asyncio.to_thread(
            proposal_page.proposal_detail, shown, request_id=request_id, trial=trial, **given
        )

    async def timeline(self, query: Mapping[str, str], detail: Html | None = None) -> Page:
        """Return the transactions of a query, and none of them selected or another `detail`."""
        rows, text, older, error = await self._rows(query)
        frame = await self._frame()
        listed = timeline_page.transaction_list(rows, None, query=text, older=older)
        path = _with_query("/timeline", query)
        shown = timeline_page.nothing_selected(error) if detail is None else detail
        return Page(path, "Timeline", "timeline", frame, listed, shown, detail is None)

    async def transaction(self, seq: int, query: Mapping[str, str], detail: Html | None = None) -> Page:
        """Return the list with one transaction selected, with its diff or another `detail`."""
        given = {"before": str(seq + ROWS // 2), **query}
        (rows, text, older, _), frame = await asyncio.gather(self._rows(given), self._frame())
        is_live = detail is None
        if detail is None:
            made = await self._visitor.reviewer.show(seq, hunks=True, decoded=True)
            detail = await asyncio.to_thread(timeline_page.transaction_detail, made)
        selected = timeline_page.transaction_row(seq)
        shown = timeline_page.transaction_list(rows, selected, query=text, older=older)
        path = _with_query(f"/transactions/{seq}", query)
        return Page(path, f"Transaction {seq}", "timeline", frame, shown, detail, is_live)

    async def refusal(self, number: int, query: Mapping[str, str]) -> Page:
        """Return the list with a refusal selected, as long as the daemon has it."""
        latest = await self._visitor.reviewer.log_refusals(after=number - 1, limit=REFUSALS_MAX)
        row = next((RefusalRow.of(one) for one in latest.refusals if one.number == number), None)
        if row is None:
            raise NoSuchPage(str(number))
        given = {"before": str(row.head + ROWS // 2), **query}
        (rows, text, older, _), frame = await asyncio.gather(self._rows(given), self._frame())
        selected = timeline_page.refusal_row(number)
        listed = timeline_page.transaction_list(rows, selected, query=text, older=older)
        path = _with_query(f"/refusals/{number}", query)
        shown = timeline_page.refusal_detail(row)
        return Page(path, f"Refusal {number}", "timeline", frame, listed, shown)

    async def blame(self, query: Mapping[str, str]) -> Page:
        """Return the transactions of a file, with the author of each of its lines."""
        path, start = query.get("path", ""), query.get("from", "")
        client = self._visitor.reviewer
        blamed, read = await asyncio.gather(client.blame(path), client.read(path))
        if read.encoding is None:
            raise refusal("not_text", f"{path} is not text.")
        if blamed.version != read.version:  # an edit came between
            blamed = await client.blame(path)
        detail = await asyncio.to_thread(
            blame_page.blame_detail, path, blamed.lines, text_of(read).split("\n"),
            _optional(start) or 1,
        )  # fmt: skip
        listed = {"q": TransactionQuery(path=(path,)).text}
        (rows, text, older, _), frame = await asyncio.gather(self._rows(listed), self._frame())
        shown = timeline_page.transaction_list(rows, None, query=text, older=older)
        at = _with_query("/blame", query, ("path", "from"))
        return Page(at, f"Authors of {path}", "timeline", frame, shown, detail)

    async def agents(self, query: Mapping[str, str], detail: Html | None = None) -> Page:
        """Return the sessions, with the queried session, by default the first, or with another `detail`."""
        agents, frame = await asyncio.gather(self._agents(), self._frame())
        name, text = query.get("session", ""), query.get("q", "")
        rows = matching_agents(agents.rows, text)
        by_name = {one.name: one for one in agents.rows}
        selected = by_name.get(name) or next(iter(rows), None)
        is_live = detail is None
        if detail is None:
            newest = () if selected is None else await self._newest(selected.name)
            detail = agents_page.agents_detail(agents, selected, newest)
        at = {"session": "" if selected is None else selected.name, "q": text}
        path = _with_query("/agents", at, ("session", "q"))
        shown = agents_page.agent_list(rows, None if selected is None else selected.name, query=text)
        return Page(path, "Agents", "agents", frame, shown, detail, is_live)

    async def _newest(self, session: str) -> list[TimelineRow]:
        """Return the newest transactions of a session, or of the other programs."""
        which = {"kind": OUTSIDE} if session == OUTSIDE else {"session": session}
        asked = requests.log(**which, limit=agents_page.NEWEST, brief=True, stat=True)  # type: ignore[arg-type]
        result = await self._visitor.reviewer.ask(asked)
        return [TimelineRow.of(one) for one in result.transactions]

    async def _frame(self) -> HeaderCounts:
        counts = await self._visitor.cache.counts()
        return HeaderCounts(self._workspace, counts.proposals, counts.sessions, counts.head)

    async def _agents(self) -> Agents:
        agents = Agents()
        client = self._visitor.reviewer
        agents.receive(*await asyncio.gather(*map(client.ask, agents.requests())))  # type: ignore[arg-type]
        return agents

    async def _rows(
        self, query: Mapping[str, str]
    ) -> tuple[Sequence[TimelineRow | RefusalRow], str, int | None, str]:
        """Return the rows of a query, its text, the seq before which older ones are, and its error."""
        text = query.get("q", "")
        try:
            parsed = TransactionQuery.parse(text)
        except QueryError as error:
            return [], text, None, str(error)
        before = _optional(query.get("before", ""))
        client = self._visitor.reviewer
        asked = requests.log(**parsed.params, limit=ROWS, brief=True, stat=True, before=before)
        result, refused = await asyncio.gather(client.ask(asked), client.log_refusals(limit=REFUSALS_MAX))
        rows = [TimelineRow.of(one) for one in result.transactions]
        refusals = [
            one
            for one in matching_refusals(map(RefusalRow.of, refused.refusals), parsed)
            if before is None or one.head < before
        ]
        older = rows[-1].seq if result.more and rows else None
        return with_refusals(rows, refusals, is_end=older is None), text, older, ""


def _optional(text: str) -> int | None:
    """Return a number of an address, or None if it has none."""
    return int(text) if text.isdecimal() and len(text) < 18 else None


def _number(text: str) -> int:
    if not text.isdecimal() or len(text) > 18:
        raise NoSuchPage(text)
    return int(text)


def _with_query(path: str, query: Mapping[str, str], names: Sequence[str] = ("q", "before")) -> str:
    kept = {name: query[name] for name in names if query.get(name)}
    return f"{path}?{urlencode(kept, errors='surrogateescape')}" if kept else path
