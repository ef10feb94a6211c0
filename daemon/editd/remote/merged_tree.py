"""A tree with the work of several authors merged into it, one transaction after the other.

A transaction is merged whole or not at all: each of its paths by a three-way merge of lines. The files of a
host are the log's tree with the host's own transactions merged into it (L6), as far as these merge.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from editd.edits.merge import merge_states
from editd.errors import Conflict
from editd.store.git_objects import Trees, oid_of
from editd.values.content import Change, Entry, FileState
from editd.values.path import folders_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from editd.remote.entries import Tentative
    from editd.remote.log_objects import LogObjects
    from editd.store.git_objects import Oid
    from editd.values.path import WorkspacePath


class MergedTree:
    """A tree in memory. `trees` has the objects of its folders that are nowhere else."""

    def __init__(self, objects: LogObjects, root: Oid) -> None:
        self.trees: dict[Oid, bytes] = {}
        self._objects = objects
        self._tree = Trees(root, self._read)

    @property
    def root(self) -> Oid:
        return self._tree.root

    def entry(self, path: WorkspacePath) -> Entry | None:
        return self._tree.entry(path.raw)

    def put(self, entries: Iterable[tuple[WorkspacePath, Entry | None]]) -> None:
        """Set the entries of some paths, without a merge."""
        update = self._tree.update(
            (path.raw, entry) for path, entry in entries if not is_equal(self.entry(path), entry)
        )
        self.trees |= update.trees

    def merge(self, changes: Sequence[Change[Entry]]) -> bool:
        """Merge all changes of a transaction; return False, with nothing changed, if one does not merge."""
        try:
            results = [(change.path, self._merged(change, self.entry(change.path))) for change in changes]
        except Conflict:
            return False
        differing = [(path, entry) for path, entry in results if not is_equal(self.entry(path), entry)]
        made = [(path, entry) for path, entry in differing if entry is not None]
        removal = self._tree.update((path.raw, None) for path, entry in differing if entry is None)
        if not all(self._has_room(path) for path, _ in made) or _are_nested([path for path, _ in made]):
            self._tree.revert(removal)
            return False
        self.trees |= removal.trees
        self.put(made)
        return True

    def _merged(self, change: Change[Entry], ours: Entry | None) -> Entry | None:
        """Return the entry with the change merged in. Raises Conflict."""
        before, after = change.before, change.after
        if is_equal(ours, after) or is_equal(before, after):
            return ours
        if is_equal(ours, before):
            return after
        sides = self._state(before), self._state(ours), self._state(after)
        merged = merge_states(*sides, path=change.path.text)
        if merged is None:
            return None
        self._objects.put("blob", merged.content)
        return Entry(merged.mode, merged.version)

    def _state(self, entry: Entry | None) -> FileState | None:
        if entry is None:
            return None
        return FileState(
            self._objects.read(oid_of(entry.version)), entry.mode, entry.permissions, entry.version
        )

    def _has_room(self, path: WorkspacePath) -> bool:
        """Return whether a file can be at `path`: no file is above it, and no folder in its place."""
        if self._tree.folder(path.raw) is not None:
            return False
        return all(self.entry(folder) is None for folder in folders_of(path))

    def _read(self, oid: Oid) -> bytes:
        known = self.trees.get(oid)
        return self._objects.read(oid) if known is None else known


def is_equal(one: Entry | None, other: Entry | None) -> bool:
    """Return whether two entries have the same content and git mode."""
    if one is None or other is None:
        return one is other
    return one.version == other.version and one.mode == other.mode


def connected(
    paths: Iterable[WorkspacePath], waiting: Sequence[Tentative]
) -> tuple[set[WorkspacePath], list[Tentative]]:
    """Return the transactions that depend on these paths, directly or by another one, and all their paths.

    A path includes the files below and above it, for which it leaves no room.
    """
    joined = set(paths)
    chosen: set[Tentative] = set()
    around = {folder for path in joined for folder in folders_of(path)}
    left = list(waiting)
    while touching := [one for one in left if _touches(one, joined, around)]:
        chosen.update(touching)
        left = [one for one in left if one not in chosen]
        for one in touching:
            for change in one.changes:
                joined.add(change.path)
                around.update(folders_of(change.path))
    return joined, [one for one in waiting if one in chosen]


def _touches(one: Tentative, joined: set[WorkspacePath], around: set[WorkspacePath]) -> bool:
    return any(
        change.path in joined
        or change.path in around
        or any(folder in joined for folder in folders_of(change.path))
        for change in one.changes
    )


def _are_nested(paths: Sequence[WorkspacePath]) -> bool:
    """Return whether one of the paths is a folder above another."""
    known = set(paths)
    return any(folder in known for path in paths for folder in folders_of(path))
