"""The verification of the whole history for `check`: each object, each transaction, and the index.

Packing may go on meanwhile, if no pack is removed and the history keeps its start. What an earlier
verification has seen whole need not be read again object by object (`store.verified`).
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from typing import TYPE_CHECKING, Any

import pygit2
from msgspec import Struct
from msgspec.structs import replace

from editd.errors import join_names
from editd.store import index_tables, sqlite, transaction_record
from editd.store.commit_log import transaction_of_changes
from editd.store.excluded import absent_contents
from editd.store.git_objects import (
    EMPTY_TREE,
    KINDS,
    CommitObject,
    GitTree,
    Oid,
    TreeChange,
    object_id,
    oid_of,
    tree_changes,
)
from editd.store.git_repository import open_store, own_objects, read_head, read_history_start, read_manifest
from editd.store.packfile import offsets_in
from editd.store.verified import PackMark, Verified, digest_of, present_packs
from editd.store.verify import MENDS, verify_quick

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from editd.values.transaction import Transaction


LOT = 1_000  # transactions that are compared with the index at once


class Verification(Struct, frozen=True):
    """The result: the problems as sentences, and whether the history itself is damaged.

    Damage of the index, or of borrowed objects, does not count: no recorded transaction depends on them.
    """

    problems: list[str]
    is_damaged: bool = False
    known: Verified | None = None  # the mark of the earlier verification that this one continues
    mark: Verified | None = None  # for the next one, if there is no problem


def verify_full(folder: str, through: int | None = None) -> tuple[list[str], bool]:
    """Verify everything that is packed: files, objects, the chain, the contents, and the index.

    The index is compared up to transaction `through`; None means all packed ones. Returns the problems, and
    whether the history itself is damaged.
    """

    def begin(packs: Collection[str]) -> Callable[[], list[str]]:
        problems = damaged_objects(os.path.join(folder, "store.git"), packs)
        return lambda: problems

    done = verify_since(folder, through, None, begin)
    return done.problems, done.is_damaged


def verify_since(
    folder: str,
    through: int | None,
    known: Verified | None,
    begin: Callable[[Collection[str]], Callable[[], list[str]]],
) -> Verification:
    """Verify what an earlier verification, with the mark `known`, does not cover; without one, everything.

    `begin` starts the verification of the objects in these packs. It returns a function that waits for it
    and returns the problems.
    """
    damages = verify_quick(folder, None)
    if damages:
        return Verification([damage.sentence for damage in damages], is_damaged=True)
    store = os.path.join(folder, "store.git")
    head = read_head(store)  # first: packing goes on, and all up to this head is in these packs
    packs = present_packs(store)
    walk = _Walk(folder, through, known)
    wait = begin(walk.unknown(packs))
    walk.follow(head, packs)
    problems = wait()
    if walk.is_stale:
        return verify_since(folder, through, None, begin)
    problems = problems or walk.problems
    if problems:
        return Verification(problems, is_damaged=True)
    problems = [*walk.of_baseline(), *walk.of_index()]
    return Verification(problems, known=walk.known, mark=None if problems else walk.mark(packs))


def damaged_objects(store: str, packs: Collection[str]) -> list[str]:
    """Verify each object in these packs of the store by its id; return the problems."""
    odb = own_objects(store)
    problems: list[str] = []
    for name in packs:
        for raw in offsets_in(os.path.join(store, "objects", "pack", f"{name}.idx")):
            oid = pygit2.Oid(raw=raw)
            try:
                kind, content = odb.read(oid)
                is_sound = object_id(KINDS[kind], content) == raw
            except (KeyError, ValueError, pygit2.GitError):
                is_sound = False
            if not is_sound:
                problems.append(f"The object {oid} in {store} is damaged. {MENDS}")
    return problems


class _Step(Struct, frozen=True):
    """A transaction of the chain, as its commit has it."""

    oid: Oid
    commit: CommitObject
    message: transaction_record.ParsedMessage


class _Walk:
    """The verification of the chain from head to the baseline, and of the index against it.

    With the mark of an earlier verification it ends at the last transaction that is still known. If the mark
    turns out to belong to another history, the walk `is_stale`.
    """

    def __init__(self, folder: str, through: int | None, known: Verified | None) -> None:
        self._store = os.path.join(folder, "store.git")
        self._repository = open_store(self._store)
        self._own = own_objects(self._store)
        manifest = read_manifest(self._store)
        self._gone: dict[str, str] = {}  # the version by the path
        self._replaced: dict[str, int] = {}  # versions that the store does not own, by their last transaction
        lost = frozenset[bytes]() if manifest is None else manifest.lost
        # Contents that the packs need not have: lost in a repair, forgotten, or excluded.
        self._lost = lost | absent_contents(self._store)
        self._floor = read_history_start(self._store)  # the start of a compacted history
        self._conditions = digest_of([*self._lost, self._floor.commit or b""])
        self._through = through
        self._index = _IndexComparison(os.path.join(folder, "index.db"), through)
        self._seqs: dict[Oid, int] = {}  # the transactions of the followed commits
        self._scans = set[Oid]() if known is None else set(map(oid_of, known.scans))
        self.known = known if known is not None and known.conditions == self._conditions else None
        self.is_stale = False
        self.problems: list[str] = []  # those of the chain; if it has none, those of contents

    def unknown(self, packs: Mapping[str, PackMark]) -> list[str]:
        """Return the packs whose objects the mark does not cover. All, and no mark, if it is of no use."""
        if self.known is not None and self.known.since(packs) < self._floor.seq:
            self.known = None
        return [
            name for name, pack in packs.items() if self.known is None or not self.known.covers(name, pack)
        ]

    def follow(self, head: Oid | None, packs: Mapping[str, PackMark]) -> None:
        """Verify each transaction from `head` down to those that are known."""
        contents: list[str] = []
        since = None if self.known is None else self.known.since(packs)
        if self.known is not None:
            self.is_stale = not self._has_scans()
        if not self.is_stale:
            self.problems = self._of_chain(head, since, contents) or contents

    def _has_scans(self) -> bool:
        """Return whether the history has each baseline of the mark, and each of their contents."""
        try:
            return not any(map(self._missing_in, self._scans))
        except (KeyError, ValueError, pygit2.GitError):
            return False

    def mark(self, packs: Mapping[str, PackMark]) -> Verified | None:
        """Return the mark for the next verification, if this one has found no problem."""
        compared = [oid for oid, seq in self._seqs.items() if self._through is None or seq <= self._through]
        if not compared:  # the transactions that were compared with the index have been packed meanwhile
            return self.known
        newest = max(compared, key=self._seqs.__getitem__)
        return Verified(
            self._seqs[newest],
            newest.hex(),
            time.time_ns() // 1000,
            {name: replace(pack, first=self._first(name, pack)) for name, pack in packs.items()},
            self._conditions,
            sorted(tree.hex() for tree in self._scans),
        )

    def _first(self, name: str, pack: PackMark) -> int:
        """Return the first transaction with its commit in the pack; 0 if there is none."""
        if self.known is not None and self.known.covers(name, pack):
            return self.known.packs[name].first
        objects = offsets_in(os.path.join(self._store, "objects", "pack", f"{name}.idx"))
        return min((self._seqs[oid] for oid in objects.keys() & self._seqs.keys()), default=0)

    def _of_chain(self, head: Oid | None, since: int | None, contents: list[str]) -> list[str]:
        """Return the problems of the chain; add those of contents to `contents`."""
        problems: list[str] = []
        expected: int | None = None
        oid = head
        following: _Step | None = None
        while oid is not None:
            try:
                commit = CommitObject.decode(self._read(oid))
                step = _Step(oid, commit, transaction_record.parse(commit.message))
            except (KeyError, ValueError, pygit2.GitError) as error:
                name = "head" if expected is None else f"transaction {expected}"
                return [f"The commit {oid.hex()} of {name} in {self._store} cannot be read: {error}. {MENDS}"]
            seq = step.message.seq
            if expected is not None and seq != expected:
                problems.append(f"The commit {oid.hex()} is transaction {seq}, where {expected} was to be.")
            if following is not None:
                contents += self._of_contents(following, step.commit.tree)
            self._seqs[oid] = seq
            if self.known is not None and seq == since:
                self.is_stale |= oid_of(self.known.commit) not in self._seqs
                return problems
            following, expected, oid = step, seq - 1, commit.parent
        self.is_stale |= since is not None
        if following is None or self.is_stale:
            return problems
        contents += self._of_contents(following, None)
        if expected != -1 and following.oid != self._floor.commit and not problems:
            seq = following.message.seq
            problems.append(f"The history begins with transaction {seq}, not with the baseline.")
        return problems

    def _of_contents(self, step: _Step, before: Oid | None) -> list[str]:
        """Return the problems of a transaction's contents; compare its rows in the index.

        `before` is the tree of the one before; None for the first transaction.
        """
        problems: list[str] = []
        changes: list[TreeChange] = []
        try:
            if before is not None and not step.message.is_first_scan:
                changes += tree_changes(self._read, before, step.commit.tree)
                problems += self._missing_of(step.message.seq, changes)
            elif step.commit.tree != EMPTY_TREE:
                self._scans.add(step.commit.tree)
                self._gone |= self._missing_in(step.commit.tree)
        except (KeyError, ValueError, pygit2.GitError) as error:
            name = f"A folder of transaction {step.message.seq} in {self._store}"
            return [f"{name} cannot be read: {error}. {MENDS}"]
        transaction = transaction_of_changes(step.oid, step.message, changes)
        self._index.add(transaction, step.message.notes.encode())
        return problems

    def _missing_of(self, seq: int, changes: list[TreeChange]) -> Iterator[str]:
        """Yield the new contents of a transaction that the store lacks; old ones belong to earlier ones."""
        for path, former, made in changes:
            if former is not None and pygit2.Oid(hex=former.version) not in self._own:
                self._replaced.setdefault(former.version, seq)
            if (
                made is None
                or pygit2.Oid(hex=made.version) in self._own
                or oid_of(made.version) in self._lost
            ):
                continue
            yield (
                f"The content {made.version} of {os.fsdecode(path)} in transaction {seq} is missing in "
                f"{self._store}. `editctl check --repair` looks for it elsewhere."
            )

    def _missing_in(self, tree: Oid) -> dict[str, str]:
        """Return the files of the baseline with missing content; read each of its folders."""
        gone: dict[str, str] = {}
        waiting = [(b"", tree)]
        while waiting:
            prefix, oid = waiting.pop()
            folder = GitTree.decode(self._read(oid))
            for name, entry in folder.files().items():
                oid = oid_of(entry.version)
                if pygit2.Oid(raw=oid) not in self._repository.odb and oid not in self._lost:
                    gone[os.fsdecode(prefix + name)] = entry.version
            waiting.extend((prefix + name + b"/", below) for name, below in folder.folders().items())
        return gone

    def of_baseline(self) -> Iterator[str]:
        """Yield sentences about borrowed contents of the baseline that are missing now."""
        needed = {path: self._replaced[one] for path, one in self._gone.items() if one in self._replaced}
        unneeded = sorted(self._gone.keys() - needed.keys())
        lenders = f"the repositories in {self._store}/objects/info/alternates"
        if unneeded:
            yield (
                f"The baseline's content of {join_names(unneeded)} was borrowed from {lenders} and is gone "
                "there. No transaction needs it. `editctl check --repair` takes it from the files that still "
                "hold it."
            )
        if needed:
            seqs = join_names([str(seq) for seq in sorted(set(needed.values()))])
            yield (
                f"The baseline's content of {join_names(sorted(needed))} was borrowed from {lenders} and is "
                f"gone there. The undo of these transactions needs it, and so does `restore`: {seqs}. "
                "Bring the objects back into the repository, for example by `git fetch`. "
                "`editctl check --repair` records the content as lost if no file holds it."
            )

    def of_index(self) -> list[str]:
        """Return a sentence if the index differs from the history."""
        problem = self._index.problem(is_whole=self.known is None)
        return [] if problem is None else [problem]

    def _read(self, oid: Oid) -> bytes:
        return self._floor.apply_floor(oid, bytes(self._own.read(pygit2.Oid(raw=oid))[1]))


_TX = "select seq, id, kind, actor, session, message, request_id, time_us, undoes, notes, claimed_by from tx"
_TOUCH = "select path, seq, before_mode, before, after_mode, after, source from touch"


class _IndexComparison:
    """The comparison of the index with the transactions of the history, from the newest to the oldest."""

    def __init__(self, path: str, through: int | None) -> None:
        self._path = path
        self._through = through
        self._newest: int | None = None  # of the transactions so far
        self._oldest: int | None = None
        self._claimed: dict[int, tuple[Any, ...]] = {}  # the columns that a claim has changed
        self._tx: list[tuple[Any, ...]] = []  # the rows to compare next
        self._touch: list[tuple[Any, ...]] = []
        self._differs_at: int | None = None
        self._error: sqlite3.Error | None = None

    def add(self, transaction: Transaction, notes: bytes) -> None:
        """Compare the next older transaction, at once or with those after it."""
        seq = int(transaction.seq)
        self._newest = seq if self._newest is None else self._newest
        row = index_tables.transaction_row(transaction)
        for claimed in transaction.claims:  # the oldest claim of a change counts, and comes last here
            self._claimed[int(claimed)] = (index_tables.CLAIMED, *row[3:5])
        if self._through is not None and seq > self._through:
            return
        self._oldest = seq
        if seq in self._claimed and transaction.kind == index_tables.CLAIMABLE:
            row = (*row[:2], *self._claimed[seq], *row[5:])
        self._tx.append((*row, notes))
        for path, _, *sides, source in index_tables.touch_rows(transaction):
            before_mode, before, _, after_mode, after, _ = sides
            self._touch.append((path, seq, before_mode, before, after_mode, after, source))
        if len(self._tx) >= LOT:
            self._compare()

    def problem(self, *, is_whole: bool) -> str | None:
        """Return a sentence about the difference in the oldest transaction; None if there is none.

        If the walk `is_whole`, there are no rows of older transactions.
        """
        self._compare()
        flaw = None
        try:
            flaw = self._own_flaw(is_whole=is_whole)
        except sqlite3.Error as error:
            self._error = error
        if self._error is not None:
            if not sqlite.is_damage(self._error):
                return f"{self._path} could not be compared with the history: {self._error}."
            flaw = str(self._error)
        elif flaw is None and self._differs_at is not None:
            flaw = f"its transaction {self._differs_at} differs from the history"
        return flaw and (
            f"{self._path} is damaged: {flaw}. No transaction is lost by this. "
            "`editctl check --repair` rebuilds it from the history."
        )

    def _own_flaw(self, *, is_whole: bool) -> str | None:
        """Return the flaw of the database itself; note rows of transactions before the oldest one."""
        with contextlib.closing(sqlite.connect_to_read(self._path)) as database:
            (flaw,) = database.execute("pragma integrity_check(1)").fetchone()
            for table in ("tx", "touch") if is_whole else ():
                query = f"select min(seq) from {table} where seq < ?"  # noqa: S608  # ours
                (seq,) = database.execute(query, (self._oldest or 0,)).fetchone()
                self._differs_at = self._differs_at if seq is None else seq
            return None if flaw == "ok" else str(flaw)

    def _compare(self) -> None:
        """Compare the rows that wait. Each lot is read by itself: a long read would keep SQLite's log."""
        if not self._tx or self._error is not None:
            return
        rows, touched = self._tx, self._touch
        ends = rows[-1][0], rows[0][0]
        self._tx, self._touch = [], []
        try:
            with contextlib.closing(sqlite.connect_to_read(self._path)) as database:
                fetched = database.execute(f"{_TX} where seq between ? and ?", ends).fetchall()
                query = f"{_TOUCH} where seq between ? and ?"
                written_touches = database.execute(query, ends).fetchall()
        except sqlite3.Error as error:
            self._error = error
            return
        newest = self._newest or 0
        since = {row[0] for row in fetched if row[-1] is not None and row[-1] > newest}  # claimed meanwhile
        differing = {row[0] for row in set(rows) ^ {row[:-1] for row in fetched}} - since
        differing |= {row[1] for row in set(touched) ^ set(written_touches)}
        self._differs_at = min(differing, default=self._differs_at)
