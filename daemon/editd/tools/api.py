"""The tool API: the dialects by name, a call with its arguments, and the files as a tool sees them.

A tool takes a call with the original system's argument names. It reads and changes files through
`ToolApi`, and returns an answer in the words of that system. It never touches the disk or the history.

This module enforces the rules of all tools: a path stays inside the workspace, a stale edit is refused, and a
file keeps its encoding, mark and line ends.
"""

from __future__ import annotations

import dataclasses
import importlib
import posixpath
import re
from bisect import bisect_left
from collections.abc import Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct, field

from editd.edits.plan import base_of
from editd.edits.preconditions import version_at
from editd.edits.replace import Replacement, fit_line_ends, replace
from editd.edits.search import SearchResults, Span, lines_of, lost_returns, overlapping, with_plain_line_ends
from editd.errors import InvalidParams, NotAFile, NotText, PathOutside, PermissionDenied, Unread
from editd.values.content import FILE, FileState
from editd.values.path import WorkspacePath
from editd.values.transaction import Base
from editd.wire.messages import Tool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from editd.edits.plan import PlanBuilder
    from editd.edits.search import Match, Search, SearchSource
    from editd.errors import Refused
    from editd.values.content import Version
    from editd.values.transaction import ReadMark
    from editd.wire.messages import AnyEdit

# The text of a file as the dialects see it, with LF line ends and without its byte order mark.
#
# New text takes the line ends of the text it replaces, line for line in a mixed file. A byte outside the
# replaced spans never changes. The file keeps its encoding and byte order mark.


@dataclasses.dataclass(frozen=True, slots=True)
class ToolText:
    """A file's text: `raw` has its own line ends, `text` has LF. Offsets refer to `text`."""

    path: WorkspacePath
    raw: str
    text: str = dataclasses.field(init=False)
    _lost: list[int] = dataclasses.field(init=False, repr=False, compare=False)

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
        return Replacement(span.start, span.end, fit_line_ends(new, old, self.raw, span))

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


def refuse_unknown(arguments: Iterable[str], known: Iterable[str], owner: str = "this tool") -> None:
    """Raise InvalidParams for an argument that `owner` does not take: it would be ignored otherwise."""
    names = sorted(known)
    unknown = sorted(set(arguments) - set(names))
    if unknown:
        similar = get_close_matches(_snake_case(unknown[0]), names, 1, _SIMILARITY)
        question = f"Did you mean `{similar[0]}`? " if similar else ""
        raise InvalidParams(
            f"`{unknown[0]}` is no argument of {owner}.",
            hint=f"{question}It takes {', '.join(names)}.",
            data={"argument": unknown[0]} | ({"similar": similar[0]} if similar else {}),
        )


_SIMILARITY = 0.6  # of two names of arguments, from 0 to 1


def _snake_case(name: str) -> str:
    return re.sub("(?<=[a-z0-9])[A-Z]", r"_\g<0>", name[:NAME_COMPARED_MAX]).lower().replace("-", "_")


NAME_COMPARED_MAX = 100  # characters of an unknown name that are compared


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
    if has_half_character(text):
        raise InvalidParams(
            f"`{argument}` holds half of a surrogate pair, which no file can hold.",
            hint="Send the whole character.",
            data={"argument": argument},
        )


