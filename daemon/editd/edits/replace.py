"""Replacements: new text for spans of a text, made as though all at once.

Every text edit ends in `replace`. `replace_exactly` finds its `count` spans by their text, and refuses a
text with any other number of matches.

New text takes the line ends of the text it replaces. A byte outside the spans never changes.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from itertools import accumulate, chain, islice, pairwise, takewhile
from operator import add
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from editd.advice import Advice, operation_term, option_term
from editd.edits.search import (
    LINE_END,
    Nearest,
    Span,
    line_starts,
    lines_of,
    nearest,
    occurrences,
    with_plain_line_ends,
    with_twin,
)
from editd.errors import Ambiguous, CountMismatch, InvalidParams, NoMatch, TooLarge

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from editd.wire.messages import Position, PositionEncoding, TextEdit


# The places of consecutive lines in a text, compared in a normal form such as a trim or equal look-alikes.
#
# The matcher of all tools that replace whole lines.


def describe_lines(*ranges: tuple[int, int]) -> str:
    """Return ranges of lines, both ends included, in words: `line 3`, or `lines 3, 5-7`."""
    numbers = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)
    return f"line {numbers}" if numbers.isdigit() else f"lines {numbers}"


def list_numbers(lines: Sequence[int]) -> str:
    """Return the first ten numbers, with an ellipsis if there are more."""
    more = ", …" if len(lines) > _LINES_SHOWN_MAX else ""
    return ", ".join(map(str, lines[:_LINES_SHOWN_MAX])) + more


MATCH_WORK_MAX = 2_000_000_000  # characters that one matcher compares: some 2 s
_MATCH_COST = 20  # comparing a character of a match takes so many times as long as passing one


class LineMatcher:
    """The lines of a text in a normal form, joined so that `str.find` finds consecutive lines.

    Many searches in a large text, or many long matches, would hold up the edits of all others. So the work
    of all searches together has a limit, counted without a clock.
    """

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = lines
        self.starts = offsets(lines)
        self._joined = "\n".join(["", *lines, ""])
        self._work_left = MATCH_WORK_MAX

    def places(self, wanted: Sequence[str], start: int = 0) -> Iterator[int]:
        """Yield each index of the lines `wanted` from `start` on, overlapping places included.

        Raises TooLarge.
        """
        if not wanted or start > len(self.lines):
            return
        goal = "\n".join(["", *wanted, ""])
        match = self._find(goal, self.starts[start])
        while match >= 0:
            yield bisect_left(self.starts, match)
            match = self._find(goal, match + 1)

    def _find(self, goal: str, start: int) -> int:
        match = self._joined.find(goal, start)
        passed = (len(self._joined) if match < 0 else match) - start
        self._work_left -= passed + _MATCH_COST * len(goal)
        if self._work_left < 0:
            raise TooLarge(
                "The file takes too long to search: it is large, and there are many texts to find in it, "
                "or one long text is at many places.",
                hint="Send fewer changes in one call, or add context that the file has only once.",
                data={"limit": MATCH_WORK_MAX},
            )
        return match


def offsets(lines: Sequence[str]) -> list[int]:
    """Return each line's offset in `"\\n".join(lines)`, and the offset after a final LF."""
    return list(map(add, accumulate(map(len, lines), initial=0), range(len(lines) + 1)))


# LSP `TextEdit`s: replacements with positions given by line and character.
#
# Lines end with LF, CRLF or CR. A character is a unit of the position's encoding, as in the Language Server
# Protocol 3.17 ("Text Documents", "Position"). Text is inserted unchanged: a client that sends positions
# also sends its own line ends.

_CODECS = {"utf-8": ("utf-8", 1), "utf-16": ("utf-16-le", 2)}  # a codec, and the bytes in a unit


def edit_text(text: str, edits: Iterable[TextEdit], encoding: PositionEncoding = "utf-16") -> str:
    """Return `text` with `edits` made; all positions refer to `text` before the first edit.

    A character beyond its line's end means the line's end. Raises InvalidParams for a missing line, a
    position inside a character, an end before its start, and edits that overlap.
    """
    return replace(text, replacements_of(text, edits, encoding))


def replacements_of(text: str, edits: Iterable[TextEdit], encoding: PositionEncoding) -> list[Replacement]:
    """Return each edit as a replacement in characters of `text`; raises the errors of `edit_text`."""
    starts = line_starts(text)
    placed = []
    for edit in edits:
        start = _offset(text, starts, edit.start, encoding)
        end = _offset(text, starts, edit.end, encoding)
        if end < start:
            raise InvalidParams(
                f"A text edit ends at {_format(edit.end)}, before its start at {_format(edit.start)}.",
                hint="Give the start first.",
            )
        placed.append(Replacement(start, end, edit.text))
    return placed


def _offset(text: str, starts: Sequence[int], position: Position, encoding: PositionEncoding) -> int:
    if not 0 <= position.line < len(starts):
        raise InvalidParams(
            f"There is no line {position.line}: the text has {len(starts)}, counted from 0.",
            hint="Read the file again, and count its lines anew.",
            data={"line": position.line, "lines": len(starts)},
        )
    if position.character < 0:
        raise InvalidParams(f"{_format(position)} is left of the line.", hint="Characters count from 0.")
    start = starts[position.line]
    line = text[start : starts[position.line + 1] if position.line + 1 < len(starts) else None]
    return start + _characters(line.rstrip("\r\n"), position, encoding)


