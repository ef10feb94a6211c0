"""SEARCH/REPLACE blocks: how they are written, and what a text becomes by them.

The blocks are placed together, see `tools.fuzzy_match`; where that cannot be, one at a time, each from the
top of what the one before it made. What goes in is put right where the match was only near: line
numbers, indentation.

Knows nothing of files; line ends are LF.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from editd.edits.lines import offsets
from editd.edits.replace import Replacement, no_match
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
    "Write each block as a line `<<<<<<< SEARCH`, the lines to be found, a line `=======`, the new lines, "
    "and a line `>>>>>>> REPLACE`, each marker at the beginning of its line."
)
_LINES_TOLD_MAX = 100  # places named in a refusal; more help nobody


def begins_block(line: str) -> bool:
    """True for a line that a block begins with."""
    return _marker(line) == "<"


def parse(argument: str) -> tuple[FuzzyBlock, ...]:
    """The blocks that are written in an argument, one at least; MalformedEdit."""
    plain = argument.replace("\r\n", "\n")
    first = plain.count("\n", 0, len(plain) - len(plain.lstrip())) + 1
    blocks: list[FuzzyBlock] = []
    state, opened = "outside", 0
    parts: dict[str, list[str]] = {"outside": [], "search": [], "replacement": []}
    for number, line in enumerate(plain.strip().split("\n"), first):
        marker = _marker(line)
        if not marker:
            parts[state].append(line)
            continue
        after = _NEXT.get((state, marker))
        if after is None:
            raise _malformed(number, f"`{line[:40].rstrip()}` does not belong {_WHERE[state]}.")
        if after == "search":
            opened = number
            parts = {"outside": [], "search": [], "replacement": []}
        elif after == "replacement" and not parts["search"]:
            raise _malformed(number, "The block has no line to be found.")
        elif after == "outside":
            search, replacement = tuple(parts["search"]), tuple(parts["replacement"])
            blocks.append(FuzzyBlock(len(blocks) + 1, opened, search, replacement))
        state = after
    if state != "outside":
        missing = "=======" if state == "search" else ">>>>>>> REPLACE"
        raise _malformed(opened, f"The block that begins here has no `{missing}`.")
    if not blocks:
        raise _malformed(first, "There is no block from here on.")
    return tuple(blocks)


def _marker(line: str) -> str:
    """The sign that the line is a marker of, or nothing."""
    sign = line[:1]
    return sign if sign in _MARKERS and _MARKERS[sign].fullmatch(line) else ""


def _malformed(line: int, fact: str) -> MalformedEdit:
    return MalformedEdit(f"Line {line} of the argument: {fact}", hint=_FORM, data={"line": line})


_WHERE = {
    "outside": "outside a block",
    "search": "among the lines to be found",
    "replacement": "among the new lines",
}


def with_plain_quotes(blocks: Sequence[FuzzyBlock]) -> tuple[FuzzyBlock, ...]:
    """The blocks without the backslash before each `"`, but in replacements where it is not before each."""
    return tuple(
        replace(
            block,
            search=tuple(line.replace('\\"', '"') for line in block.search),
            replacement=block.replacement
            if any(_BARE_QUOTE.search(line) for line in block.replacement)
            else tuple(line.replace('\\"', '"') for line in block.replacement),
        )
        for block in blocks
    )


_BARE_QUOTE = re.compile(r'(?<!\\)"')


class Applied(Struct, frozen=True):
    """What all blocks come to: replacements in the text, warnings, and where each line is from.

    `origins` has a number for each line of the new text: that of the old line (from 0), or -1 for one
    that was put in.
    """

    replacements: tuple[Replacement, ...]
    warnings: tuple[str, ...]
    origins: tuple[int, ...]


def apply_blocks(text: str, blocks: Sequence[FuzzyBlock], *, path: str = "the file") -> Applied:
    """Place every block in `text`, whose line ends are LF; NoMatch, Ambiguous or TooLarge."""
    draft = _Draft.of(text)
    work = ComparisonBudget(blocks, len(draft.lines))
    found = place_together(draft.lines, blocks, work)
    kinds: dict[str, list[int]] = {}
    if isinstance(found, BlockAmbiguous):
        raise _ambiguous(found, path)
    if isinstance(found, BlockNotFound):
        alone = _one_by_one(draft, blocks, work, kinds) if len(blocks) > 1 else found
        if not isinstance(alone, _Draft):
            raise _missing(found, alone, text, path)
        draft = alone
    else:
        draft = draft.with_blocks(found, kinds)
    return Applied(draft.replacements(text), _warnings(kinds), tuple(draft.origins))


def _one_by_one(
    draft: _Draft, blocks: Sequence[FuzzyBlock], work: ComparisonBudget, kinds: dict[str, list[int]]
) -> _Draft | BlockNotFound | BlockAmbiguous | None:
    """Place each block alone, in what the one before it made; None where they are too many for that."""
    for block in blocks:
        try:
            found = place_together(draft.lines, [block], work)
        except TooLarge:
            return None
        if not isinstance(found, list):
            return found
        draft = draft.with_blocks(found, kinds)
    return draft


# ── What comes of a placed block ───────────────────────────────────────────────────────────────────


class _Draft(Struct, frozen=True):
    """The lines of a text on their way, and the number that each had at first; -1 for one put in."""

    lines: list[str]
    origins: list[int]

    @classmethod
    def of(cls, text: str) -> _Draft:
        lines = text.split("\n")
        return cls(lines, list(range(len(lines))))

    def with_blocks(self, chosen: Chosen, kinds: dict[str, list[int]]) -> _Draft:
        """The draft with the replacements of these blocks; `kinds` gets what is to be warned of."""
        lines: list[str] = []
        origins: list[int] = []
        done = 0
        for block, place in chosen:
            new = _fitted(block, place, self.lines[place.start : place.end])
            lines += [*self.lines[done : place.start], *new]
            origins += [*self.origins[done : place.start], *[-1] * len(new)]
            done = place.end
            for kind in place.kinds:
                kinds.setdefault(kind, []).append(block.number)
        lines += self.lines[done:]
        origins += self.origins[done:]
        return _Draft(lines or [""], origins or [-1])  # no lines are one empty line

    def replacements(self, text: str) -> tuple[Replacement, ...]:
        """How `text`, which the draft was made of, becomes the draft."""
        starts = offsets(text.split("\n"))
        kept = [-1, *(index for index, origin in enumerate(self.origins) if origin >= 0), len(self.origins)]
        found = []
        for before, after in pairwise(kept):
            first = self.origins[before] + 1 if before >= 0 else 0
            last = self.origins[after] if after < len(self.origins) else len(starts) - 1
            if last > first:
                found.append(_of_lines(text, starts, first, last, self.lines[before + 1 : after]))
        return tuple(found)


def _of_lines(text: str, starts: Sequence[int], first: int, last: int, new: Sequence[str]) -> Replacement:
    """The replacement of the lines from `first` up to, not including, `last`."""
    if new:
        return Replacement(starts[first], starts[last] - 1, "\n".join(new))
    if starts[last] <= len(text):
        return Replacement(starts[first], starts[last], "")
    return Replacement(max(starts[first] - 1, 0), len(text), "")  # the last lines go with the LF before


def _fitted(block: FuzzyBlock, place: BlockPosition, matched: Sequence[str]) -> list[str]:
    """The block's replacement as it goes in at a place: line numbers and indentation put right."""
    new = list(block.replacement)
    if place.is_loose:
        inked = [index for index, line in enumerate(new) if line.strip()]
        new = new[inked[0] : inked[-1] + 1] if inked else []
    if "line_numbers" in place.kinds:
        new = [without_number(line) for line in new]
    return _indented(new, block.search, matched) if "indentation" in place.kinds else new


