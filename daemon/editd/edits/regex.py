"""Regular expressions, asked for and answered: planning never runs one.

A pattern of a client's may take for ever, and Python's `re` holds the interpreter's lock while it
does. So planning asks (`Expressions.matches`), and where the answer is not there yet it ends with
`NeedsSearch`; who called it has the search made by the worker process, and plans again with the
answer at hand.
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
    """ecmascript: a replacement as `String.prototype.replace` has it, worked out for each match."""
    looks_inside: bool = False
    """python: tell of each match of several lines whether the pattern also matches in the rest of it."""


class Match(Struct, frozen=True):
    """From `start` up to, not including, `end`, in characters of the text."""

    start: int
    end: int
    groups: tuple[str | None, ...] = ()  # from group 1 on; None for one that took no part
    expansion: str = ""  # what the template gives here
    has_inner: bool = False  # see `Search.looks_inside`


class NeedsSearch(Exception):
    """Planning cannot go on before this search has been made. No refusal: nobody is told."""

    def __init__(self, search: Search) -> None:
        super().__init__(search.pattern)
        self.search = search


class SearchSource(Protocol):
    def matches(self, search: Search) -> tuple[Match, ...]:
        """The matches; Unanswered where nobody has looked yet, InvalidRegex or Timeout."""
        ...


class SearchResults(Struct, frozen=True):
    """Searches that have been made, with what came of them."""

    found: Mapping[Search, tuple[Match, ...] | Refused]

    def matches(self, search: Search) -> tuple[Match, ...]:
        if search not in self.found:
            raise NeedsSearch(search)
        answer = self.found[search]
        if isinstance(answer, Exception):
            raise answer
        return answer
