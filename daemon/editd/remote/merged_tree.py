"""A tree with the work of several authors merged into it, one transaction after the other.

A transaction is merged whole or not at all: each of its paths by a three-way merge of lines. The files of a
host are the log's tree with the host's own transactions merged into it (L6), as far as these merge.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from editd.edits.merge import merge_states
from editd.errors import Conflict
from editd.store.git_objects import GitTree, Trees, oid_of
from editd.values.content import Change, Entry, FileState
from editd.values.path import folders_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from editd.remote.entries import Tentative
    from editd.remote.log_objects import LogObjects
    from editd.store.git_objects import Oid
    from editd.values.path import WorkspacePath

TREES_MIN = 1000  # trees in memory before the unneeded trees are dropped


class MergedTree:
    """A tree in memory. `trees` has the objects of its folders that are nowhere else.

    A submodule of the log stays in it, although no host can have one: an entry changes only its own paths.
    """

    def __init__(self, objects: LogObjects, root: Oid) -> None:
        self.trees: dict[Oid, bytes] = {}
        self._trees_max = TREES_MIN
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
        if len(self.trees) > self._trees_max:
            self._leave_out_unused()

    def merge(self, changes: Sequence[Change[Entry]]) -> bool:
        """Merge all changes of a transaction; return False, with nothing changed, if one does not merge."""
        try:
            results = [(change.path, self.merged(change, self.entry(change.path))) for change in changes]
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

    def merge_each(self, transactions: Iterable[Tentative]) -> list[Tentative]:
        """Merge transactions in their order; return the transactions that do not merge.

        Most only change files that are there. These are put into the tree together, after the last merge.
        """
        changed: dict[WorkspacePath, Entry | None] = {}
        lost: list[Tentative] = []
        for one in transactions:
            try:
                sides = [(change, self._ours(change.path, changed)) for change in one.changes]
                results = [(change.path, ours, self.merged(change, ours)) for change, ours in sides]
            except Conflict:
                lost.append(one)
                continue
            if all((ours is None) == (entry is None) for _, ours, entry in results):
                changed.update((path, entry) for path, _, entry in results)
                continue
            self.put(changed.items())  # the tree shows whether there is room
            changed.clear()
            if not self.merge(one.changes):
                lost.append(one)
        self.put(changed.items())
        return lost

    def _ours(self, path: WorkspacePath, changed: Mapping[WorkspacePath, Entry | None]) -> Entry | None:
        return changed[path] if path in changed else self.entry(path)

    def merged(self, change: Change[Entry], ours: Entry | None) -> Entry | None:
        """Return the entry with the change merged in. Raises Conflict."""
        before, after = change.before, change.after
        if is_equal(ours, after) or is_equal(before, after):
            return ours
        if is_equal(ours, before):
            return after
        sides = before, ours, after
        key = tuple([None if side is None else (side.version, side.mode) for side in sides])
        known = self._objects.merges
        if key not in known:
            base, mine, theirs = (self._state(side) for side in sides)
            merged = merge_states(base, mine, theirs, path=change.path.text)
            known[key] = None if merged is None else Entry(merged.mode, merged.version)
            if merged is not None:
                self._objects.put_for_now(merged.content)
        return known[key]

    def _state(self, entry: Entry | None) -> FileState | None:
        if entry is None:
            return None
        return FileState(
            self._objects.blob(oid_of(entry.version)), entry.mode, entry.permissions, entry.version
        )

    def _has_room(self, path: WorkspacePath) -> bool:
        """Return whether a file can be at `path`: no file is above it, and no folder in its place."""
        if self._tree.folder(path.raw) is not None:
            return False
        return all(self.entry(folder) is None for folder in folders_of(path))

    def _leave_out_unused(self) -> None:
        """Keep only the trees of the newest root in memory."""
        needed: dict[Oid, bytes] = {}
        left = [self.root]
        while left:
            oid = left.pop()
            if oid in self.trees:
                needed[oid] = self.trees[oid]
                left += GitTree.decode(needed[oid]).folders().values()
        self.trees, self._trees_max = needed, max(TREES_MIN, 2 * len(needed))

    def _read(self, oid: Oid) -> bytes:
        known = self.trees.get(oid)
        return self._objects.tree_with_modules(oid) if known is None else known


def is_equal(one: Entry | None, other: Entry | None) -> bool:
    """Return whether two entries have the same content and git mode."""
    if one is None or other is None:
        return one is other
    return one.version == other.version and one.mode == other.mode


def _are_nested(paths: Sequence[WorkspacePath]) -> bool:
    """Return whether one of the paths is a folder above another."""
    known = set(paths)
    return any(folder in known for path in paths for folder in folders_of(path))
