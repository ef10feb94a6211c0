"""Salvage: a damaged history, opened read-only, with every part that is whole.

It has the packed transactions as far back as their chain can be read, and each whole record of the journal.
The other transactions come from a copy of the index. It never writes to the store, the journal or the index.
Its caller makes the engine refuse edits.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import tempfile
from collections import deque
from functools import cached_property
from typing import TYPE_CHECKING

import pygit2

from editd.errors import HistoryDamaged, UnknownTransaction
from editd.store import commit_message
from editd.store.git_objects import EMPTY_TREE, CommitObject, Oid, TreeEntry, Trees
from editd.store.head import read_head
from editd.store.history import History
from editd.store.index import Index
from editd.store.journal import Journal, JournalPosition, whole_records
from editd.store.journal_record import transaction_of
from editd.store.pack_reader import Pack, verify_index, whole_objects
from editd.store.sync_state import SyncedThrough
from editd.values.transaction import Seq

if TYPE_CHECKING:
    from editd.store.journal_record import Committed
    from editd.values.path import WorkspacePath
    from editd.values.transaction import Entry

NUMBERS = {"commit": 1, "tree": 2, "blob": 3}  # git's object types, gitformat-pack(5)


class Salvage(History):
    """The whole parts of a damaged history, for reading."""

    def __init__(self, folder: str, damage: HistoryDamaged) -> None:
        """Open the whole parts of the history in `folder`; `damage` is the reason."""
        self.folder = folder
        self.store = os.path.join(folder, "store.git")
        self.damage = damage
        self.journal = Journal(os.path.join(folder, "journal"), is_sealed=True)
        self.published = SyncedThrough(folder)
        self._made = tempfile.TemporaryDirectory(prefix="salvage-", dir=folder)
        self.index = _copy(os.path.join(folder, "index.db"), os.path.join(self._made.name, "index.db"))
        self._sound = self._objects("sound", self.packs())
        self._borrowed = self._objects("borrowed", [])
        self._pending: dict[Oid, tuple[int, bytes]] = {}
        self._tried: dict[Oid, bytes] = {}
        self._pending_order: deque[tuple[int, Oid]] = deque()
        self.pending_bytes = 0
        self._tail = JournalPosition(0, 0)
        self.hot: tuple[Committed, ...] = ()
        self.unsynced: tuple[Committed, ...] = ()
        self.is_in_doubt = False
        with contextlib.suppress(OSError):
            self.measure()
        with contextlib.suppress(HistoryDamaged):
            self.floor = self._read_floor()
        self._trees = Trees(EMPTY_TREE, self._tree_bytes)
        self._head = self._packed_commit = bytes(20)
        self.packed = Seq(0)
        self._seq = 0
        newest = self._newest()
        if newest is not None:
            commit, self._head = newest, newest
            self._packed_commit = commit
            self.packed = self._written(commit).seq
            self._seq = int(self.packed)
            self._trees = Trees(self._commit(commit).tree, self._tree_bytes)
            self._take_in_packed(commit)
        self._take_in_records()

    def packs(self) -> list[str]:
        """Return the paths of all packs, with or without an index."""
        folder = os.path.join(self.store, "objects", "pack")
        try:
            names = sorted(name for name in os.listdir(folder) if name.endswith(".pack"))
        except OSError:
            return []
        return [os.path.join(folder, name) for name in names]

    def entry(self, path: WorkspacePath) -> Entry | None:
        """Return the entry of `path` after the newest transaction, by the index: a folder may be damaged."""
        touched = self.index.touch_at(path, self._seq)
        return super().entry(path) if touched is None else touched[1].after

    def close(self) -> None:
        self.index.close()
        self._made.cleanup()
        self.journal.close()

    def _read(self, oid: Oid) -> tuple[int, bytes]:
        kind, content = self.raw(oid)
        return kind, self.floor.seen(oid, content)

    def raw(self, oid: Oid) -> tuple[int, bytes]:
        """Return an object's type and its stored bytes. Raises KeyError."""
        with contextlib.suppress(KeyError, pygit2.GitError):
            return self._sound.read(pygit2.Oid(raw=oid))
        pack = self._whole.get(oid)
        if pack is None:
            raise KeyError(oid)
        kind, content = pack.read(oid)
        return NUMBERS[kind], content

    def is_borrowed(self, oid: Oid) -> bool:
        """Return whether a repository that the store borrows from has the object."""
        return pygit2.Oid(raw=oid) in self._borrowed

    def _objects(self, name: str, packs: list[str]) -> pygit2.Odb:
        """Return the objects that libgit2 can read safely: packs with a verified index, and borrowed objects.

        libgit2 trusts an index, and one flipped bit in it can crash the process.
        """
        objects = os.path.join(self._made.name, name)
        for folder in ("pack", "info"):
            os.makedirs(os.path.join(objects, folder))
        for pack in packs:
            index = pack.removesuffix(".pack") + ".idx"
            if os.path.exists(index) and verify_index(index, pack) is None:
                for path in (pack, index):
                    os.symlink(path, os.path.join(objects, "pack", os.path.basename(path)))
        alternates = os.path.join("info", "alternates")
        with contextlib.suppress(OSError):
            source = os.path.join(self.store, "objects", alternates)
            shutil.copyfile(source, os.path.join(objects, alternates))
        return pygit2.Odb(objects)

    @cached_property
    def _whole(self) -> dict[Oid, Pack]:
        """Every whole object with its pack; slow, because it is read without git."""
        return dict(whole_objects(self.packs(), lambda _: True))

    def _newest(self) -> Oid | None:
        """Return the newest readable commit: head, or the one with the highest seq."""
        with contextlib.suppress(HistoryDamaged, UnknownTransaction):
            head = read_head(self.store)
            if head is not None and self._written(head).seq >= 0:
                return head
        newest: tuple[int, Oid] | None = None
        for oid, pack in self._whole.items():
            kind, content = pack.read(oid)
            if kind == "commit":
                with contextlib.suppress(ValueError):
                    seq = int(commit_message.parse(CommitObject.decode(content).message).seq)
                    newest = max(newest or (seq, oid), (seq, oid))
        return None if newest is None else newest[1]

    def _take_in_packed(self, newest: Oid) -> None:
        """Add the commits that the index lacks, as far back from the newest as can be read."""
        oid: Oid | None = newest
        lacking: list[Oid] = []
        while oid is not None:
            try:
                seq = int(self._written(oid).seq)
                if self.index.id_of(seq) == oid.hex():
                    break
                parent = self._commit(oid).parent
            except HistoryDamaged:
                break
            lacking.append(oid)
            oid = parent
        for oid in reversed(lacking):
            with contextlib.suppress(HistoryDamaged):
                self.index.add(*self._transaction_of_commit(oid))

    def _take_in_records(self) -> None:
        """Load the whole records of the journal, even after a damaged one.

        Packed ones are loaded for their contents, which the pack may have lost.
        """
        for record in whole_records(self.journal.folder):
            for change in record.changes:
                for side in (change.before, change.after):
                    if side is not None and side.content is not None:
                        self._hold_object(record.seq, side.version, side.content)
            if record.seq <= self.packed:
                continue
            self._head, self._seq = record.commit, record.seq
            with contextlib.suppress(HistoryDamaged):
                splice = self._trees.update(
                    (c.path, None if c.after is None else TreeEntry(c.after.mode, c.after.version))
                    for c in record.changes
                )
                for tree, content in splice.trees.items():
                    self._hold_object(record.seq, tree, content)
            if self.index.id_of(record.seq) != record.commit.hex():
                self.index.add(transaction_of(record), record.notes)
        self._seq = max(self._seq, self.index.last)  # the index may know transactions that are lost


def _copy(path: str, target: str) -> Index:
    """Copy the index; return an empty one if it cannot be read."""
    if os.path.exists(path):
        source, copy = sqlite3.connect(path), sqlite3.connect(target)
        try:
            source.backup(copy)
        except sqlite3.Error:
            copy.close()
            os.unlink(target)
        finally:
            source.close()
            copy.close()
    return Index(target)
