"""Claude's text editor, `str_replace_based_edit_tool`: view, create, str_replace, insert, undo_edit.

It follows the original's documentation and reference implementation (docs/claude.md), except that
nothing is lost: a file keeps its tabs, its line ends and its missing final newline.

`view` numbers lines as `cat -n` does: a final newline ends the last line and begins no other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from editd.edits.replace import LINES_TOLD_MAX, Replacement, list_numbers, no_match
from editd.edits.search import lines_of, occurrences, with_plain_line_ends, with_twin
from editd.errors import Ambiguous, FileExists, FileMissing, InvalidParams
from editd.tool_api.arguments import argument, kind_of, refuse_unknown, text_of
from editd.tool_api.dialect import Dialect, ToolDefinition
from editd.values.transaction import Base, ReadMark

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from editd.tool_api.file_access import ToolApi
    from editd.tool_api.tool_text import ToolText
    from editd.values.path import WorkspacePath

OWN = ""  # the reader that sends the request, unlike a reader that a tool names
FOLDERS_DEEP = 2
SNIPPET_LINES = 4  # shown before and after the edited lines
SNIPPET_BYTES_MAX = 4096  # of these lines, for a minified file
LINE_CHARACTERS_MAX = 400
_NOTE_BYTES = 100  # kept for the note about lines that are not shown


def replacement_of(text: str, old: str, new: str, path: str = "the file") -> Replacement:
    """Return the replacement of `old`; NoMatch or Ambiguous unless `old` is in `text` exactly once."""
    old = with_plain_line_ends(old)
    spans = occurrences(text, old)
    if not spans:
        raise no_match(f"`old_str` is not in {path}.", text, old, new=new)
    spans = list(with_twin(text, spans))
    if len(spans) == 1:
        return Replacement(spans[0].start, spans[0].end, new)
    lines = lines_of(text, [span.start for span in spans[:LINES_TOLD_MAX]])
    raise Ambiguous(
        f"`old_str` is in {path} {len(spans)} times, at lines {list_numbers(lines)}.",
        hint="Take lines before or after it into `old_str` and `new_str` until it is there once.",
        data={"found": len(spans), "lines": lines},
    )


def insertion_of(text: str, line: int, new: str) -> Replacement:
    """Return the insertion of `new` as separate lines after line `line` of `text`, 0 for the beginning.

    A final line end of `new` begins no further line. Raises InvalidParams if there is no such line.
    """
    lines = lines_in(text)
    if not 0 <= line <= len(lines):
        raise InvalidParams(
            f"`insert_line` is {line}, but the file has {_line_count(len(lines))}.",
            hint=f"It is the line to insert after: 0 for the beginning, up to {len(lines)} for the end.",
            data={"argument": "insert_line", "lines": len(lines)},
        )
    added = with_plain_line_ends(new).removesuffix("\n")
    if line == len(lines) and text and not text.endswith("\n"):
        return Replacement(len(text), len(text), "\n" + added)
    offset = sum(len(before) + 1 for before in lines[:line])
    return Replacement(offset, offset, added + "\n")


def lines_in(text: str) -> list[str]:
    """Split `text` into lines as `cat -n` counts them: none in an empty text."""
    lines = text.split("\n")
    return lines if lines[-1] else lines[:-1]


def number_lines(lines: Sequence[str], first: int) -> str:
    """Format the lines with numbers, as `cat -n` prints them."""
    return "".join(f"{number:6}\t{line}\n" for number, line in enumerate(lines, first))


def snippet_of(lines: Sequence[str], first: int) -> str:
    """Format the lines around an edit with numbers, in at most SNIPPET_BYTES_MAX. Name each cut."""
    shown = number_lines([_short(line) for line in lines], first)
    if len(shown.encode("utf-8", "surrogatepass")) <= SNIPPET_BYTES_MAX:
        return shown
    kept = list[str]()
    room = SNIPPET_BYTES_MAX - _NOTE_BYTES
    for line in shown.splitlines(keepends=True):
        room -= len(line.encode("utf-8", "surrogatepass"))
        if room < 0:
            break
        kept.append(line)
    return "".join(kept) + f"[{len(lines) - len(kept)} more lines are not shown.]\n"


def _short(line: str) -> str:
    if len(line) <= LINE_CHARACTERS_MAX:
        return line
    return f"{line[:LINE_CHARACTERS_MAX]}[{len(line) - LINE_CHARACTERS_MAX} more characters are not shown.]"


def range_of(value: object, count: int) -> tuple[int, int] | None:
    """Parse `view_range` for a file of `count` lines: its first and last line, or None for all lines."""
    if value is None:
        return None
    count = max(count, 1)
    hint = f"The file has {_line_count(count)}: [1, {count}], or [1, -1], is all of it."
    data = {"argument": "view_range", "lines": count}
    if not (isinstance(value, list | tuple) and len(value) == 2 and all(type(end) is int for end in value)):
        raise InvalidParams("`view_range` must be an array of two whole numbers.", hint=hint, data=data)
    first, last = value
    if not 1 <= first <= count:
        raise InvalidParams(f"`view_range` begins at line {first}.", hint=hint, data=data)
    if last == -1:
        return first, count
    if last > count:
        raise InvalidParams(f"`view_range` ends at line {last}.", hint=hint, data=data)
    if last < first:
        raise InvalidParams(f"`view_range` ends at line {last}, before it begins.", hint=hint, data=data)
    return first, last


def _line_count(count: int) -> str:
    return "1 line" if count == 1 else f"{count} lines"


# ── The commands ───────────────────────────────────────────────────────────────────────────────────


def run(arguments: Mapping[str, Any], api: ToolApi) -> str:
    """Execute one call and return the original's answer."""
    values = _without_null(arguments)
    command = text_of(values, "command")
    path = text_of(values, "path", may_be_empty=False)
    if command not in _COMMANDS:
        raise InvalidParams(
            f"`{command}` is no command of this tool.",
            hint=f"The commands are {', '.join(_COMMANDS)}.",
            data={"argument": "command"},
        )
    _refuse_others_arguments(values, command)
    return _COMMANDS[command](values, api, path)


