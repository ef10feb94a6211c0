"""The warning about a match that overlaps a replaced one, and is not replaced itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from editd.edits.search import lines_of, overlapping

if TYPE_CHECKING:
    from editd.edits.search import Span


def overlap_warnings(text: str, last: Span, argument: str) -> list[str]:
    """Return a warning if the last match of `argument` has an overlapping twin, which was not replaced."""
    twin = overlapping(text, last)
    return [] if twin is None else [overlap_warning(text, last.start, twin.start, argument)]


def overlap_warning(text: str, last: int, twin: int, argument: str) -> str:
    """Return the warning of a match at `last` and one that overlaps it at `twin`."""
    line, twin_line = lines_of(text, [last, twin])
    return f"overlap: {argument} is also at line {twin_line}, overlapping the place at line {line}."
