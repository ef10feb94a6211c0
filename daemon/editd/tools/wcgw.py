"""wcgw's `FileWriteOrEdit`, and `ReadFiles`, which its rule of reading first needs.

A call edits by SEARCH/REPLACE blocks if its text begins with a block, or if at most half of the file
changes. Otherwise the text is the whole file. An existing file is only overwritten by a reader
(`thread_id`) that has seen 99 % of its current lines.

Unlike the original, a file keeps its line ends and encoding, and read marks belong to the file, not to a
spelling of its path. An edit does not mark the lines around it as read. Text before the first block does
not turn blocks into a file's content.
"""

from __future__ import annotations

import json
import re
from fnmatch import fnmatchcase
from itertools import chain
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from editd.errors import FileMissing, InvalidParams, MalformedEdit, NoMatch, PermissionDenied, Refused, Unread
from editd.tool_api.arguments import argument, kind_of, text_of
from editd.tool_api.dialect import Dialect, ToolDefinition
from editd.tools.search_replace_blocks import apply_blocks, begins_block, parse, with_plain_quotes
from editd.values.transaction import Base, ReadMark, merged_ranges

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from editd.tool_api.file_access import ToolApi
    from editd.tool_api.tool_text import ToolText
    from editd.tools.search_replace_blocks import Applied
    from editd.values.path import WorkspacePath

Ranges = tuple[tuple[int, int], ...]  # of lines, from 1, both ends included

_READ_PERCENT_MIN = 99
_SHOWN_CHARACTERS_MAX = 96_000  # of files in one answer, beyond the first line; some 24,000 tokens


def write_or_edit(arguments: Mapping[str, Any], api: ToolApi) -> str:
    """Execute `FileWriteOrEdit`."""
    call = _Call.parse(arguments)
    path = api.path(_absolute(call.file_path, api))
    if call.is_edit:
        _refuse_outside(api.settings.edit_globs, path, api)
        return _edit(path, call, api)
    _refuse_outside(api.settings.write_globs, path, api)
    return _write(path, call, api)


def read_files(arguments: Mapping[str, Any], api: ToolApi) -> str:
    """Execute `ReadFiles`: return the numbered lines, and mark them as read by the named reader."""
    reader = _reader(text_of(arguments, "thread_id")) if "thread_id" in arguments else ""
    requests = [_parse_request(text, api) for text in _paths_of(arguments)]
    answer, room = [], _SHOWN_CHARACTERS_MAX
    for path, page, (first, last) in requests:
        lines = page.text.split("\n")
        shown = _first_lines(lines, ((first, last),), room)
        body = _number_lines(lines, shown)
        room -= len(body)
        if reader:
            _note(reader, path, shown, len(lines), api)
        name = f"{api.root}/{path}"
        answer.append(f'<file-contents-numbered path="{name}:{_format_ranges(shown)}">')
        answer += [body, "</file-contents-numbered>"]
        answer += filter(None, [api.note_of_unsaved(path)])
        if shown[-1][1] < last:
            answer.append(
                f"This is too long to be shown at once; go on with {name}:{shown[-1][1] + 1}-{last}."
            )
    return "\n".join(answer)


# ── Arguments ──────────────────────────────────────────────────────────────────────────────────────


class _Call(Struct, frozen=True):
    file_path: str
    percentage: int
    text: str
    reader: str

    @classmethod
    def parse(cls, arguments: Mapping[str, Any]) -> _Call:
        """Parse the arguments; if they are invalid, decode any JSON in them. Raises InvalidParams."""
        try:
            return cls._of(arguments)
        except InvalidParams as refusal:
            try:
                return cls._of({name: _decode(value) for name, value in arguments.items()})
            except InvalidParams:
                raise refusal from None

    @classmethod
    def _of(cls, arguments: Mapping[str, Any]) -> _Call:
        return cls(
            text_of(arguments, "file_path"),
            _percentage(arguments),
            text_of(arguments, "text_or_search_replace_blocks"),
            _reader(text_of(arguments, "thread_id")),
        )

    @property
    def is_edit(self) -> bool:
        first, _, _ = self.text.lstrip().partition("\n")
        return begins_block(first) or 0 < self.percentage <= 50


