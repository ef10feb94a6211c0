"""The page of the agents: the sessions, and one session with its work, its forms and the grants."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from editd_client.conversations.asker import quantity
from editd_client.review.agents import OUTSIDE
from editd_client.review.query import TransactionQuery, exactly
from editd_client.web.layout import (
    button,
    detail,
    hidden,
    line_counts,
    listbox,
    meta,
    moment,
    option,
    search,
)
from editd_client.web.markup import Html, element, joined

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from editd.wire.messages import GrantEntry, LeaseEntry
    from editd_client.review.agents import AgentRow, Agents
    from editd_client.review.timeline import TimelineRow

DOES = {
    "review": "waits for you:", "lease": "waits for the lease on", "command": "runs",
    "connected": "is connected", "idle": "is idle", "closed": "is closed", "outside": "",
}  # fmt: skip
NEWEST = 5  # transactions of the selected session


def agent_list(rows: Sequence[AgentRow], selected: str | None, *, query: str) -> Html:
    """Return the sessions that match a query, first the sessions that need the reviewer."""
    empty = element("p", "No session matches." if query else "No session is open.", class_="empty")
    options = [_option(one, query, is_selected=one.name == selected) for one in rows]
    return listbox("Agents", options, empty, search("/agents", query, "a part of the name"))


def agents_detail(agents: Agents, selected: AgentRow | None, newest: Sequence[TimelineRow]) -> Html:
    """Return the selected session with its newest work and its forms, and the grants."""
    return detail(
        [_about(selected, agents.leases_of(selected.name)), _newest(selected, newest)] if selected else None,
        _forms(selected, agents) if selected is not None and selected.name != OUTSIDE else None,
        element("h3", "Grants"),
        element("p", "A grant lets edits of some paths land without a decision, for a day at most."),
        element("ul", [_grant(one) for one in agents.grants], class_="grants")
        if agents.grants
        else element("p", "No grant is in force.", class_="empty"),
        _allow_form(agents, selected),
        label=selected.name if selected is not None else "Agents",
    )


def session_path(name: str, query: str = "") -> str:
    """Return the address of the page with a session selected."""
    given = {"session": name, **({"q": query} if query else {})}
    return f"/agents?{urlencode(given, errors='surrogateescape')}"


def timeline_path(query: TransactionQuery) -> str:
    """Return the address of the transactions of a query."""
    return f"/timeline?{urlencode({'q': query.text}, errors='surrogateescape')}"


def _option(row: AgentRow, query: str, *, is_selected: bool) -> Html:
    undone = f" ({row.undone} undone)" if row.undone else ""
    last = [" · ", moment(row.last_time.isoformat())] if row.last_time is not None else None
    return option(
        f"agent-{quote(row.name, errors='surrogateescape')}",
        session_path(row.name, query),
        element("b", row.name, class_="undone" if row.is_closed else None),
        element(
            "span",
            element("span", *_doing(row), class_="warn" if row.needs_reviewer else None),
            meta(last, f" · {quantity(row.edits, 'edit')}{undone} "),
            line_counts(row.added, row.deleted),
            element("span", " paused", class_="warn") if row.pause is not None else None,
            class_="second",
        ),
        is_selected=is_selected,
    )


def _doing(row: AgentRow) -> Iterator[Html | str]:
    """Yield what a session does, and since when."""
    yield f"{DOES[row.doing]} {row.what}".strip()
    if row.since is not None:
        yield joined(" since ", moment(row.since.isoformat()))


def _about(row: AgentRow, leases: Sequence[LeaseEntry]) -> Html:
    is_outside = row.name == OUTSIDE
    query = (
        TransactionQuery(actor=(exactly(OUTSIDE),))
        if is_outside
        else TransactionQuery(session=(exactly(row.name),))
    )
    held = [element("li", f"lease on {' '.join(one.paths)} until ", moment(one.expires)) for one in leases]
    return element(
        "section",
        element("h2", row.name),
        element(
            "p",
            [f"{row.actor} ", *_doing(row), " · "] if not is_outside else None,
            f"{row.edits - row.undone} in force, {row.undone} undone · " if not is_outside else None,
            element("a", "its timeline", href=timeline_path(query)),
            [" · ", element("a", "unreviewed", href=timeline_path(replace(query, is_unreviewed=True)))]
            if not is_outside
            else None,
            [
                joined(" · ", element("a", f"P{number}", href=f"/proposals/{number}"))
                for number in row.proposals
            ],
            class_="meta",
        ),
        element("p", row.pause_text, class_="warn") if row.pause is not None else None,
        element("p", row.missed_text, class_="warn") if row.missed else None,
        element("ul", held, class_="leases") if held else None,
    )


def _newest(row: AgentRow, newest: Sequence[TimelineRow]) -> Html | None:
    if not newest:
        return None
    heads = [
        element("th", one, scope="col")
        for one in ("Transaction", "Time", "Kind", "Files", "Lines", "Message")
    ]
    rows = [
        element(
            "tr",
            element("td", element("a", str(one.seq), href=f"/transactions/{one.seq}")),
            element("td", moment(one.time.isoformat())),
            element("td", one.kind),
            element("td", one.files, class_="path"),
            element("td", line_counts(one.added, one.deleted)),
            element("td", one.subject),
            class_="undone" if one.undone_by is not None else None,
        )
        for one in newest
    ]
    return element(
        "table",
        element("caption", f"The last {quantity(len(newest), 'transaction')} of {row.name}"),
        element("thead", element("tr", heads)),
        element("tbody", rows),
        class_="effects",
    )


def _forms(row: AgentRow, agents: Agents) -> Html:
    leases = len(agents.leases_of(row.name))
    return element(
        "div",
        _form("/rollback", row.name, button("Roll back its work…", "preview", action="rollback")),
        _form("/session", row.name, button("Pause it…", "ask-pause", action="pause"))
        if row.pause is None
        else _form("/session", row.name, button("Resume it", "resume", action="pause")),
        _form("/review", row.name, button("Mark all its work as reviewed", "mark", action="review")),
        _form("/publish", row.name, button("Publish its work…", "preview", action="publish")),
        _form(
            "/session",
            row.name,
            button(f"End its {quantity(leases, 'lease')}…", "ask-leases", action="leases"),
        )
        if leases
        else None,
        _form("/session", row.name, button("Close the session…", "ask-close", action="close"))
        if not row.is_closed
        else None,
        class_="forms",
    )


def _form(action: str, session: str, *content: Html) -> Html:
    return element("form", hidden([("session", session)]), *content, method="post", action=action)


def _allow_form(agents: Agents, selected: AgentRow | None) -> Html:
    names = [one.name for one in agents.rows if one.name != OUTSIDE and not one.is_closed]
    chosen = selected.name if selected is not None else ""
    options = [element("option", name or "any", value=name, selected=name == chosen) for name in ("", *names)]
    paths = element(
        "input", name="paths", required=True, placeholder="tests/**", id="paths", data_does="allow"
    )
    return element(
        "form",
        element("label", "Paths ", paths),
        element("label", "Session ", element("select", options, name="session")),
        element("label", "For ", element("input", name="ttl", value="1h", required=True, size="5")),
        element("label", "Edits at most ", element("input", name="uses", inputmode="numeric", size="5")),
        element("label", "Lines at most ", element("input", name="lines", inputmode="numeric", size="5")),
        button("Allow", "allow"),
        method="post", action="/allow", id="allow",
    )  # fmt: skip


def _grant(grant: GrantEntry) -> Html:
    left = [
        quantity(count, word) + " left"
        for count, word in ((grant.uses, "edit"), (grant.lines, "line"))
        if count is not None
    ]
    whose = f" of {grant.session}" if grant.session is not None else ""
    return element(
        "li",
        f"{grant.grant}: {' '.join(grant.paths)}{whose}, until ",
        moment(grant.expires),
        "".join(f", {one}" for one in left),
        f", by {grant.by.actor} ",
        element(
            "form",
            hidden([("grant", grant.grant)]),
            element(
                "button", f"End grant {grant.grant}", name="do", value="revoke", data_does="revoke",
                id=f"revoke-{grant.grant}",
            ),
            method="post",
            action="/allow",
            class_="inline",
        ),
    )  # fmt: skip
