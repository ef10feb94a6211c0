"""The tool API: a call with its arguments, the workspace as a tool sees it, and the text of the answer.

A tool takes a call with the original system's argument names. It reads and changes files through
`ToolApi`, and returns an answer in the words of that system. It never touches the disk or the history:
`tools.context` implements `ToolApi` on the changeset so far.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from editd.edits.replace import Replacement, fitted, replace
from editd.edits.search import Span, lines_of, lost_returns, overlapping, with_plain_line_ends
from editd.errors import InvalidParams

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from editd.edits.search import Match, Search
    from editd.values.changeset import ReadMark
    from editd.values.content import Version
    from editd.values.path import WorkspacePath


# The text of a file as the dialects see it, with LF line ends and without its byte order mark.
#
# New text takes the line ends of the text it replaces, line for line in a mixed file. A byte outside the
# replaced spans never changes. The file keeps its encoding and byte order mark.


@dataclass(frozen=True, slots=True)
class ToolText:
    """A file's text: `raw` has its own line ends, `text` has LF. Offsets refer to `text`."""

    path: WorkspacePath
    raw: str
    text: str = field(init=False)
    _lost: list[int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", with_plain_line_ends(self.raw))
        object.__setattr__(self, "_lost", lost_returns(self.raw))

    def with_replacements(self, replacements: Iterable[Replacement]) -> str:
        """Return `raw` with the replacements made; Overlap if two of them overlap."""
        return replace(self.raw, [self._of_raw(replacement) for replacement in replacements])

    def _of_raw(self, replacement: Replacement) -> Replacement:
        span = Span(self._raw_offset(replacement.start), self._raw_offset(replacement.end))
        old, new = self.text[replacement.start : replacement.end], replacement.text
        if with_plain_line_ends(new) == old:
            return Replacement(span.start, span.end, self.raw[span.start : span.end])
        return Replacement(span.start, span.end, fitted(new, old, self.raw, span))

    def _raw_offset(self, offset: int) -> int:
        return offset + bisect_left(self._lost, offset)


# Arguments of a tool's call, and the refusal of a missing or mistyped one by its name.


def text_of(arguments: Mapping[str, Any], name: str, *, may_be_empty: bool = True) -> str:
    """Return the argument; InvalidParams if it is missing or not a string."""
    if name not in arguments:
        raise InvalidParams(f"`{name}` is missing.", hint="Send it as a string.", data={"argument": name})
    value = arguments[name]
    if not isinstance(value, str):
        raise InvalidParams(
            f"`{name}` must be a string, not {kind_of(value)}.", hint="Send it as a string.",
            data={"argument": name},
        )  # fmt: skip
    if not value and not may_be_empty:
        raise InvalidParams(f"`{name}` is empty.", hint="Send a value.", data={"argument": name})
    return value


def refuse_unknown(arguments: Mapping[str, Any], known: frozenset[str]) -> None:
    unknown = sorted(set(arguments) - known)
    if unknown:
        raise InvalidParams(
            f"`{unknown[0]}` is no argument of this tool.",
            hint=f"It takes {', '.join(sorted(known))}.",
            data={"argument": unknown[0]},
        )


def kind_of(value: object) -> str:
    """Return the JSON name of the value's type."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list() | tuple():
            return "an array"
        case _:
            return "an object"


def refuse_half_characters(text: str, argument: str) -> None:
    """Raise InvalidParams if the text of this argument holds half of a surrogate pair."""
    if _SURROGATE.search(text):
        raise InvalidParams(
            f"`{argument}` holds half of a surrogate pair, which no file can hold.",
            hint="Send the whole character.",
            data={"argument": argument},
        )


_SURROGATE = re.compile("[\ud800-\udfff]")


def overlap_warnings(text: str, last: Span, argument: str) -> list[str]:
    """Return a warning if the last match of `argument` has an overlapping twin, which was not replaced."""
    twin = overlapping(text, last)
    if twin is None:
        return []
    line, twin_line = lines_of(text, [last.start, twin.start])
    return [f"overlap: {argument} is also at line {twin_line}, overlapping the place at line {line}."]


def argument(kind: str | list[str], description: str, **more: Any) -> dict[str, Any]:
    """Return the JSON Schema of one argument."""
    return {"type": kind, **more, "description": description}


class ToolSettings(Struct, frozen=True):
    """The dialects' options in the configuration."""

    ignored_paths: tuple[str, ...] = ()  # serena: gitignore patterns beside those of the workspace
    edit_globs: tuple[str, ...] | None = None  # wcgw: files that `code_writer` mode may edit; None: any
    write_globs: tuple[str, ...] | None = None  # wcgw: files that it may write whole; None: any
    home: str = ""  # the folder that `~` names


class ToolApi(Protocol):
    """Access to the files for one call. Raises only Refused: PathOutside, NotAFile, TooLarge, Stale …"""

    @property
    def root(self) -> str:
        """The workspace's real path, without a final `/`."""
        ...

    @property
    def settings(self) -> ToolSettings: ...

    def path(self, given: str) -> WorkspacePath:
        """Parse a path of a call: relative to the root, or absolute and below it.

        Removes `.`, `..` and empty segments by the text alone. Raises PathOutside, PathProtected and
        InvalidParams.
        """
        ...

    def page(self, path: WorkspacePath) -> ToolText | None:
        """Return the text of the file, symlinks followed; None if there is no file."""
        ...

    def glance(self, path: WorkspacePath) -> ToolText | None:
        """Return the text of a file that the call only consults, such as a `.gitignore`; needs no base.

        Returns None if there is no readable text. The result's path has its symlinks followed.
        """
        ...

    def version(self, path: WorkspacePath) -> Version | None:
        """Return the current version, of text or binary; None if there is no file."""
        ...

    def edit(self, page: ToolText, replacements: Sequence[Replacement], warnings: Sequence[str] = ()) -> str:
        """Make the replacements in the file of `page`; return its new text, with LF line ends.

        `warnings` begin with a word for their kind and a colon.
        """
        ...

    def write(self, path: WorkspacePath, text: str, warnings: Sequence[str] = ()) -> None:
        """Write `text` to the file, unchanged; create the file and its folders if missing.

        An existing file keeps its mode, and its encoding if that is not UTF-8.
        """
        ...

    def delete(self, path: WorkspacePath) -> None:
        """Delete the file; FileMissing if there is none."""
        ...

    def move(self, path: WorkspacePath, to: WorkspacePath) -> None:
        """Move the file; FileMissing, or FileExists if `to` exists."""
        ...

    def names(self, given: str) -> list[str] | None:
        """Return the names in a folder on disk, sorted, folders with a final `/`; None if it is no folder.

        Leaves out `.git` and editd's own files.
        """
        ...

    def matches(self, search: Search) -> tuple[Match, ...]:
        """Return the matches of `search`; raises NeedsSearch if it has no result yet (see `edits.search`)."""
        ...

    def sight(self, reader: str, path: WorkspacePath) -> ReadMark | None:
        """Return the part of the file that `reader` saw last ("": the sender of the request)."""
        ...

    def note(self, reader: str, path: WorkspacePath, sight: ReadMark) -> None:
        """Record what `reader` ("": the sender of the request) has seen, even if the call is refused."""
        ...


class ToolDefinition(Struct, frozen=True):
    """One tool: `schema` is the JSON Schema of its arguments; `run` returns its own answer as text."""

    name: str
    description: str
    schema: Mapping[str, Any]
    run: Callable[[Mapping[str, Any], ToolApi], str]
    is_read_only: bool = False
    is_destructive: bool = True
    is_idempotent: bool = False
    returns_content: bool = False  # the reply to the request holds the final content of each file
    undoes: Callable[[Mapping[str, Any]], str | None] = lambda _arguments: None
    """Return the file whose last edit by the session the call undoes, as the call names it.

    For such a call, `run` is never called.
    """


class Dialect(Struct, frozen=True):
    name: str
    description: str
    tools: tuple[ToolDefinition, ...]
