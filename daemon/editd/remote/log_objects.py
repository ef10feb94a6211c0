"""The git objects of the log: a separate repository, which a fetch can make again (L7).

It holds all that its commits need, so that no compaction of the history takes anything from it. New objects
stay in memory until `write`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pygit2

from editd.store.git_objects import (
    EMPTY_TREE,
    KINDS,
    GitTree,
    ObjectKind,
    Oid,
    object_id,
    oid_of,
    usable_tree,
)
from editd.store.git_repository import create_store, is_store, open_store
from editd.store.pack_writer import PackWriter

if TYPE_CHECKING:
    from editd.values.content import Entry, Version


class WrongKind(ValueError):
    """The log names an object that is of another kind."""


class LogObjects:
    """The objects of the log, and for reading also the objects of this host's history."""

    def __init__(self, shared: str, store: str) -> None:
        """Open both repositories; make `shared` if it is missing. Raises OSError, pygit2.GitError."""
        if not is_store(shared):
            os.makedirs(shared, 0o700, exist_ok=True)
            create_store(shared)
        self.shared = shared
        self._store = store
        self._log = open_store(shared)
        self._history = open_store(store)
        self._new: dict[Oid, tuple[ObjectKind, bytes]] = {}
        self._for_now: dict[Oid, bytes] = {}
        self.merges: dict[
            tuple[tuple[Version, int] | None, ...], Entry | None
        ] = {}  # `MergedTree` keeps them

    def commit(self, oid: Oid) -> bytes:
        """Return the bytes of a commit. Raises KeyError if it is missing, ValueError for another kind."""
        return self._of_kind("commit", oid)

    def tree(self, oid: Oid) -> bytes:
        """Return the bytes of a tree, with its usable entries.

        Raises KeyError if it is missing, ValueError for another kind.
        """
        return b"" if oid == EMPTY_TREE else usable_tree(self._of_kind("tree", oid))

    def tree_with_modules(self, oid: Oid) -> bytes:
        """Return the bytes of a tree, also with its submodules, which the next entry must not drop (L4).

        Raises KeyError if it is missing, ValueError for another kind.
        """
        return b"" if oid == EMPTY_TREE else usable_tree(self._of_kind("tree", oid), keeps_modules=True)

    def blob(self, oid: Oid) -> bytes:
        """Return a file's content. Raises KeyError if it is missing, ValueError for another kind."""
        return self._of_kind("blob", oid)

    def check_blob(self, oid: Oid) -> None:
        """Check that a file's content is a blob. Raises KeyError if it is missing, ValueError otherwise."""
        if oid in self._new or oid in self._for_now:
            self.blob(oid)
            return
        for repository in (self._log, self._history):
            try:
                kind, _ = repository.odb.read_header(pygit2.Oid(raw=oid))
            except KeyError:
                continue
            _check_kind("blob", KINDS.get(int(kind)), oid)
            return
        self.blob(oid)  # which opens the history anew

    def history(self, oid: Oid) -> bytes:
        """Return a commit or a tree of this host's history, which has each in its place. Raises KeyError."""
        if oid == EMPTY_TREE:
            return b""
        kind, content = self._read(oid)
        return usable_tree(content) if kind == "tree" else content

    def _of_kind(self, wanted: ObjectKind, oid: Oid) -> bytes:
        """Return an object's bytes. A host that may push can put an object of another kind behind a name."""
        kind, content = self._read(oid)
        _check_kind(wanted, kind, oid)
        return content

    def _read(self, oid: Oid) -> tuple[ObjectKind | None, bytes]:
        """Return the kind and the bytes of an object. Raises KeyError if neither repository has it."""
        if (new := self._new.get(oid)) is not None:
            return new
        if (content := self._for_now.get(oid)) is not None:
            return "blob", content
        for repository in (self._log, self._history):
            try:
                return _object_of(repository, oid)
            except KeyError:
                continue
        self._history.free()  # its packs may have been replaced
        self._history = open_store(self._store)
        return _object_of(self._history, oid)

    def has(self, oid: Oid) -> bool:
        """Return whether the log's repository has an object."""
        return pygit2.Oid(raw=oid) in self._log.odb

    def history_has(self, oid: Oid) -> bool:
        """Return whether this host's history has an object; an excluded content may be missing."""
        return pygit2.Oid(raw=oid) in self._history.odb

    def point(self, ref: str, commit: Oid) -> None:
        """Let a ref of the log's repository name a commit. Raises pygit2.GitError."""
        self._log.references.create(ref, pygit2.Oid(raw=commit), force=True)

    def pointed(self, ref: str) -> Oid | None:
        """Return the commit that a ref of the log's repository names; None if there is no such ref."""
        known = self._log.references.get(ref)
        return None if known is None else oid_of(str(known.target))

    def pointed_below(self, prefix: str) -> dict[str, Oid]:
        """Return the refs of the log's repository that begin so, and the commits that they name."""
        names = [name for name in self._log.references if name.startswith(prefix)]
        return {name: oid_of(str(self._log.references[name].target)) for name in names}

    def size(self, oid: Oid) -> int:
        """Return the number of bytes of an object of this host's history."""
        return int(self._history.odb.read_header(pygit2.Oid(raw=oid))[1])

    def put(self, kind: ObjectKind, content: bytes) -> Oid:
        """Hold a new object until `write`, and return its id."""
        oid = object_id(kind, content)
        self._new[oid] = kind, content
        return oid

    def put_for_now(self, content: bytes) -> None:
        """Hold a content until `forget`, which is written only if it is shared."""
        self._for_now[object_id("blob", content)] = content

    def forget(self) -> None:
        """Forget the contents that were held for now, and the merges that made them."""
        self._for_now.clear()
        self.merges.clear()

    def put_tree(self, oid: Oid, content: bytes) -> None:
        """Hold a tree whose id is known."""
        self._new[oid] = "tree", content

    def share(self, version: Version) -> None:
        """Have the log hold a content that may be in this host's history alone."""
        oid = oid_of(version)
        if oid not in self._new and not self.has(oid):
            self._new[oid] = "blob", self.blob(oid)

    def share_all(self, root: Oid) -> None:
        """Have the log hold a whole tree and its files. Raises OSError."""
        with PackWriter(self._packs) as writer:
            waiting = [root]
            while waiting:
                tree = waiting.pop()
                raw = b"" if tree == EMPTY_TREE else self._of_kind("tree", tree)
                writer.add("tree", raw, tree)
                folder = GitTree.decode(usable_tree(raw))
                waiting += folder.folders().values()
                for entry in folder.files().values():
                    oid = oid_of(entry.version)
                    if oid not in writer:
                        writer.add("blob", self.blob(oid), oid)
            writer.finish()

    def write(self) -> None:
        """Make the new objects durable, in one pack. Raises OSError."""
        if not self._new:
            return
        with PackWriter(self._packs) as writer:
            for oid, (kind, content) in self._new.items():
                writer.add(kind, content, oid)
            writer.finish()
        self._new.clear()

    @property
    def packs(self) -> int:
        """The number of packs of the log."""
        return sum(name.endswith(".pack") for name in os.listdir(self._packs))

    def reopen(self) -> None:
        """Open the log again, after its packs were replaced."""
        self._log.free()
        self._log = open_store(self.shared)

    @property
    def _packs(self) -> str:
        return os.path.join(self.shared, "objects", "pack")

    def close(self) -> None:
        self._log.free()
        self._history.free()


def _check_kind(wanted: ObjectKind, kind: ObjectKind | None, oid: Oid) -> None:
    if kind != wanted:
        raise WrongKind(f"the log has a {kind or 'tag'} ({oid.hex()}) in the place of a {wanted}")


def _object_of(repository: pygit2.Repository, oid: Oid) -> tuple[ObjectKind | None, bytes]:
    """Return the kind of an object, None for a tag, and its bytes. Raises KeyError."""
    kind, content = repository.odb.read(pygit2.Oid(raw=oid))
    return KINDS.get(kind), content