def has_half_character(text: str) -> bool:
    """Return whether a text holds half of a surrogate pair. Encoding takes a tenth of a search's time."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def overlap_warnings(text: str, last: Span, argument: str) -> list[str]:
    """Return a warning if the last match of `argument` has an overlapping twin, which was not replaced."""
    twin = overlapping(text, last)
    return [] if twin is None else [overlap_warning(text, last.start, twin.start, argument)]


def overlap_warning(text: str, last: int, twin: int, argument: str) -> str:
    """Return the warning of a match at `last` and one that overlaps it at `twin`."""
    line, twin_line = lines_of(text, [last, twin])
    return f"overlap: {argument} is also at line {twin_line}, overlapping the place at line {line}."


def argument(kind: str | list[str], description: str, **more: Any) -> dict[str, Any]:
    """Return the JSON Schema of one argument. Several kinds are an `anyOf`: some clients warn of a list."""
    kinds = {"type": kind} if isinstance(kind, str) else {"anyOf": [{"type": one} for one in kind]}
    return {**kinds, **more, "description": description}


class ToolSettings(Struct, frozen=True):
    """The dialects' options in the configuration."""

    ignored_paths: tuple[str, ...] = ()  # serena: gitignore patterns beside the workspace's
    edit_globs: tuple[str, ...] | None = None  # wcgw: files that `code_writer` mode may edit; None: any
    write_globs: tuple[str, ...] | None = None  # wcgw: files that it may write whole; None: any
    generation: Literal["auto", "classic", "smart", "head"] = "auto"  # gemini: the version of `replace`
    home: str = ""  # the folder that `~` names


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
    searched: str = ""
    """The argument that names the one file of a call, if the time of a call is linear in its size."""
    undoes: Callable[[Mapping[str, Any]], str | None] = lambda _arguments: None
    """Return the file whose last edit by the session the call undoes, as the call names it.

    For such a call, `run` is never called.
    """
    also: frozenset[str] = frozenset()
    """Arguments that the original's clients send, and that are not offered to a model."""

    def refuse_unknown(self, arguments: Iterable[str]) -> None:
        """Raise InvalidParams for an argument that is not of this tool."""
        refuse_unknown(arguments, self.also | self.schema["properties"].keys())


class Dialect(Struct, frozen=True):
    name: str
    description: str
    tools: tuple[ToolDefinition, ...]


class ToolSet(Struct, frozen=True):
    """The dialects' tools with their settings and regular expression results, for planning."""

    dialects: Mapping[str, Dialect] = field(default_factory=dict)
    root: str = ""  # the workspace's real path
    settings: ToolSettings = field(default_factory=ToolSettings)
    expressions: SearchSource = field(default_factory=lambda: SearchResults({}))
    real_path: Callable[[str], str] = str  # follows the symlinks among an absolute path's folders

    @property
    def home(self) -> str:
        """The user's home folder; empty if it is not known."""
        return self.settings.home

    def answered(self, found: Mapping[Search, tuple[Match, ...] | Refused]) -> ToolSet:
        """Return a copy with the results of these searches."""
        return msgspec.structs.replace(self, expressions=SearchResults(found))

    def tool(self, call: Tool) -> ToolDefinition:
        """Return the tool that a call names; InvalidParams if there is no such tool."""
        dialect = self.dialects.get(call.dialect)
        if dialect is None:
            raise InvalidParams(
                f"There is no dialect {call.dialect!r}.",
                hint=f"There are {', '.join(sorted(self.dialects))}.",
                data={"dialect": call.dialect},
            )
        tool = self._find(call)
        if tool is not None:
            return tool
        raise InvalidParams(
            f"The dialect {call.dialect} has no tool {call.tool!r}.",
            hint=f"It has {', '.join(tool.name for tool in dialect.tools)}.",
            data={"dialect": call.dialect, "tool": call.tool},
        )

    def path(self, given: str) -> WorkspacePath:
        """Parse a path of a call: see `ToolApi.path`."""
        names = self.names_of(given)
        if not names or given.endswith("/"):
            raise NotAFile(f"{given or 'An empty path'} names a folder.", hint="Name a file.")
        return WorkspacePath.parse("/".join(names))

    def names_of(self, given: str) -> list[str]:
        """Return the names in the path from the root; none for the root itself."""
        inside = given
        if given.startswith("/"):
            whole = posixpath.normpath(given)
            if not self._is_below_root(whole):
                whole = self.real_path(whole)  # a symlink above the workspace gives it another name
            if not self._is_below_root(whole):
                raise _outside(given, f"Paths begin with {self.root}/.")
            inside = whole[len(self.root) + 1 :]
        names: list[str] = []
        for name in inside.split("/"):
            if name == "..":
                if not names:
                    raise _outside(given, "Give a path inside the workspace.")
                names.pop()
            elif name not in ("", "."):
                names.append(name)
        return names

    def _is_below_root(self, path: str) -> bool:
        return path == self.root or path.startswith(self.root + "/")

    def returns_content(self, edits: Iterable[AnyEdit]) -> bool:
        """Return whether the reply to these edits holds the files' final content, as a tool requires."""
        calls = [edit for edit in edits if isinstance(edit, Tool)]
        return any(tool.returns_content for call in calls if (tool := self._find(call)) is not None)

    def run(self, work: PlanBuilder, edit: Tool) -> str:
        """Execute one call and return the tool's own answer; an `Unread` refusal keeps its read marks."""
        tool = self.tool(edit)
        tool.refuse_unknown(edit.args)
        try:
            return tool.run(edit.args, ToolApi(work, self, base_of(edit)))
        except Unread as refusal:
            raise refusal.revise(sights=tuple(work.sights)) from None

    def _find(self, call: Tool) -> ToolDefinition | None:
        dialect = self.dialects.get(call.dialect)
        tools = () if dialect is None else dialect.tools
        return next((tool for tool in tools if tool.name == call.tool), None)