def _decode(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


_WHOLE_NUMBER = re.compile(r"\s*([+-]?[0-9]{1,18})(\.0+)?\s*")


def _percentage(arguments: Mapping[str, Any]) -> int:
    value = arguments.get("percentage_to_change")
    match value:
        case bool():
            pass
        case int():
            return value
        case float() if value.is_integer():
            return int(value)
        case str() if number := _WHOLE_NUMBER.fullmatch(value):
            return int(number[1])
    raise InvalidParams(
        "`percentage_to_change` is missing."
        if "percentage_to_change" not in arguments
        else f"`percentage_to_change` must be a whole number, not {kind_of(value)} like {value!r:.40}.",
        hint="Give the share of the file's lines that changes, from 0 to 100, as a whole number.",
        data={"argument": "percentage_to_change"},
    )


def _reader(thread: str) -> str:
    name = re.sub(r"\W", "", thread)
    if not name:
        raise InvalidParams(
            "`thread_id` holds no letter or digit.",
            hint="Give a name of letters and digits, the same one in each call.",
            data={"argument": "thread_id"},
        )
    return name


def _absolute(name: str, api: ToolApi) -> str:
    """Expand `~` in the path; InvalidParams if it is not absolute."""
    home = api.settings.home.rstrip("/")
    path = home + name[1:] if home and (name == "~" or name.startswith("~/")) else name
    if not path.startswith("/"):
        raise InvalidParams(
            f"{name or 'An empty path'} is not an absolute path.",
            hint=f"Give an absolute path in the workspace, {api.root}/.",
            data={"path": name},
        )
    return path


def _refuse_outside(globs: Sequence[str] | None, path: WorkspacePath, api: ToolApi) -> None:
    whole = f"{api.root}/{path}"
    if globs is not None and not any(_is_in(whole.split("/"), glob.split("/")) for glob in globs):
        raise PermissionDenied(
            f"{path} is not among the files that this mode may change.",
            hint=f"Choose a file that matches {' or '.join(globs)}."
            if globs
            else "Use another mode: this one may change no file.",
            data={"path": path.text, "globs": list(globs)},
        )


def _is_in(names: Sequence[str], glob: Sequence[str]) -> bool:
    """Return whether the glob matches the names; `**` matches any number, a leading dot only itself."""
    reached = {0}  # the numbers of names that the glob may have matched so far
    for pattern in glob:
        if pattern == "**":
            for count in sorted(reached):
                hidden = (i for i in range(count, len(names)) if names[i].startswith("."))
                reached.update(range(count, next(hidden, len(names)) + 1))
        else:
            reached = {count + 1 for count in reached if count < len(names) and _fits(names[count], pattern)}
    return len(names) in reached


def _fits(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) and (not name.startswith(".") or pattern.startswith("."))


# ── Edit ───────────────────────────────────────────────────────────────────────────────────────────


def _edit(path: WorkspacePath, call: _Call, api: ToolApi) -> str:
    page = _page(path, api)
    applied = _apply(page, call.text)
    sight = api.read_mark(call.reader, path)
    seen = sight.lines if sight is not None and sight.base.version == api.version(path) else ()
    api.edit(page, applied.replacements, applied.warnings)
    api.note_read(call.reader, path, ReadMark(Base(api.version(path)), _lines_after(seen, applied)))
    return "\n".join(["File edited successfully.", *applied.warnings])


def _lines_after(seen: Ranges | None, applied: Applied) -> Ranges | None:
    """Return the lines that a reader has seen after its edit: those seen before, and the new ones."""
    if seen is None:
        return None
    unseen = set(_numbers(_gaps(seen, max(applied.origins) + 1)))
    after = (number for number, old in enumerate(applied.origins, 1) if old + 1 not in unseen)
    return merged_ranges((number, number) for number in after)


def _page(path: WorkspacePath, api: ToolApi) -> ToolText:
    page = api.text_at(path)
    if page is None:
        raise FileMissing(
            f"There is no file {path}.",
            hint="Give its whole text and a percentage_to_change of 100 to make it.",
            data={"path": path.text},
        )
    return page


def _apply(page: ToolText, argument: str) -> Applied:
    """Apply the blocks; if that fails, without the backslashes before their quotes."""
    blocks, path = parse(argument), page.path.text
    try:
        return apply_blocks(page.text, blocks, path=path)
    except NoMatch as refusal:
        plainer = with_plain_quotes(blocks)
        if plainer == blocks:
            raise
        try:
            return apply_blocks(page.text, plainer, path=path)
        except Refused:
            raise refusal from None


# ── Write ──────────────────────────────────────────────────────────────────────────────────────────


def _write(path: WorkspacePath, call: _Call, api: ToolApi) -> str:
    _refuse_blocks(call.text)
    page = api.text_at(path)
    if page is not None and page.text.strip():
        _refuse_unread(path, page, call.reader, api)
    api.write(path, call.text)
    api.note_read(call.reader, path, ReadMark(Base(api.version(path))))
    return "Success"


def _refuse_blocks(text: str) -> None:
    if "SEARCH" not in text:
        return
    for number, line in enumerate(text.split("\n"), 1):
        if begins_block(line):
            raise MalformedEdit(
                f"Line {number} of the argument begins a block, but the argument begins with other text, "
                "and so would be the whole file.",
                hint="Begin the argument with the block to edit, or give a percentage_to_change of at "
                "most 50. This tool cannot write a whole file that holds such lines.",
                data={"line": number},
            )


def _refuse_unread(path: WorkspacePath, page: ToolText, reader: str, api: ToolApi) -> None:
    """Raise Unread with the unread lines, and mark those as read; do nothing if enough was read."""
    lines = page.text.split("\n")
    sight = api.read_mark(reader, path)
    seen: Ranges = ()
    if sight is None:
        reason, fact = "never_read", f"{path} must be read before it is overwritten."
    elif sight.base.version != api.version(path):
        reason, fact = "changed_since_read", f"{path} has changed since it was read last."
    else:
        seen = ((1, len(lines)),) if sight.lines is None else sight.lines
        reason, fact = "partially_read", f"More of {path} must be read before it is overwritten."
    unread = _gaps(seen, len(lines))
    if 100 * (len(lines) - _count(unread)) >= _READ_PERCENT_MIN * len(lines):
        return
    shown = _first_lines(lines, unread, _SHOWN_CHARACTERS_MAX)
    _note(reader, path, shown, len(lines), api)
    raise Unread(
        f"{fact} Lines {_format_ranges(shown)} are:\n"
        f"<file-contents-numbered>\n{_number_lines(lines, shown)}\n</file-contents-numbered>",
        hint="These lines count as read now. Check that your text keeps the ones you need, and send it again."
        if shown == unread
        else "These lines count as read now. Read the others with ReadFiles, then send your text again.",
        data={"reason": reason, "unread": [list(lines) for lines in unread]},
    )


# ── Read marks ─────────────────────────────────────────────────────────────────────────────────────


def _note(reader: str, path: WorkspacePath, shown: Ranges, total: int, api: ToolApi) -> None:
    """Mark these lines of the current version as read too."""
    version, sight = api.version(path), api.read_mark(reader, path)
    if sight is not None and sight.base.version == version:
        if sight.lines is None:
            return
        shown = merged_ranges((*sight.lines, *shown))
    api.note_read(reader, path, ReadMark(Base(version), shown if _gaps(shown, total) else None))


def _paths_of(arguments: Mapping[str, Any]) -> list[str]:
    paths = arguments.get("file_paths")
    if not isinstance(paths, (list, tuple)) or not paths or not all(isinstance(path, str) for path in paths):
        raise InvalidParams(
            "`file_paths` must be a list of paths.",
            hint='Send a list such as ["/work/a.py", "/work/b.py:10-40"].',
            data={"argument": "file_paths"},
        )
    return list(paths)


_RANGE = re.compile(r"(.+):([0-9]{1,18})?-([0-9]{1,18})?", re.DOTALL)


def _parse_request(text: str, api: ToolApi) -> tuple[WorkspacePath, ToolText, tuple[int, int]]:
    """Parse `path`, `path:a-b`, `path:a-` or `path:-b` into the file and its first and last line."""
    match = _RANGE.fullmatch(text)
    if match is None or not (match[2] or match[3]):
        path = api.path(_absolute(text, api))
        page = _page(path, api)
        return path, page, (1, page.text.count("\n") + 1)
    path = api.path(_absolute(match[1], api))
    page = _page(path, api)
    total = page.text.count("\n") + 1
    first, last = int(match[2] or 1), min(int(match[3] or total), total)
    if not 1 <= first <= last:
        raise InvalidParams(
            f"{text} names no lines: {path} has the lines 1-{total}.",
            hint="Give the first line, from 1, and the last one that you want.",
            data={"path": path.text, "lines": total},
        )
    return path, page, (first, last)


def _first_lines(lines: Sequence[str], ranges: Ranges, room: int) -> Ranges:
    """Return the first of these lines, as many as fit in `room` characters, but at least one."""
    shown: list[tuple[int, int]] = []
    for number in _numbers(ranges):
        room -= len(lines[number - 1]) + len(str(number)) + 2
        if room < 0 and shown:
            break
        shown.append((number, number))
    return merged_ranges(shown)


def _number_lines(lines: Sequence[str], ranges: Ranges) -> str:
    return "\n".join(f"{number} {lines[number - 1]}" for number in _numbers(ranges))


def _numbers(ranges: Ranges) -> Iterator[int]:
    return chain.from_iterable(range(first, last + 1) for first, last in ranges)


def _gaps(ranges: Iterable[tuple[int, int]], total: int) -> Ranges:
    """Return the lines from 1 to `total` outside all of the ranges."""
    gaps, next_line = [], 1
    for first, last in merged_ranges(ranges):
        if first > total:
            break
        if first > next_line:
            gaps.append((next_line, first - 1))
        next_line = max(next_line, last + 1)
    if next_line <= total:
        gaps.append((next_line, total))
    return tuple(gaps)


def _count(ranges: Ranges) -> int:
    return sum(last - first + 1 for first, last in ranges)


def _format_ranges(ranges: Ranges) -> str:
    return ", ".join(f"{first}-{last}" for first, last in ranges)


# ── The definition of the tools ────────────────────────────────────────────────────────────────────

_THREAD = argument(
    "string",
    "The reader and writer: a name of letters and digits, the same one in each call. A read "
    "without it does not count as read.",
)
_WRITE_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "file_path": argument("string", "The absolute path of the file; `~` is the home folder."),
        "percentage_to_change": argument(
            "integer",
            "The share of the file's lines that changes, 0 to 100. From 1 to 50 the next "
            "argument holds blocks, otherwise the whole file.",
        ),
        "text_or_search_replace_blocks": argument(
            "string",
            "The whole text of the file, or blocks, each of them: a line `<<<<<<< SEARCH`, "
            "lines exactly as in the file, a line `=======`, the new lines, a line `>>>>>>> REPLACE`.",
        ),
        "thread_id": _THREAD,
    },
    "required": ["file_path", "percentage_to_change", "text_or_search_replace_blocks", "thread_id"],
    "additionalProperties": False,
}
_READ_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "file_paths": argument(
            "array",
            "Absolute paths; `path:10-40`, `path:10-` and `path:-40` are lines of a file.",
            items={"type": "string"},
            minItems=1,
        ),
        "thread_id": _THREAD,
    },
    "required": ["file_paths"],
    "additionalProperties": False,
}

DIALECT = Dialect(
    "wcgw",
    "One tool that writes a file whole or edits it by SEARCH/REPLACE blocks that match by whole lines, "
    "with tolerance for indentation, white space, line numbers and typographic characters.",
    (
        ToolDefinition(
            "FileWriteOrEdit",
            "Write a file, or edit it by SEARCH/REPLACE blocks. A block's lines must name one place. Several "
            "blocks go in the order of the file, and either all are made or none. A small difference in "
            "white space is tolerated, with a warning. An existing file must be read before it is "
            "overwritten.",
            _WRITE_SCHEMA,
            write_or_edit,
        ),
        ToolDefinition(
            "ReadFiles",
            "Show files with line numbers, whole or some lines. FileWriteOrEdit counts the shown lines as "
            "read.",
            _READ_SCHEMA,
            read_files,
            is_read_only=True,
            is_destructive=False,
            is_idempotent=True,
        ),
    ),
)
