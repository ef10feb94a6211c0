"""The packing process: it tails the journal, turns committed records into git objects, and combines packs.

`python -m editd.store.pack_worker STATE_FOLDER`, framed messages on stdin and stdout (`system.frames`).
As a thread of the daemon it cost more than half of the throughput at eight clients, in a prototype; as a
niced process it costs a seventh.

A pack is durable, and its `.keep` protects it from any gc, before head names a commit in it. Only then the
process reports to the daemon, which can reuse the journal's segments (C3).
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import sys
import tempfile
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

import pygit2

from editd.errors import HistoryDamaged, Refused
from editd.store.git_objects import EMPTY_TREE, CommitObject, ObjectKind, Oid, Trees
from editd.store.git_repository import (
    drop_packs,
    exclusive_lock,
    move_head,
    open_store,
    read_head,
    shared_lock,
    write_manifest,
)
from editd.store.journal import Frame, JournalPosition, frames, read_while_written, select_committed
from editd.store.packfile import PackWriter, offsets_in, release, tidy
from editd.store.transaction_record import Committed, commit_of, entries_of, parse, transaction_of
from editd.system.confinement import confine
from editd.system.fast_exit import exit_fast
from editd.system.files import sync_path
from editd.system.flock import take
from editd.system.frames import read_frame, write_frame

if TYPE_CHECKING:
    from collections.abc import Iterable


log = logging.getLogger(__name__)


@dataclass
class Packer:
    """The state of the packing process: head after its last pack, and the trees at head."""

    folder: str

    def __post_init__(self) -> None:
        self._store = os.path.join(self.folder, "store.git")
        self._packs = os.path.join(self._store, "objects", "pack")
        self._repository = open_store(self._store)
        self._head, self.packed, root = self._where()
        self._trees = Trees(root, self._tree)
        self._new_trees: dict[Oid, bytes] = {}
        self._before: dict[tuple[ObjectKind, bytes], tuple[Oid, bytes]] = {}  # in this pack, by path
        self._is_head_unsure = False  # it may have moved, and not be durable
        self._kept: list[str] = []  # packs reachable from head that still have a `.keep`

    def pack(self, start: JournalPosition, until: JournalPosition, through: int) -> None:
        """Pack every transaction up to `through` from the journal between the positions.

        Raises HistoryDamaged if a record does not give the commit that it names; head does not move then.
        """
        if self._is_head_unsure:
            move_head(self._store, self._head)
            self._is_head_unsure = False
        self._release()
        records = select_committed(_reading(self.folder, start, until))
        unpacked = [records[seq] for seq in sorted(records) if self.packed < seq <= through]
        if not unpacked:
            if self.packed < through:
                raise HistoryDamaged(f"The journal has no transaction {self.packed + 1}.")
            return
        writer = PackWriter(self._packs)
        try:
            for record in unpacked:
                self._add(writer, record)
            name = writer.finish(keep=True)
            write_manifest(self._store)
            move_head(self._store, self._head)
        except BaseException:
            writer.abandon()
            with contextlib.suppress(OSError):
                tidy(self._packs)
            self._is_head_unsure = True
            self._before.clear()
            self._head, self.packed, root = self._where()
            self._trees = Trees(root, self._tree)
            self._new_trees.clear()
            raise
        self._new_trees.clear()  # the pack has them now
        self._before.clear()
        if name is not None:
            self._kept.append(name)
        self._release()

    def _release(self) -> None:
        """Remove each `.keep` that is no longer needed. Raises OSError; the next call removes the others."""
        while self._kept:
            release(self._packs, self._kept[-1])
            self._kept.pop()

    def _add(self, writer: PackWriter, record: Committed) -> None:
        if record.seq != self.packed + 1:
            raise HistoryDamaged(f"The journal goes from transaction {self.packed} to {record.seq}.")
        transaction = transaction_of(record)
        splice = self._trees.update(entries_of(transaction))
        oid, content = commit_of(transaction, record.notes, splice.root, self._head)
        if oid != record.commit:
            raise HistoryDamaged(f"Transaction {record.seq} does not give the commit {record.commit.hex()}.")
        for change in record.changes:
            for side in (change.before, change.after):
                if side is not None and side.content is not None:
                    self._add_version(writer, "blob", change.path, side.version, side.content)
        oids = {raw: tree for tree, raw in splice.trees.items()}
        for path in splice.folders:
            folder = self._trees.folder(path)
            raw = b"" if folder is None else b"".join(folder.entries)
            if raw in oids:
                self._add_version(writer, "tree", path, oids.pop(raw), raw)
        for raw, tree in oids.items():  # a folder that is now at another path, too
            writer.add("tree", raw, tree)
        if splice.root == EMPTY_TREE:
            writer.add("tree", b"", EMPTY_TREE)
        writer.add("commit", content, oid)
        self._new_trees.update(splice.trees)
        self._head, self.packed = oid, record.seq

    def _add_version(
        self, writer: PackWriter, kind: ObjectKind, path: bytes, oid: Oid, content: bytes
    ) -> None:
        """Add the content of a path to the pack, if possible as a delta to its previous one there."""
        writer.add(kind, content, oid, self._before.get((kind, path)))
        self._before[kind, path] = oid, content

    def _where(self) -> tuple[Oid, int, Oid]:
        """Read head's id, seq and tree from the store."""
        head = read_head(self._store)
        if head is None:
            raise HistoryDamaged("The history has no head.", data={"file": self._store})
        commit = CommitObject.decode(self._repository.odb.read(pygit2.Oid(raw=head))[1])
        return head, parse(commit.message).seq, commit.tree

    def _tree(self, oid: Oid) -> bytes:
        known = self._new_trees.get(oid)
        return known if known is not None else self._repository.odb.read(pygit2.Oid(raw=oid))[1]


