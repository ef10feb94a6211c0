"""The page of the agents: the sessions with what each does, and the grants that let their edits land."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlencode

from editd_client.review.agents import OUTSIDE
from editd_client.review.query import TransactionQuery
from editd_client.web.layout import counted, detail, line_counts, meta, moment
from editd_client.web.markup import Html, element

if TYPE_CHECKING:
    from editd.wire.messages import GrantEntry
    from editd_client.review.agents import AgentRow, Agents

DOES = {
    "review": "waits for you:", "lease": "waits for a lease", "command": "runs", "connected": "is connected",
    "idle": "is idle", "closed": "is closed", "outside": "",
}  # fmt: skip


def agent_list(agents: Agents) -> Html:
    """Return the sessions as a table, those that need the reviewer first."""
    heads = ("Agent", "Activity", "Last", "Edits", "Lines", "Open proposals")
    rows = [_row(one) for one in agents.rows]
    if not rows:
        return element(
            "nav", element("p", "No session is open.", class_="empty"), id="list", aria_label="Agents"
        )
    return element(
        "nav",
        element(
            "table",
            element("caption", "Sessions of the last day"),
            element("thead", element("tr", [element("th", one, scope="col") for one in heads])),
            element("tbody", rows),
            class_="agents",
        ),
        id="list",
        aria_label="Agents",
    )


def agents_detail(agents: Agents) -> Html:
    """Return the grants, and the forms for a grant and for a rollback."""
    sessions = [one for one in agents.rows if one.name != OUTSIDE]
    return detail(
        element("h2", "Grants"),
        element("p", "A grant lets edits of some paths land without a decision, for a day at most."),
        element("ul", [_grant(one) for one in agents.grants], class_="grants")
        if agents.grants
        else element("p", "No grant is in force.", class_="empty"),
        element(
            "form",
            element("label", "Paths ", element("input", name="paths", required=True, placeholder="tests/**")),
            _select("Session ", ["", *(one.name for one in sessions if not one.is_closed)]),
            element("label", "For ", element("input", name="ttl", value="1h", required=True, size="5")),
            element("label", "Edits at most ", element("input", name="uses", inputmode="numeric", size="5")),
            element("label", "Lines at most ", element("input", name="lines", inputmode="numeric", size="5")),
            element("button", "Allow", name="do", value="allow"),
            method="post", action="/allow", id="allow",
        ),
        element("h2", "Roll back"),
        element(
            "form",
            _select("Session ", [one.name for one in sessions]),
            element("button", "Roll back its work…", name="do", value="preview"),
            method="post", action="/rollback", id="rollback",
        )
        if sessions
        else element("p", "There is no session to roll back.", class_="empty"),
        label="Grants and rollback",
    )  # fmt: skip


def _row(row: AgentRow) -> Html:
    is_outside = row.name == OUTSIDE
    query = TransactionQuery(actor=(OUTSIDE,)) if is_outside else TransactionQuery(session=(row.name,))
    timeline = f"/timeline?{urlencode({'q': query.text})}"
    leases = f"leases {', '.join(row.leases)}" if row.leases else ""
    undone = f" ({row.undone} undone)" if row.undone else ""
    last = [
        element("a", str(row.last_seq), href=f"/transactions/{row.last_seq}")
        if row.last_seq is not None
        else None,
        " ",
        moment(row.last_time.isoformat()) if row.last_time is not None else None,
    ]
    return element(
        "tr",
        element("th", element("a", row.name, href=timeline), scope="row"),
        element("td", f"{DOES[row.doing]} {row.what}".strip(), " ", meta(leases)),
        element("td", last),
        element("td", f"{row.edits}{undone}"),
        element("td", line_counts(row.added, row.deleted)),
        element(
            "td",
            [element("a", f"P{number} ", href=f"/proposals/{number}") for number in row.proposals],
        ),
        class_="warn" if row.needs_reviewer else "undone" if row.is_closed else None,
    )


def _grant(grant: GrantEntry) -> Html:
    left = [
        counted(count, word) + " left"
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
            element("input", type="hidden", name="grant", value=grant.grant),
            element("button", "End it", name="do", value="revoke"),
            method="post",
            action="/allow",
            class_="inline",
        ),
    )


def _select(label: str, names: list[str]) -> Html:
    options = [element("option", name or "any", value=name) for name in names]
    return element("label", label, element("select", options, name="session"))


def pin_detail(reason: str, fields: list[tuple[str, str]]) -> Html:
    """Return a form that asks for the PIN, and sends the same request again."""
    return detail(
        element("p", reason, class_="refusal", role="alert"),
        element(
            "form",
            [element("input", type="hidden", name=name, value=value) for name, value in fields],
            element(
                "label", "PIN ",
                element("input", type="password", name="pin", autocomplete="off", autofocus=True, id="pin"),
            ),
            element("button", "Send it again"),
            method="post",
            action="/allow",
        ),
        label="PIN",
    )  # fmt: skip
