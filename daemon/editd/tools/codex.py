"""Codex's `apply_patch`: files added, deleted, updated and moved by one patch (`codex_patch`).

A hunk has no line number: it applies at its old lines, after the line that `@@` names and after the
previous hunk. Lines match exactly; failing that, without trailing white space, then without indentation,
then with look-alike characters taken as equal. The hunks of a file are placed together. If there is more
than one way to place them, the patch is refused (docs/codex.md).

Never changes a byte of a context line.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from editd.edits.replace import (
    LINES_TOLD_MAX,
    LineMatcher,
    Replacement,
    list_numbers,
    no_match,
    offsets,
    with_applied_hunk,
)
from editd.errors import Ambiguous, FileExists, FileMissing, InvalidParams, NoMatch
from editd.tool_api.arguments import argument, text_of
from editd.tool_api.dialect import Dialect, ToolDefinition
from editd.tools.codex_patch import LAST_LINE, CodexHunk, CodexSection, cut, parse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from editd.tool_api.file_access import ToolApi
    from editd.values.path import WorkspacePath

# ── Finding the places ─────────────────────────────────────────────────────────────────────────────

_LOOK_ALIKES = str.maketrans(
    dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-")
    | dict.fromkeys("\u2018\u2019\u201a\u201b", "'")
    | dict.fromkeys("\u201c\u201d\u201e\u201f", '"')
    | dict.fromkeys("\u00a0\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000", " ")
)


def _plain(line: str) -> str:
    return line.strip() if line.isascii() else line.strip().translate(_LOOK_ALIKES)


_FORMS: tuple[tuple[str, Callable[[str], str]], ...] = (
    ("", str),
    ("whitespace: white space at the ends of lines", str.rstrip),
    ("indentation: white space at the beginnings of lines", str.strip),
    ("look-alikes: dashes, quotes or spaces that look alike", _plain),
)
"""The text of a warning about the difference, and the form without that difference; the strictest first."""


class _File:
    """A file's lines, with their forms computed on demand."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = text.split("\n")
        if not self.lines[-1]:
            self.lines.pop()
        self._matchers: dict[int, LineMatcher] = {}

    def starts(self, wanted: Sequence[str], after: int, level: int) -> list[int]:
        """Return the matches of the lines in the form of `level`, from line `after` on (from 0)."""
        form = _FORMS[level][1]
        kept = level - 1 if form is _plain and self.text.isascii() else level  # ASCII has no look-alikes.
        if kept not in self._matchers:
            self._matchers[kept] = LineMatcher([_FORMS[kept][1](line) for line in self.lines])
        return list(self._matchers[kept].places([form(line) for line in wanted], after))

    def strictest(self, wanted: Sequence[str], after: int) -> tuple[list[int], int]:
        """Return the matches of the lines in the strictest form that has any, and its level."""
        for level in range(len(_FORMS)):
            if starts := self.starts(wanted, after, level):
                return starts, level
        return [], 0


class _Choice(Struct, frozen=True):
    """The possible places of a hunk's old lines, as lines from 0, in the file's order."""

    begins: Sequence[int]  # for each place, the line that the first `@@` names, or the place itself
    starts: Sequence[int]
    size: int
    level: int

    @property
    def start(self) -> int:
        """The first place, which is the hunk's place if there is only one way."""
        return self.starts[0]


def place(
    text: str, hunks: Sequence[CodexHunk], path: str = "the file"
) -> tuple[list[Replacement], list[str]]:
    """Return the replacements of the hunks in `text`, and a warning for each inexact match.

    Raises NoMatch for a hunk without a match, and Ambiguous if there is more than one way to place them.
    """
    file = _File(text)
    changed: list[_Run] = []
    warnings = []
    placed = zip(hunks, _assign(file, hunks, path), strict=True)
    for hunk, choice in sorted(placed, key=lambda pair: not pair[0].old):  # Appended lines come last.
        changed += _runs_of(hunk, choice)
        if choice.level:
            kind, _, difference = _FORMS[choice.level][0].partition(": ")
            warnings.append(
                f"{kind}: the hunk at line {hunk.line} of the patch was applied at line {choice.start + 1} "
                f"of {path}, where {difference} differ."
            )
    return _replacements(file, changed), warnings


