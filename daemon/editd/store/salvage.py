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
from functools import cached_property
from typing import TYPE_CHECKING

import pygit2

from editd.errors import HistoryDamaged, UnknownTransaction
from editd.store import commit_message
from editd.store.git_objects import CommitObject, Oid
from editd.store.git_repository import read_head
from editd.store.history import History, HistoryParts, store_of, tree_entry
from editd.store.index import Index
from editd.store.journal import Journal, whole_records
from editd.store.journal_record import transaction_of
from editd.store.packfile import Pack, verify_index, whole_objects
from editd.store.state_files import SyncedThrough
from editd.store.verify import verify_quick

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd.store.journal_record import Committed
    from editd.values.path import WorkspacePath
    from editd.values.transaction import Entry


NUMBERS = {"commit": 1, "tree": 2, "blob": 3}  # git's object types, gitformat-pack(5)


class WholeObjects:
    """The whole objects of a damaged store.

    libgit2 trusts an index, and one flipped bit in it can crash the process. So it reads only packs with a
    verified index, and borrowed objects. The whole objects of other packs are read without it.
    """

    def __init__(self, folder: str) -> None:
        """Find the packs of the store in the state folder `folder`. Raises OSError."""
        self._store = store_of(folder)
        self._made = tempfile.TemporaryDirectory(prefix="salvage-", dir=folder)
        self.scratch = self._made.name
        """A folder for as long as the objects are read."""
        self._sound = self._reader("sound", self.packs())
        self._borrowed = self._reader("borrowed", [])

    def packs(self) -> list[str]:
        """Return the paths of all packs, with or without an index."""
        folder = os.path.join(self._store, "objects", "pack")
        try:
            names = sorted(name for name in os.listdir(folder) if name.endswith(".pack"))
        except OSError:
            return []
        return [os.path.join(folder, name) for name in names]

    def read(self, oid: Oid) -> tuple[int, bytes]:
        with contextlib.suppress(KeyError, pygit2.GitError):
            return self._sound.read(pygit2.Oid(raw=oid))
        pack = self._whole.get(oid)
        if pack is None:
            raise KeyError(oid)
        kind, content = pack.read(oid)
        return NUMBERS[kind], content

    def close(self) -> None:
        self._made.cleanup()

    def is_borrowed(self, oid: Oid) -> bool:
        """Return whether a repository that the store borrows from has the object."""
        return pygit2.Oid(raw=oid) in self._borrowed

    def commits(self) -> Iterator[tuple[int, Oid]]:
        """Yield the seq and the id of each readable commit of editd's."""
        for oid, pack in self._whole.items():
            kind, content = pack.read(oid)
            if kind == "commit":
                with contextlib.suppress(ValueError):
                    yield int(commit_message.parse(CommitObject.decode(content).message).seq), oid

    def _reader(self, name: str, packs: list[str]) -> pygit2.Odb:
        """Return a reader of those packs that have a verified index, and of borrowed objects."""
        objects = os.path.join(self.scratch, name)
        for folder in ("pack", "info"):
            os.makedirs(os.path.join(objects, folder))
        for pack in packs:
            index = pack.removesuffix(".pack") + ".idx"
            if os.path.exists(index) and verify_index(index, pack) is None:
                for path in (pack, index):
                    os.symlink(path, os.path.join(objects, "pack", os.path.basename(path)))
        alternates = os.path.join("info", "alternates")
        with contextlib.suppress(OSError):
            source = os.path.join(self._store, "objects", alternates)
            shutil.copyfile(source, os.path.join(objects, alternates))
        return pygit2.Odb(objects)

    @cached_property
    def _whole(self) -> dict[Oid, Pack]:
        """Every whole object with its pack; slow, because it is read without git."""
        return dict(whole_objects(self.packs(), lambda _: True))


class Salvage(History):
    """The whole parts of a damaged history, for reading."""

    def __init__(self, folder: str, damage: HistoryDamaged) -> None:
        """Open the whole parts of the history in `folder`; `damage` is the reason."""
        self.damage = damage
        self.objects = WholeObjects(folder)
        journal = Journal(os.path.join(folder, "journal"), is_sealed=True)
        index = _copy(os.path.join(folder, "index.db"), os.path.join(self.objects.scratch, "index.db"))
        super().__init__(folder, HistoryParts(self.objects, journal, index, SyncedThrough(folder)))
        with contextlib.suppress(OSError):
            self.measure()
        with contextlib.suppress(HistoryDamaged):
            self.floor = self._read_floor()
        newest = self.newest()
        if newest is not None:
            self._begin_at(newest)
            self._take_in_packed(newest)
        for record in whole_records(journal.folder):
            self._take_in_record(record)
        self._seq = max(self._seq, self.index.last)  # the index may know transactions that are lost

    def entry(self, path: WorkspacePath) -> Entry | None:
        """Return the entry of `path` after the newest transaction, by the index: a folder may be damaged."""
        touched = self.index.touch_at(path, self._seq)
        return super().entry(path) if touched is None else touched[1].after

    def newest(self) -> Oid | None:
        """Return the newest readable commit: head, or the one with the highest seq."""
        with contextlib.suppress(HistoryDamaged, UnknownTransaction):
            head = read_head(self.store)
            if head is not None and self._written(head).seq >= 0:
                return head
        return max(self.objects.commits(), default=(0, None))[1]

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

    def _take_in_record(self, record: Committed) -> None:
        """Load a whole record of the journal, even one after a damaged one.

        A packed one is loaded for its contents, which the pack may have lost.
        """
        self._hold(record, {})
        if record.seq <= self.packed:
            return
        self._head, self._seq = record.commit, record.seq
        with contextlib.suppress(HistoryDamaged):
            splice = self._trees.update((change.path, tree_entry(change)) for change in record.changes)
            self.pending.hold(record.seq, splice.trees.items())
        if self.index.id_of(record.seq) != record.commit.hex():
            self.index.add(transaction_of(record), record.notes)


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


# Open the history; if verification fails, open it read-only.


def open_history(folder: str) -> History:
    """Return the history in the state folder, or a read-only `Salvage` if it is damaged."""
    damages = verify_quick(folder)
    if damages:
        return Salvage(folder, damages[0].refusal())
    try:
        return History.open(folder)
    except HistoryDamaged as damage:
        return Salvage(folder, damage)