class ToolApi:
    """Access to the files for one call, whose edits go into `work`, the changeset so far.

    Raises only Refused: PathOutside, NotAFile, TooLarge, Stale …
    """

    def __init__(self, work: PlanBuilder, tooling: ToolSet, base: Base | None) -> None:
        self._work = work
        self._tooling = tooling
        self._base = base

    @property
    def root(self) -> str:
        """The workspace's real path, without a final `/`."""
        return self._tooling.root

    @property
    def settings(self) -> ToolSettings:
        return self._tooling.settings

    def path(self, given: str) -> WorkspacePath:
        """Parse a path of a call: relative to the root, or absolute and below it.

        Removes `.`, `..` and empty segments by the text alone. Raises PathOutside, PathProtected and
        InvalidParams.
        """
        return self._tooling.path(given)

    def page(self, path: WorkspacePath) -> ToolText | None:
        """Return the text of the file, symlinks followed; None if there is no file."""
        real = self._work.resolve(path)
        state = self._look(real)
        return None if state is None else ToolText(real, self._work.text(real, state).text)

    def glance(self, path: WorkspacePath) -> ToolText | None:
        """Return the text of a file that the call only consults, such as a `.gitignore`; needs no base.

        Returns None if there is no readable text. The result's path has its symlinks followed.
        """
        try:
            real = self._work.overlay.resolve(path)
            state = self._work.overlay.at(real)
            return None if state is None else ToolText(real, self._work.text(real, state).text)
        except (NotAFile, NotText, PathOutside, PermissionDenied):
            return None

    def version(self, path: WorkspacePath) -> Version | None:
        """Return the current version, of text or binary; None if there is no file."""
        return version_at(self._work.overlay.at(self._work.resolve(path)))

    def _look(self, path: WorkspacePath) -> FileState | None:
        """Return the file's state; check its base if the caller gave one or chose `on_stale`.

        Otherwise only the tool's own search guards the file, as in the original system.
        """
        bases = self._work.bases
        is_guarded = path in bases.guarded
        if self._base is None and not self._work.is_on_stale_given and path not in bases.known:
            bases.known[path] = {Base(version_at(self._work.overlay.before(path)))}
            is_guarded = True
        state = bases.look(path, self._base)
        if is_guarded:
            bases.guarded.add(path)
        return state

    def edit(self, page: ToolText, replacements: Sequence[Replacement], warnings: Sequence[str] = ()) -> str:
        """Make the replacements in the file of `page`; return its new text, with LF line ends.

        `warnings` begin with a word for their kind and a colon.
        """
        state = self._work.bases.existing_unjudged(page.path)
        text = self._work.text(page.path, state)
        assert text.text == page.raw, "the file changed after the tool read it"
        raw = page.with_replacements(replacements)
        if raw == page.raw:
            warnings = [*warnings, _unchanged(page.path)]
        self._report(page.path, warnings, replacements=len(replacements))
        if raw != page.raw:
            self._work.overlay.put(page.path, state.with_content(text.encode(raw, path=page.path.text)))
        return with_plain_line_ends(raw)

    def write(self, path: WorkspacePath, text: str, warnings: Sequence[str] = ()) -> None:
        """Write the whole `text` to the file; create the file and its folders if missing.

        An existing file keeps its mode and its form, also if an earlier edit of the request has deleted it.
        """
        real = self._work.resolve(path)
        state = self._look(real)
        self._work.bases.guarded.discard(real)
        if state is not None:
            self._work.text(real, state)  # raises NotText: nothing is written over what is no text
        old = self._work.replaced_state(real, state)
        content = self._work.whole(real, text, old)
        if state is None:
            after = FileState(content, FILE if old is None else old.mode)
            self._work.bases.note(real, after.version)
        else:
            after = state.with_content(content)
        self._work.written_whole.add(real)
        is_same = old is not None and (after.content, after.mode) == (old.content, old.mode)
        self._report(real, [*warnings, _unchanged(real)] if is_same else warnings)
        self._work.overlay.put(real, after)

    def delete(self, path: WorkspacePath) -> None:
        """Delete the file; FileMissing if there is none."""
        self._work.delete(path, self._base)

    def move(self, path: WorkspacePath, to: WorkspacePath) -> None:
        """Move the file; FileMissing, or FileExists if `to` exists."""
        self._work.move(path, to, self._base)

    def note_of_unsaved(self, path: WorkspacePath) -> str | None:
        """Return a line about what an editor holds of this file unsaved, for the answer to a reader."""
        return self._work.knowledge.note_of_unsaved(self._work.resolve(path))

    def names(self, given: str) -> list[str] | None:
        """Return the names in a folder on disk, sorted, folders with a final `/`; None if it is no folder.

        Leaves out `.git` and editd's own files.
        """
        names = self._tooling.names_of(given)
        if not names:
            return self._work.overlay.names(None)
        return self._work.overlay.names(self._work.overlay.resolve(WorkspacePath.parse("/".join(names))))

    def matches(self, search: Search) -> tuple[Match, ...]:
        """Return the matches of `search`; raises NeedsSearch if it has no result yet (see `edits.search`)."""
        return self._tooling.expressions.matches(search)

    def sight(self, reader: str, path: WorkspacePath) -> ReadMark | None:
        """Return the part of the file that `reader` saw last ("": the sender of the request)."""
        real = self._work.resolve(path)
        marks = [mark for name, at, mark in self._work.sights if (name, at) == (reader, real)]
        return marks[-1] if marks else self._work.knowledge.sight(reader, real)

    def note(self, reader: str, path: WorkspacePath, sight: ReadMark) -> None:
        """Record what `reader` ("": the sender of the request) has seen, even if the call is refused."""
        self._work.sights.append((reader, self._work.resolve(path), sight))

    def _report(self, path: WorkspacePath, warnings: Sequence[str], *, replacements: int = 0) -> None:
        self._work.report(path, replacements=replacements)
        for warning in warnings:
            self._work.report(path, warning=warning)


def _unchanged(path: WorkspacePath) -> str:
    return f"no_change: nothing in {path} changed: the new text is the old one."


def _outside(given: str, hint: str) -> PathOutside:
    return PathOutside(f"{given} is outside the workspace.", hint=hint, data={"path": given})


NAMES = ("serena", "gemini", "wcgw", "roo", "cline", "claude", "codex")


class DialectRegistry(Mapping[str, Dialect]):
    """All dialects by name, in their order of display.

    A dialect's module is imported at its first use, so that a daemon without dialect calls starts sooner.
    """

    def __getitem__(self, name: str) -> Dialect:
        if name not in NAMES:
            raise KeyError(name)
        dialect: Dialect = importlib.import_module(f"editd.tools.{name}").DIALECT
        return dialect

    def __iter__(self) -> Iterator[str]:
        return iter(NAMES)

    def __len__(self) -> int:
        return len(NAMES)


DIALECTS = DialectRegistry()