def _characters(line: str, position: Position, encoding: PositionEncoding) -> int:
    """Convert the position's units to characters of `line`."""
    if encoding == "utf-32" or line.isascii():
        return min(position.character, len(line))
    codec, width = _CODECS[encoding]
    try:
        return len(line.encode(codec)[: position.character * width].decode(codec))
    except UnicodeDecodeError:
        raise InvalidParams(
            f"{_format(position)} is inside a character.",
            hint=f"Count characters in {encoding} units, or name another position_encoding.",
        ) from None


def _format(position: Position) -> str:
    return f"{position.line}:{position.character}"


LINES_TOLD_MAX = 100  # lines named in a refusal's data
_LINES_SHOWN_MAX = 10  # in its message
_TELLING_CHARACTERS = 3  # letters and digits in a new text; shorter ones match by chance


class Replacement(Struct, frozen=True):
    """New text for the span from `start` up to, not including, `end`, in characters."""

    start: int
    end: int
    text: str


class Overlap(InvalidParams):
    """Two replacements of the same characters."""

    def __init__(self, first: Replacement, second: Replacement) -> None:
        super().__init__(
            f"The spans {first.start}-{first.end} and {second.start}-{second.end} overlap.",
            hint="Combine the two edits into one.",
            data={"first": [first.start, first.end], "second": [second.start, second.end]},
        )


def replace(text: str, replacements: Iterable[Replacement]) -> str:
    """Return `text` with every replacement made, as though all at once; Overlap if two collide.

    Insertions at one place keep their order, and come before a replacement that starts there.
    """
    ordered = sorted(replacements, key=lambda replacement: (replacement.start, replacement.end))
    for first, second in pairwise(ordered):
        if second.start < first.end:
            raise Overlap(first, second)
    pieces = []
    position = 0
    for replacement in ordered:
        pieces += [text[position : replacement.start], replacement.text]
        position = replacement.end
    return "".join([*pieces, text[position:]])


def replace_exactly(text: str, old: str, new: str, count: int = 1, *, path: str = "") -> str:
    """Return `text` with the `count` occurrences of `old` replaced by `new`.

    Line ends of `old` match any others. `new` takes the line ends of the lines that it replaces. Raises
    InvalidParams for an empty `old` or a `count` below 1, and NoMatch, Ambiguous or CountMismatch if
    `old` does not occur exactly `count` times.
    """
    if not old or count < 1:
        raise InvalidParams(
            "The text to be replaced is empty." if not old else f"{count} occurrences cannot be replaced.",
            hint=EMPTY_FILE_HINT
            if not text
            else "Give the text to be replaced, and the number of its occurrences.",
        )
    spans = occurrences(text, old)
    _expect(count, spans, text, old, new, path or "the file")
    if old == new:
        return text
    return replace(
        text, [Replacement(span.start, span.end, fit_line_ends(new, old, text, span)) for span in spans]
    )


def _expect(count: int, spans: Sequence[Span], text: str, old: str, new: str, path: str) -> None:
    if not spans:
        raise no_match(f"The text to be replaced is not in {path}.", text, old, new=new, count=count)
    is_twin = len(spans) == count == 1 and len(with_twin(text, spans)) > 1
    if is_twin:
        spans = with_twin(text, spans)
    if len(spans) == count:
        return
    times = len(spans)
    lines = lines_of(text, [span.start for span in spans[:LINES_TOLD_MAX]])
    shown = list_numbers(lines)
    if count == 1:
        raise Ambiguous(
            f"The text to be replaced is in {path} {times} times, at lines {shown}.",
            hint="Add lines around it until it names one place; these overlap."
            if is_twin
            else Advice(
                "Add lines around it until it names one place, or ask for ",
                option_term("count", str(times)),
                ".",
            ),
            data={"found": times, "lines": lines},
        )
    raise CountMismatch(
        f"The text to be replaced is in {path} {times} {'time' if times == 1 else 'times'}, not {count}: "
        f"at line{'' if times == 1 else 's'} {shown}.",
        hint=Advice("Ask for ", option_term("count", str(times)), " to replace all of them."),
        data={"expected": count, "found": times, "lines": lines},
    )


def no_match(
    message: str,
    text: str,
    needle: str,
    data: dict[str, Any] | None = None,
    *,
    new: str = "",
    count: int | None = 1,
) -> NoMatch:
    """Return the refusal for a `needle` that `text` does not contain, with the nearest passage in its data.

    If `text` already contains `new`, the replacement, `count` times (None: any number), the refusal says so.
    """
    near = nearest(text, needle) if text else None
    nearest_data = {"nearest": None, "differs": []} if near is None else near.to_data()
    hint = Advice(nearest_hint(near)) if text else EMPTY_FILE_HINT
    all_data = {**(data or {}), **nearest_data}
    applied_lines = _place_of_new(text, needle, new, count)
    if applied_lines is None:
        return NoMatch(message, hint=hint, data=all_data)
    first, last = applied_lines
    is_news = near is not None and (near.end_line < first or last < near.start_line)
    applied = f"Leave the edit out if it was made before: the new text is at {describe_lines(applied_lines)}."
    refusal = NoMatch(message, hint=Advice(f"{applied} ", *hint.parts) if is_news else applied, data=all_data)
    return note_applied(refusal, with_plain_line_ends(text).split("\n"), first, last)


