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
    "Write each block as a line `<<<<<<< SEARCH`, the lines to be found, a line `=======`, the new lines, "
    "and a line `>>>>>>> REPLACE`, each marker at the beginning of its line."
)


def begins_block(line: str) -> bool:
    """Return whether the line begins a block."""
    return _marker(line) == "<"


def parse(argument: str) -> tuple[FuzzyBlock, ...]:
    """Parse an argument into its blocks, at least one; MalformedEdit."""
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
            raise _form_refusal(number, f"`{line[:40].rstrip()}` does not belong {_WHERE[state]}.")
        if after == "search":
            opened = number
            parts = {"outside": [], "search": [], "replacement": []}
        elif after == "replacement" and not parts["search"]:
            raise _form_refusal(number, "The block has no line to be found.")
        elif after == "outside":
            search, replacement = tuple(parts["search"]), tuple(parts["replacement"])
            blocks.append(FuzzyBlock(len(blocks) + 1, opened, search, replacement))
        state = after
    if state != "outside":
        missing = "=======" if state == "search" else ">>>>>>> REPLACE"
        raise _form_refusal(opened, f"The block that begins here has no `{missing}`.")
    if not blocks:
        raise _form_refusal(first, "No block begins at or after this line.")
    return tuple(blocks)


def _marker(line: str) -> str:
    """Return the sign of a marker line, or nothing."""
    sign = line[:1]
    return sign if sign in _MARKERS and _MARKERS[sign].fullmatch(line) else ""


def _form_refusal(line: int, fact: str) -> MalformedEdit:
    return MalformedEdit(f"Line {line} of the argument: {fact}", hint=_FORM, data={"line": line})


_WHERE = {
    "outside": "outside a block",
    "search": "among the lines to be found",
    "replacement": "among the new lines",
}


def with_plain_quotes(blocks: Sequence[FuzzyBlock]) -> tuple[FuzzyBlock, ...]:
    """Return the blocks without the backslash before each `"`; keep a replacement with any bare quote."""
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
    """The result of all blocks: replacements in the text, warnings, and the origin of each line.

    `origins` has a number for each line of the new text: the number of the old line (from 0), or -1 for an
    inserted line.
    """

    replacements: tuple[Replacement, ...]
    warnings: tuple[str, ...]
    origins: tuple[int, ...]


def apply_blocks(text: str, blocks: Sequence[FuzzyBlock], *, path: str = "the file") -> Applied:
    """Apply every block to `text`, whose line ends are LF; NoMatch, Ambiguous or TooLarge."""
    draft = _Draft.of(text)
    work = ComparisonBudget(blocks, len(draft.lines))
    placed = place_together(draft.lines, blocks, work)
    kinds: dict[str, list[int]] = {}
    if isinstance(placed, BlockAmbiguous):
        raise _ambiguous(placed, path)
    if isinstance(placed, BlockNotFound):
        alone = _one_by_one(draft, blocks, work, kinds) if len(blocks) > 1 else placed
        if not isinstance(alone, _Draft):
            raise _missing(placed, alone, text, path)
        draft = alone
    else:
        draft = draft.with_blocks(placed, kinds)
    return Applied(draft.replacements(text), _warnings(kinds), tuple(draft.origins))


def _one_by_one(
    draft: _Draft, blocks: Sequence[FuzzyBlock], work: ComparisonBudget, kinds: dict[str, list[int]]
) -> _Draft | BlockNotFound | BlockAmbiguous | None:
    """Apply the blocks one at a time, each to the result so far; None if the budget is exhausted."""
    for block in blocks:
        try:
            placed = place_together(draft.lines, [block], work)
        except TooLarge:
            return None
        if not isinstance(placed, list):
            return placed
        draft = draft.with_blocks(placed, kinds)
    return draft


# ── The result of a placed block ───────────────────────────────────────────────────────────────────


class _Draft(Struct, frozen=True):
    """The lines of a text under change, and each line's original number; -1 for an inserted line."""

    lines: list[str]
    origins: list[int]

    @classmethod
    def of(cls, text: str) -> _Draft:
        lines = text.split("\n")
        return cls(lines, list(range(len(lines))))

    def with_blocks(self, chosen: Chosen, kinds: dict[str, list[int]]) -> _Draft:
        """Return the draft with these blocks replaced; record the kinds to warn about in `kinds`."""
        lines: list[str] = []
        origins: list[int] = []
        done = 0
        for block, position in chosen:
            new = _fit(block, position, self.lines[position.start : position.end])
            lines += [*self.lines[done : position.start], *new]
            origins += [*self.origins[done : position.start], *[-1] * len(new)]
            done = position.end
            for kind in position.kinds:
                kinds.setdefault(kind, []).append(block.number)
        lines += self.lines[done:]
        origins += self.origins[done:]
        return _Draft(lines or [""], origins or [-1])  # no lines are one empty line

    def replacements(self, text: str) -> tuple[Replacement, ...]:
        """Return the replacements that turn `text`, the draft's original, into the draft."""
        starts = offsets(text.split("\n"))
        kept = [-1, *(index for index, origin in enumerate(self.origins) if origin >= 0), len(self.origins)]
        result = []
        for before, after in pairwise(kept):
            first = self.origins[before] + 1 if before >= 0 else 0
            last = self.origins[after] if after < len(self.origins) else len(starts) - 1
            if last > first:
                result.append(_of_lines(text, starts, first, last, self.lines[before + 1 : after]))
        return tuple(result)