def _assign(file: _File, hunks: Sequence[CodexHunk], path: str) -> list[_Choice]:
    """Return the possible places of each hunk, its own first; Ambiguous if there is more than one way.

    The hunks keep their order in the file, so that one hunk's place limits the others. The way is unique
    if the earliest and the latest possible places of all hunks are the same.
    """
    end = len(file.lines)
    choices = []
    cursor = 0
    for hunk in hunks:
        choice = _choice(file, hunk, cursor) if hunk.old else _Choice([end], [end], 0, 0)
        if choice is None:
            raise _refusal(file, hunk, cursor, path)
        choices.append(choice)
        cursor = choice.start + choice.size if hunk.old else cursor
    limit = end
    doubtful: list[tuple[CodexHunk, Sequence[int]]] = []
    for hunk, choice in zip(reversed(hunks), reversed(choices), strict=True):
        if hunk.old:
            fitting = bisect_right(choice.starts, limit - choice.size)
            limit = choice.begins[fitting - 1]
            if fitting > 1:
                doubtful.insert(0, (hunk, choice.starts[:fitting]))
    if doubtful:
        raise _ambiguous(doubtful, path)
    return choices


def _choice(file: _File, hunk: CodexHunk, cursor: int) -> _Choice | None:
    """Return the possible places of the hunk from line `cursor` on, in the strictest form with any."""
    begins = _begins(file, hunk.headers, cursor)
    if not begins:
        return None
    for old in _olds(hunk):
        for level in range(len(_FORMS)):
            starts = file.starts(old, begins[0][1], level)
            if hunk.is_at_end:
                starts = [start for start in starts if start + len(old) == len(file.lines)]
            if not hunk.headers:
                named = starts
            else:
                pairs = _after(begins, starts)
                named, starts = [begin for begin, _ in pairs], [start for _, start in pairs]
            if starts:
                return _Choice(named, starts, len(old), level)
    return None


def _olds(hunk: CodexHunk) -> Iterator[list[str]]:
    """Yield the hunk's old lines, then without one more empty context line at the end each time.

    Such a line may be only the line end of the line before it.
    """
    old = hunk.old
    yield old
    for signed in reversed(hunk.lines):
        if signed != (" ", "") or len(old) == 1:
            return
        old = old[:-1]
        yield old


def _begins(file: _File, headers: Sequence[str], cursor: int) -> list[tuple[int, int]]:
    """Return each line that the first header names, with the line where the search for the hunk begins."""
    if not headers:
        return [(cursor, cursor)]
    starts, _ = file.strictest(headers[:1], cursor)
    begins = [(start, start + 1) for start in starts]
    for header in headers[1:]:
        if not begins:
            return []
        starts, _ = file.strictest([header], begins[0][1])
        begins = [(begin, start + 1) for begin, start in _after(begins, starts)]
    return begins


def _after(begins: Sequence[tuple[int, int]], starts: Sequence[int]) -> list[tuple[int, int]]:
    """Return the first of `starts` after each of `begins`, once each, with the last `begin` before it."""
    firsts: dict[int, int] = {}
    index = 0
    for begin, after in begins:
        while index < len(starts) and starts[index] < after:
            index += 1
        if index == len(starts):
            break
        firsts[starts[index]] = begin
    return [(begin, start) for start, begin in firsts.items()]


def _ambiguous(doubtful: Sequence[tuple[CodexHunk, Sequence[int]]], path: str) -> Ambiguous:
    doubts = "; ".join(
        f"the hunk at line {hunk.line} of the patch could be applied at lines "
        + list_numbers([start + 1 for start in starts])
        for hunk, starts in doubtful[:10]
    )
    hunk, starts = doubtful[0]
    lines = [start + 1 for start in starts[:LINES_TOLD_MAX]]
    return Ambiguous(
        f"In {path}, {doubts}.",
        hint="Add context lines to it until it fits one place, or name a line above it, such as the first "
        "line of its function, after `@@ `.",
        data={"path": path, "line": hunk.line, "found": len(starts), "lines": lines},
    )


