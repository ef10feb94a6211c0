"""The lines that waiting transactions have touched, so that an entry of the log is merged only once.

A marked text has the lines of a file, with a mark in place of each line that a waiting transaction has
touched. An entry that merges with the marked text, by git's rule for neighbouring lines, merges with each of
the transactions. So the file with the entry is the merge of both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from editd.edits.line_changes import changed_lines, hunks_between, lines_of
from editd.edits.merge import Merged, merge

if TYPE_CHECKING:
    from collections.abc import Iterable

MARK = b"\x01\n"  # a line of a file that looks like this counts as touched

MarkedText = tuple[bytes, ...]


def marked(contents: Iterable[bytes]) -> MarkedText:
    """Return the last of some versions of a text with the lines marked that any of them has touched."""
    versions = iter(contents)
    before = next(versions)
    lines = list(lines_of(before))
    for after in versions:
        hunks = [replace(hunk, lines=(MARK,) * len(hunk.lines)) for hunk in hunks_between(before, after)]
        for hunk in hunks:
            if not hunk.lines:  # its neighbours are marked for the deleted lines
                lines[max(hunk.start - 1, 0) : hunk.start] = [MARK] * min(hunk.start, 1)
                lines[hunk.end : hunk.end + 1] = [MARK] * len(lines[hunk.end : hunk.end + 1])
        lines = list(changed_lines(tuple(lines), 0, len(lines), hunks))
        before = after
    return tuple(lines)


def with_entry(text: MarkedText, before: bytes, after: bytes, merged: bytes) -> MarkedText | None:
    """Return the marked text with an entry of the log, which led from `before` to `after`.

    None if the entry is not clearly apart from all touched lines. `merged` is the file with the entry.
    """
    joined = merge(before, b"".join(text), after)
    if not isinstance(joined, Merged):
        return None
    lines, expected = lines_of(joined.content), lines_of(merged)
    is_aligned = len(lines) == len(expected) and all(
        line in (MARK, other) for line, other in zip(lines, expected, strict=True)
    )
    return lines if is_aligned else None
