"""Regular expression searches as values: planning never runs a regular expression.

A client's pattern may run forever, and Python's `re` holds the interpreter's lock while it runs. So
planning calls `SearchSource.matches`, which raises `NeedsSearch` if the result is missing. The caller
has a worker process run the search, and plans again with its result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping

    from editd.errors import Refused

Language = Literal["python", "ecmascript"]


class Search(Struct, frozen=True):
    """All matches of `pattern` in `text`, from the left, none overlapping the one before.

    `python`: `re` with DOTALL and MULTILINE. `ecmascript`: a `RegExp` with the flag g.
    """

    language: Language
    pattern: str
    text: str
    ignore_case: bool = False
    template: str | None = None
    """ecmascript: a replacement as in `String.prototype.replace`, expanded for each match."""
    looks_inside: bool = False
    """python: whether to set `has_inner`, for a match of several lines that contains another match."""


class Match(Struct, frozen=True):
    """One match, from `start` up to, not including, `end`, in characters of the text."""

    start: int
    end: int
    groups: tuple[str | None, ...] = ()  # from group 1 on; None for a group outside the match
    expansion: str = ""  # of the template, for this match
    has_inner: bool = False  # see `Search.looks_inside`


class NeedsSearch(Exception):
    """The search without whose result planning cannot continue. Internal: never sent to a client."""

    def __init__(self, search: Search) -> None:
        super().__init__(search.pattern)
        self.search = search


class SearchSource(Protocol):
    def matches(self, search: Search) -> tuple[Match, ...]:
        """Return the matches; raises NeedsSearch if there is no result yet, InvalidRegex or Timeout."""
        ...


class SearchResults(Struct, frozen=True):
    """The finished searches with their results."""

    found: Mapping[Search, tuple[Match, ...] | Refused]

    def matches(self, search: Search) -> tuple[Match, ...]:
        if search not in self.found:
            raise NeedsSearch(search)
        answer = self.found[search]
        if isinstance(answer, Exception):
            raise answer
        return answer
