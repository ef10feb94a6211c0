"""The frame of each page: the header with the views, the list on the left, and the detail."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from msgspec import Struct

from editd_client.review.actions import EVERYWHERE, keys_of
from editd_client.web.markup import DOCTYPE, Html, element, joined

if TYPE_CHECKING:
    from collections.abc import Iterable

    from editd_client.review.actions import View

VIEWS: dict[View, tuple[str, str]] = {
    "proposals": ("/", "Proposals"),
    "timeline": ("/timeline", "Timeline"),
    "agents": ("/agents", "Agents"),
}
IN_THE_FOOTER = 12  # keys; the help has all of them


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


def listbox(name: str, options: Iterable[Html], empty: Html, *around: Html | None) -> Html:
    """Return the list of a view, whose options are links, or the words for an empty one.

    Of `around`, the first is above the list, and the second below it.
    """
    rows = list(options)
    box = element("div", rows, role="listbox", aria_label=name, tabindex="0", id="options") if rows else empty
    return element("nav", around[:1], box, around[1:], id="list", aria_label=name)


def option(ident: str, href: str, *children: object, is_selected: bool) -> Html:
    """Return a row of the list."""
    return element(
        "a", *children, role="option", id=ident, href=href,
        aria_selected="true" if is_selected else "false",
    )  # fmt: skip


def detail(*children: object, label: str) -> Html:
    """Return the part with the detail of the selected row."""
    return element("main", *children, id="detail", tabindex="-1", aria_label=label)


def button(words: str, value: str, *, action: str | None = None, key: str | None = None) -> Html:
    """Return a button of a form, pressed by the key of an `action`, or by its own `key`."""
    sign = [" ", element("kbd", key, aria_hidden="true")] if key else None
    return element("button", words, sign, name="do", value=value, data_does=action, data_key=key)


def leaving(href: str) -> Html:
    """Return the link that leaves a question without an answer."""
    return element("a", "Leave it", href=href, data_key="Escape", class_="leave")


def search(action: str, query: str, placeholder: str) -> Html:
    """Return the field above a list that filters it."""
    return element(
        "form",
        element(
            "input", name="q", value=query, placeholder=placeholder, aria_label="Filter", type="search",
            id="filter",
        ),
        element("button", "Filter"),
        method="get", action=action, id="search", role="search",
    )  # fmt: skip


def hidden(fields: Iterable[tuple[str, str | int]]) -> list[Html]:
    """Return hidden fields of a form."""
    return [element("input", type="hidden", name=name, value=value) for name, value in fields]


def moment(time: str) -> Html:
    """Return a time of the protocol: local, and as an age where the script runs."""
    local = datetime.fromisoformat(time).astimezone()
    return element("time", f"{local:%Y-%m-%d %H:%M:%S}", datetime=time)


def meta(*children: object) -> Html:
    return element("span", *children, class_="meta")


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
    """Return the last line with the keys of a view, and the help with all of them."""
    keys = keys_of(view)
    shown = sorted(keys, key=lambda one: (one.views == EVERYWHERE, keys.index(one)))
    entries = [
        element(
            "span", element("kbd", one.key), f" {one.effect} ",
            data_action=one.name, data_key=one.key, hidden=at >= IN_THE_FOOTER and one.key != "?",
        )
        for at, one in enumerate(shown)
    ]  # fmt: skip
    rows = [
        element("tr", element("th", element("kbd", one.key), scope="row"), element("td", one.effect))
        for one in shown
    ]
    close = element("form", element("button", "Close", value="close"), method="dialog")
    caption = element("caption", f"Keys of the {VIEWS[view][1].lower()}")
    table = element("table", caption, element("tbody", rows))
    dialog = element("dialog", table, close, id="help", aria_label="Keys")
    return element("footer", element("p", entries), dialog, id="keys")
