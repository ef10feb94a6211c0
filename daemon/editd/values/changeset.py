"""The base versions of an author's edits, and the effects of the edits: the changes in a plan."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from msgspec import Struct, field

from editd.errors import InvalidParams
from editd.values.content import FileState, Version
from editd.values.transaction import PathChange

if TYPE_CHECKING:
    from collections.abc import Iterable

    from editd.values.path import WorkspacePath


class Base(Struct, frozen=True):
    """The version that the author had read; `version` is None for "no such file".

    An edit without a base has `base` None instead.
    """

    version: Version | None

    @staticmethod
    def parse(version: str | None) -> Base:
        """Return the base that a client gives. Raises InvalidParams."""
        if version is None:
            return Base(None)
        if _VERSION.fullmatch(version) is None:
            raise InvalidParams(
                f"{version[:60]!r} is not a version.",
                hint="A version is 40 hex digits, as `read` and `stat` give it.",
            )
        return Base(Version(version))


_VERSION = re.compile(r"[0-9a-f]{40}")


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
