"""The format of Codex's patches: files added, deleted, updated and moved, without line numbers.

    *** Begin Patch
    *** Update File: src/app.py
    *** Move to: src/main.py
    @@ def greet():
    -print("Hi")
    +print("Hello")
    *** End Patch

`@@` names a line of the file that comes before the hunk.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from editd.errors import MalformedEdit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Kind = Literal["Add", "Delete", "Update"]


class CodexHunk(Struct, frozen=True):
    """One contiguous change of a file; `lines` are pairs of a sign (space, `-`, `+`) and a text."""

    line: int  # of its beginning in the patch, from 1
    headers: tuple[str, ...]  # the lines of the file that its `@@` name, one after the other
    lines: tuple[tuple[str, str], ...]
    is_at_end: bool = False  # its old lines are the file's last

    @property
    def old(self) -> list[str]:
        return [text for sign, text in self.lines if sign != "+"]

    @property
    def new(self) -> list[str]:
        return [text for sign, text in self.lines if sign != "-"]


class CodexSection(Struct, frozen=True):
    """The part of a patch for one file."""

    kind: Kind
    path: str
    line: int  # of its header in the patch, from 1
    to: str | None = None
    text: str = ""  # Add: the content of the new file
    hunks: tuple[CodexHunk, ...] = ()


_BEGIN, _END, LAST_LINE = "*** Begin Patch", "*** End Patch", "*** End of File"
_HEADER = re.compile(r"\*\*\* (Add|Delete|Update) File: (.+)")
_MOVE = re.compile(r"\*\*\* Move to: (.+)")
_HEREDOC = re.compile(r"(?:(?:apply_patch|applypatch)\s+)?<<-?\s*(['\"]?)(\w+)\1")
_HEADERS_HINT = (
    "Begin each file with `*** Add File: path`, `*** Delete File: path` or `*** Update File: path`."
)
_LINES_HINT = "Begin each line of a hunk with a space (it stays), `-` (it goes) or `+` (it is new)."


class _Reader(Struct):
    """The lines between the patch's first and last, and the reading position."""

    lines: Sequence[str]
    number: int  # of the next line in the argument, from 1
    position: int = 0

    @property
    def is_at_end(self) -> bool:
        return self.position >= len(self.lines)

    def peek(self) -> str:
        """Return the next line, or the patch's last line at the end."""
        return _END if self.is_at_end else self.lines[self.position]

    def take(self) -> str:
        line = self.peek()
        self.position += 1
        self.number += 1
        return line

    def skip_blank(self) -> None:
        while not self.peek().strip():
            self.take()


def parse(patch: str) -> tuple[CodexSection, ...]:
    """Parse a patch into its sections, in their order; MalformedEdit with the line of the fault."""
    reader = _reader_of(patch)
    sections = []
    reader.skip_blank()
    while not reader.is_at_end:
        sections.append(_section(reader))
        reader.skip_blank()
    if not sections:
        raise _form_refusal("The patch names no file", _HEADERS_HINT, reader.number)
    return tuple(sections)


def _reader_of(patch: str) -> _Reader:
    """Remove the patch's envelope, and a here-document around it."""
    lines = [line.removesuffix("\r") for line in patch.split("\n")]
    first, last = 0, len(lines)
    while first < last and not lines[first].strip():
        first += 1
    while first < last and not lines[last - 1].strip():
        last -= 1
    if last - first > 2 and (match := _HEREDOC.fullmatch(lines[first].strip())):
        first += 1
        last -= lines[last - 1].strip() == match[2]
    if first >= last or lines[first].strip() != _BEGIN:
        raise _form_refusal(
            f"The patch does not begin with `{_BEGIN}`",
            "Make that its first line.",
            min(first + 1, len(lines)),
        )
    if last - first < 2 or lines[last - 1].strip() != _END:
        raise _form_refusal(f"The patch does not end with `{_END}`", "Make that its last line.", last)
    return _Reader(lines[first + 1 : last - 1], first + 2)


def _section(reader: _Reader) -> CodexSection:
    number = reader.number
    line = reader.peek().strip()
    match = _HEADER.fullmatch(line)
    if match is None:
        hint = _HEADERS_HINT
        if line.startswith("+"):
            hint = "Begin each line of a new file with `+`, an empty one too."
        raise _form_refusal(f"`{cut(line)}` is no file header", hint, number)
    reader.take()
    path = match[2].strip()
    if match[1] == "Delete":
        return CodexSection("Delete", path, number)
    if match[1] == "Add":
        added = []
        while reader.peek().startswith("+"):
            added.append(reader.take()[1:] + "\n")
        return CodexSection("Add", path, number, text="".join(added))
    move = _MOVE.fullmatch(reader.peek().strip())
    if move is not None:
        reader.take()
    hunks = tuple(_hunks(reader))
    if not hunks and move is None:
        hint = "Add hunks after its header: `@@`, then lines that begin with a space, `-` or `+`."
        raise _form_refusal(f"The update of {path} has no hunk", hint, number)
    return CodexSection("Update", path, number, move[1].strip() if move is not None else None, hunks=hunks)


def _hunks(reader: _Reader) -> Iterator[CodexHunk]:
    is_first = True
    while True:
        reader.skip_blank()
        line = reader.peek()
        if line.startswith("*"):
            return
        is_header = line.rstrip() == "@@" or line.startswith("@@ ")
        if not is_header and (not is_first or line[:1] not in {" ", "-", "+"}):
            hint = "Begin a hunk with `@@` alone, or with `@@ ` and a whole line of the file before it."
            if not line.startswith("@"):
                hint = _LINES_HINT
            raise _form_refusal(f"`{cut(line)}` is no line of a hunk", hint, reader.number)
        yield _hunk(reader)
        is_first = False


def _hunk(reader: _Reader) -> CodexHunk:
    number = reader.number
    headers = []
    while reader.peek().rstrip() == "@@" or reader.peek().startswith("@@ "):
        header = reader.take()[3:]
        headers += [header] if header.strip() else []
    lines: list[tuple[str, str]] = []
    while not reader.is_at_end and (not reader.peek() or reader.peek()[0] in " -+"):
        line = reader.take() or " "
        if line[0] == "+":
            lines.append(("+", line[1:]))
        else:  # A CR is a line end in the file's text.
            lines += [(line[0], piece) for piece in line[1:].split("\r")]
    # Blank lines before the next header are no old lines.
    while lines and lines[-1] == (" ", "") and all(sign == "+" for sign, _ in lines[:-1]):
        lines.pop()
    if not lines:
        raise _form_refusal("The hunk has no lines", _LINES_HINT, number)
    is_at_end = reader.peek().rstrip() == LAST_LINE
    if is_at_end:
        reader.take()
    if headers and all(sign == "+" for sign, _ in lines):
        hint = (
            "Repeat the line that they come after, or before, as a context line (with a space before it). "
            "Without a line after `@@`, they are added at the end of the file."
        )
        raise _form_refusal(f"The hunk after `@@ {cut(headers[-1])}` has only new lines", hint, number)
    return CodexHunk(number, tuple(headers), tuple(lines), is_at_end)


def _form_refusal(message: str, hint: str, line: int) -> MalformedEdit:
    return MalformedEdit(f"{message} (line {line} of the patch).", hint=hint, data={"line": line})


def cut(text: str) -> str:
    """Return the text as a message shows it, at most 80 characters long."""
    return text if len(text) <= 80 else text[:79] + "…"