def _without_null(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if value is not None}


def _refuse_others_arguments(values: Mapping[str, Any], command: str) -> None:
    """Raise InvalidParams for an argument of another command, such as `insert_text` of `str_replace`.

    Otherwise `str_replace` would delete the text. An empty one is harmless: some models send all arguments.
    """
    known = {"command", "path", *_ARGUMENTS[command]}
    refuse_unknown((name for name, value in values.items() if value != "" or name in known), known, command)


def _view(values: Mapping[str, Any], api: ToolApi, name: str) -> str:
    names = api.names(name)
    if names is not None:
        if "view_range" in values:
            raise InvalidParams(
                f"{name} is a folder, which has no lines for `view_range`.",
                hint="Leave `view_range` out to list the folder, or name a file in it.",
                data={"argument": "view_range"},
            )
        listed = "".join(f"{entry}\n" for entry in [name, *_below(api, name.rstrip("/"), names)])
        return (
            f"Here're the files and directories up to {FOLDERS_DEEP} levels deep in {name}, "
            f"excluding hidden items and node_modules:\n{listed}"
        )
    path = api.path(name)
    page = api.peek(path) or _existing(api, name)[1]  # reading needs no version, and is never stale
    lines = lines_in(page.text)
    span = range_of(values.get("view_range"), len(lines))
    api.note_read(OWN, path, ReadMark(Base(api.version(path)), None if span is None else (span,)))
    first, last = span or (1, len(lines))
    note = api.note_of_unsaved(path)
    shown = number_lines(lines[first - 1 : last], first) + (f"{note}\n" if note else "")
    return f"Here's the result of running `cat -n` on {name}:\n{shown}"


def _below(api: ToolApi, folder: str, names: Sequence[str], depth: int = 1) -> list[str]:
    """Return the paths in the folder and, down to FOLDERS_DEEP, below it."""
    paths = []
    for name in names:
        if name.startswith(".") or name == "node_modules/":
            continue
        path = f"{folder}/{name}"
        paths.append(path)
        if name.endswith("/") and depth < FOLDERS_DEEP:
            paths += _below(api, path[:-1], api.names(path) or (), depth + 1)
    return paths


def _create(values: Mapping[str, Any], api: ToolApi, name: str) -> str:
    text = text_of(values, "file_text")
    path = api.path(name)
    if api.version(path) is not None:
        raise FileExists(
            f"{name} exists, and `create` makes only new files.",
            hint="View it and change it with str_replace or insert, or create a file of another name.",
            data={"path": path.text},
        )
    api.write(path, text)
    return f"File created successfully at: {name}"


def _str_replace(values: Mapping[str, Any], api: ToolApi, name: str) -> str:
    old = text_of(values, "old_str")
    if not old:
        raise InvalidParams(
            "`old_str` is empty.",
            hint="Give the text to replace. To fill an empty file, use `insert` with `insert_line` 0.",
            data={"argument": "old_str"},
        )
    new = text_of(values, "new_str") if "new_str" in values else ""
    _, page = _existing(api, name)
    replacement = replacement_of(page.text, old, new, name)
    after = api.edit(page, [replacement])
    changed = page.text.count("\n", 0, replacement.start)
    first = max(0, changed - SNIPPET_LINES)
    last = changed + with_plain_line_ends(new).count("\n") + SNIPPET_LINES + 1
    snippet = snippet_of(lines_in(after)[first:last], first + 1)
    return (
        f"The file {name} has been edited. Here's the result of running `cat -n` on a snippet of {name}:\n"
        f"{snippet}Review the changes and make sure they are as expected. Edit the file again if necessary."
    )


