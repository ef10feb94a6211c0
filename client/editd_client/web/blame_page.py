"""The page with the author of each line of a file."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from editd_client.conversations.asker import quantity
from editd_client.web.layout import detail, moment
from editd_client.web.markup import Html, element

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from editd.wire.messages import BlameLine

LINES_MAX = 5000  # of a page


def blame_detail(path: str, lines: Sequence[BlameLine], text: Sequence[str], start: int = 1) -> Html:
    """Return the lines of a file from `start` on, grouped by transaction."""
    shown = [one for one in lines if start <= one.line < start + LINES_MAX]
    heads = [element("th", one, scope="col") for one in ("Transaction", "Author", "Time", "Line", "Text")]
    more = None
    if lines and lines[-1].line >= start + LINES_MAX:
        query = urlencode({"path": path, "from": start + LINES_MAX}, errors="surrogateescape")
        more = element("a", "More lines", href=f"/blame?{query}", class_="older")
    return detail(
        element("h2", element("span", path, class_="path")),
        element(
            "table",
            element("caption", f"The author of each line of {path}, {quantity(len(lines), 'line')}"),
            element("thead", element("tr", heads)),
            element("tbody", _rows(shown, text)),
            class_="diff blame",
        )
        if shown
        else element("p", "The file is empty.", class_="empty"),
        more,
        label=f"Authors of {path}",
    )


def _rows(lines: Sequence[BlameLine], text: Sequence[str]) -> Iterator[Html]:
    for seq, group in groupby(lines, key=lambda one: one.seq):
        some = list(group)
        for at, one in enumerate(some):
            content = text[one.line - 1] if one.line <= len(text) else ""
            yield element(
                "tr",
                _author(seq, some) if at == 0 else None,
                element("td", one.line, class_="n"),
                element("td", content, class_="text"),
                class_="first" if at == 0 else None,
            )


def _author(seq: int, lines: Sequence[BlameLine]) -> list[Html]:
    """Return the cells beside the lines of one transaction."""
    rows = len(lines)
    return [
        element("td", element("a", str(seq), href=f"/transactions/{seq}"), class_="n", rowspan=rows),
        element("td", lines[0].session or lines[0].actor, rowspan=rows),
        element("td", moment(lines[0].time), rowspan=rows),
    ]
