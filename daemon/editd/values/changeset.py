"""What an author asks for (edits), and what comes of it (changes in a plan)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from editd.values.content import FileState, GitMode, Version
    from editd.values.path import WorkspacePath


@dataclass(frozen=True, slots=True)
class Base:
    """The version that the author had read; `version` is None for "no such file".

    Where an edit gives no base at all, its `base` is None.
    """

    version: Version | None


@dataclass(frozen=True, slots=True)
class Sight:
    """What a reader has seen of a file: of which version, and which lines of it.

    `lines` are ranges from 1, both ends included; None is the whole file.
    """

    base: Base
    lines: tuple[tuple[int, int], ...] | None = None


@dataclass(frozen=True, slots=True)
class Position:
    """LSP's position: a line from 0, and a character in it from 0, in the edit's encoding."""

    line: int
    character: int


@dataclass(frozen=True, slots=True)
class TextEdit:
    start: Position
    end: Position
    text: str


PositionEncoding = Literal["utf-8", "utf-16", "utf-32"]


@dataclass(frozen=True, slots=True)
class Write:
    """The whole file. `content` is bytes; `mode` None keeps the mode that the file has."""

    path: WorkspacePath
    content: bytes
    base: Base | None = None
    mode: GitMode | None = None
    force: bool = False


@dataclass(frozen=True, slots=True)
class Replace:
    """Exact text for exact text, `count` occurrences expected."""

    path: WorkspacePath
    old: str
    new: str
    count: int = 1
    base: Base | None = None


@dataclass(frozen=True, slots=True)
class EditText:
    """LSP `TextEdit`s, made for version `base`."""

    path: WorkspacePath
    edits: tuple[TextEdit, ...]
    base: Base
    position_encoding: PositionEncoding = "utf-16"


@dataclass(frozen=True, slots=True)
class Patch:
    """A unified or git diff, any number of files; surrogate escapes stand for bytes that are not UTF-8."""

    patch: str
    fuzz: int = 0


@dataclass(frozen=True, slots=True)
class Delete:
    path: WorkspacePath
    base: Base | None = None


@dataclass(frozen=True, slots=True)
class Move:
    path: WorkspacePath
    to: WorkspacePath
    base: Base | None = None
    overwrite: bool = False


@dataclass(frozen=True, slots=True)
class Chmod:
    path: WorkspacePath
    executable: bool


@dataclass(frozen=True, slots=True)
class Symlink:
    path: WorkspacePath
    target: str
    base: Base | None = None


@dataclass(frozen=True, slots=True)
class Tool:
    """A call of another system's edit tool, with that tool's own argument names."""

    dialect: str
    tool: str
    args: Mapping[str, Any] = field(hash=False)
    base: Base | None = None


FileEdit = Write | Replace | EditText | Patch | Delete | Move | Chmod | Symlink
Edit = FileEdit | Tool

OnStale = Literal["reject", "merge"]


@dataclass(frozen=True, slots=True)
class Change:
    """What is to happen to one path: what it holds before and after; None is "no such file".

    A move is two changes: the old path's after is None, and the new path's `source` is the old path.
    """

    path: WorkspacePath
    before: FileState | None
    after: FileState | None
    source: WorkspacePath | None = None

    @property
    def kind(self) -> Literal["added", "modified", "deleted", "renamed", "mode"]:
        if self.source is not None:
            return "renamed"
        if self.before is None:
            return "added"
        if self.after is None:
            return "deleted"
        return "mode" if self.before.version == self.after.version else "modified"


@dataclass(frozen=True, slots=True)
class FileReport:
    """What planning has to say of one path beside its change."""

    replacements: int | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """A changeset worked out against a snapshot: before and after of every path, nothing touched yet.

    `changes` are sorted by path, one for each path whose bytes or mode change; `touched` are all paths
    that the edits name, those that stay as they are among them.
    """

    changes: tuple[Change, ...]
    reports: dict[WorkspacePath, FileReport] = field(default_factory=dict)
    merged: tuple[WorkspacePath, ...] = ()
    touched: tuple[WorkspacePath, ...] = ()
    answers: tuple[str | None, ...] = ()  # what each edit's tool says in its own words; None for other edits
    sights: tuple[tuple[str, WorkspacePath, Sight], ...] = ()  # what readers that a tool names have seen
    warnings: tuple[str, ...] = ()  # of the whole
    formatted_by: tuple[str, ...] = ()  # the hooks that have changed it
