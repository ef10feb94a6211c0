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
from dataclasses import dataclass
from typing import Any

import pygit2

from editd.errors import HistoryDamaged, Refused
from editd.store.git_objects import EMPTY_TREE, CommitObject, ObjectKind, Oid, Trees
from editd.store.git_repository import (
    exclusive_lock,
    move_head,
    open_store,
    read_head,
    write_manifest,
)
from editd.store.journal import Frame, JournalPosition, frames, read_while_written, select_committed
from editd.store.journal_record import Committed, transaction_of
from editd.store.pack_cleanup import tidy
from editd.store.pack_writer import PackWriter, release
from editd.store.repack import Repacker
from editd.store.transaction_record import commit_of, entries_of, parse
from editd.system.confinement import confine
from editd.system.fast_exit import exit_fast
from editd.system.flock import take
from editd.system.frames import read_frame, write_frame

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