def _of_lines(text: str, starts: Sequence[int], first: int, last: int, new: Sequence[str]) -> Replacement:
    """Return the replacement of the lines from `first` up to, not including, `last`."""
    if new:
        return Replacement(starts[first], starts[last] - 1, "\n".join(new))
    if starts[last] <= len(text):
        return Replacement(starts[first], starts[last], "")
    return Replacement(max(starts[first] - 1, 0), len(text), "")  # the last lines go with the LF before


def _fit(block: FuzzyBlock, position: BlockPosition, matched: Sequence[str]) -> list[str]:
    """Return the block's new lines for a place, with line numbers and indentation corrected."""
    new = list(block.replacement)
    if position.is_loose:
        inked = [index for index, line in enumerate(new) if line.strip()]
        new = new[inked[0] : inked[-1] + 1] if inked else []
    if "line_numbers" in position.kinds:
        new = [without_number(line) for line in new]
    return _indent(new, block.search, matched) if "indentation" in position.kinds else new


def _indent(new: list[str], search: Sequence[str], matched: Sequence[str]) -> list[str]:
    """Return `new` indented by the search's difference to the match, if all lines differ equally."""
    in_match = [_indentation(line) for line in matched if line.strip()]
    in_search = [_indentation(line) for line in search if line.strip()]
    differences = {len(other) - len(own) for other, own in zip(in_search, in_match, strict=False)}
    if len(in_match) != len(in_search) or len(differences) != 1:
        return new
    (difference,) = differences
    if difference <= 0:
        return [in_match[0][:-difference] + line for line in new] if difference else new
    return new if any(line[:difference].strip() for line in new) else [line[difference:] for line in new]


def _indentation(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


# ── Warnings and refusals ──────────────────────────────────────────────────────────────────────────


_MEANINGS = {
    "indentation": "without regard to indentation, and its replacement was indented by the difference "
    "if it was the same for every line",
    "line_numbers": "only without line numbers, which were removed from its replacement too",
    "confusable_chars": "with typographic characters taken for plain ones",
    "all_spaces": "without regard to any white space",
}


def _warnings(kinds: Mapping[str, Sequence[int]]) -> tuple[str, ...]:
    return tuple(
        f"{kind}: block{'s' if len(kinds[kind]) > 1 else ''} {', '.join(map(str, kinds[kind]))} matched "
        f"{meaning}; check the result."
        for kind, meaning in _MEANINGS.items()
        if kind in kinds
    )


def _data(block: FuzzyBlock) -> dict[str, Any]:
    return {"block": block.number, "line": block.line}


def _missing(
    grouped: BlockNotFound, alone: BlockNotFound | BlockAmbiguous | None, text: str, path: str
) -> NoMatch:
    """Return the refusal of blocks that match neither together nor one at a time."""
    missing = alone if isinstance(alone, BlockNotFound) else grouped
    message = _why(missing, path, is_alone=isinstance(alone, BlockNotFound))
    if isinstance(alone, BlockAmbiguous):
        message += f" Applied one at a time, {_fits(alone, path)}"
    old, new = "\n".join(missing.block.search), "\n".join(missing.block.replacement)
    refusal = no_match(message, text, old, _data(missing.block), new=new)
    if isinstance(alone, BlockNotFound):
        return refusal
    order = "Send the blocks in the order of the file, or fewer at once. "
    return refusal.revise(hint=Advice(order, *refusal.advice.parts))


def _why(missing: BlockNotFound, path: str, *, is_alone: bool) -> str:
    if missing.points is not None:
        return (
            f"{_name(missing.block)} is in {path} only with too many differences: "
            f"they cost {missing.points} points, and {POINTS_MAX} are allowed."
        )
    return f"{_name(missing.block)} is not in {path}{'' if is_alone else ' after the blocks before it'}."


def _name(block: FuzzyBlock) -> str:
    return f"Block {block.number} (line {block.line} of the argument)"


def _fits(several: BlockAmbiguous, path: str) -> str:
    shown = list_numbers([position.start + 1 for position in several.places])
    return f"{_name(several.block)} fits {path} in {len(several.places)} places, at lines {shown}."


def _ambiguous(several: BlockAmbiguous, path: str) -> Ambiguous:
    lines = [position.start + 1 for position in several.places[:LINES_TOLD_MAX]]
    return Ambiguous(
        _fits(several, path),
        hint="Add lines before or after to the block until it names one place.",
        data={**_data(several.block), "found": len(several.places), "lines": lines},
    )
