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
from editd.store import transaction_record
from editd.store.forgotten import whole_lines
from editd.store.git_objects import (
    EMPTY_TREE,
    KIND_NUMBERS,
    KINDS,
    CommitObject,
    GitTree,
    ObjectKind,
    Oid,
    object_id,
    oid_of,
    tree_changes,
)
from editd.store.git_repository import read_head
from editd.store.history import History, store_of
from editd.store.index import Index
from editd.store.journal import SEGMENT_BYTES, Journal, whole_records
from editd.store.journal_record import transaction_of
from editd.store.packfile import Pack, verify_index, whole_objects
from editd.store.sync_state import SyncedThrough
from editd.store.transaction_record import entries_of
from editd.store.verify import verify_quick
from editd.values.content import version_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from editd.store.journal_record import Committed
    from editd.values.content import Entry
    from editd.values.path import WorkspacePath


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
        return KIND_NUMBERS[kind], content

    def has(self, oid: Oid) -> bool:
        with contextlib.suppress(KeyError):
            return bool(self.read(oid))
        return False

    def size(self, oid: Oid) -> int:
        return len(self.read(oid)[1])

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
                    yield int(transaction_record.parse(CommitObject.decode(content).message).seq), oid

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
        super().__init__(folder, self.objects, journal, index, SyncedThrough(folder))
        with contextlib.suppress(OSError):
            self.measure()
        with contextlib.suppress(HistoryDamaged):
            self.floor = self._read_floor()
        self.forgotten = whole_lines(self.store)
        self.excluded.open_damaged()
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
            if head is not None and self._parse_message(head).seq >= 0:
                return head
        return max(self.objects.commits(), default=(0, None))[1]

    def _take_in_packed(self, newest: Oid) -> None:
        """Add the commits that the index lacks, as far back from the newest as can be read."""
        oid: Oid | None = newest
        lacking: list[Oid] = []
        while oid is not None:
            try:
                seq = int(self._parse_message(oid).seq)
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
        self._advance(record)
        with contextlib.suppress(HistoryDamaged):
            splice = self._trees.update(entries_of(transaction_of(record)))
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


# Rescue: the objects that a repaired history needs, each from the source that has it whole.


class RescuedObjects:
    """The needed objects that the store's own packs lack: from damaged packs, records, files and elsewhere.

    Each is verified by its id. Both lists get sentences: `done` about recovered objects, `lost` about others.
    """

    def __init__(
        self,
        salvage: Salvage,
        records: Mapping[int, Committed],
        find: Callable[[str], bytes | None],
        own: AbstractSet[Oid],
        gone: AbstractSet[Oid],
        absent: AbstractSet[Oid],
        done: list[str],
        lost: list[str],
    ) -> None:
        """`find` returns the current content of a path; `own` has the objects of the store's whole packs.

        `gone` has the objects that an earlier repair has lost; the `absent` objects must not come back.
        """
        self._salvage = salvage
        self._records = records
        self._find = find
        self._own = own
        self._done, self._lost = done, lost
        self.gone = set(gone)
        self._absent = absent
        self.objects: dict[Oid, tuple[ObjectKind, bytes]] = {}
        """Those to write to a new pack."""

    def take(self, kind: ObjectKind, oid: Oid, content: bytes) -> None:
        if oid not in self._own:
            self.objects[oid] = (kind, content)

    def read(self, oid: Oid) -> bytes:
        """Return an object's verified bytes; keep them if borrowed or rebuilt. Raises KeyError."""
        recovered = self.objects.get(oid)
        if recovered is not None:
            return recovered[1]
        if oid == EMPTY_TREE:
            return b""
        number, content = self._salvage.objects.read(oid)
        kind = KINDS[number]
        if object_id(kind, content) != oid:
            raise KeyError(oid)
        self.take(kind, oid, content)
        return content

    def commit(self, oid: Oid) -> CommitObject:
        return CommitObject.decode(self._salvage.floor.apply_floor(oid, self.read(oid)))

    def walk(self, tree: Oid, before: Oid | None) -> None:
        """Read each new folder in `tree`, or all for the baseline. Raises KeyError, ValueError."""
        if before is not None:
            for _ in tree_changes(self.read, before, tree):
                continue
            return
        for path, oid in self._baseline(tree):
            self.need(oid, path, "the baseline")

    def _baseline(self, tree: Oid) -> Iterator[tuple[str, Oid]]:
        waiting = [(b"", tree)]
        while waiting:
            prefix, oid = waiting.pop()
            folder = GitTree.decode(self.read(oid))
            for name, entry in folder.files().items():
                oid = oid_of(entry.version)
                if not self._is_borrowed(oid):
                    yield os.fsdecode(prefix + name), oid
            waiting.extend((prefix + name + b"/", below) for name, below in folder.folders().items())

    def _is_borrowed(self, oid: Oid) -> bool:
        return oid not in self._own and self._salvage.objects.is_borrowed(oid)

    def need(self, oid: Oid, path: str, where: str) -> bytes | None:
        """Recover a content from any source, so that the store will have it; None if it is lost."""
        if oid in self._own or oid in self.objects or oid in self._absent:
            return b""
        with contextlib.suppress(KeyError):
            return self.read(oid)
        content = self._in_records(oid)
        if content is None:
            held = self._find(path)
            content = held if held is not None and version_of(held) == oid.hex() else None
        if content is not None:
            self.take("blob", oid, content)
            self._done.append(f"The content {oid.hex()[:12]} of {path} in {where} is recovered elsewhere.")
        elif oid not in self.gone:
            self.gone.add(oid)
            self._lost.append(f"The content {oid.hex()[:12]} of {path} in {where}.")
        return content

    def _in_records(self, oid: Oid) -> bytes | None:
        for record in self._records.values():
            for change in record.changes:
                for side in (change.before, change.after):
                    if side is not None and side.version == oid and side.content is not None:
                        return side.content
        return None

    def content(self, oid: Oid, path: str, seq: int) -> bytes | None:
        if self.need(oid, path, f"transaction {seq}") is None or oid in self._absent:
            return None
        return self.read(oid)


# Open the history; if verification fails, open it read-only.


def open_history(folder: str, *, segment_bytes: int = SEGMENT_BYTES) -> History:
    """Return the history in the state folder, or a read-only `Salvage` if it is damaged.

    `segment_bytes` is the size of new segments of the journal.
    """
    damages = verify_quick(folder)
    if damages:
        return Salvage(folder, damages[0].refusal())
    try:
        return History.open(folder, segment_bytes=segment_bytes)
    except HistoryDamaged as damage:
        return Salvage(folder, damage)
