"""Line origins: the lines of a text that its previous version has too, as in `git blame`.

Lines end with LF, as in git. libgit2 computes the differences (xdiff).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pygit2
from msgspec import Struct
from pygit2.enums import DiffOption

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def count_lines(content: bytes) -> int:
    """Return the number of lines; the last one needs no line end."""
    return content.count(b"\n") + (bool(content) and not content.endswith(b"\n"))


def unchanged_lines(before: bytes, after: bytes, lines: Sequence[int]) -> dict[int, int]:
    """Map each of `lines` of `after` (rising, from 0) that `before` has too to its number there.

    Content with a NUL has no lines: all of it is new unless both contents are equal.
    """
    if before == after:
        return {line: line for line in lines}
    if b"\0" in before or b"\0" in after:
        return {}
    unchanged: dict[int, int] = {}
    changes = _changes(before, after)
    change, off_by = next(changes, None), 0
    for line in lines:
        while change is not None and change.end <= line:
            off_by = change.off_by
            change = next(changes, None)
        if change is None or line < change.start:
            unchanged[line] = line + off_by
    return unchanged


class _Change(Struct, frozen=True):
    """A run of new lines (half open, from 0), and the offset of the lines after it."""

    start: int
    end: int
    off_by: int


def _changes(before: bytes, after: bytes) -> Iterator[_Change]:
    patch = pygit2.Patch.create_from(before, after, flag=DiffOption.FORCE_TEXT, context_lines=0)
    for hunk in patch.hunks:
        # For a range without lines, git gives the line before it.
        start = hunk.new_start - (1 if hunk.new_lines else 0)
        old = hunk.old_start - (1 if hunk.old_lines else 0)
        end = start + hunk.new_lines
        yield _Change(start, end, old + hunk.old_lines - end)
