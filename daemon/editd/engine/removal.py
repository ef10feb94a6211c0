"""The contents that a `forget` removes from the history: their selection, and the places that have them.

A selection names paths, globs, or versions. Of a path it takes every version that the file ever had, also
under the earlier paths of a file that was moved here. The present content of a file is never removed: later
work needs it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec import Struct

from editd.engine.external_changes import known_below
from editd.values.content import version_of
from editd.values.path import WorkspacePath, is_among

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from editd.store.content_search import Sought
    from editd.store.history import History
    from editd.values.content import Version
    from editd.values.glob import Glob
    from editd.values.proposal import ProposalNumber

LOT = 500  # transactions that are read at once
_EMPTY = version_of(b"")  # it has no content to remove


class Selection(Struct, frozen=True):
    """The files whose contents are to be removed; or the contents, by their versions."""

    paths: frozenset[WorkspacePath] = frozenset()  # files, and folders with all below them
    globs: tuple[Glob, ...] = ()
    versions: frozenset[Version] = frozenset()

    @property
    def is_by_path(self) -> bool:
        return bool(self.paths or self.globs)

    def covers(self, path: WorkspacePath) -> bool:
        return is_among(path, self.paths) or any(glob.matches(path) for glob in self.globs)


class Places(Struct, frozen=True):
    """The places of some contents in the history."""

    paths: dict[Version, set[WorkspacePath]]
    transactions: dict[Version, set[int]]
    present: dict[Version, set[WorkspacePath]]  # files that have the content now


class Removal(Struct, frozen=True):
    """One removal, planned or done: the contents in the packs with their sizes, and their places."""

    selection: Selection
    sought: Sought
    head: int  # the newest transaction when the places were looked up
    sizes: dict[Version, int]
    places: Places
    kept: frozenset[Version]
    borrowed: list[str]  # versions that the user's own repository has
    shared: list[str]  # versions that the copy of the log of all hosts has
    proposals: list[ProposalNumber]
    others: int = 0  # refusals, lines of the log, and files in lost and found
    remaining: tuple[str, ...] = ()  # a sentence for each place that still has something
    searched: int = 0


def known_paths(history: History, is_wanted: Callable[[WorkspacePath], bool]) -> set[WorkspacePath]:
    """Return the wanted paths that the history has or had."""
    touched = (WorkspacePath(os.fsdecode(raw)) for raw in history.index.touched_paths())
    return {path for path in (*touched, *(path for path, _ in _present_files(history))) if is_wanted(path)}


def versions_of(history: History, paths: Collection[WorkspacePath]) -> set[Version]:
    """Return every version that these files had, also at their paths before a move."""
    versions: set[Version] = set()
    waiting, done = list(paths), set(paths)
    while waiting:
        path = waiting.pop()
        entry = history.entry(path)
        versions |= set() if entry is None else {entry.version}
        for _, touch in history.index.life(path, -1, None):
            versions |= {side.version for side in (touch.before, touch.after) if side is not None}
            if touch.source is not None and touch.source not in done:
                waiting.append(touch.source)
                done.add(touch.source)
    return versions - {_EMPTY}


def selected_versions(history: History, selection: Selection) -> set[Version]:
    """Return the versions that a selection names. Raises IoError, HistoryDamaged."""
    if selection.is_by_path:
        return versions_of(history, known_paths(history, selection.covers))
    return set(selection.versions) - {_EMPTY}


def places_of(history: History, versions: Collection[Version]) -> Places:
    """Return the files and transactions with these contents. Reads the whole index, and all folders."""
    places = Places({}, {}, {})
    for seq, touch in history.index.touches_of(versions):
        for side in (touch.before, touch.after):
            if side is not None and side.version in versions:
                places.paths.setdefault(side.version, set()).add(touch.path)
                places.transactions.setdefault(side.version, set()).add(seq)
    for path, version in _present_files(history):
        if version in versions:
            places.paths.setdefault(version, set()).add(path)
            places.present.setdefault(version, set()).add(path)
    return places


def came_back(history: History, versions: Collection[Version], after: int) -> dict[Version, int]:
    """Return the versions that a transaction after `after` has written, with its seq."""
    back: dict[Version, int] = {}
    while following := history.index.following(after, LOT):
        for transaction in following:
            for touch in transaction.touches:
                if touch.after is not None and touch.after.version in versions:
                    back.setdefault(touch.after.version, int(transaction.seq))
        after = int(following[-1].seq)
    return back


def _present_files(history: History) -> Iterator[tuple[WorkspacePath, Version]]:
    """Yield each file after the newest transaction, with its version."""
    for path in known_below(history, ""):
        entry = history.entry(path)
        assert entry is not None, "the history has just named it"
        yield path, entry.version
