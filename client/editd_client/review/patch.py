"""A diff as rows: the numbers of their lines, the changed words, and the roles of their syntax.

A row has no colour: each face has its own for a changed word and for a role. Pygments finds the roles if it
is installed, in the whole text of a file, so that a string over several lines is one in each hunk.
"""

from __future__ import annotations

import difflib
import functools
import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from editd.wire.raw_text import has_bytes
from editd_client.file_text import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

RowKind = Literal["header", "place", "context", "removed", "added", "note"]
Role = Literal["", "keyword", "name", "string", "number", "comment"]

SIGNS: dict[RowKind, str] = {"context": " ", "removed": "-", "added": "+"}
REPEATED = ("diff --git ", "index ", "--- ", "+++ ")  # headers
TOKENS_MAX = 400  # of a pair of lines, without equal ends: comparing takes the square of it, 20 ms
ALIKE_MIN = 0.3  # of the characters; lines with less in common are two lines, not one that was changed
SYNTAX_CHARACTERS_MAX = 500_000  # of a file; Pygments takes 0.1 to 0.2 s for 1,000 lines

_KINDS: dict[str, RowKind] = {" ": "context", "-": "removed", "+": "added"}
_TOKENS = re.compile(r"\w+|\s+|[^\w\s]")
_PLACE = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


class Row(Struct, frozen=True):
    """A line of a diff without its sign, and its numbers in the old and the new file."""

    kind: RowKind
    text: str
    old: int | None = None
    new: int | None = None
    changed: tuple[tuple[int, int], ...] = ()  # the ends of each changed word, in characters

    @property
    def sign(self) -> str:
        return SIGNS.get(self.kind, "")


class RowPart(Struct, frozen=True):
    """A part of a row that has one look."""

    text: str
    role: Role
    is_changed: bool


def rows_of(diff: str) -> Iterator[Row]:
    """Yield the rows of a diff, of one hunk or of several files, with the changed words of changed lines.

    A note begins them if no known encoding fits the text.
    """
    if has_bytes(diff):
        yield Row("note", UNKNOWN)
    old: list[Row] = []
    new: list[Row] = []
    for row in _plain_rows(diff):
        if row.kind == "removed" and not new:
            old.append(row)
        elif row.kind == "added":
            new.append(row)
        elif row.kind == "note" and (old or new):
            (new or old).append(row)  # "\ No newline at end of file" belongs to the line above it
        else:
            yield from _with_words(old, new)
            old, new = ([row], []) if row.kind == "removed" else ([], [])
            if row.kind != "removed":
                yield row
    yield from _with_words(old, new)


def is_news(row: Row) -> bool:
    """Whether a row of one hunk shows more than its numbers and its file's name do."""
    return row.kind != "place" and not (row.kind == "header" and row.text.startswith(REPEATED))


def parts_of(row: Row, roles: Sequence[tuple[int, int, Role]] = ()) -> Iterator[RowPart]:
    """Yield the text of a row in parts, cut at its changed words and its roles.

    Both are in the order of the text, and no two of a kind overlap. So one pass is enough for any line.
    """
    cuts = {0, len(row.text)}
    for first, last in row.changed:
        cuts |= {first, last}
    for first, last, _ in roles:
        cuts |= {first, last}
    words, spans = iter(row.changed), iter(roles)
    word, span = next(words, None), next(spans, None)
    for start, end in pairwise(sorted(cut for cut in cuts if cut <= len(row.text))):
        while word is not None and word[1] <= start:
            word = next(words, None)
        while span is not None and span[1] <= start:
            span = next(spans, None)
        role: Role = span[2] if span is not None and span[0] <= start else ""
        yield RowPart(row.text[start:end], role, word is not None and word[0] <= start)


class Syntax:
    """The roles in a file, before and after a change; none without Pygments or for an unknown language."""

    def __init__(self, path: str, old: str | None, new: str | None) -> None:
        self._old = roles_in(path, old or "")
        self._new = roles_in(path, new or "")

    def of(self, row: Row) -> Sequence[tuple[int, int, Role]]:
        """Return the roles of a row, if it is the line of that number."""
        lines, number = (self._old, row.old) if row.kind == "removed" else (self._new, row.new)
        if number is None or not 0 < number <= len(lines) or lines[number - 1][0] != row.text:
            return ()
        return lines[number - 1][1]


def has_roles(path: str) -> bool:
    """Return whether `roles_in` finds any in a file of this name. The first call takes long: use a thread."""
    return _lexer_for(path) is not None


Line = tuple[str, tuple[tuple[int, int, Role], ...]]