def _indented(new: list[str], search: Sequence[str], matched: Sequence[str]) -> list[str]:
    """`new` moved by as much as the search is off, if that is the same for every line."""
    here = [_indentation(line) for line in matched if line.strip()]
    there = [_indentation(line) for line in search if line.strip()]
    differences = {len(wanted) - len(found) for wanted, found in zip(there, here, strict=False)}
    if len(here) != len(there) or len(differences) != 1:
        return new
    (difference,) = differences
    if difference <= 0:
        return [here[0][:-difference] + line for line in new] if difference else new
    return new if any(line[:difference].strip() for line in new) else [line[difference:] for line in new]


def _indentation(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


# ── What is said of it ─────────────────────────────────────────────────────────────────────────────


_MEANINGS = {
    "indentation": "without regard to indentation, and its replacement was moved by the difference "
    "where that was the same for every line",
    "line_numbers": "only without line numbers, which were taken out of its replacement too",
    "confusable_chars": "with typographic characters taken for plain ones",
    "all_spaces": "without regard to any white space",
}


def _warnings(kinds: Mapping[str, Sequence[int]]) -> tuple[str, ...]:
    return tuple(
        f"{kind}: block{'s' if len(kinds[kind]) > 1 else ''} {', '.join(map(str, kinds[kind]))} matched "
        f"{meaning}; look at what came of it."
        for kind, meaning in _MEANINGS.items()
        if kind in kinds
    )


def _data(block: FuzzyBlock) -> dict[str, Any]:
    return {"block": block.number, "line": block.line}


def _missing(
    grouped: BlockNotFound, alone: BlockNotFound | BlockAmbiguous | None, text: str, path: str
) -> NoMatch:
    """Why the blocks have no place, neither one after the other nor one at a time."""
    missing = alone if isinstance(alone, BlockNotFound) else grouped
    said = _why(missing, path, is_alone=isinstance(alone, BlockNotFound))
    if isinstance(alone, BlockAmbiguous):
        said += f" Looked for one at a time, {_fits(alone, path)}"
    old, new = "\n".join(missing.block.search), "\n".join(missing.block.replacement)
    refusal = no_match(said, text, old, _data(missing.block), new=new)
    if not isinstance(alone, BlockNotFound):
        refusal.hint = f"Send the blocks in the order of the file, or fewer at once. {refusal.hint}"
    return refusal


def _why(missing: BlockNotFound, path: str, *, is_alone: bool) -> str:
    if missing.points is not None:
        return (
            f"{_name(missing.block)} is in {path} only with too many differences: "
            f"they come to {missing.points} points, and {POINTS_MAX} are allowed."
        )
    return f"{_name(missing.block)} is not in {path}{'' if is_alone else ' after the blocks before it'}."


def _name(block: FuzzyBlock) -> str:
    return f"Block {block.number} (line {block.line} of the argument)"


def _fits(several: BlockAmbiguous, path: str) -> str:
    shown = ", ".join(str(place.start + 1) for place in several.places[:10])
    more = ", …" if len(several.places) > 10 else ""
    return f"{_name(several.block)} fits {path} in {len(several.places)} places, at lines {shown}{more}."


def _ambiguous(several: BlockAmbiguous, path: str) -> Ambiguous:
    lines = [place.start + 1 for place in several.places[:_LINES_TOLD_MAX]]
    return Ambiguous(
        _fits(several, path),
        hint="Add lines before or after to the block until it names one place.",
        data={**_data(several.block), "found": len(several.places), "lines": lines},
    )