def _refusal(file: _File, hunk: CodexHunk, cursor: int, path: str) -> NoMatch:
    """Return the refusal of a hunk without a match from line `cursor` on."""
    data: dict[str, Any] = {"path": path, "line": hunk.line}
    reached = [cursor]  # where the search for each header, and then for the old lines, begins
    for count in range(1, len(hunk.headers) + 1):
        begins = _begins(file, hunk.headers[:count], cursor)
        if not begins:
            header = hunk.headers[count - 1]
            subject = f"The line that `@@ {cut(header)}` names (line {hunk.line} of the patch)"
            return _header_refusal(file, header, subject, reached[-1], path, data)
        reached.append(begins[0][1])
    subject = f"The old text of the hunk at line {hunk.line} of the patch"
    # A search from the first line on has failed already, unless it was for the end only.
    starts, _ = file.strictest(hunk.old, 0) if reached[-1] or hunk.is_at_end else ([], 0)
    if starts:
        return _place_refusal(subject, starts, reached[-1], path, data, is_at_end=hunk.is_at_end)
    is_telling = {" ", "+"} <= {sign for sign, _ in hunk.lines}
    applied = file.starts(hunk.new, 0, 0) if is_telling else []
    if len(applied) == 1:
        refusal = NoMatch(
            f"The hunk at line {hunk.line} of the patch seems to be applied already: "
            f"see line {applied[0] + 1} of {path}.",
            hint="Leave the hunk out, or read the file again.",
            data=data,
        )
        signs = "".join(sign for sign, _ in hunk.lines)
        return with_applied_hunk(refusal, file.text.split("\n"), applied[0], signs)
    return no_match(f"{subject} is not in {path}.", file.text, "\n".join(hunk.old), data)


def _header_refusal(
    file: _File, header: str, subject: str, reached: int, path: str, data: dict[str, Any]
) -> NoMatch:
    starts, _ = file.strictest([header], 0)
    if starts:
        return _place_refusal(subject, starts, reached, path, data)
    if re.match(r"-\d+(,\d+)? \+\d+", header):
        return NoMatch(
            f"{subject} is not in {path}.",
            hint="Write `@@` alone, or a line of the file after it: line numbers are ignored.",
            data=data,
        )
    return no_match(f"{subject} is not in {path}.", file.text, header, data)


def _place_refusal(
    subject: str,
    starts: Sequence[int],
    reached: int,
    path: str,
    data: dict[str, Any],
    *,
    is_at_end: bool = False,
) -> NoMatch:
    data["lines"] = [start + 1 for start in starts[:LINES_TOLD_MAX]]
    where = f"{subject} is at line {starts[-1] + 1} of {path}"
    if is_at_end and starts[-1] >= reached:
        return NoMatch(
            f"{where}, not at its end.",
            hint=f"Leave out `{LAST_LINE}`, or give the file's last lines.",
            data=data,
        )
    return NoMatch(
        f"{where}, above line {reached + 1}, but the hunk must match from there on.",
        hint="Put the hunks in the order of the file, each below the line that its `@@` names, without "
        "repeating that line or lines of the hunk before.",
        data=data,
    )


# ── Replacing the lines ────────────────────────────────────────────────────────────────────────────


class _Run(Struct):
    """Lines from `start` up to, not including, `end`, and their replacement."""

    start: int
    end: int
    new: list[str] = field(default_factory=list)


def _runs_of(hunk: CodexHunk, choice: _Choice) -> Iterator[_Run]:
    """Yield the changes of the hunk, without its context lines."""
    line = choice.start
    for is_context, group in groupby(hunk.lines, lambda signed: signed[0] == " "):
        signed = list(group)
        gone = sum(1 for sign, _ in signed if sign != "+")
        if not is_context:
            yield _Run(line, line + gone, [text for sign, text in signed if sign == "+"])
        line += gone


def _replacements(file: _File, changed: Sequence[_Run]) -> list[Replacement]:
    """Convert the runs to replacements in the text; adjacent runs become one."""
    joined: list[_Run] = []
    for run in sorted(changed, key=attrgetter("start", "end")):
        if joined and joined[-1].end == run.start:
            joined[-1] = _Run(joined[-1].start, run.end, joined[-1].new + run.new)
        else:
            joined.append(run)
    starts = offsets(file.lines)
    return [_replacement(file, run, starts) for run in joined]


