"""The index: the history by path, session, request and time, in SQLite. A cache.

It is written after the journal, and rebuilt from the git commits and the journal if it is missing or old. So
no write waits for a sync; SQLite syncs when it empties its log, so that a power cut leaves an older index and
never a torn one. New transactions wait in memory, and every query flushes them first.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
from typing import TYPE_CHECKING, Any, cast

from editd.errors import Refused
from editd.store import sqlite
from editd.store.index_tables import (
    FILE_COUNTS,
    NOTHING,
    PATH_STEPS,
    TABLES,
    LogQuery,
    PathStep,
    SessionWork,
    TransactionInfo,
    TurnWork,
    UndoQuery,
    decode_text,
    encode_text,
    insert,
    mark_all,
    marks,
    matching_log,
    matching_undo,
    open_database,
    path_step_in,
    refusal_of,
    touch_in,
    transaction_in,
    whole,
)
from editd.store.recent_transactions import FEW_TOUCHES, KEPT_MAX, RecentTransactions
from editd.values.path import WorkspacePath
from editd.values.transaction import Approval, Seq, Transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from editd.values.content import Change, Entry, Version
    from editd.wire.messages import Kind


log = logging.getLogger(__name__)

TOUCHED_MAX = 100_000  # paths in memory, some 15 MB
_Request = tuple[str | None, str | None]  # a session and its request's id

NEVER = 2**62  # a seq that no transaction will have
ASKED_AT_ONCE = 500  # transactions in one query; SQLite takes 999 values in each of its versions
WAITING_MAX = 2_000  # transactions; more are written without waiting for a pause (a query then waits 50 ms)
LOT = 500  # transactions in one write, which takes some 10 ms
BACKLOG_MAX = 20_000  # transactions in memory while writes fail; some 50 MB


class _Forgotten(Exception):
    """The end of a trial, which rolls back the database."""


class Index:
    """The index of the history, with the transactions that are not written to it yet."""

    def __init__(self, path: str) -> None:
        """Open the index at `path`; replace a damaged one, or one of another version, by an empty one."""
        self._database = open_database(path)
        self._used = sqlite.UsedBytes(self._database, TABLES)
        self._waiting: list[tuple[Transaction, bytes]] = []
        self._requests: dict[_Request, int] = {}
        self._touched: set[bytes] = set()  # a cache, so that an edit needs no query
        self._recent = RecentTransactions()
        self.knows_marks = False  # whether `mark` has had the transactions that are marked as reviewed
        self.flaw: Refused | None = None  # the last failure; new transactions wait in memory meanwhile

    def close(self) -> None:
        with contextlib.suppress(Refused):  # the next start adds the missing transactions from the history
            self.flush()
        self._database.close()

    @property
    def stored_bytes(self) -> int:
        """The bytes of the index, as after the last write."""
        return self._used.bytes

    # ── writing ──

    def add(self, transaction: Transaction, notes: bytes = b"") -> None:
        self._waiting.append((transaction, notes))
        if transaction.claims:
            self._recent.clear()  # older ones have another author now
        news = self._recent.news
        news.append(transaction)
        if len(news) >= KEPT_MAX or len(transaction.touches) > FEW_TOUCHES:
            self._recent.take_in()
        author = transaction.authorship
        if author.request_id is not None:
            self._requests[author.session, author.request_id] = transaction.seq
        for touch in transaction.touches:
            self._touched.add(touch.path.raw)

    def flush_if_full(self) -> None:
        """Write some waiting transactions if there are many. Called when no client waits for a reply."""
        if len(self._waiting) >= WAITING_MAX and self.flaw is None:
            with contextlib.suppress(Refused):  # they wait on; the history does not need the index
                self.write_some()

    def mark(self, seqs: Iterable[int], *, is_reviewed: bool = True) -> None:
        """Note for `LogQuery.is_unreviewed` which transactions are marked, until the index is closed."""
        with self._writing():
            self._database.execute("create temp table if not exists reviewed (seq integer primary key)")
            change = "insert or ignore into temp.reviewed values (?)"
            if not is_reviewed:
                change = "delete from temp.reviewed where seq = ?"
            self._database.executemany(change, [(seq,) for seq in seqs])
        self.knows_marks = True

    @property
    def is_waiting(self) -> bool:
        """Whether transactions wait to be written."""
        return bool(self._waiting)

    @property
    def is_backed_up(self) -> bool:
        """Whether writes fail and so many transactions wait that new ones must be refused."""
        return len(self._waiting) >= BACKLOG_MAX

    def flush(self) -> None:
        """Write all waiting transactions. Every query does this first.

        So each query may raise IoError, or HistoryDamaged if the file is no longer a database.
        """
        while self.write_some():
            pass

    def write_some(self) -> bool:
        """Write the oldest waiting transactions; return whether there are more. Raises as `flush`."""
        lot = self._waiting[:LOT]
        if not lot:
            return False
        with self._writing():
            insert(self._database, lot)
            for transaction, _ in lot:
                mark_all(self._database, transaction)
        del self._waiting[:LOT]
        for transaction, _ in lot:
            author = transaction.authorship
            request = author.session, author.request_id
            if self._requests.get(request) == transaction.seq:
                del self._requests[request]
        if len(self._touched) > TOUCHED_MAX:
            self._forget_touched()
        return bool(self._waiting)

    def _forget_touched(self) -> None:
        """Keep the paths of waiting transactions only, which no query finds yet."""
        self._touched = {touch.path.raw for waiting, _ in self._waiting for touch in waiting.touches}

    def give_back(self) -> None:
        """Drop the caches: the touched paths, and the pages of the database."""
        self._forget_touched()
        with contextlib.suppress(sqlite3.Error):
            self._database.execute("pragma shrink_memory")

    @contextlib.contextmanager
    def trial(self) -> Iterator[Callable[[Transaction], None]]:
        """Yield a function that adds a transaction; remove all those at the end."""

        def add(transaction: Transaction) -> None:
            insert(self._database, [(transaction, b"")])
            mark_all(self._database, transaction)

        self.flush()
        self._recent.clear()  # the transactions of the trial are not among them
        with contextlib.suppress(_Forgotten), self._writing():
            yield add
            raise _Forgotten

    def clear(self) -> None:
        """Remove everything, before a rebuild."""
        self._waiting.clear()
        self._recent.clear()
        self._requests.clear()
        self._touched.clear()
        with self._writing():
            self._database.execute("delete from tx")
            self._database.execute("delete from touch")
            self._database.execute("delete from undoing")
            self._database.execute("delete from set_back")
            self._database.execute("delete from landed")

    def list_landed(self, entries: Sequence[tuple[int, int | None, str | None, str]]) -> None:
        """Note entries of the log of all hosts: number, seq on this host, origin and outcome."""
        with self._writing():
            self._database.executemany("insert or replace into landed values (?, ?, ?, ?)", entries)

    def forget_landed(self) -> None:
        """Remove the entries of the log, which this host has left or follows in another form."""
        with self._writing():
            self._database.execute("delete from landed")

    def forget(self, below: int, transactions: int = NEVER) -> bool:
        """Remove at most `transactions` of the oldest ones before `below`; return whether there are more."""
        row = self._one(
            "select seq from tx where seq < ? order by seq limit 1 offset ?", (below, transactions)
        )
        until = below if row is None else row[0]
        self._touched.clear()
        self._recent.clear()
        with self._writing():
            self._database.execute("delete from touch where seq < ?", (until,))
            self._database.execute("delete from undoing where seq < ?", (until,))
            self._database.execute("delete from set_back where seq <= ?", (until,))
            self._database.execute("delete from tx where seq < ?", (until,))
        return row is not None

    def scrub(self, *, pages: bool) -> None:
        """Remove deleted rows from the disk (`sqlite.scrub`). Raises IoError, HistoryDamaged."""
        self.flush()
        with sqlite.refusing("Deleted rows could not be removed from the index of the history"):
            sqlite.scrub(self._database, pages=pages)

    def begin_with(self, transaction: Transaction, notes: bytes) -> None:
        """Make `transaction` the baseline of the history, without its changes."""
        self.flush()
        self._touched.clear()
        self._recent.clear()
        with self._writing():
            self._database.execute("delete from touch where seq = ?", (transaction.seq,))
            insert(self._database, [(transaction, notes)])

    # ── queries ──

    @property
    def first(self) -> int:
        """The lowest seq in the index; `NEVER` if it is empty."""
        row = self._one("select min(seq) from tx", ())
        return NEVER if row is None or row[0] is None else cast("int", row[0])

    def first_of(self, session: str) -> int | None:
        """Return the first indexed transaction of a session."""
        row = self._one("select min(seq) from tx where session = ?", (encode_text(session),))
        return None if row is None else cast("int | None", row[0])

    def last_turn(self, session: str) -> int | None:
        """Return the number of the last turn that the transactions of a session have."""
        row = self._one(
            "select max(turn) from tx where session = ? and turn is not null", (encode_text(session),)
        )
        return None if row is None else cast("int | None", row[0])

    def of_turns(self, session: str, first: int, last: int) -> list[TurnWork]:
        """Return the transactions of these turns of a session, rising."""
        query = (
            "select seq, turn, kind, undone_by, message from tx where session = ? and turn between ? and ?"
            " order by seq"
        )
        rows = self._all(query, (encode_text(session), first, last))
        return [TurnWork(seq, turn, kind, by, decode_text(text)) for seq, turn, kind, by, text in rows]

    @property
    def last(self) -> int:
        """The highest seq in the index; -1 if it is empty."""
        row = self._one("select max(seq) from tx", ())
        return -1 if row is None or row[0] is None else cast("int", row[0])

    def id_of(self, seq: int) -> str | None:
        row = self._one("select id from tx where seq = ?", (seq,))
        return None if row is None else cast("str", row[0])

    def ids_above(self, seq: int) -> list[tuple[int, str]]:
        """Return the seq and the commit of each transaction after `seq`."""
        return self._all("select seq, id from tx where seq > ?", (seq,))

    def transaction(self, seq: int) -> Transaction | None:
        if (recent := self._recent.find_untouched(seq)) is not None:
            return recent
        row = self._one("select * from tx where seq = ?", (seq,))
        return None if row is None else self._transactions([row])[0]

    def small(self, seq: int, touches_max: int) -> Transaction | None:
        """Return a transaction as it was made, or None if it has too many touches, or there is none."""
        transaction = self._recent.transaction(seq)
        if transaction is None:
            count = "select count(*) from (select 1 from touch where seq = ? limit ?)"
            if self._all(count, (seq, touches_max + 1))[0][0] > touches_max:
                return None
            transaction = self.transaction(seq)
        return transaction if transaction is not None and len(transaction.touches) <= touches_max else None

    def transactions(self, seqs: Iterable[int]) -> list[Transaction]:
        """Return the indexed ones of these transactions, rising."""
        return self._transactions(list(self._of("tx", sorted(set(seqs)), "seq")))

    def notes(self, seq: int) -> bytes:
        row = self._one("select notes from tx where seq = ?", (seq,))
        return b"" if row is None else cast("bytes", row[0])

    def of_proposal(self, proposal: int) -> list[int]:
        """Return the seqs of the transactions that landed hunks of a proposal, in order."""
        return [
            row[0] for row in self._all("select seq from tx where proposal = ? order by seq", (proposal,))
        ]

    def count_landed_by(self, rule: str, since_us: int) -> int:
        """Return the number of transactions that a review rule has let land since then."""
        approvals = self._all(
            "select approval from tx where time_us > ? and approval is not null and proposal is null",
            (since_us,),
        )
        return sum(sqlite.decode(row[0], Approval).rule == rule for row in approvals)

    def by_id(self, prefix: str) -> list[int]:
        """Return the seqs of at most two transactions whose id begins with `prefix`, hex digits."""
        rows = self._all(
            "select seq from tx where id >= ? and id < ? order by seq limit 2", (prefix, prefix + "g")
        )
        return [row[0] for row in rows]

    def by_origin(self, prefix: str) -> list[int]:
        """Return the seqs of at most two transactions whose id on another host begins with `prefix`."""
        rows = self._all(
            "select seq from landed where origin >= ? and origin < ? and seq is not null limit 2",
            (prefix, prefix + "g"),
        )
        return [row[0] for row in rows]

    def log_entry_of(self, seq: int) -> tuple[int, str] | None:
        """Return the number and the outcome of a transaction's entry in the log; None if it has none."""
        return cast(
            "tuple[int, str] | None",
            self._row("select number, outcome from landed where seq = ? order by number limit 1", (seq,)),
        )

    def undone_elsewhere(self) -> list[int]:
        """Return the transactions of this host that other hosts undid, but that are not undone whole."""
        rows = self._all(
            "select distinct own.seq from undoing join tx as own on own.seq = undoing.seq"
            " join tx as undo on undo.seq = undoing.by where own.arrival is null and own.undone_by is null"
            " and undo.arrival is not null and undo.undone_by is null",
            (),
        )
        return [row[0] for row in rows]

    def log_numbers_of(self, seqs: Sequence[int]) -> dict[int, int]:
        """Return the numbers of the entries of these transactions, as far as they have landed."""
        rows = self._of("landed", seqs, "number")
        return {row[1]: row[0] for row in reversed(list(rows))}

    def entry(self, number: int) -> tuple[int | None, str] | None:
        """Return the transaction of an entry of the log, if it has one here, and its outcome."""
        return cast(
            "tuple[int | None, str] | None",
            self._row("select seq, outcome from landed where number = ?", (number,)),
        )

    @property
    def last_log_number(self) -> int:
        """The last entry of the log that is noted; -1 if none is."""
        row = self._row("select max(number) from landed", ())
        return -1 if row is None or row[0] is None else cast("int", row[0])

    def by_request(self, request_id: str, session: str | None) -> int | None:
        """Return the transaction of a session's request with this id."""
        waiting = self._requests.get((session, request_id))
        if waiting is not None:
            return waiting
        row = self._row(
            "select seq from tx where request_id = ? and session is ?", (request_id, encode_text(session))
        )
        return None if row is None else cast("int", row[0])

    def requests(self, request_id: str) -> list[int]:
        """Return the transactions of the requests with this id, in all sessions."""
        rows = self._all("select seq from tx where request_id = ? order by seq", (request_id,))
        return [row[0] for row in rows]

    def log(self, wanted: LogQuery, limit: int, *, files: bool = True) -> list[Transaction]:
        """Return the newest `limit` transactions that match `wanted`, newest first.

        Without `files`, the transactions have no touches.
        """
        matching, values = matching_log(wanted, self._times(wanted.since_us, wanted.until_us))
        rows = self._all(f"select tx.* from {matching} order by tx.seq desc limit ?", (*values, limit))  # noqa: S608  # no user input
        return self._transactions(rows) if files else [transaction_in(row, ()) for row in rows]

    def count_matching(self, wanted: LogQuery) -> int:
        """Return the number of transactions that match `wanted`."""
        matching, values = matching_log(wanted, self._times(wanted.since_us, wanted.until_us))
        return cast("int", self._all(f"select count(*) from {matching}", values)[0][0])  # noqa: S608  # no user input

    def is_wide(self, seqs: Sequence[int], touches_max: int) -> bool:
        """Return whether these transactions have more touches together."""
        count = f"select count(*) from (select 1 from touch where seq in ({marks(seqs)}) limit ?)"  # noqa: S608  # ours
        return cast("int", self._all(count, (*seqs, touches_max + 1))[0][0]) > touches_max

    def file_counts(self, seqs: Sequence[int]) -> dict[int, tuple[int, str]]:
        """Return of each transaction with files their number and the first path. A move is one file."""
        counts: dict[int, tuple[int, str]] = {}
        for start in range(0, len(seqs), ASKED_AT_ONCE):
            few = seqs[start : start + ASKED_AT_ONCE]
            rows = self._all(FILE_COUNTS.format(marks(few)), few)
            for seq, count, path in rows:
                counts[seq] = count, os.fsdecode(path)
        return counts

    def _times(self, since_us: int | None, until_us: int | None) -> list[tuple[str, str, int | None]]:
        """Return the conditions for the times of a `log`. If times are in order, seqs are faster."""
        if since_us is None and until_us is None:
            return []
        if self._is_ever_set_back():
            return [("time_us", ">=", since_us), ("time_us", "<=", until_us)]
        first = last = None
        if since_us is not None:
            row = self._one(
                "select seq from tx where time_us >= ? order by time_us, seq limit 1", (since_us,)
            )
            first = NEVER if row is None else cast("int", row[0])
        if until_us is not None:
            newest = self.at_time(until_us)
            last = -1 if newest is None else newest
        return [("seq", ">=", first), ("seq", "<=", last)]

    def set_back(self, since_us: int | None, until_us: int | None) -> list[int]:
        """Return the first transaction after each setback of the clock over either of these times.

        So there are transactions on the wrong side of that time, by their order.
        """
        query = (
            "select seq from set_back where (time_us < ?1 and before_us >= ?1)"
            " or (time_us <= ?2 and before_us > ?2) order by seq"
        )
        return [row[0] for row in self._all(query, (since_us, until_us))]

    def origin_of(self, seq: int) -> TransactionInfo:
        """Return the origin of transaction `seq`, which must be in the history."""
        row = self._one("select kind, actor, session, time_us from tx where seq = ?", (seq,))
        assert row is not None, "callers pass only recorded transactions"
        kind, actor, session, time_us = row
        return TransactionInfo(cast("Kind", kind), decode_text(actor), decode_text(session), time_us)

    def following(self, seq: int, limit: int) -> list[Transaction]:
        """Return the first `limit` transactions after `seq`, rising."""
        rows = self._all("select * from tx where seq > ? order by seq limit ?", (seq, limit))
        return self._transactions(rows)

    def is_touched(self, path: WorkspacePath) -> bool:
        """Return whether any transaction touched this path, so that the store has its bytes."""
        raw = path.raw
        if raw not in self._touched:
            if self._row("select 1 from touch where path = ? limit 1", (raw,)) is None:
                return False
            self._touched.add(raw)
        return True

    def authors(self, seqs: Sequence[int]) -> dict[int, str | None]:
        """Return the session of each of these transactions that the index has."""
        rows: dict[int, str | None] = {}
        for start in range(0, len(seqs), ASKED_AT_ONCE):
            few = seqs[start : start + ASKED_AT_ONCE]
            query = f"select seq, session from tx where seq in ({marks(few)})"  # noqa: S608  # marks only
            rows |= {seq: decode_text(session) for seq, session in self._all(query, few)}
        return rows

    def touched_paths(self) -> list[bytes]:
        """Return each path that any transaction touched."""
        return [row[0] for row in self._all("select distinct path from touch", ())]

    def touches_of(self, versions: Collection[Version]) -> Iterator[tuple[int, Change[Entry]]]:
        """Yield the touches with any of these contents before or after, rising. Reads all touches."""
        for row in self._all("select * from touch order by seq", ()):
            touch = touch_in(row)
            if any(side is not None and side.version in versions for side in (touch.before, touch.after)):
                yield row[1], touch

    def touch_at(self, path: WorkspacePath, seq: int) -> tuple[int, Change[Entry]] | None:
        """Return the last touch of `path` at or before `seq`."""
        row = self._one(
            "select * from touch where path = ? and seq <= ? order by seq desc limit 1", (path.raw, seq)
        )
        return None if row is None else (row[1], touch_in(row))

    def touch_after(self, path: WorkspacePath, seq: int) -> tuple[int, Change[Entry]] | None:
        """Return the first touch of `path` after `seq`."""
        row = self._one(
            "select * from touch where path = ? and seq > ? order by seq limit 1", (path.raw, seq)
        )
        return None if row is None else (row[1], touch_in(row))

    def touches_after(self, path: WorkspacePath, seq: int) -> list[int]:
        """Return the seqs of the transactions that touched `path` after `seq`, rising."""
        rows = self._all("select seq from touch where path = ? and seq > ? order by seq", (path.raw, seq))
        return [row[0] for row in rows]

    def steps(self, path: WorkspacePath, limit: int) -> list[PathStep]:
        """Return the newest `limit` steps of `path`, rising, without the other paths of each transaction."""
        rows = self._all(PATH_STEPS, (path.raw, limit))
        return [path_step_in(row) for row in reversed(rows)]

    def life(self, path: WorkspacePath, after: int, before: int | None) -> list[tuple[Seq, Change[Entry]]]:
        """Return the touches of `path` in (after, before), rising. `before` None: until now."""
        rows = self._all(
            "select * from touch where path = ? and seq > ? and seq < ? order by seq",
            (path.raw, after, NEVER if before is None else before),
        )
        return [(Seq(row[1]), touch_in(row)) for row in rows]

    def deletions(
        self, path: WorkspacePath, after: int, before: int | None
    ) -> list[tuple[Seq, Change[Entry]]]:
        """Return the changes in `life` that left no file at `path`."""
        rows = self._all(
            "select * from touch where path = ? and seq > ? and seq < ? and after is null order by seq",
            (path.raw, after, NEVER if before is None else before),
        )
        return [(Seq(row[1]), touch_in(row)) for row in rows]

    def undoes(self, seq: int) -> tuple[Seq, ...]:
        """Return the transactions that `seq` undid, at least in some paths; linear in the paths of those."""
        row = self._one("select undoes from tx where seq = ?", (seq,))
        assert row is not None, "callers pass only recorded transactions"
        return whole(row[0])

    def version_made_by(self, path: WorkspacePath, version: Version) -> int | None:
        """Return the newest transaction after which `path` held `version`."""
        row = self._one(
            "select seq from touch where path = ? and after = ? order by seq desc limit 1",
            (path.raw, version),
        )
        return None if row is None else cast("int", row[0])

    def version_left_by(self, path: WorkspacePath, version: Version, before: int) -> int | None:
        """Return the newest transaction before `before` that changed `path` from `version`."""
        row = self._one(
            "select max(seq) from touch where path = ? and before = ? and seq < ?",
            (path.raw, version, before),
        )
        return None if row is None else cast("int | None", row[0])

    def leaving(self, after: int) -> set[bytes]:
        """Return all paths that a file may have left after transaction `after`, and perhaps others.

        It may be deleted, moved, overwritten by a move, or put back by an undo.
        """
        rows = self._all(
            "select path from touch where seq > ?1 and (after is null or source is not null)"
            " union select source from touch where seq > ?1 and source is not null"
            " union select path from touch join tx using (seq) where seq > ?1 and undoes != ?2",
            (after, NOTHING),
        )
        return {path for (path,) in rows}

    def moves_from(self, path: WorkspacePath) -> list[tuple[int, WorkspacePath]]:
        """Return all moves away from `path`, rising: the seq and the target."""
        rows = self._all("select seq, path from touch where source = ? order by seq", (path.raw,))
        return [(seq, WorkspacePath(os.fsdecode(moved))) for seq, moved in rows]

    def moves_to(self, path: WorkspacePath) -> list[tuple[int, Change[Entry]]]:
        """Return all moves to `path`, rising: the seq and the touch."""
        query = "select * from touch where path = ? and source is not null order by seq"
        return [(row[1], touch_in(row)) for row in self._all(query, (path.raw,))]

    def changed_paths(self, after: int, through: int) -> Iterator[WorkspacePath]:
        """Yield each path that a transaction in (after, through] touched, once, sorted."""
        for row in self._all(
            "select distinct path from touch where seq > ? and seq <= ? order by path", (after, through)
        ):
            yield WorkspacePath(os.fsdecode(row[0]))

    def in_force(self, chosen: UndoQuery, limit: int = -1) -> list[Transaction]:
        """Return the newest `limit` transactions (-1: all) that match and are not undone, newest first."""
        if limit == 1 and (newest := self.newest_in_force(chosen)) is not None:
            return [newest]
        condition, values = matching_undo(chosen)
        rows = self._all(
            f"select * from tx where {condition} order by seq desc limit ?",  # noqa: S608  # ours
            (*values, limit),
        )
        return self._transactions(rows)

    def newest_in_force(self, chosen: UndoQuery) -> Transaction | None:
        """Return the result of `in_force` with the limit 1 if it is in memory; otherwise None."""
        return self._recent.newest_in_force(chosen)

    def has_stayed(self, path: WorkspacePath, seq: int) -> bool:
        """Return whether memory shows that no transaction after `seq` touched `path`."""
        return self._recent.has_stayed(path, seq)

    def sessions(self) -> list[SessionWork]:
        """Return every session with a transaction, by name."""
        rows = self._all(
            "select session, min(seq), max(seq) from tx where session is not null group by session", ()
        )
        return [
            SessionWork(decode_text(name), newest.actor, self.origin_of(first).time_us, newest.time_us)
            for name, first, last in rows
            for newest in [self.origin_of(last)]
        ]

    def at_time(self, time_us: int) -> int | None:
        """Return the newest transaction that is dated at this time or before; None if there is none."""
        query = "select max(seq) from tx where time_us <= ?"
        if not self._is_ever_set_back():
            query = "select seq from tx where time_us <= ? order by time_us desc, seq desc limit 1"
        row = self._one(query, (time_us,))
        return None if row is None else cast("int | None", row[0])

    def before_time(self, time_us: int) -> int | None:
        """Return the newest transaction that, like all before it, is dated at this time or before."""
        if not self._is_ever_set_back():
            return self.at_time(time_us)
        row = self._one("select min(seq) from tx where time_us > ?", (time_us,))
        return self.at_time(time_us) if row is None or row[0] is None else cast("int", row[0]) - 1

    def _is_ever_set_back(self) -> bool:
        return self._one("select 1 from set_back limit 1", ()) is not None

    def touch_in(self, path: WorkspacePath, seq: int) -> Change[Entry] | None:
        """Return the touch of `path` by transaction `seq`."""
        row = self._one("select * from touch where path = ? and seq = ?", (path.raw, seq))
        return None if row is None else touch_in(row)

    def found_files(self) -> list[WorkspacePath]:
        """Return the files that were found in the workspace and that no request has written since."""
        rows = self._all(
            "select touch.path from tx join touch using (seq) where tx.kind in ('baseline', 'outside')"
            " and touch.after is not null and not exists"
            " (select 1 from touch later where later.path = touch.path and later.seq > touch.seq)", (),
        )  # fmt: skip
        return [WorkspacePath.parse(os.fsdecode(row[0])) for row in rows]

    def kind_of(self, seq: int) -> Kind | None:
        row = self._one("select kind from tx where seq = ?", (seq,))
        return None if row is None else cast("Kind", row[0])

    def count(self, after: int = 0) -> int:
        """Return the number of transactions after `after`, by default the baseline."""
        return cast("int", self._all("select count(*) from tx where seq > ?", (after,))[0][0])

    def _transactions(self, rows: Sequence[Sequence[Any]]) -> list[Transaction]:
        """Convert rows of `tx` to transactions, with their touches."""
        touches: dict[int, list[Change[Entry]]] = {row[0]: [] for row in rows}
        for touch in self._of("touch", list(touches), "path"):
            touches[touch[1]].append(touch_in(touch))
        return [transaction_in(row, touches[row[0]]) for row in rows]

    def _of(self, table: str, seqs: Sequence[int], order: str) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of these transactions, in batches, and in `order` within each batch."""
        for start in range(0, len(seqs), ASKED_AT_ONCE):
            few = seqs[start : start + ASKED_AT_ONCE]
            yield from self._all(
                f"select * from {table} where seq in ({marks(few)}) order by {order}",  # noqa: S608  # ours
                few,
            )

    def _one(self, query: str, values: Sequence[Any]) -> tuple[Any, ...] | None:
        self.flush()
        return self._row(query, values)

    def _row(self, query: str, values: Sequence[Any]) -> tuple[Any, ...] | None:
        """Return one row without flushing first."""
        try:
            return cast("tuple[Any, ...] | None", self._database.execute(query, values).fetchone())
        except sqlite3.DatabaseError as error:
            raise self._note_flaw(error, "read") from error

    def _all(self, query: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        self.flush()
        try:
            return self._database.execute(query, values).fetchall()
        except sqlite3.DatabaseError as error:
            raise self._note_flaw(error, "read") from error

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Write in one SQLite transaction. Raises IoError, or HistoryDamaged if it is no database."""
        try:
            with sqlite.writing(self._database):
                yield
            self._used.measure()
        except sqlite3.DatabaseError as error:
            raise self._note_flaw(error, "written") from error
        self.flaw = None

    def _note_flaw(self, error: sqlite3.DatabaseError, failed_action: str) -> Refused:
        self.flaw = refusal_of(error, failed_action)
        return self.flaw
