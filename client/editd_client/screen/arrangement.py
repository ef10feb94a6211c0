"""The places of the panes: one view at a time on a narrow terminal, list and diff from 100 columns, all of
them from 140 x 40."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from editd_client.review.actions import View

Form = Literal["narrow", "two", "wide"]
TWO_COLUMNS_MIN = 100
WIDE_COLUMNS_MIN, WIDE_LINES_MIN = 140, 40
FOOTER_LINES = 2
AGENTS_COLUMNS = 30
LISTS_SHARE = 0.43  # of the other columns, for proposals and timeline
SUMMARY_LINES = 8  # grants and daemon, below the agents


class Rectangle(NamedTuple):
    """A rectangle of the terminal, in cells."""

    x: int
    y: int
    width: int
    height: int


class Arrangement(NamedTuple):
    """The form, and the place of each visible pane; `rules` are horizontal and vertical lines."""

    form: Form
    panes: dict[str, Rectangle]
    rules: tuple[Rectangle, ...]


def form_of(width: int, height: int) -> Form:
    """Return the form for a terminal of this size."""
    if width >= WIDE_COLUMNS_MIN and height >= WIDE_LINES_MIN:
        return "wide"
    return "two" if width >= TWO_COLUMNS_MIN else "narrow"


def arrange(width: int, height: int, view: View, rows: Mapping[View, int]) -> Arrangement:
    """Return the places for a terminal of this size. `rows` has the length of each list."""
    footer = FOOTER_LINES if height >= 12 else 1
    top, body = 1, max(1, height - 1 - footer - 1)
    panes = {
        "header": Rectangle(0, 0, width, 1),
        "footer": Rectangle(0, height - footer, width, footer),
    }
    bottom_rule = Rectangle(0, height - footer - 1, width, 1)
    form = form_of(width, height)
    if form == "wide":
        lists = int((width - AGENTS_COLUMNS - 2) * LISTS_SHARE)
        first, second = AGENTS_COLUMNS, AGENTS_COLUMNS + 1 + lists
        waiting = min(max(4, 2 * rows["proposals"] + 2), body // 3)  # with a line for the title
        panes["agents"] = Rectangle(0, top + 2, first, body - 3 - SUMMARY_LINES)
        panes["summary"] = Rectangle(0, top + body - SUMMARY_LINES, first, SUMMARY_LINES)
        panes["agents_title"] = Rectangle(0, top + 1, first, 1)
        panes["proposals_title"] = Rectangle(first + 1, top + 1, lists, 1)
        panes["proposals"] = Rectangle(first + 1, top + 2, lists, waiting - 1)
        panes["timeline_title"] = Rectangle(first + 1, top + 2 + waiting, lists, 1)
        panes["timeline"] = Rectangle(first + 1, top + 3 + waiting, lists, body - 3 - waiting)
        panes["detail"] = Rectangle(second + 1, top + 1, width - second - 1, body - 1)
        rules = (
            Rectangle(0, top, width, 1),
            Rectangle(0, top + body - SUMMARY_LINES - 1, first, 1),
            Rectangle(first + 1, top + 1 + waiting, lists, 1),
            Rectangle(first, top + 1, 1, body - 1),
            Rectangle(second, top + 1, 1, body - 1),
            bottom_rule,
        )
        return Arrangement(form, panes, rules)
    if form == "two":
        left = width * 45 // 100
        panes[view] = Rectangle(0, top, left, body)
        panes["detail"] = Rectangle(left + 1, top, width - left - 1, body)
        return Arrangement(form, panes, (Rectangle(left, top, 1, body), bottom_rule))
    most = {"proposals": body // 3, "timeline": body // 2, "agents": body // 2}[view]
    used = min(max(3, rows[view]), max(3, most)) if body >= 8 else body
    if view == "timeline" and body >= 8:
        used = max(3, most)  # it always grows to this
    panes[view] = Rectangle(0, top, width, used)
    if body < 8:
        return Arrangement(form, panes, (bottom_rule,))
    panes["detail"] = Rectangle(0, top + used + 1, width, body - used - 1)
    return Arrangement(form, panes, (Rectangle(0, top + used, width, 1), bottom_rule))
