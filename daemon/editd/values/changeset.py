"""An author's edits, and their effects: the changes in a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct, field

from editd.values.content import FileState
from editd.values.transaction import PathChange

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from editd.values.content import GitMode, Version
    from editd.values.path import WorkspacePath


class Base(Struct, frozen=True):
    """The version that the author had read; `version` is None for "no such file".

    An edit without a base has `base` None instead.
    """

    version: Version | None


class ReadMark(Struct, frozen=True):
    """The part of a file that a reader has seen: the version, and the lines of it.

    `lines` are ranges from 1, both ends included; None is the whole file.
    """

    base: Base
    lines: tuple[tuple[int, int], ...] | None = None


def merged_ranges(ranges: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Return the same lines in as few ranges as possible, in order."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(last, merged[-1][1])
        else:
            merged.append((first, last))
    return tuple(merged)


class Position(Struct, frozen=True):
    """LSP's position: a line from 0, and a character in it from 0, in the edit's encoding."""

    line: int
    character: int


class TextEdit(Struct, frozen=True):
    start: Position
    end: Position
    text: str


PositionEncoding = Literal["utf-8", "utf-16", "utf-32"]


class Write(Struct, frozen=True):
    """The whole content of a file, as bytes; `mode` None keeps the file's mode."""

    path: WorkspacePath
    content: bytes
    base: Base | None = None
    mode: GitMode | None = None
    force: bool = False


class Replace(Struct, frozen=True):
    """Exact text for exact text, with the expected number of occurrences."""

    path: WorkspacePath
    old: str
    new: str
    count: int = 1
    base: Base | None = None
    is_guarded_by_text: bool = False  # without a base, the base is the current version


class EditText(Struct, frozen=True):
    """LSP `TextEdit`s, made for version `base`."""

    path: WorkspacePath
    edits: tuple[TextEdit, ...]
    base: Base
    position_encoding: PositionEncoding = "utf-16"


class Patch(Struct, frozen=True):
    """A unified or git diff of any number of files, with surrogate escapes for bytes that are not UTF-8."""

    patch: str
    fuzz: int = 0


class Delete(Struct, frozen=True):
    path: WorkspacePath
    base: Base | None = None


class Move(Struct, frozen=True):
    path: WorkspacePath
    to: WorkspacePath
    base: Base | None = None
    overwrite: bool = False


class Chmod(Struct, frozen=True):
    path: WorkspacePath
    executable: bool


class Symlink(Struct, frozen=True):
    path: WorkspacePath
    target: str
    base: Base | None = None


class Tool(Struct, frozen=True):
    """A call of another system's edit tool, with that tool's own argument names."""

    dialect: str
    tool: str
    args: Mapping[str, Any]
    base: Base | None = None


FileEdit = Write | Replace | EditText | Patch | Delete | Move | Chmod | Symlink
Edit = FileEdit | Tool

OnStale = Literal["reject", "merge"]


class Change(PathChange[FileState], frozen=True):
    """The planned effect on one path, with the contents."""


class FileReport(Struct, frozen=True):
    """The planning's report on one path, beside its change."""

    replacements: int | None = None
    warnings: tuple[str, ...] = ()


class Plan(Struct, frozen=True):
    """A changeset worked out against a snapshot: before and after of every path, nothing touched yet.

    `changes` are sorted by path, one for each path whose bytes or mode change. `touched` are all paths
    that the edits name, including unchanged ones. `based` are those for which an edit gives a base, and
    `guarded` those that only an edit's searched text checks.
    """

    changes: tuple[Change, ...]
    reports: dict[WorkspacePath, FileReport] = field(default_factory=dict)
    merged: tuple[WorkspacePath, ...] = ()
    touched: tuple[WorkspacePath, ...] = ()
    based: frozenset[WorkspacePath] = frozenset()
    guarded: frozenset[WorkspacePath] = frozenset()
    answers: tuple[str | None, ...] = ()  # each tool's answer in its own words; None for other edits
    sights: tuple[tuple[str, WorkspacePath, ReadMark], ...] = ()  # reads, by readers that a tool names
    warnings: tuple[str, ...] = ()  # of the whole
    formatted_by: tuple[str, ...] = ()  # the hooks that changed it
