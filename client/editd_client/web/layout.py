"""The frame of each page: the header with the views, the list on the left, and the detail."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from msgspec import Struct

from editd_client.review.actions import keys_of
from editd_client.web.markup import DOCTYPE, Html, element, joined

if TYPE_CHECKING:
    from collections.abc import Iterable

    from editd_client.review.actions import View

VIEWS: dict[View, tuple[str, str]] = {
    "proposals": ("/", "Proposals"),
    "timeline": ("/timeline", "Timeline"),
    "agents": ("/agents", "Agents"),
}
ON_THE_PAGE = frozenset(
    (
        "next",
        "previous",
        "help",
        "choose",
        "next-hunk",
        "previous-hunk",
        "approve",
        "reject",
        "comment",
        "undo",
    )
)  # the actions of `review.actions` that the script has


class HeaderCounts(Struct, frozen=True):
    """The numbers in the header: open proposals, agents, and the newest transaction."""

    workspace: str
    proposals: int
    agents: int
    head: int


class Page(Struct, frozen=True):
    """The content of an address, in the parts that the script replaces one by one."""

    path: str  # with its query
    title: str
    view: View
    frame: HeaderCounts
    list: Html
    detail: Html
    is_live: bool = True  # it follows events; a question to the reviewer stays as it is

    @property
    def parts(self) -> dict[str, Html]:
        return {"views": _views(self), "list": self.list, "detail": self.detail, "keys": _keys(self.view)}


def whole(page: Page, said: str = "", *, is_refusal: bool = False) -> Html:
    """Return the whole page, with a sentence in its status line."""
    return joined(
        DOCTYPE,
        element(
            "html",
            element(
                "head",
                element("meta", charset="utf-8"),
                element("meta", name="viewport", content="width=device-width"),
                element("meta", name="color-scheme", content="light dark"),
                element("title", f"{page.title} · editd"),
                element("link", rel="stylesheet", href="/static/review.css"),
                element("link", rel="icon", href="/static/icon.svg"),
                element("script", type="module", src="/static/review.js"),
            ),
            element(
                "body",
                element("a", "Skip to the detail", class_="skip", href="#detail"),
                element(
                    "header",
                    element("h1", "editd"),
                    element("span", page.frame.workspace, class_="meta"),
                    _views(page),
                    element("p", said, id="said", role="status", class_="refusal" if is_refusal else None),
                ),
                page.list,
                page.detail,
                _keys(page.view),
                data_page=page.path if page.is_live else None,
                data_version=version(page),
            ),
            lang="en",
        ),
    )


def version(page: Page) -> str:
    """Return a token of what the page shows."""
    import hashlib

    digest = hashlib.sha256()
    for name, part in page.parts.items():
        digest.update(f"{name}\0{part}\0".encode())
    return digest.hexdigest()[:16]


def listbox(name: str, options: Iterable[Html], empty: Html) -> Html:
    """Return the list of a view, whose options are links, or the words for an empty one."""
    rows = list(options)
    box = element("div", rows, role="listbox", aria_label=name, tabindex="0", id="options") if rows else empty
    return element("nav", box, id="list", aria_label=name)


def option(ident: str, href: str, *children: object, is_selected: bool) -> Html:
    """Return a row of the list."""
    return element(
        "a", *children, role="option", id=ident, href=href,
        aria_selected="true" if is_selected else "false",
    )  # fmt: skip


def detail(*children: object, label: str) -> Html:
    """Return the part with the detail of the selected row."""
    return element("main", *children, id="detail", tabindex="-1", aria_label=label)


def moment(time: str) -> Html:
    """Return a time of the protocol: local, and as an age where the script runs."""
    local = datetime.fromisoformat(time).astimezone()
    return element("time", f"{local:%Y-%m-%d %H:%M:%S}", datetime=time)


def meta(*children: object) -> Html:
    return element("span", *children, class_="meta")


def counted(number: int, singular: str) -> str:
    return f"{number} {singular}{'' if number == 1 else 's'}"


def line_counts(added: int | None, deleted: int | None) -> Html | None:
    """Return the numbers of added and deleted lines, or None if they are unknown."""
    if added is None or deleted is None:
        return None
    return joined(
        element("span", f"+{added}", class_="plus"), " ", element("span", f"−{deleted}", class_="minus")
    )


def _views(page: Page) -> Html:
    counts = {"proposals": page.frame.proposals, "timeline": page.frame.head, "agents": page.frame.agents}
    links = [
        element(
            "a",
            f"{title} ",
            element("span", f"{counts[view]:,}", class_="count"),
            href=href,
            aria_current="page" if view == page.view else None,
        )
        for view, (href, title) in VIEWS.items()
    ]
    return element("nav", links, id="views", aria_label="Views")


def _keys(view: View) -> Html:
    shown = [one for one in keys_of(view) if one.name in ON_THE_PAGE]
    keys = [
        element("span", element("kbd", one.key), f" {one.effect} ", data_action=one.name, data_key=one.key)
        for one in shown
    ]
    return element("footer", keys, id="keys")
