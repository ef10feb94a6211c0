"""Runs of lines: the places of consecutive lines in a text, compared in a normal form.

Shared by the tool dialects that match by lines, with forms such as `str.rstrip`, a trim, or equal
look-alikes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

JS_WHITE_SPACE = (
    "\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000\ufeff"
)
"""ECMAScript's WhiteSpace and LineTerminator, the set of `trim` and `\\s` (ECMA-262, 22.1.3.32)."""


def js_trim(text: str) -> str:
    """Trim as `String.prototype.trim` does."""
    return text.strip(JS_WHITE_SPACE)


def numbered(*ranges: tuple[int, int]) -> str:
    """Return ranges of lines, both ends included, in words: `line 3`, or `lines 3, 5-7`."""
    numbers = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)
    return f"line {numbers}" if numbers.isdigit() else f"lines {numbers}"


def runs(
    lines: Sequence[str],
    wanted: Sequence[str],
    *,
    start: int = 0,
    form: Callable[[str], str] | None = None,
) -> Iterator[int]:
    """Yield each index from `start` at which `lines` contains the run `wanted`, overlapping runs included.

    Lines are compared by their `form`, which is computed once for each line.
    """
    if form is not None:
        lines, wanted = [form(line) for line in lines], [form(line) for line in wanted]
    if not wanted:
        return
    # Map each line to a character, so that `str.find` does the search.
    letters = {line: chr(number) for number, line in enumerate(dict.fromkeys(wanted), 1)}
    text = "".join([letters.get(line, "\0") for line in lines])
    goal = "".join([letters[line] for line in wanted])
    index = text.find(goal, start)
    while index >= 0:
        yield index
        index = text.find(goal, index + 1)


def offsets(lines: Sequence[str]) -> list[int]:
    """Return each line's offset in `"\\n".join(lines)`, and the offset after a final LF."""
    result = [0]
    for line in lines:
        result.append(result[-1] + len(line) + 1)
    return result
