"""SEARCH/REPLACE blocks: their syntax, and their application to a text.

The blocks are placed together (`tools.fuzzy_match`). If that fails, they are applied one at a time, each to
the whole result of the previous one. After an approximate match, line numbers and indentation of the new
lines are corrected.

Never touches a file; line ends are LF.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from editd.advice import Advice
from editd.edits.replace import LINES_TOLD_MAX, Replacement, list_numbers, no_match, offsets
from editd.errors import Ambiguous, MalformedEdit, NoMatch, TooLarge
from editd.tools.fuzzy_match import (
    POINTS_MAX,
    BlockAmbiguous,
    BlockNotFound,
    ComparisonBudget,
    FuzzyBlock,
    place_together,
    without_number,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from editd.tools.fuzzy_match import BlockPosition, Chosen

_MARKERS = {
    "<": re.compile(r"<{6,}\s*SEARCH>?\s*"),
    "=": re.compile(r"={5,}\s*"),
    ">": re.compile(r">{6,}\s*REPLACE\s*"),
}
_NEXT = {("outside", "<"): "search", ("search", "="): "replacement", ("replacement", ">"): "outside"}
_FORM = (
    "Write each block as a line `    shown = list_numbers([position.start + 1 for position in several.places])
    return f"{_name(several.block)} fits {path} in {len(several.places)} places, at lines {shown}."


def _ambiguous(several: BlockAmbiguous, path: str) -> Ambiguous:
    lines = [position.start + 1 for position in several.places[:LINES_TOLD_MAX]]
    return Ambiguous(
        _fits(several, path),
        hint="Add lines before or after to the block until it names one place.",
        data={**_data(several.block), "found": len(several.places), "lines": lines},
    )
