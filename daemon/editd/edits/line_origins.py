"""Lineage: which lines of a text were in the one before it, as `git blame` sees it.

Lines end with LF, as git counts them; the differences are git's own (xdiff, by libgit2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pygit2
from msgspec import Struct
from pygit2.enums import DiffOption

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def count_lines(content: bytes) -> int:
    """How many lines there are; a last one needs no line end."""
    return content.count(b"\n") + (bool(content) and not content.endswith(b"\n"))


def unchanged_lines(before: bytes, after: bytes, lines: Sequence[int]) -> dict[int, int]:
    """Of `lines` of `after` (rising, from 0), those that `before` has too, with their places there.

    A content with a NUL has no lines: all of it is new unless it is the same.
    """
    if before == after:
        return {line: line for line in lines}
    if b"\0" in before or b"\0" in after:
        return {}
    found: dict[int, int] = {}
    changes = _changes(before, after)
    change, off_by = next(changes, None), 0
    for line in lines:
        while change is not None and change.end <= line:
            off_by = change.off_by
            change = next(changes, None)
        if change is None or line < change.start:
            found[line] = line + off_by
    return found


class _Change(Struct, frozen=True):
    """A run of lines that are new (half open, from 0), and what those behind it are off by."""

    start: int
    end: int
    off_by: int


def _changes(before: bytes, after: bytes) -> Iterator[_Change]:
    patch = pygit2.Patch.create_from(before, after, flag=DiffOption.FORCE_TEXT, context_lines=0)
    for hunk in patch.hunks:
        # Of a run without lines, git gives the line before it.
        start = hunk.new_start - (1 if hunk.new_lines else 0)
        old = hunk.old_start - (1 if hunk.old_lines else 0)
        end = start + hunk.new_lines
        yield _Change(start, end, old + hunk.old_lines - end)
