"""The packing process: it tails the journal and turns committed records into git objects.

`python -m editd.store.pack_worker STATE_FOLDER`, framed messages on stdin and stdout (`system.frames`).
As a thread of the daemon it cost more than half of the throughput at eight clients, in a prototype; as a
niced process it costs a seventh.

A pack is durable, and its `.keep` protects it from any gc, before head names a commit in it. Only then the
process reports to the daemon, which can reuse the journal's segments (C3).
"""

from __future__ import annotations

import contextlib
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pygit2

from editd.errors import HistoryDamaged, Refused
from editd.store.commit_message import parse
from editd.store.git_objects import EMPTY_TREE, CommitObject, Oid, Trees
from editd.store.git_repository import exclusive_lock, move_head, open_store, read_head, write_manifest
from editd.store.history import commit_of, tree_entry
from editd.store.journal import Frame, JournalPosition, committed, frames
from editd.store.journal_record import Committed, transaction_of
from editd.store.packfile import PackWriter, release, tidy
from editd.store.repack import Repacker
from editd.system.files import take
from editd.system.frames import read_frame, write_frame
from editd.system.process import exit_fast

if TYPE_CHECKING:
    from collections.abc import Iterator


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
        records = committed(_reading(self.folder, start, until))
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
            self._head, self.packed, root = self._where()
            self._trees = Trees(root, self._tree)
            self._new_trees.clear()
            raise
        self._new_trees.clear()  # the pack has them now
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
        splice = self._trees.update((change.path, tree_entry(change)) for change in record.changes)
        oid, content = commit_of(transaction_of(record), record.notes, splice.root, self._head)
        if oid != record.commit:
            raise HistoryDamaged(f"Transaction {record.seq} does not give the commit {record.commit.hex()}.")
        for change in record.changes:
            for side in (change.before, change.after):
                if side is not None and side.content is not None:
                    writer.add("blob", side.content, side.version)
        for tree, raw in splice.trees.items():
            writer.add("tree", raw, tree)
        if splice.root == EMPTY_TREE:
            writer.add("tree", b"", EMPTY_TREE)
        writer.add("commit", content, oid)
        self._new_trees.update(splice.trees)
        self._head, self.packed = oid, record.seq

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


def _reading(folder: str, start: JournalPosition, until: JournalPosition) -> Iterator[Frame]:
    return frames(os.path.join(folder, "journal"), start, until)


def main() -> None:
    """Serve requests until stdin closes.

    `{start, until, through}` → `{packed, until}` or `{failed, damaged}`.
    """
    # A packer outlives a killed daemon until its pack is done, and could then move head back behind the
    # next daemon's. So the lock allows one at a time, and head is read under it.
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
                answer = _packed(packer, request)
            except (Refused, KeyError, ValueError, pygit2.GitError) as error:
                answer = {"failed": f"the store cannot be read: {error}", "damaged": True}
        write_frame(sys.stdout.buffer, answer)
        if "packed" in answer:
            consolidation.begin()
    with exclusive_lock(store):  # so that no repacking is interrupted between its renames
        if consolidation.is_under_way:
            tidy(packs)
        exit_fast()


def _packed(packer: Packer, request: dict[str, Any]) -> dict[str, object]:
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
