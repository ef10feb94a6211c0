"""Diffs as tables: one row a line, with both numbers, the sign, and marks for changed words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from editd_client.review.patch import parts_of
from editd_client.web.markup import Html, element

if TYPE_CHECKING:
    from collections.abc import Iterable

    from editd_client.review.patch import Row, Syntax

CLASSES = {"removed": "del", "added": "add", "context": None}
SPOKEN = {"removed": "removed", "added": "added", "context": None}  # for a screen reader


def table(caption: str, bodies: Iterable[Html]) -> Html:
    """Return a table of hunks."""
    heads = [element("th", title, scope="col") for title in ("Old line", "New line", "Sign", "Text")]
    return element(
        "table",
        element("caption", caption),
        element("thead", element("tr", heads)),
        *bodies,
        class_="diff",
    )


def heading(*children: object) -> Html:
    """Return the row above the lines of a hunk."""
    return element("tr", element("th", *children, colspan="4", scope="rowgroup"), class_="hunk")


def lines(rows: Iterable[Row], syntax: Syntax | None = None) -> Iterable[Html]:
    """Yield the rows of a hunk."""
    for row in rows:
        if row.kind in ("header", "place", "note"):
            yield element("tr", element("td", row.text, colspan="4"), class_="note")
            continue
        spoken = SPOKEN[row.kind]
        yield element(
            "tr",
            element("td", row.old, class_="n"),
            element("td", row.new, class_="n"),
            element("td", row.sign, class_="sign", aria_label=spoken),
            element("td", _text(row, syntax), class_="text"),
            class_=CLASSES[row.kind],
        )


def _text(row: Row, syntax: Syntax | None) -> Iterable[Html | str]:
    for part in parts_of(row, () if syntax is None else syntax.of(row)):
        shown: Html | str = part.text
        if part.role:
            shown = element("span", shown, class_=f"role-{part.role}")
        yield element("mark", shown) if part.is_changed else shown
