"""The dialects by name, and the execution of a tool's call on the changeset so far.

A tool names the file and its replacements. This module enforces the rules of all tools: a path stays
inside the workspace, a stale edit is refused, and a file keeps its encoding, mark and line ends.
"""

from __future__ import annotations

import importlib
import posixpath
from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from editd.edits.plan import base_of
from editd.edits.preconditions import version_at
from editd.edits.search import SearchResults, with_plain_line_ends
from editd.errors import InvalidParams, NotAFile, NotText, PathOutside, PermissionDenied, Unread
from editd.tools.api import Dialect, ToolSettings, ToolText
from editd.values.changeset import Base
from editd.values.content import FILE, FileState, Text
from editd.values.path import WorkspacePath
from editd.wire.messages import Tool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from editd.edits.plan import PlanBuilder
    from editd.edits.replace import Replacement
    from editd.edits.search import Match, Search, SearchSource
    from editd.errors import Refused
    from editd.tools.api import ToolDefinition
    from editd.values.changeset import ReadMark
    from editd.values.content import Version
    from editd.wire.messages import AnyEdit

_MARK = "\ufeff"


class ToolSet(Struct, frozen=True):
    """The dialects' tools with their settings and regular expression results, for planning."""

    dialects: Mapping[str, Dialect] = field(default_factory=dict)
    root: str = ""  # the workspace's real path
    settings: ToolSettings = field(default_factory=ToolSettings)
    expressions: SearchSource = field(default_factory=lambda: SearchResults({}))
    real_path: Callable[[str], str] = str  # follows the symlinks among an absolute path's folders

    def answered(self, found: Mapping[Search, tuple[Match, ...] | Refused]) -> ToolSet:
        """Return a copy with the results of these searches."""
        return replace(self, expressions=SearchResults(found))

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
        try:
            return tool.run(edit.args, PlanToolApi(work, self, base_of(edit)))
        except Unread as refusal:
            refusal.sights = tuple(work.sights)
            raise

    def _find(self, call: Tool) -> ToolDefinition | None:
        dialect = self.dialects.get(call.dialect)
        tools = () if dialect is None else dialect.tools
        return next((tool for tool in tools if tool.name == call.tool), None)


class PlanToolApi:
    """The `ToolApi` for one call. Its edits go into `work`, the changeset so far."""

    def __init__(self, work: PlanBuilder, tooling: ToolSet, base: Base | None) -> None:
        self._work = work
        self._tooling = tooling
        self._base = base

    @property
    def root(self) -> str:
        return self._tooling.root

    @property
    def settings(self) -> ToolSettings:
        return self._tooling.settings

    def path(self, given: str) -> WorkspacePath:
        return self._tooling.path(given)

    def page(self, path: WorkspacePath) -> ToolText | None:
        real = self._work.resolve(path)
        state = self._look(real)
        return None if state is None else ToolText(real, self._work.text(real, state).text)

    def glance(self, path: WorkspacePath) -> ToolText | None:
        try:
            real = self._work.overlay.resolve(path)
            state = self._work.overlay.at(real)
            return None if state is None else ToolText(real, self._work.text(real, state).text)
        except (NotAFile, NotText, PathOutside, PermissionDenied):
            return None

    def version(self, path: WorkspacePath) -> Version | None:
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
        state = self._work.bases.existing_unjudged(page.path)
        text = self._work.text(page.path, state)
        assert text.text == page.raw, "the file changed after the tool read it"
        raw = page.with_replacements(replacements)
        self._report(page.path, warnings, replacements=len(replacements))
        if raw != page.raw:
            self._work.overlay.put(page.path, state.with_content(text.encode(raw, path=page.path.text)))
        return with_plain_line_ends(raw)

    def write(self, path: WorkspacePath, text: str, warnings: Sequence[str] = ()) -> None:
        real = self._work.resolve(path)
        state = self._look(real)
        self._work.bases.guarded.discard(real)
        if state is None:
            after = FileState(_encoded(text, None, real), FILE)
            self._work.bases.note(real, after.version)
        else:
            after = state.with_content(_encoded(text, self._work.text(real, state), real))
        self._report(real, warnings)
        self._work.overlay.put(real, after)

    def delete(self, path: WorkspacePath) -> None:
        self._work.delete(path, self._base)

    def move(self, path: WorkspacePath, to: WorkspacePath) -> None:
        self._work.move(path, to, self._base)

    def names(self, given: str) -> list[str] | None:
        names = self._tooling.names_of(given)
        if not names:
            return self._work.overlay.names(None)
        return self._work.overlay.names(self._work.overlay.resolve(WorkspacePath.parse("/".join(names))))

    def matches(self, search: Search) -> tuple[Match, ...]:
        return self._tooling.expressions.matches(search)

    def sight(self, reader: str, path: WorkspacePath) -> ReadMark | None:
        real = self._work.resolve(path)
        marks = [mark for name, at, mark in self._work.sights if (name, at) == (reader, real)]
        return marks[-1] if marks else self._work.knowledge.sight(reader, real)

    def note(self, reader: str, path: WorkspacePath, sight: ReadMark) -> None:
        self._work.sights.append((reader, self._work.resolve(path), sight))

    def _report(self, path: WorkspacePath, warnings: Sequence[str], *, replacements: int = 0) -> None:
        self._work.report(path, replacements=replacements)
        for warning in warnings:
            self._work.report(path, warning=warning)


def _encoded(text: str, old: Text | None, path: WorkspacePath) -> bytes:
    """Encode a whole new text as UTF-8, or in the encoding of the existing file."""
    if old is None or (old.encoding == "utf-8"):
        return Text("", "utf-8", b"").encode(text, path=path.text)
    return old.encode(text.removeprefix(_MARK), path=path.text)


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