def _reading(folder: str, start: JournalPosition, until: JournalPosition) -> list[Frame]:
    """Read the frames between the positions while the daemon writes the journal.

    It may release the segments of packed transactions meanwhile (C3), which renames or removes them, and
    `start` may be in such a segment.
    """
    journal = os.path.join(folder, "journal")
    read = read_while_written(lambda: list(frames(journal, start, until)))
    if read is None:
        raise FileNotFoundError(errno.ENOENT, "segments are renamed faster than they are read", journal)
    return read


# Repacking: libgit2 combines many small packs into one, with deltas, so that the store stays fast and small.
#
# Packing writes a pack for each burst of edits. When there are many packs, the small ones are combined. Large
# packs are left alone, so that each byte is rewritten only a few times, however long the history is. The
# search for deltas takes ten times as long as packing, so it runs in a thread of the packing process while
# packing continues.

PACKS_MAX = 50  # small ones; git itself begins to repack at 50 packs (gc.autoPackLimit)
SMALL_BYTES = 32 * 1024 * 1024
SMALL_OBJECTS = 25_000  # of some 10 KB: ten seconds of a thread, and 100 MB of memory while it works
_NICE = 19
_COUNT_AT = 8 + 255 * 4


class Repacker:
    """The thread that combines small packs, one batch after another, while there are many."""

    def __init__(self, store: str) -> None:
        self._store = store
        self._most = PACKS_MAX
        self._thread: threading.Thread | None = None

    @property
    def is_under_way(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def begin(self) -> None:
        """Start the thread, unless it runs already."""
        if not self.is_under_way:
            self._thread = threading.Thread(target=self._work, daemon=True)
            self._thread.start()

    def _work(self) -> None:
        os.setpriority(os.PRIO_PROCESS, 0, _NICE)  # this thread's, on Linux
        try:
            while self._are_many():
                repack(open_store(self._store))
            self._most = PACKS_MAX
        except (Refused, OSError, KeyError, ValueError, pygit2.GitError) as error:
            log.warning("small packs could not be combined: %s", error)  # in the daemon's log
            self._most += PACKS_MAX  # they stay, which costs only space and time

    def _are_many(self) -> bool:
        with exclusive_lock(self._store):
            return len(_small_packs(_folder_of(self._store))) > self._most


def repack(repository: pygit2.Repository) -> None:
    """Combine the smallest packs of the store. Raises OSError, GitError, Refused.

    The new pack is durable before an old one is removed; a reader that has an old one open keeps it.
    """
    store = os.path.normpath(repository.path)
    folder = _folder_of(store)
    with exclusive_lock(store):
        small = _smallest(folder)
    with tempfile.TemporaryDirectory(prefix="tmp_", dir=folder) as made:
        repository.pack(made, lambda builder: _add_all(builder, folder, small), n_threads=1)
        names = sorted(os.listdir(made), key=lambda name: name.endswith(".idx"))  # the index last
        for name in names:
            sync_path(os.path.join(made, name))
            os.chmod(os.path.join(made, name), 0o600)
        with shared_lock(store), exclusive_lock(store):
            for name in names:
                os.rename(os.path.join(made, name), os.path.join(folder, name))
                small.discard(name.rpartition(".")[0])  # the same objects give the same name
            sync_path(folder)
            drop_packs(store, small)


def _folder_of(store: str) -> str:
    return os.path.join(store, "objects", "pack")


def _add_all(builder: pygit2.PackBuilder, folder: str, names: Iterable[str]) -> None:
    # Sorted: the same objects make the same pack.
    for oid in sorted({oid for name in names for oid in offsets_in(os.path.join(folder, f"{name}.idx"))}):
        builder.add(pygit2.Oid(raw=oid))


def _smallest(folder: str) -> set[str]:
    """Return the smallest packs, at least two, until their total is no longer small."""
    chosen: set[str] = set()
    objects = size = 0
    for stem, (count, bytes_) in sorted(_small_packs(folder).items(), key=lambda item: item[1]):
        if len(chosen) > 1 and (objects > SMALL_OBJECTS or size > SMALL_BYTES):
            break
        chosen.add(stem)
        objects += count
        size += bytes_
    return chosen


def _small_packs(folder: str) -> dict[str, tuple[int, int]]:
    """Return the small, complete packs with their objects and bytes, without those kept until head moves."""
    packs: dict[str, tuple[int, int]] = {}
    with os.scandir(folder) as entries:
        names = {entry.name: entry for entry in entries}
    for name, entry in names.items():
        stem, _, suffix = name.rpartition(".")
        is_whole = suffix == "pack" and f"{stem}.idx" in names and f"{stem}.keep" not in names
        if is_whole and (size := entry.stat().st_size) < SMALL_BYTES:
            with open(os.path.join(folder, f"{stem}.idx"), "rb") as file:
                count = _count(file)
            if 0 < count < SMALL_OBJECTS:
                packs[stem] = (count, size)
    return packs


def _count(file: BinaryIO) -> int:
    """Read the number of objects from the end of an index's fan-out table; 0 if it is truncated."""
    file.seek(_COUNT_AT)
    return int.from_bytes(file.read(4))


def main() -> None:
    """Serve requests until stdin closes.

    `{start, until, through}` → `{packed, until}` or `{failed, damaged}`.
    """
    # A packer outlives a killed daemon until its pack is done, and could then move head back behind the
    # next daemon's. So the lock allows one at a time, and head is read under it.
    confine([sys.argv[1]])
    alone = take(os.path.join(sys.argv[1], "packing"), wait=True)
    assert alone is not None
    store = os.path.join(sys.argv[1], "store.git")
    packs = os.path.join(store, "objects", "pack")
    tidy(packs)
    consolidation = Repacker(store)
    packer: Packer | None = None
    while (request := read_frame(sys.stdin.buffer)) is not None:
        with exclusive_lock(store):
            try:
                packer = packer or Packer(sys.argv[1])
                answer = _pack(packer, request)
            except (Refused, KeyError, ValueError, pygit2.GitError) as error:
                answer = {"failed": f"the store cannot be read: {error}", "damaged": True}
        write_frame(sys.stdout.buffer, answer)
        if "packed" in answer:
            consolidation.begin()
    with exclusive_lock(store):  # so that no repacking is interrupted between its renames
        if consolidation.is_under_way:
            tidy(packs)
        exit_fast()


def _pack(packer: Packer, request: dict[str, Any]) -> dict[str, object]:
    try:
        packer.pack(
            JournalPosition(*request["start"]), JournalPosition(*request["until"]), request["through"]
        )
    except Refused as refusal:
        return {"failed": refusal.text(), "damaged": True}
    except OSError as error:
        return {"failed": str(error), "damaged": False}
    return {"packed": packer.packed, "until": request["until"]}


if __name__ == "__main__":
    main()
