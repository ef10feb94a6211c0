"""The interface between a dialect's tools and the changeset under construction.

A tool takes a call with the original system's argument names. It reads and changes files through
`ToolApi`, and returns an answer in that system's words. It never touches the disk or the history:
`tools.context` implements `ToolApi` on the changeset so far.
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
        """Return the matches of `search`; raises NeedsSearch if it has no result yet (see `edits.regex`)."""
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
    undoes: Callable[[Mapping[str, Any]], str | None] = field(default=lambda _arguments: None)
    """Return the file whose last edit by the session the call undoes, as the call names it.

    For such a call, `run` is never called.
    """


class Dialect(Struct, frozen=True):
    name: str
    description: str
    tools: tuple[ToolDefinition, ...]
