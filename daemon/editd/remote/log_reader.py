"""Questions about the log that need no server: the files of an entry, and the entry of each line of a file.

All hosts have the same entries in the same order, so all of them answer alike. The transactions that wait on
this host come after the last entry.

The index of the log has the form of the history's index, with the numbers of the entries. It is made at the
first question, and is only a cache.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec.structs import replace

from editd.advice import Advice, step_term
from editd.errors import Refused, UnknownTransaction
from editd.remote.entries import changes_of, differences
from editd.remote.merged_tree import MergedTree
from editd.store.git_objects import EMPTY_TREE, CommitObject, oid_of
from editd.store.git_repository import HistoryStart
from editd.store.index import Index
from editd.store.line_blame import LineBlame
from editd.values.content import Change, Entry
from editd.values.transaction import Arrival, CommitId, Part, Seq, Transaction, entry_number

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from editd.remote.entries import LogEntry
    from editd.remote.exchange import Exchange
    from editd.store.git_objects import Oid
    from editd.system.frames import Frame
    from editd.values.content import Version
    from editd.values.path import WorkspacePath

BLAME_SECONDS_MAX = 60.0


class LogReader:
    """The log as one host has it, to be read. It is a `store.line_blame.LineHistory`."""

    def __init__(self, folder: str, exchange: Exchange) -> None:
        """`folder` is the state folder. Raises IoError if the index cannot be made."""
        self.floor = HistoryStart()
        self.head = 0
        self.index = Index(os.path.join(folder, "remote", "index.db"))
        self._exchange = exchange
        self._objects = exchange.objects

    def close(self) -> None:
        self.index.close()

    # ── the files of an entry ──

    def changes_between(self, start: str, end: str) -> Frame:
        """Return the differences between two states of the files that this host shares.

        Each is the number of an entry, as `@17`, or the id of a commit of this host's history. Raises
        UnknownTransaction.
        """
        before, after = self._tree(start), self._tree(end)
        return {
            "changes": [
                [path.text, self._state(old), self._state(new)]
                for path, old, new in differences(self._objects, before, after)
                if self._exchange.replica.is_shared(path)
            ]
        }

    def _tree(self, reference: str) -> Oid:
        """Return the tree of an entry or a commit. Raises UnknownTransaction."""
        if not reference.startswith("@"):
            return CommitObject.decode(self._objects.commit(oid_of(reference))).tree
        number, taken = entry_number(reference), self._exchange.replica.taken.number
        if number is None or number > taken:
            raise UnknownTransaction(
                f"This host knows no entry {reference} of the log; the last one is @{taken}.",
                hint=Advice(step_term("take_in")),
                data={"tx": reference},
            )
        return self._exchange.tree_at(number)

    def _state(self, entry: Entry | None) -> tuple[int, bytes] | None:
        return None if entry is None else (entry.mode, self._objects.blob(oid_of(entry.version)))

    # ── the entry of each line ──

    def blame(self, path: WorkspacePath) -> Frame:
        """Return the origin of each line of a file: its place in `authors`.

        These have the entry (None while it waits), the id of the transaction, its host, actor, session and
        time. The version is None if this host does not share the file.
        """
        replica = self._exchange.replica
        file = replica.files.entry(path) if replica.is_shared(path) else None
        if file is None:
            return {"version": None}
        self._catch_up_index()
        taken = self.head = replica.taken.number
        with self.index.trial() as add:
            for transaction in self._tentative(path):
                add(transaction)
                self.head = int(transaction.seq)
            search = LineBlame(self, path, file.version)
            if not search.run_for(BLAME_SECONDS_MAX):
                raise Refused(f"{path} has too many versions in the log to go through.")
            made = self.index.transactions(search.seqs)
        places = {int(one.seq): index for index, one in enumerate(made)}
        return {
            "version": file.version,
            "lines": [places[seq] for seq in search.seqs],
            "authors": [_author(one, taken) for one in made],
        }

    def entry_at(self, path: WorkspacePath, seq: int) -> Entry | None:
        """Return the entry of `path` after a place in the log, for a path that the log has touched."""
        earlier = self.index.touch_at(path, seq)
        if earlier is not None:
            return earlier[1].after
        later = self.index.touch_after(path, seq)
        return None if later is None else later[1].before

    def content(self, version: Version) -> bytes | None:
        try:
            return self._objects.blob(oid_of(version))
        except KeyError:
            return None

    def is_dropped(self, version: Version) -> bool:
        """Return False: the log has all contents that it names."""
        del version  # of the history alone
        return False

    def _catch_up_index(self) -> None:
        """Add the entries that the index lacks. One of another log is made anew."""
        commits, last = list(self._exchange.chain), self.index.last
        if last >= len(commits) or (last >= 0 and self.index.id_of(last) != commits[last].hex()):
            self.index.clear()
            last = -1
        tree = EMPTY_TREE if last < 0 else self._exchange.tree_at(last)
        for entry in self._exchange.entries_from(last + 1, tree):
            self.index.add(self._transaction(entry))
            self.index.flush_if_full()
        self.index.flush()

    def _transaction(self, entry: LogEntry) -> Transaction:
        """Return an entry as a transaction of the log. The files of the first one are no changes."""
        message, number = entry.message, entry.number
        touches: tuple[Change[Entry], ...] = ()
        if number > 0:
            touches = tuple(changes_of(self._objects, entry.tree_before, entry.tree, message))
        undone = [self._exchange.landed.get(origin, number) for origin in entry.undone]
        undoes, parts = _undoing(undone, message.parts, number)
        return Transaction(
            Seq(number), CommitId(entry.commit.hex()), message.kind, message.authorship,
            entry.arrival.time_us, touches, undoes, parts=parts,
        )  # fmt: skip

    def _tentative(self, path: WorkspacePath) -> Iterator[Transaction]:
        """Yield the waiting transactions that a file depends on, as they are merged into the log."""
        replica = self._exchange.replica
        tree = MergedTree(self._objects, replica.taken.tree)
        numbers = dict(self._exchange.landed)
        for one in replica.waiting.connected([path])[1]:
            before = {change.path: tree.entry(change.path) for change in one.changes}
            if one.is_aside or not tree.merge(one.changes):
                continue
            seq = Seq(self.head + 1)
            undone = [numbers.get(origin, int(seq)) for origin in one.undone]
            numbers[one.origin] = int(seq)
            authorship = replace(one.authorship, arrival=Arrival(0, one.host, one.origin, one.time_us))
            touches = tuple(
                Change(change.path, before[change.path], tree.entry(change.path), change.source)
                for change in one.changes
            )
            undoes, parts = _undoing(undone, one.parts, int(seq))
            yield Transaction(
                seq, one.origin, one.kind, authorship, one.time_us, touches, undoes, parts=parts
            )


def _undoing(
    undone: Sequence[int], parts: Sequence[Part], number: int
) -> tuple[tuple[Seq, ...], tuple[Part, ...]]:
    """Return what a transaction undoes, and the parts of it, by places in the log.

    The given parts have positions from 1.
    """
    known = {position: Seq(seq) for position, seq in enumerate(undone, 1) if seq < number}
    undone_in_part = tuple(replace(part, seq=known[part.seq]) for part in parts if part.seq in known)
    return tuple(known.values()), undone_in_part


def _author(made: Transaction, taken: int) -> list[object]:
    author, arrival = made.authorship, made.authorship.arrival
    assert arrival is not None, "each entry has one"
    return [
        int(made.seq) if made.seq <= taken else None, arrival.origin, arrival.host,
        author.actor, author.session, made.time_us,
    ]  # fmt: skip
