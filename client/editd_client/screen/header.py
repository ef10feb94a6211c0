"""The line at the top: the workspace, the views with their counts, and the state of the connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from editd_client.review.actions import EVERYWHERE
from editd_client.screen.lines import Line, Look, TextSpan, plain, right_aligned

if TYPE_CHECKING:
    from collections.abc import Mapping

    from editd_client.review.actions import View

TITLES: Mapping[View, str] = {"proposals": "Proposals", "timeline": "Timeline", "agents": "Agents"}


class ScreenHeader(NamedTuple):
    """All that the line depends on."""

    folder: str  # the name of the workspace's folder
    view: View
    counts: Mapping[View, int]  # 0 is not shown
    head: int  # the newest transaction; -1: not known yet
    is_following: bool = False
    query: str = ""  # of the view
    matches: int = 0  # rows of the query
    away_seconds: int | None = None  # without a daemon


def header_line(header: ScreenHeader, width: int) -> Line:
    """Return the line. If it is too long, the workspace is left out, then the names of the other views."""
    text, look = _end(header)
    right = Line((TextSpan(f"  {text} ", look),))
    workspace = (TextSpan(" editd ", "bold"), TextSpan(f" {plain(header.folder)}  "))
    named, numbered = _tabs(header, has_words=True), _tabs(header, has_words=False)
    for left in (Line((*workspace, *named.spans)), named, numbered):
        if left.width + right.width <= width:
            return right_aligned(left, right, width)
    return right_aligned(numbered, right, width)


def _tabs(header: ScreenHeader, *, has_words: bool) -> Line:
    """Return the views, without words only the number of each but the open one."""
    spans: list[TextSpan] = []
    for number, name in enumerate(EVERYWHERE, 1):
        is_open = name == header.view
        title = TITLES[name] if has_words or is_open else ""
        count = str(header.counts[name] or "")
        text = (" " if title else ":").join(filter(None, (str(number), title, count)))
        spans.append(TextSpan(f"[{text}]" if is_open else f" {text} ", "tab" if is_open else "", str(number)))
    return Line(tuple(spans))


def _end(header: ScreenHeader) -> tuple[str, Look]:
    if header.away_seconds is not None:
        return f"no daemon for {header.away_seconds} s: r starts it", "bad"
    if header.query:
        total = f" of {header.head + 1:,}" if header.view == "timeline" else ""
        return f"/{header.query}  {header.matches:,}{total}  esc: all", "warning"
    follows = " follows" if header.is_following else ""
    return (f"●{follows} {header.head}" if header.head >= 0 else "…"), "good"
