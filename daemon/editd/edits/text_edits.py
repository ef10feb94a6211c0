"""LSP `TextEdit`s: replacements with positions given by line and character.

Lines end with LF, CRLF or CR. A character is a unit of the position's encoding, as in the Language
Server Protocol 3.17 ("Text Documents", "Position"). Text is inserted unchanged: a client that sends
positions also sends its own line ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from editd.edits.replace import Replacement, replace
from editd.edits.search import line_starts
from editd.errors import InvalidParams

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from editd.values.changeset import Position, PositionEncoding, TextEdit

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
                f"A text edit ends at {_shown(edit.end)}, before its start at {_shown(edit.start)}.",
                hint="Give the start first.",
            )
        placed.append(Replacement(start, end, edit.text))
    return placed


def _offset(text: str, starts: Sequence[int], position: Position, encoding: PositionEncoding) -> int:
    if not 0 <= position.line < len(starts):
        raise InvalidParams(
            f"There is no line {position.line}: the text has {len(starts)}, counted from 0.",
            hint="Read the file again, and count lines in the base version.",
            data={"line": position.line, "lines": len(starts)},
        )
    if position.character < 0:
        raise InvalidParams(f"{_shown(position)} is left of the line.", hint="Characters count from 0.")
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
            f"{_shown(position)} is inside a character.",
            hint=f"Count characters in {encoding} units, or name another position_encoding.",
        ) from None


def _shown(position: Position) -> str:
    return f"{position.line}:{position.character}"
