"""The desk: what a tool of a dialect works at.

A tool takes a call with the argument names of the system that it comes from, looks at files and
changes them through the desk, and returns that system's words for what it did. It reads no disk and
knows no history: the desk stands on the changeset as it is so far (`tools.context`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct, field

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from editd.edits.regex import Match, Search
    from editd.edits.replace import Replacement
    from editd.tools.tool_text import ToolText
    from editd.values.changeset import ReadMark
    from editd.values.content import Version
    from editd.values.path import WorkspacePath


class ToolSettings(Struct, frozen=True):
    """What the configuration says of the dialects."""

    ignored_paths: tuple[str, ...] = ()  # serena: gitignore patterns beside those of the workspace
    edit_globs: tuple[str, ...] | None = None  # wcgw: what its `code_writer` mode may edit; None: anything
    write_globs: tuple[str, ...] | None = None  # and what it may write whole
    home: str = ""  # what `~` stands for


class ToolApi(Protocol):
    """Whatever it raises is a Refused: PathOutside, PathProtected, NotAFile, NotText, TooLarge, Stale …"""

    @property
    def root(self) -> str:
        """The workspace's real path, without a final `/`."""
        ...

    @property
    def settings(self) -> ToolSettings: ...

    def path(self, given: str) -> WorkspacePath:
        """The path that a tool was given: relative to the root, or absolute and below it.

        `.`, `..` and empty segments are taken away by the text. PathOutside, PathProtected, InvalidParams.
        """
        ...

    def page(self, path: WorkspacePath) -> ToolText | None:
        """The text of the file there, symlinks followed; None where there is none."""
        ...

    def glance(self, path: WorkspacePath) -> ToolText | None:
        """The text of a file that the call only goes by, such as a `.gitignore`: no base is asked for.

        None where there is no text that can be read. The page's path has its symlinks followed.
        """
        ...

    def version(self, path: WorkspacePath) -> Version | None:
        """The version of what is there now, be it text or not; None where there is no file."""
        ...

    def edit(self, page: ToolText, replacements: Sequence[Replacement], warnings: Sequence[str] = ()) -> str:
        """Make the replacements in the file that `page` shows; return its text afterwards, with LF.

        `warnings` begin with a word for their kind and a colon.
        """
        ...

    def write(self, path: WorkspacePath, text: str, warnings: Sequence[str] = ()) -> None:
        """Let the file hold `text`, as it is, made with its folders where it is missing.

        One that is there keeps its mode, and its encoding where that is not UTF-8.
        """
        ...

    def delete(self, path: WorkspacePath) -> None:
        """FileMissing where there is none."""
        ...

    def move(self, path: WorkspacePath, to: WorkspacePath) -> None:
        """FileMissing, or FileExists where something stands at `to`."""
        ...

    def names(self, given: str) -> list[str] | None:
        """The names in a folder of the workspace as it is on disk, sorted, folders with a final `/`.

        `.git` and what editd keeps for itself are left out; None where it is no folder.
        """
        ...

    def matches(self, search: Search) -> tuple[Match, ...]:
        """See `edits.regex`: may end the planning for now."""
        ...

    def sight(self, reader: str, path: WorkspacePath) -> ReadMark | None:
        """What the reader of that name has seen of the file last; else who sends the request."""
        ...

    def note(self, reader: str, path: WorkspacePath, sight: ReadMark) -> None:
        """From now on the reader ("": who sends the request) has seen that, also if the call is refused."""
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
    returns_content: bool = False  # the answer to the request holds the final content of each file
    undoes: Callable[[Mapping[str, Any]], str | None] = field(default=lambda _arguments: None)
    """The file, as the call names it, whose last edit by the session the call undoes; `run` is not asked."""


class Dialect(Struct, frozen=True):
    name: str
    description: str
    tools: tuple[ToolDefinition, ...]