def nearest_hint(near: Nearest | None) -> str:
    """Return the hint of a search without a match, which names the nearest passage if there is one."""
    if near is None:
        return "Nothing in the file resembles it: read the file again."
    kinds = () if near.differs == ("text",) else near.differs
    differences = f" and differs in {' and '.join(kinds)}" if kinds else ""
    copy = "copy the text from there as it stands" + (", without line numbers" * ("line numbers" in kinds))
    more = "".join(f" {_HINTS[kind]}" for kind in kinds if kind in _HINTS)
    lines = describe_lines((near.start_line, near.end_line))
    return f"The nearest passage is at {lines}{differences}: {copy}.{more}"


EMPTY_FILE_HINT = Advice("The file is empty: use ", operation_term("write"), " to fill it.")
_HINTS = {
    "escapes": 'Send line ends and quotes as they are, not as `\\n` or `\\"`, and each backslash once.',
    "entities": "Send `<`, `>` and `&` as the file has them, not as `&lt;` for `<` or the reverse.",
    "quotes": "A text has straight quotes where the other has typographic ones: `difference` has the bytes.",
    "dashes": "A text has a hyphen where the other has a longer dash: `difference` has the bytes.",
    "unicode form": "Its letters with accents are other characters than yours: `difference` has the bytes.",
    "invisible character": "One of the two has a character that is not seen: `difference` has the bytes.",
    "part of a line": "Your last line ends where the line of the file goes on: take the whole line.",
}


def note_applied(refusal: NoMatch, lines: Sequence[str], first: int, last: int) -> NoMatch:
    """Return the refusal with the fact that the lines from `first` to `last` hold the new text already."""
    return refusal.revise(
        data={"already_applied": True, "applied_at_line": first},
        applied=(first, tuple(lines[first - 1 : last])),
    )


def with_applied_hunk(refusal: NoMatch, lines: Sequence[str], start: int, signs: str) -> NoMatch:
    """Return the refusal with the fact that `lines` hold the result of a hunk from the index `start` on."""
    new = signs.replace("-", "")
    first, last = (new.find("+"), new.rfind("+")) if "+" in new else (0, len(new) - 1)
    noted = note_applied(refusal, lines, start + first + 1, start + last + 1)
    return noted.revise(data={"applied_at_line": start + 1})


def _place_of_new(text: str, old: str, new: str, count: int | None) -> tuple[int, int] | None:
    """Return the first and last line of the first match of `new`, if it shows that the edit was made."""
    bare = with_plain_line_ends(new).strip("\n")
    telling = islice(re.finditer(r"\w", bare), _TELLING_CHARACTERS)
    if len(list(telling)) < _TELLING_CHARACTERS or bare in with_plain_line_ends(old):
        return None
    spans = occurrences(text, bare)
    if not spans or count not in (None, len(spans)):
        return None
    first, last = lines_of(text, [spans[0].start, spans[0].end - 1])
    return first, last


def fit_line_ends(new: str, old: str, text: str, span: Span) -> str:
    """Return `new` with the line ends of the text it replaces, line for line.

    Lines that `old` and `new` share at their beginning and end keep their line ends. Lines between take
    the replaced line ends in turn. A longer `new` repeats the last of these, a shorter one takes the last
    ones. An edit of nothing but line ends is inserted unchanged.
    """
    plain_new = new.replace("\r\n", "\n")
    if "\n" not in plain_new or with_plain_line_ends(old) == with_plain_line_ends(new):
        return new
    ends = LINE_END.findall(text, span.start, span.end)
    nearby = ends or _line_ends_around(text, span)
    if not nearby:
        return new
    before, after = with_plain_line_ends(old).split("\n"), plain_new.split("\n")
    head = _common(before[:-1], after[:-1])
    tail = _common(before[head:-1][::-1], after[head:-1][::-1])
    between = ends[head : len(ends) - tail] or nearby[max(head - 1, 0) :][:1]
    count = len(after) - 1 - head - tail
    filled = between[max(len(between) - count, 0) :] + between[-1:] * (count - len(between))
    line_ends = ends[:head] + filled + ends[len(ends) - tail :]
    return "".join(chain.from_iterable(zip(after, [*line_ends, ""], strict=True)))


def _common(first: Sequence[str], second: Sequence[str]) -> int:
    """Return the length of the common prefix."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False)))


def _line_ends_around(text: str, span: Span) -> list[str]:
    """Return the first line end after `span`, or the last one before it, or none."""
    if match := LINE_END.search(text, span.end):
        return [match.group()]
    return LINE_END.findall(text, 0, span.start)[-1:]
