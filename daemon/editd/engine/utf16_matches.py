"""Matches of ECMAScript in characters: it counts one outside of the BMP as two halves, its surrogates.

Without the flag u, a match may begin or end between the two surrogates of a character outside the BMP.
Such a match is extended to the whole character if its replacement leaves whole characters. Otherwise it
is refused. A result never has half of a character.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from typing import TYPE_CHECKING

from msgspec import Struct

from editd.edits.search import Match
from editd.engine.search_refusals import invalid

if TYPE_CHECKING:
    from collections.abc import Sequence

    from editd.edits.search import Search

SURROGATE = re.compile("[\ud800-\udfff]")
_ASTRAL = re.compile("[\U00010000-\U0010ffff]")


def in_characters(rows: list[Match], search: Search) -> list[Match]:
    """Convert offsets to characters. Raises InvalidRegex if a match splits a character."""
    astral = enumerate(_ASTRAL.finditer(search.text)) if rows else ()
    highs = array("L", (match.start() + index for index, match in astral))
    if not highs:
        return rows
    halves = _Halves(search.text, highs)
    matches = [halves.widen(row) for row in halves.join(rows)]
    for match in matches:
        if any(SURROGATE.search(text) for text in (match.expansion, *match.groups) if text):
            line = search.text.count("\n", 0, match.start) + 1
            raise invalid(
                "The expression takes half of the character "
                f"{_shown_character(search.text[match.start : match.end])} at line {line}, "
                "and would leave the other half of it.",
                search.pattern, None,
                "Match a character outside the BMP by its own text, or as "
                "[\\ud800-\\udbff][\\udc00-\\udfff]: it counts as two.",
            )  # fmt: skip
    return matches


def _shown_character(text: str) -> str:
    astral = _ASTRAL.search(text)
    return astral.group() if astral else text[:1]


class _Halves(Struct, frozen=True):
    """A text with characters outside the BMP. `highs` has the UTF-16 offsets of their first surrogates."""

    text: str
    highs: Sequence[int]

    def join(self, rows: list[Match]) -> list[Match]:
        """Join matches that meet between two surrogates. Drop an empty match there."""
        result: list[Match] = []
        for row in rows:
            last = result[-1] if result else None
            if not self._is_between(row.start):
                result.append(row)
            elif last is not None and last.end == row.start:
                result[-1] = Match(last.start, row.end, last.groups, last.expansion + row.expansion)
            elif row.start < row.end:
                result.append(row)
        return result

    def widen(self, row: Match) -> Match:
        """Return the match in whole characters. Its expansion keeps the half that it did not match."""
        start, end, expansion = row.start, row.end, row.expansion
        if self._is_between(start):
            start -= 1
            expansion = self._pair_at(start)[0] + expansion
        if self._is_between(end):
            expansion += self._pair_at(end - 1)[1]
            end += 1
        groups = tuple(group and _pair(group) for group in row.groups)
        return Match(self._place(start), self._place(end), groups, _pair(expansion))

    def _is_between(self, offset: int) -> bool:
        index = bisect_left(self.highs, offset - 1)
        return index < len(self.highs) and self.highs[index] == offset - 1

    def _pair_at(self, offset: int) -> tuple[str, str]:
        code = ord(self.text[self._place(offset)]) - 0x10000
        return chr(0xD800 + (code >> 10)), chr(0xDC00 + (code & 0x3FF))

    def _place(self, offset: int) -> int:
        return offset - bisect_left(self.highs, offset)


def _pair(text: str) -> str:
    """Return the text with each pair of surrogates as one character."""
    if not SURROGATE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
