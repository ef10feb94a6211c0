"""Lines of styled text, without a terminal: spans, their looks, and text that is safe to draw.

A look is a role, not a colour: `panes` maps it to colours, or to signs of one bit.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, NamedTuple

from rich.cells import cell_len, set_cell_size

from editd_client.file_text import readable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from editd_client.review.patch import Role

Look = Literal[
    "", "dim", "bold", "title", "key", "added", "removed", "added_word", "removed_word", "good", "bad",
    "warning", "struck", "tab",
]  # fmt: skip
TAB = 4  # columns of a tab in a diff
CHARACTERS_A_CELL_MAX = 4  # with marks that take no cell
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
ASCII = str.maketrans("▌●─│┬┴✓✗×·…→▶◆⧗⚑‖", ">*-|++vxx.~>>*~!=")  # each as wide as before


class TextSpan(NamedTuple):
    """A part of a line with one look, in a diff with its role in the syntax. A click is the key `key`."""

    text: str
    look: Look = ""
    key: str = ""
    role: Role = ""


class Line(NamedTuple):
    """A line of a pane."""

    spans: tuple[TextSpan, ...]

    @property
    def text(self) -> str:
        return "".join(span.text for span in self.spans)

    @property
    def width(self) -> int:
        return sum(cell_len(span.text) for span in self.spans)


def plain(text: str) -> str:
    """Return text without control characters and direction marks, which would change the terminal.

    Tabs become spaces. A byte that is not UTF-8 is `\\xff`.
    """
    return _CONTROL.sub(_escape, readable(text).expandtabs(TAB))


def _escape(match: re.Match[str]) -> str:
    number = ord(match[0])
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"


def fit(text: str, width: int, *, right: bool = False) -> str:
    """Return text that is exactly so wide, cut with an ellipsis if it is longer."""
    width = max(0, width)
    size = cell_len(text)
    if size > width:
        return set_cell_size(text, width - 1) + "…" if width > 1 else set_cell_size(text, width)
    return " " * (width - size) + text if right else text + " " * (width - size)


def cut_in_middle(name: str, width: int) -> str:
    """Return a name that is exactly so wide, cut in the middle: names of sessions differ at their end."""
    if cell_len(name) <= width:
        return fit(name, width)
    tail = max(1, (width - 1) // 2)
    return fit(fit(name, width - tail - 1).rstrip("…") + "…" + name[-tail:], width)


def cut_path(path: str, width: int) -> str:
    """Return a path that is exactly so wide: the end, `…/name`, if that fits, otherwise cut in the middle."""
    if cell_len(path) <= width or cell_len(path.rpartition("/")[2]) > width - 2:
        return cut_in_middle(path, width)
    tail = path[-(width - 1) :]
    while cell_len(tail) > width - 1:
        tail = tail[1:]
    return fit(f"…{tail}", width)


def right_aligned(left: Line, right: Line, width: int) -> Line:
    """Return a line with `right` at its end; `left` is cut if both do not fit."""
    room = width - right.width
    if room <= 0:
        return Line(tuple(cut(right.spans, width)))
    spans = list(cut(left.spans, room))
    used = sum(cell_len(span.text) for span in spans)
    return Line((*spans, TextSpan(" " * (room - used)), *right.spans))


def cut(spans: Iterable[TextSpan], width: int) -> Iterator[TextSpan]:
    """Yield the spans up to a width."""
    left = width
    for span in spans:
        if left <= 0:
            return
        size = cell_len(span.text)
        yield span if size <= left else span._replace(text=fit(span.text, left))
        left -= size


def wrap(
    spans: Iterable[TextSpan], width: int, indent: int, *, has_words: bool = False
) -> Iterator[tuple[TextSpan, ...]]:
    """Yield the spans as lines of a width; all but the first begin with `indent` spaces.

    With `has_words` a line ends after a word, if one fits.
    """
    row: list[TextSpan] = []
    used = 0
    for span in spans:
        at = 0
        while at < len(span.text):
            taken = _part(span.text, at, max(1, width - used))
            if at + len(taken) == len(span.text):
                row.append(span._replace(text=taken))
                used += cell_len(taken)
                break
            if has_words and " " in taken.strip() and span.text[at + len(taken)] != " ":
                taken = taken[: taken.rindex(" ") + 1]
            row.append(span._replace(text=taken))
            yield tuple(row)
            at, row, used = at + len(taken), [TextSpan(" " * indent)], indent
    yield tuple(row)


def wrap_texts(texts: Iterable[str], width: int) -> list[Line]:
    """Return dim lines of a width with these texts; a text that goes on is indented as it begins."""
    lines: list[Line] = []
    for text in texts:
        indent = len(text) - len(text.lstrip()) + 1
        lines += map(Line, wrap((TextSpan(f" {text}", "dim"),), width, indent, has_words=True))
    return lines


def _part(text: str, at: int, width: int) -> str:
    """Return the longest part from a place on that fits, at least one character.

    Only the characters near the place are measured, so that a long line takes linear time.
    """
    end = min(len(text), at + width * CHARACTERS_A_CELL_MAX)
    if end - at > width and end < len(text) and text[at : at + width].isascii():
        end = at + width
    while end > at + 1 and (excess := cell_len(text[at:end]) - width) > 0:
        end = max(at + 1, end - max(1, excess // 2))
    return text[at:end]
