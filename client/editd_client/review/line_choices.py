"""Single lines of a hunk that a reviewer takes, and the text of the file with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from editd_client.review.patch import Row


class TakenHunk(NamedTuple):
    """A hunk of the present file, with the numbers of its changed rows that are taken."""

    rows: Sequence[Row]
    taken: frozenset[int]

    @classmethod
    def whole(cls, rows: Sequence[Row]) -> TakenHunk:
        return cls(rows, frozenset(changed_rows(rows)))


def changed_rows(rows: Sequence[Row]) -> Iterator[int]:
    """Yield the numbers of the rows that remove or add a line."""
    return (number for number, row in enumerate(rows) if row.kind in ("removed", "added"))


def text_with(present: str, hunks: Iterable[TakenHunk]) -> str:
    """Return the present text with the taken lines of its hunks, which come in the order of the file.

    If a hunk replaces lines by as many others, each is replaced by its own.
    """
    lines = [f"{line}\n" for line in present.split("\n")]
    lines[-1] = lines[-1][:-1]  # "" after a last newline
    made: list[str] = []
    at = 0  # the next line of the present text
    for rows, taken in hunks:
        position = next((row.old for row in rows if row.old is not None), at + 1) - 1  # of an added line
        for number in _in_pairs(rows):
            row = rows[number]
            if row.kind == "removed" and row.old is not None:
                made += lines[at : row.old - (number in taken)]
                at = row.old
            elif row.kind == "added" and number in taken:
                made += lines[at:position]
                at = position
                has_end = [one.kind for one in rows[number + 1 : number + 2]] != ["note"]
                made.append(f"{row.text}\n" if has_end else row.text)
            position = row.old or position
    made = [line for line in (*made, *lines[at:]) if line]
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in made[:-1]) + "".join(made[-1:])


def _in_pairs(rows: Sequence[Row]) -> Iterator[int]:
    """Yield the numbers of the lines: the removed and added ones in turn if there are as many of both."""
    lines = [number for number, row in enumerate(rows) if row.kind != "note"]
    old = [number for number in lines if rows[number].kind == "removed"]
    new = [number for number in lines if rows[number].kind == "added"]
    if old and len(old) == len(new):
        at = lines.index(old[0])
        turns = [number for pair in zip(old, new, strict=True) for number in pair]
        lines[at : at + len(turns)] = turns
    yield from lines
