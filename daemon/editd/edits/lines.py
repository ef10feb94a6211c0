"""Runs of lines: where some lines stand in a text one after another, under a normal form of each.

What the dialects share that match by lines: `str.rstrip`, a trim, look-alikes made equal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

JS_WHITE_SPACE = (
    "\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000\ufeff"
)
"""ECMAScript's WhiteSpace and LineTerminator: what `trim` and `\\s` take (ECMA-262, 22.1.3.32)."""


def js_trim(text: str) -> str:
    """`String.prototype.trim`."""
    return text.strip(JS_WHITE_SPACE)


def numbered(*ranges: tuple[int, int]) -> str:
    """Return ranges of lines, both ends included, as words: `line 3`, or `lines 3, 5-7`."""
    numbers = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)
    return f"line {numbers}" if numbers.isdigit() else f"lines {numbers}"


def runs(
    lines: Sequence[str],
    wanted: Sequence[str],
    *,
    start: int = 0,
    form: Callable[[str], str] | None = None,
) -> Iterator[int]:
    """Yield each index from `start` at which `wanted` stands in `lines`, overlapping ones too.

    Two lines are the same when their `form` is; each form is worked out once.
    """
    if form is not None:
        lines, wanted = [form(line) for line in lines], [form(line) for line in wanted]
    if not wanted:
        return
    # A character for each line, so that the search is that of one text in another.
    letters = {line: chr(number) for number, line in enumerate(dict.fromkeys(wanted), 1)}
    text = "".join([letters.get(line, "\0") for line in lines])
    goal = "".join([letters[line] for line in wanted])
    index = text.find(goal, start)
    while index >= 0:
        yield index
        index = text.find(goal, index + 1)


def offsets(lines: Sequence[str]) -> list[int]:
    """Where each line begins in `"\\n".join(lines)`, and one past the end (as though an LF followed)."""
    result = [0]
    for line in lines:
        result.append(result[-1] + len(line) + 1)
    return result