def _insert(values: Mapping[str, Any], api: ToolApi, name: str) -> str:
    if "insert_line" not in values or type(values["insert_line"]) is not int:
        problem = "is missing" if "insert_line" not in values else f"is {kind_of(values['insert_line'])}"
        raise InvalidParams(
            f"`insert_line` {problem}.",
            hint="Give the number of the line to insert after, 0 for the beginning of the file.",
            data={"argument": "insert_line"},
        )
    line = values["insert_line"]
    new = text_of(values, "new_str" if "insert_text" not in values and "new_str" in values else "insert_text")
    _, page = _existing(api, name)
    insertion = insertion_of(page.text, line, new)
    after = api.edit(page, [insertion])
    first = max(0, line - SNIPPET_LINES)
    last = line + with_plain_line_ends(new).removesuffix("\n").count("\n") + 1 + SNIPPET_LINES
    return (
        f"The file {name} has been edited. "
        "Here's the result of running `cat -n` on a snippet of the edited file:\n"
        f"{snippet_of(lines_in(after)[first:last], first + 1)}"
        "Review the changes and make sure they are as expected (correct indentation, no duplicate lines, "
        "etc). Edit the file again if necessary."
    )


def path_to_undo(arguments: Mapping[str, Any]) -> str | None:
    """Return the file whose last edit the call undoes; None for any other command."""
    if arguments.get("command") != "undo_edit":
        return None
    values = _without_null(arguments)
    _refuse_others_arguments(values, "undo_edit")
    return text_of(values, "path", may_be_empty=False)


def _undo_edit(_given: Mapping[str, Any], _desk: ToolApi, _name: str) -> str:
    raise InvalidParams(
        "undo_edit must be the only edit of a request.",
        hint="Send it alone: it undoes the last edit that this session made of the file.",
        data={"argument": "command"},
    )


_COMMANDS: dict[str, Callable[[Mapping[str, Any], ToolApi, str], str]] = {
    "view": _view,
    "create": _create,
    "str_replace": _str_replace,
    "insert": _insert,
    "undo_edit": _undo_edit,
}


_ARGUMENTS: dict[str, tuple[str, ...]] = {
    "view": ("view_range",),
    "create": ("file_text",),
    "str_replace": ("old_str", "new_str"),
    "insert": ("insert_line", "insert_text", "new_str"),
    "undo_edit": (),
}


def _existing(api: ToolApi, name: str) -> tuple[WorkspacePath, ToolText]:
    path = api.path(name)
    page = api.text_at(path)
    if page is None:
        raise FileMissing(
            f"There is no file {name}.",
            hint="View its folder, or make a new file with `create`.",
            data={"path": path.text},
        )
    return path, page


TOOL = ToolDefinition(
    name="str_replace_based_edit_tool",
    description=(
        "View, create and edit text files. `view` shows a file with line numbers, or lists a folder two "
        "levels deep. `create` makes a new file and refuses one that exists. `str_replace` replaces the one "
        "occurrence of `old_str`, exactly as it is in the file, white space included. `insert` puts "
        "whole lines after a line. `undo_edit` undoes your last edit of the file."
    ),
    schema={
        "type": "object",
        "properties": {
            "command": argument("string", "The command.", enum=list(_COMMANDS)),
            "path": argument(
                "string",
                "The file, or for `view` the folder: relative to the workspace's root, or "
                "absolute and below it.",
            ),
            "file_text": argument("string", "create: the content of the new file."),
            "view_range": argument(
                "array",
                "view, of a file: the first and the last line to show, from 1; -1 as the last "
                "is the end of the file.",
                items={"type": "integer"},
                minItems=2,
                maxItems=2,
            ),
            "old_str": argument(
                "string", "str_replace: the text to replace, which must be in the file exactly once."
            ),
            "new_str": argument("string", "str_replace: the new text; without it `old_str` is removed."),
            "insert_line": argument(
                "integer", "insert: the line to insert after; 0 is the beginning of the file.", minimum=0
            ),
            "insert_text": argument("string", "insert: the lines to insert."),
        },
        "required": ["command", "path"],
    },
    run=run,
    undoes=path_to_undo,
    searched="path",
)

DIALECT = Dialect("claude", "Claude's text editor: view, create, str_replace, insert and undo_edit.", (TOOL,))