@functools.lru_cache(maxsize=64)
def roles_in(path: str, text: str) -> tuple[Line, ...]:
    """Return each line with the ends of its roles. Takes long for a long file: call it in a thread."""
    lexer = _lexer_for(path) if 0 < len(text) <= SYNTAX_CHARACTERS_MAX else None
    if lexer is None:
        return ()
    lines: list[Line] = []
    line: list[str] = []
    spans: list[tuple[int, int, Role]] = []
    width = 0
    for token, value in lexer.get_tokens(text):
        role = _role_of(token)
        for number, part in enumerate(value.split("\n")):
            if number:
                lines.append(("".join(line), tuple(spans)))
                line, spans, width = [], [], 0
            if part:
                line.append(part)
                if role:
                    spans.append((width, width + len(part), role))
                width += len(part)
    if line:
        lines.append(("".join(line), tuple(spans)))
    return tuple(lines)


def _plain_rows(diff: str) -> Iterator[Row]:
    """Yield the rows without changed words. The counts of a hunk mark its end."""
    old = new = old_left = new_left = 0
    for line in diff.removesuffix("\n").split("\n") if diff else ():
        if old_left > 0 or new_left > 0:
            kind = _KINDS.get(line[:1], "note" if line.startswith("\\") else "context")
            is_old, is_new = kind in ("context", "removed"), kind in ("context", "added")
            yield Row(
                kind, line if kind == "note" else line[1:], old if is_old else None, new if is_new else None
            )
            old, new = old + is_old, new + is_new
            old_left, new_left = old_left - is_old, new_left - is_new
        elif header := _PLACE.match(line):
            old, new = int(header[1]), int(header[3])
            old_left, new_left = int(header[2] or 1), int(header[4] or 1)
            yield Row("place", line)
        else:
            yield Row("note" if line.startswith("\\") else "header", line)


def _with_words(old: Sequence[Row], new: Sequence[Row]) -> Iterator[Row]:
    """Yield removed and added rows; if there are as many lines of both, with their changed words."""
    sides = [[row for row in side if row.kind != "note"] for side in (old, new)]
    if not old or len(sides[0]) != len(sides[1]):
        yield from old
        yield from new
        return
    words = [changed_words(one.text, other.text) for one, other in zip(*sides, strict=True)]
    for at, side in enumerate((old, new)):
        marks = iter(pair[at] for pair in words)
        for row in side:
            yield row if row.kind == "note" else Row(row.kind, row.text, row.old, row.new, next(marks))


Ends = tuple[tuple[int, int], ...]


@functools.lru_cache(maxsize=4096)
def changed_words(old: str, new: str) -> tuple[Ends, Ends]:
    """Return the ends of each changed word in two lines; nothing if they are too long or not alike."""
    tokens = [_TOKENS.findall(text) for text in (old, new)]
    head = _equal(tokens)
    tail = _equal([side[: head - 1 if head else None : -1] for side in tokens])
    alike = sum(map(len, tokens[0][:head])) + sum(map(len, tokens[0][len(tokens[0]) - tail :]))
    middle = [side[head : len(side) - tail] for side in tokens]
    if len(middle[0]) + len(middle[1]) > TOKENS_MAX:
        return (), ()
    at = [sum(map(len, tokens[0][:head]))] * 2
    marks: tuple[list[tuple[int, int]], list[tuple[int, int]]] = ([], [])
    matcher = difflib.SequenceMatcher(None, middle[0], middle[1], autojunk=False)
    for kind, *ends in matcher.get_opcodes():
        for side in (0, 1):
            width = sum(map(len, middle[side][ends[2 * side] : ends[2 * side + 1]]))
            if kind == "equal":
                alike += width * (side == 0)
            elif width:
                marks[side].append((at[side], at[side] + width))
            at[side] += width
    if 2 * alike < ALIKE_MIN * (len(old) + len(new)):
        return (), ()
    return tuple(marks[0]), tuple(marks[1])


def _equal(sides: Sequence[Sequence[str]]) -> int:
    """Return how many tokens at the beginning are equal."""
    pairs = enumerate(zip(*sides, strict=False))
    return next((at for at, (one, other) in pairs if one != other), min(map(len, sides)))


@functools.lru_cache(maxsize=256)
def _lexer_for(path: str) -> Any:
    """Return a lexer of Pygments for a file's name, or None."""
    try:
        from pygments.lexers import get_lexer_for_filename
        from pygments.util import ClassNotFound
    except ImportError:
        return None
    try:
        lexer = get_lexer_for_filename(path, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None
    return None if lexer.name == "Text only" else lexer


@functools.lru_cache(maxsize=1024)
def _role_of(token: Any) -> Role:
    """Return the role of a token of Pygments, by the names of its type from the top down."""
    kinds = [str(part) for part in token]
    if not kinds:
        return ""
    if kinds[0] == "Comment":
        return "comment"
    if kinds[0] == "Keyword" or kinds == ["Operator", "Word"]:
        return "keyword"
    if kinds[0] == "Literal":
        return "number" if "Number" in kinds else "string"
    if kinds[0] == "Name" and kinds[-1] in ("Function", "Class", "Tag", "Decorator", "Magic"):
        return "name"
    return ""