def _replacement(file: _File, run: _Run, starts: Sequence[int]) -> Replacement:
    text = file.text
    if run.end < len(file.lines) or not text or text.endswith("\n"):
        return Replacement(starts[run.start], starts[run.end], "".join(line + "\n" for line in run.new))
    # The last line has no line end, and gets none.
    new = "\n".join(run.new)
    if run.start == run.end:
        return Replacement(len(text), len(text), "\n" + new)
    if not run.new and run.start:
        return Replacement(starts[run.start] - 1, len(text), "")
    return Replacement(starts[run.start], len(text), new)


# ── The tool ───────────────────────────────────────────────────────────────────────────────────────


def run(arguments: Mapping[str, Any], api: ToolApi) -> str:
    """Apply a patch and return the original's list of files."""
    if "input" in arguments and "patch" in arguments:
        raise InvalidParams(
            "`input` and `patch` are two names of one argument.",
            hint="Give the patch as `input` alone.",
            data={"argument": "patch"},
        )
    patch = text_of(arguments, "patch" if "patch" in arguments else "input")
    files: dict[str, dict[str, None]] = {"A": {}, "M": {}, "D": {}}
    for section in parse(patch):
        letter, name = _apply(section, api)
        files[letter][name] = None
    listed = "".join(f"{letter} {name}\n" for letter, names in files.items() for name in names)
    return f"Success. Updated the following files:\n{listed}"


def _apply(section: CodexSection, api: ToolApi) -> tuple[str, str]:
    """Apply one section; return the letter and the name that the answer lists."""
    path = api.path(section.path)
    match section.kind:
        case "Add":
            _refuse_existing(section.path, path, api)
            api.write(path, section.text)
            return "A", section.path
        case "Delete":
            api.delete(path)
            return "D", section.path
        case "Update":
            return "M", _update(section, path, api)


def _update(section: CodexSection, path: WorkspacePath, api: ToolApi) -> str:
    if section.hunks:
        page = api.text_at(path)
        if page is None:
            raise FileMissing(
                f"There is no file {section.path}, which line {section.line} of the patch updates.",
                hint="Check the path, or make the file with `*** Add File: `.",
                data={"path": path.text, "line": section.line},
            )
        replacements, warnings = place(page.text, section.hunks, section.path)
        api.edit(page, replacements, warnings)
    if section.to is None:
        return section.path
    to = api.path(section.to)
    if to != path:
        _refuse_existing(section.to, to, api)
        api.move(path, to)
    return section.to


def _refuse_existing(name: str, path: WorkspacePath, api: ToolApi) -> None:
    if api.version(path) is not None:
        raise FileExists(
            f"{name} exists already.",
            hint="Change it with `*** Update File: `, or delete it in a section before this one.",
            data={"path": path.text},
        )


TOOL = ToolDefinition(
    name="apply_patch",
    description=(
        "Add, delete, update and move files with one patch, all of it or nothing. It begins with `*** Begin "
        "Patch` and ends with `*** End Patch`; between them is a section for each file. `*** Add File: path` "
        "is followed by the file's lines, each with `+` before it. `*** Delete File: path` has no lines. "
        "`*** Update File: path` is followed, if it moves, by `*** Move to: path`, and then by hunks: a "
        "line `@@`, or `@@ ` with a whole line of the file above the place, such as the one that "
        "begins the function, then lines with a space (context), `-` (removed) or `+` (added) before them. "
        "Give some three lines of context around a change, so that it fits one place, and no line numbers; "
        "keep to the order of the file. A hunk of the file's last lines may end with `*** End of File`."
    ),
    schema={
        "type": "object",
        "properties": {"input": argument("string", "The patch, from `*** Begin Patch` to `*** End Patch`.")},
        "required": ["input"],
        "additionalProperties": False,
    },
    run=run,
    also=frozenset({"patch"}),
)

DIALECT = Dialect("codex", "Codex's apply_patch: one patch for any number of files.", (TOOL,))
