"""The repair of a damaged history: it recovers everything it can, and lists the losses.

It runs while no other process has the history open. Damaged files are moved into `damaged/<time>/`, never
deleted. These are the sources, each verified by the known ids and checksums:

- content is rescued (`salvage.RescuedObjects`): the undamaged parts of packs; the records of the journal;
  contents in the workspace's files and in the user's own repositories;
- derived data is rebuilt here: folders and commits from the index; transactions from the whole records, or
  from the index, verified by their commit ids; head, the manifest, the mark, and all indexes.

`Repair` computes the plan and the losses without writing; `carry_out` executes the plan.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

from msgspec import Struct

from editd.errors import HistoryDamaged, join_names
from editd.store import sqlite
from editd.store.acknowledged import read_acknowledged
from editd.store.excluded import EXCLUDED, absent_contents, read_whole_lines, rewrite_excluded
from editd.store.forgotten import FORGOTTEN, whole_lines, write_forgotten
from editd.store.git_objects import (
    EMPTY_TREE,
    Oid,
    Trees,
    oid_of,
)
from editd.store.git_repository import (
    MANIFEST,
    REF,
    SHALLOW,
    create_store,
    move_head,
    read_head,
    read_manifest,
    write_history_start,
    write_manifest,
)
from editd.store.index_tables import without_claim
from editd.store.journal import (
    Journal,
    JournalPosition,
    acknowledged_seq,
    frames,
    select_committed,
    whole_records,
)
from editd.store.journal_record import (
    ChangeRecord,
    Committed,
    approval_record,
    attribution_record,
    change_record,
    part_records,
    transaction_of,
)
from editd.store.pack_worker import Packer
from editd.store.pack_writer import UNFINISHED, PackWriter
from editd.store.packfile import FOREIGN, Pack, offsets_in, verify_index, verify_pack
from editd.store.proposal_seals import PROPOSALS_FILE, flaws_in
from editd.store.proposals import ProposalStore
from editd.store.salvage import RescuedObjects, Salvage
from editd.store.transaction_record import commit_of, entries_of, parse
from editd.store.verify import verify_quick
from editd.store.verify_history import verify_full
from editd.system.files import replace_file
from editd.system.filesystem import NO_SUCH_VERB, open_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from collections.abc import Set as AbstractSet

    from editd.values.transaction import Transaction

_INDEX = ("index.db", "index.db-wal", "index.db-shm")


class _Link(Struct):
    """One transaction of the repaired chain: its commit and its tree."""

    commit: Oid
    tree: Oid


@dataclass
class Repair:
    """A repair, planned on construction and executed by `carry_out`. Both may raise OSError."""

    folder: str
    find: Callable[[str], bytes | None]  # returns the current content of a path
    has_index: bool = True  # otherwise the next start makes it, and nothing is wrong with it
    done: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._store = os.path.join(self.folder, "store.git")
        self._packs = os.path.join(self._store, "objects", "pack")
        self._journal = os.path.join(self.folder, "journal")
        self._aside: list[str] = []  # files to move before new ones are written
        self._replaced: list[str] = []  # packs to remove after their whole objects are copied
        self._indexes: dict[str, bytes] = {}  # rebuilt indexes of whole packs, by path
        self._own: set[Oid] = set()  # the objects that the store's own packs will have
        self._whole: dict[Oid, Pack] = {}  # whole objects of damaged packs
        gone: AbstractSet[Oid] = frozenset()  # lost in an earlier repair
        self._forgotten = whole_lines(self._store)
        self._excluded = read_whole_lines(self._store)
        self._records: list[Committed] | None = None  # of a new journal; None keeps the old one
        self._pack_through = 0
        self._head: Oid | None = None
        self._begins_anew = False
        self._is_floor_damaged = False
        self._floor: Oid | None = None
        self._floor_known: Oid | None = None  # by the manifest
        listed: dict[str, int] = {}
        with contextlib.suppress(HistoryDamaged):
            if (manifest := read_manifest(self._store)) is not None:
                gone, listed, self._floor_known = manifest.lost, manifest.packs, manifest.floor
        self._plan_files()
        self._plan_packs(listed)
        self._salvage = Salvage(self.folder, HistoryDamaged(""))
        self._by_seq = {record.seq: record for record in whole_records(self._journal)}
        self._rescued = RescuedObjects(
            self._salvage, self._by_seq, self.find, self._own, gone,
            absent_contents(self._store, is_strict=False), self.done, self.lost,
        )  # fmt: skip
        try:
            end = self._plan_chain()
            if not self._begins_anew:
                self._plan_journal(*end)
            if self.has_index and not self.done and not self.lost:
                self._plan_index()
        finally:
            self._salvage.close()
        self._is_history_whole = not self.done and not self.lost
        self._plan_proposals()

    # ── the plan ──

    def _plan_proposals(self) -> None:
        """Plan to copy the whole proposals into a new database if the present one is damaged."""
        path = os.path.join(self.folder, PROPOSALS_FILE)
        with sqlite.refusing(f"The proposals, {path}, cannot be read"):
            self._flaws = flaws_in(path)
        if self._flaws:
            self.done.append(f"{path} is made anew from its whole proposals.")
            self.lost += [flaw.sentence for flaw in self._flaws if flaw.key is not None]

    def _plan_files(self) -> None:
        for damage in verify_quick(self.folder, 0):
            name = os.path.relpath(damage.file, self._store)
            self._is_floor_damaged |= name == SHALLOW
            if name in ("HEAD", "config", MANIFEST, REF, SHALLOW, FORGOTTEN, EXCLUDED):
                self._put_aside(damage.file)
                self.done.append(f"{damage.file} is rebuilt: {damage.what}.")

    def _plan_index(self) -> None:
        """Plan to rebuild the index if it alone is damaged."""
        problems, _ = verify_full(self.folder)
        path = os.path.join(self.folder, _INDEX[0])
        if any(path in problem for problem in problems):
            self.done.append(f"{path} is rebuilt.")

    def _plan_packs(self, listed: dict[str, int]) -> None:
        with contextlib.suppress(FileNotFoundError):
            for name in sorted(os.listdir(self._packs)):
                stem, _, suffix = name.rpartition(".")
                path = os.path.join(self._packs, stem)
                if suffix == "pack":
                    self._plan_pack(path, listed.get(stem))
                elif suffix == "idx" and not os.path.exists(path + ".pack"):
                    self._put_aside(path + ".idx")

    def _plan_pack(self, path: str, listed: int | None) -> None:
        """Plan the repair of one pack. `listed` is its size in the manifest, None if it is not listed."""
        has_index = os.path.exists(path + ".idx")
        if not has_index and listed is None:
            return  # left from a crash, and not part of the history
        flaw = verify_pack(path + ".pack")
        index_flaw = verify_index(path + ".idx", path + ".pack") if has_index else "it is missing"
        if flaw is None and (listed not in (None, os.path.getsize(path + ".pack")) or index_flaw == FOREIGN):
            flaw = "the pack or its index belongs to another pack"
        is_indexed = index_flaw is None
        if flaw is None and is_indexed:
            self._own |= offsets_in(path + ".idx").keys()
            return
        pack = Pack(path + ".pack")
        self._own |= set(pack)
        if flaw is None:
            self._put_aside(path + ".idx")
            self._indexes[path + ".idx"] = pack.index()
            self.done.append(f"{path}.idx is rebuilt from its pack.")
            pack.close()
            return
        self._whole |= dict.fromkeys(pack, pack)
        self._replaced.append(path)
        self.done.append(f"The whole objects of {path}.pack are copied to a new pack: {flaw}.")

    def _put_aside(self, path: str) -> None:
        if os.path.lexists(path):
            self._aside.append(path)

    def _plan_chain(self) -> tuple[int, _Link]:
        """Verify or rebuild each packed transaction from the baseline on; return the last good one."""
        packed, ids = self._packed_commits()
        link: _Link | None = None
        last = -1
        for seq in range(self._first(ids), packed + 1):
            following = self._link(seq, ids.get(seq), link)
            if following is None:
                break
            link = following
            self._need_contents(seq)
            last = seq
        if link is None:
            self._begins_anew = True
            top = self._top(packed)
            self.done.append("The history begins anew with the current files.")
            self.lost.append(f"Transactions 1 to {top} and the baseline: the baseline cannot be read.")
            return -1, _Link(b"", EMPTY_TREE)
        with contextlib.suppress(HistoryDamaged):
            if read_head(self._store) != link.commit:
                self._put_aside(os.path.join(self._store, REF))
        self._head = link.commit
        return last, link

    def _packed_commits(self) -> tuple[int, dict[int, Oid]]:
        """Return the seq of the newest packed transaction, and the known commits up to it, by seq."""
        head: Oid | None = None
        with contextlib.suppress(HistoryDamaged):
            head = read_head(self._store)
        if head is None:
            head = self._salvage.newest()
        packed, ids = self._packed_below(head)
        if ids:
            return packed, ids
        named_by = [] if head is None else self._salvage.index.by_id(head.hex())
        if named_by and head is not None:
            return named_by[0], {named_by[0]: head}
        of_record = [record.seq for record in self._by_seq.values() if record.commit == head]
        if of_record:
            return of_record[0], {}
        if head != self._salvage.newest():  # head names an unknown commit
            return self._packed_below(self._salvage.newest())
        return self._salvage.index.last, {}

    def _packed_below(self, head: Oid | None) -> tuple[int, dict[int, Oid]]:
        """Return the highest seq, -1 for none, and the readable commits from `head` back, by seq."""
        ids: dict[int, Oid] = {}
        oid = head
        while oid is not None:
            try:
                commit = self._rescued.commit(oid)
                seq = int(parse(commit.message).seq)
            except (KeyError, ValueError):
                break
            ids[seq], oid = oid, commit.parent
        return max(ids, default=-1), ids

    def _first(self, ids: dict[int, Oid]) -> int:
        """Return the first transaction of the history: the floor, searched if the file with it is damaged."""
        if self._is_floor_damaged and ids:
            first = next((seq for seq, oid in ids.items() if oid == self._floor_known), min(ids))
            self._floor = ids[first] if first else None
            return first
        return self._salvage.floor.seq

    def _top(self, least: int) -> int:
        with contextlib.suppress(HistoryDamaged):
            mark = read_acknowledged(self._journal) if os.path.isdir(self._journal) else None
            least = max(least, 0 if mark is None else mark.seq)
        return max(least, self._salvage.index.last, *self._by_seq, 0)

    def _link(self, seq: int, known: Oid | None, before: _Link | None) -> _Link | None:
        """Return a transaction's commit and tree, rebuilt if necessary; None if they are lost."""
        transaction, notes = self._transaction(seq)
        oid = known or (None if transaction is None else oid_of(transaction.id))
        if oid is None:
            return None
        try:
            commit = self._rescued.commit(oid)
            is_baseline = before is None or parse(commit.message).is_first_scan
            self._rescued.walk(commit.tree, None if is_baseline or before is None else before.tree)
        except (KeyError, ValueError):
            if before is None or transaction is None:
                return None
            made = self._made_anew(transaction, notes, before)
            if made is None or made.commit != oid:
                return None
            self.done.append(f"The commit and the folders of transaction {seq} are rebuilt.")
            return made
        if before is not None and commit.parent != before.commit:
            return None
        return _Link(oid, commit.tree)

    def _transaction(self, seq: int) -> tuple[Transaction | None, bytes]:
        record = self._by_seq.get(seq)
        if record is not None and self._salvage.index.id_of(seq) in (None, record.commit.hex()):
            return transaction_of(record), record.notes
        known = self._salvage.index.transaction(seq)
        return None if known is None else without_claim(known), self._salvage.index.notes(seq)

    def _made_anew(self, transaction: Transaction, notes: bytes, before: _Link) -> _Link | None:
        trees = Trees(before.tree, self._rescued.read)
        try:
            splice = trees.update(entries_of(transaction))
        except KeyError:
            return None
        commit, content = commit_of(transaction, notes, splice.root, before.commit)
        if commit.hex() != transaction.id:
            return None
        for oid, raw in splice.trees.items():
            self._rescued.take("tree", oid, raw)
        if splice.root == EMPTY_TREE:
            self._rescued.take("tree", EMPTY_TREE, b"")
        self._rescued.take("commit", commit, content)
        return _Link(commit, splice.root)

    def _need_contents(self, seq: int) -> None:
        transaction, _ = self._transaction(seq)
        for touch in () if transaction is None else transaction.touches:
            for entry in (touch.before, touch.after):
                if entry is not None:
                    self._rescued.need(oid_of(entry.version), touch.path.text, f"transaction {seq}")

    # ── the journal ──

    def _plan_journal(self, packed: int, link: _Link) -> None:
        if self._is_journal_whole(packed, link):
            return
        top = self._top(packed)
        self._records = []
        for seq in range(packed + 1, top + 1):
            record, made = self._record(seq, link)
            if record is None or made is None:
                self._lose(seq, top)
                break
            self._records.append(record)
            link = made
        self.done.append(f"The journal is rebuilt with {len(self._records)} transactions.")

    def _is_journal_whole(self, packed: int, link: _Link) -> bool:
        """Return whether the start can follow the journal, behind the last packed transaction."""
        index = self._salvage.index
        seq = packed
        if not os.path.isdir(self._journal):
            return False
        try:
            read = list(frames(self._journal, JournalPosition(0, 0)))
            standing = select_committed(read)
            mark = read_acknowledged(self._journal)
        except (HistoryDamaged, OSError):
            return False
        for number, record in sorted(standing.items()):
            if number <= packed:
                if index.id_of(number) not in (None, record.commit.hex()):
                    return False
            elif number != seq + 1:
                return False
            else:
                seq = number
        hot = [record for number, record in sorted(standing.items()) if number > packed]
        return (mark is None or seq >= acknowledged_seq(mark, read)) and self._do_follow(hot, link)

    def _do_follow(self, records: Sequence[Committed], link: _Link) -> bool:
        """Return whether each record has the commit that its changes make of the one before."""
        made: dict[Oid, bytes] = {}
        trees = Trees(link.tree, lambda oid: made[oid] if oid in made else self._rescued.read(oid))
        parent = link.commit
        for record in records:
            transaction = transaction_of(record)
            try:
                splice = trees.update(entries_of(transaction))
            except KeyError:
                return False
            made |= splice.trees
            parent, _ = commit_of(transaction, record.notes, splice.root, parent)
            if parent != record.commit:
                return False
        return True

    def _record(self, seq: int, before: _Link) -> tuple[Committed | None, _Link | None]:
        """Return a transaction's record, original or rebuilt, if it follows the previous one."""
        transaction, notes = self._transaction(seq)
        made = None if transaction is None else self._made_anew(transaction, notes, before)
        if transaction is None or made is None:
            return None, None
        known = self._by_seq.get(seq)
        if known is not None and known.commit == made.commit:
            return known, made
        changes: list[ChangeRecord] = []
        for touch in transaction.touches:
            content = None
            if touch.after is not None:
                content = self._rescued.content(oid_of(touch.after.version), touch.path.text, seq)
                if content is None:
                    self._pack_through = seq  # so that recovery does not need the content
            if touch.before is not None:
                self._rescued.need(oid_of(touch.before.version), touch.path.text, f"transaction {seq}")
            changes.append(change_record(touch, None, content))
        author = transaction.authorship
        self.done.append(f"Transaction {seq} is rebuilt from the index.")
        parts, hunks = part_records(transaction.parts)
        record = Committed(
            seq, made.commit, transaction.kind, author.actor, author.session, author.message,
            author.request_id, transaction.time_us, tuple(transaction.undoes), tuple(changes), notes,
            parts=parts, hunks=hunks, approval=approval_record(author.approval),
            attribution=attribution_record(author.attribution), claims=tuple(transaction.claims),
            arrival=author.arrival, turn=author.turn,
        )  # fmt: skip
        return record, made

    def _lose(self, first: int, last: int) -> None:
        for seq in range(first, last + 1):
            transaction, _ = self._transaction(seq)
            paths = [] if transaction is None else [touch.path.text for touch in transaction.touches]
            named_paths = join_names(paths) or "its changes are unknown"
            self.lost.append(f"Transaction {seq}: {named_paths}. The files stay as they are.")

    # ── execution ──

    def carry_out(self) -> str | None:
        """Execute the plan; return the folder with the damaged files, or None if none was moved."""
        aside = None if self._is_history_whole else self._repair_history()
        if self._flaws:
            # The owner has accepted the loss. This replaces the damaged database.
            ProposalStore(self.folder, time.time_ns() // 1000, is_accepted=True).close()
            folder = os.path.join(self.folder, "damaged")
            aside = aside or os.path.join(folder, max(os.listdir(folder)))
        return aside

    def _repair_history(self) -> str | None:
        """Execute the plan for the history; return the folder with the damaged files."""
        aside = self._new_aside()
        if self._begins_anew:
            for name in ("store.git", "journal", *_INDEX):
                self._move(os.path.join(self.folder, name), aside)
            return aside
        for path in self._replaced:
            for suffix in (".pack", ".idx", ".keep"):
                self._keep(path + suffix, aside)
        made = self._write_pack()
        position = self._write_journal(aside)  # before its sources are moved
        for path in self._aside:
            self._move(path, aside)
        for path, index in self._indexes.items():
            replace_file(path, index, temporary=UNFINISHED)
        create_store(self._store)
        if self._floor is not None:
            write_history_start(self._store, self._floor)
        if self._forgotten:
            write_forgotten(self._store, self._forgotten)
        if self._excluded:
            rewrite_excluded(self._store, self._excluded)
        gone = {os.path.basename(path) for path in self._replaced} - {made}
        write_manifest(self._store, without=gone, lost=frozenset(self._rescued.gone))
        assert self._head is not None, "without a head the history begins anew"
        move_head(self._store, self._head)
        for path in self._replaced:
            for suffix in (".idx", ".pack", ".keep") if os.path.basename(path) != made else ():
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path + suffix)  # `aside` has a hard link to it
        for name in _INDEX:
            self._move(os.path.join(self.folder, name), aside)
        if self._pack_through:
            Packer(self.folder).pack(JournalPosition(0, 0), position, self._pack_through)
        return aside if os.path.isdir(aside) else None

    def _new_aside(self) -> str:
        """Return an unused folder name, even after an interrupted repair within the same second."""
        name = os.path.join(self.folder, "damaged", time.strftime("%Y-%m-%dT%H-%M-%S"))
        places = (name if number == 1 else f"{name}-{number}" for number in count(1))
        return next(path for path in places if not os.path.lexists(path))

    def _write_pack(self) -> str | None:
        """Write the recovered objects to a pack; return its name, which is the old one for equal objects."""
        with PackWriter(self._packs) as writer:
            for oid, pack in self._whole.items():
                writer.add(*pack.read(oid), oid)
            for oid, (kind, content) in self._rescued.objects.items():
                writer.add(kind, content, oid)
            made = writer.finish()
        for pack in set(self._whole.values()):
            pack.close()
        return made

    def _write_journal(self, aside: str) -> JournalPosition:
        """Write the new journal, and exchange it with the damaged one atomically; return its end."""
        if self._records is None:
            return JournalPosition(0, 0)
        os.makedirs(aside, 0o700, exist_ok=True)
        journal = Journal(os.path.join(aside, "journal"))
        for record in self._records:
            journal.append([record])
        position = journal.position
        journal.close()
        _put_in_place(aside, self.folder, b"journal")
        return position

    def _keep(self, path: str, aside: str) -> None:
        """Hard-link a file into `aside`, so that it survives its replacement."""
        if os.path.lexists(path):
            target = os.path.join(aside, os.path.relpath(path, self.folder))
            os.makedirs(os.path.dirname(target), 0o700, exist_ok=True)
            os.link(path, target)

    def _move(self, path: str, aside: str) -> None:
        if not os.path.lexists(path):
            return
        target = os.path.join(aside, os.path.relpath(path, self.folder))
        os.makedirs(os.path.dirname(target), 0o700, exist_ok=True)
        os.rename(path, target)


def _put_in_place(source: str, target: str, name: bytes) -> None:
    """Exchange the entries of both folders with this name; move it if `target` has none."""
    with open_folder(source) as own, open_folder(target) as other:
        try:
            own.exchange(name, other, name)
        except FileNotFoundError:
            own.move(name, other, name)
        except OSError as error:
            if error.errno not in NO_SUCH_VERB:
                raise
            # A crash between these moves leaves `target` without a journal, but both of them in `source`.
            with contextlib.suppress(FileNotFoundError):
                other.move(name, own, name + b".damaged")
            own.move(name, other, name)
        for folder in (own, other):
            descriptor = folder.open_itself()
            os.fsync(descriptor)
            os.close(descriptor)
