"""The tables of the index: their SQL, the form of their rows, and the marks of what is undone at present."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sqlite3
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct
from msgspec.structs import replace

from editd.advice import Advice, command_term
from editd.errors import HistoryDamaged
from editd.store import sqlite
from editd.values.content import Change, Entry, GitMode, Version
from editd.values.path import WorkspacePath
from editd.values.transaction import (
    Approval,
    Arrival,
    Attribution,
    Authorship,
    CommitId,
    Part,
    Seq,
    Transaction,
    TurnMark,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from editd.errors import Refused
    from editd.wire.messages import Kind

SCHEMA = 11
CLAIMABLE: Kind = "outside"
CLAIMED: Kind = "exec"  # the kind of such a change after its claim
NOBODY = "outside"  # the actor of such a change before its claim

TABLES = """
create table tx (
    seq integer primary key, id text not null, kind text not null, actor text not null, session text,
    message text not null, request_id text, time_us integer not null, undoes text not null,
    undone_by integer, notes blob not null, proposal integer, approval blob, attribution blob,
    claims text, claimed_by integer, arrival blob, turn integer, model text
);
create unique index tx_by_id on tx(id);
create index tx_by_request on tx(request_id) where request_id is not null;
create index tx_by_session on tx(session, seq) where session is not null;
create index tx_by_actor on tx(actor, seq);
create index tx_by_kind on tx(kind, seq);
create index tx_by_time on tx(time_us);
create index tx_by_turn on tx(session, turn) where turn is not null;
create index tx_by_proposal on tx(proposal, seq) where proposal is not null;
create table touch (
    path blob not null, seq integer not null, before_mode integer, before text, before_permissions integer,
    after_mode integer, after text, after_permissions integer, source blob,
    undone_by integer, primary key (path, seq)
) without rowid;
create index touch_by_seq on touch(seq);
create index touch_by_source on touch(source, seq) where source is not null;
create table landed (
    number integer primary key, seq integer, origin text, outcome text not null
);
create index landed_by_seq on landed(seq) where seq is not null;
create index landed_by_origin on landed(origin) where origin is not null;
create table set_back (
    seq integer primary key, before_us integer not null, time_us integer not null
);
create table undoing (seq integer not null, by integer not null, primary key (seq, by)) without rowid;
"""
_TURN = ("turn integer", "model text")
_ADDED = {  # version: the columns that it lacks
    6: ("attribution blob", "claims text", "claimed_by integer", "arrival blob", *_TURN),
    7: ("claims text", "claimed_by integer", "arrival blob", *_TURN),
    8: ("arrival blob", *_TURN),
    9: _TURN,
    10: _TURN,
}
_NEW = {  # version: the tables that it and those before it lack
    8: "".join(re.findall(r"create (?:table|index) landed.*?;", TABLES, re.DOTALL)),
    9: "".join(re.findall(r"create table set_back.*?;", TABLES, re.DOTALL)),  # empty: times rose until then
    10: "".join(re.findall(r"create index tx_by_turn.*?;", TABLES)),
}
NAMES = frozenset(re.findall(r"create (?:unique )?(?:table|index) (\w+)", TABLES))


class LogQuery(Struct, frozen=True):
    """The filters of a `log`; None, or no name, means all."""

    before: int | None = None
    after: int | None = None
    paths: tuple[WorkspacePath, ...] = ()
    sessions: tuple[str, ...] = ()
    actors: tuple[str, ...] = ()
    kinds: tuple[Kind, ...] = ()
    since_us: int | None = None  # at this time or after it
    until_us: int | None = None
    grep: str | None = None  # text in the message; the case of ASCII letters does not matter
    is_in_force: bool = False  # only transactions that are not undone
    is_unreviewed: bool = False  # only work of sessions, in force, that no person has approved or marked
    turns: tuple[int, ...] = ()  # of the sessions
    of_turns: tuple[tuple[str, int], ...] | None = None  # sessions with a turn


class TransactionInfo(Struct, frozen=True):
    """The origin of a transaction, without its changes."""

    kind: Kind
    actor: str
    session: str | None
    time_us: int


class TurnWork(Struct, frozen=True):
    """A transaction of an agent's turn, without its changes."""

    seq: int
    turn: int
    kind: Kind
    undone_by: int | None
    message: str


class PathStep(Struct, frozen=True):
    """A transaction that touched a path, and whether the path was a file before and after it."""

    seq: int
    kind: Kind
    session: str | None
    time_us: int
    is_by_time: bool
    was_there: bool
    is_there: bool


class SessionWork(Struct, frozen=True):
    """A session in the history: its name, actor and times."""

    name: str
    actor: str  # of its newest transaction
    first_us: int
    last_us: int


class UndoQuery(Struct, frozen=True):
    """The filters of an undo, for transactions that are at least partly in force; None means all."""

    kinds: tuple[Kind, ...]
    sessions: tuple[str, ...] = ()
    actors: tuple[str, ...] = ()
    since: int | None = None  # a seq; all of these bounds are inclusive
    until: int | None = None
    since_us: int | None = None
    until_us: int | None = None
    below: tuple[WorkspacePath, ...] | None = None  # only transactions that touched a path here or below


# The transactions that are dated earlier than the one before them. The clock was set back between the two.
_SET_BACK = """
insert or replace into set_back select tx.seq, former.time_us, tx.time_us
from tx join tx as former on former.seq = tx.seq - 1
where tx.seq between ? and ? and tx.time_us < former.time_us
"""


def connect(path: str) -> sqlite3.Connection:
    # "normal" syncs only where the log is emptied. With "off", a power cut there could leave a database that
    # is well-formed and wrong (sqlite.org/pragma.html#pragma_synchronous).
    return sqlite.connect(path, journal="wal", synchronous="normal")


def open_database(path: str) -> sqlite3.Connection:
    """Open the index at `path`; replace a damaged one, or one of another version, by an empty one.

    Raises IoError.
    """
    try:
        opened = _open_existing(path) or create(path)
        sqlite.is_open(opened)
    except (OSError, sqlite3.DatabaseError) as error:
        raise sqlite.refusal(error, "The index of the history cannot be made") from error
    return opened


def _open_existing(path: str) -> sqlite3.Connection | None:
    """Open an existing index; None for a damaged one or another version, which is only a cache."""
    if not os.path.exists(path):
        return None
    with contextlib.suppress(sqlite3.DatabaseError):
        opened = connect(path)
        version = opened.execute("pragma user_version").fetchone()[0]
        if version in _ADDED:
            added = "".join(f"alter table tx add column {column}; " for column in _ADDED[version])
            lacking = "".join(sql for last, sql in _NEW.items() if version <= last)
            opened.executescript(f"begin; {added} {lacking} pragma user_version = {SCHEMA}; commit;")
            version = SCHEMA
        held = {name for (name,) in opened.execute("select name from sqlite_master")}
        if version == SCHEMA and held >= NAMES:
            return opened
        opened.close()
    sqlite.put_aside(path)
    return None


def create(path: str) -> sqlite3.Connection:
    made = connect(path)
    made.executescript(f"begin; {TABLES} pragma user_version = {SCHEMA}; commit;")
    return made


def refusal_of(error: sqlite3.DatabaseError, failed_action: str) -> Refused:
    """Convert a SQLite error to a Refused; `failed_action` is the participle of the failed action."""
    if not sqlite.is_damage(error):
        return sqlite.refusal(error, f"The index of the history cannot be {failed_action}")
    return HistoryDamaged(
        f"The index of the history cannot be {failed_action}: {error}.",
        hint=Advice(
            "No transaction is lost by this. ",
            command_term("check --repair"),
            " rebuilds the index from the history.",
        ),
    )


def insert(database: sqlite3.Connection, batch: Sequence[tuple[Transaction, bytes]]) -> None:
    database.executemany(
        "insert or replace into tx values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, null, ?, ?, ?)",
        (
            (
                *transaction_row(transaction), transaction.undone_by, notes,
                *_approval_columns(transaction.authorship.approval),
                _attribution_column(transaction.authorship.attribution),
                json.dumps(transaction.claims) if transaction.claims else None,
                _arrival_column(transaction.authorship.arrival),
                *_turn_columns(transaction.authorship.turn),
            )
            for transaction, notes in batch
        ),
    )  # fmt: skip
    database.executemany(
        "insert or replace into touch values (?, ?, ?, ?, ?, ?, ?, ?, ?, null)",
        (row for transaction, _ in batch for row in touch_rows(transaction)),
    )
    seqs = [transaction.seq for transaction, _ in batch]
    database.execute(_SET_BACK, (min(seqs), max(seqs) + 1))


def transaction_row(transaction: Transaction) -> tuple[object, ...]:
    """Return the columns of `tx` from `seq` to `undoes`."""
    return (
        transaction.seq, transaction.id, transaction.kind, *_authorship(transaction.authorship),
        transaction.time_us, encode_undone(transaction),
    )  # fmt: skip


def touch_rows(transaction: Transaction) -> Iterator[tuple[object, ...]]:
    """Yield the columns of `touch` from `path` to `source` for each changed path."""
    for touch in transaction.touches:
        source = None if touch.source is None else touch.source.raw
        yield (touch.path.raw, transaction.seq, *_columns(touch.before), *_columns(touch.after), source)


def _authorship(author: Authorship) -> Iterator[str | bytes | None]:
    return map(encode_text, (author.actor, author.session, author.message, author.request_id))


def _approval_columns(approval: Approval | None) -> tuple[int | None, bytes | None]:
    return (None, None) if approval is None else (approval.proposal, sqlite.encode(approval))


def _attribution_column(attribution: Attribution | None) -> bytes | None:
    return None if attribution is None else sqlite.encode(attribution)


def _turn_columns(turn: TurnMark | None) -> tuple[int | None, str | bytes | None]:
    return (None, None) if turn is None else (turn.number, encode_text(turn.model))


def _arrival_column(arrival: Arrival | None) -> bytes | None:
    return None if arrival is None else sqlite.encode(arrival)


# The number of files of each transaction, and the first; a file that was moved counts at its new path.
FILE_COUNTS = """
select touch.seq, count(distinct touch.path), min(touch.path) from touch
left join touch as target on target.source = touch.path and target.seq = touch.seq and target.before is null
where touch.seq in ({}) and (touch.after is not null or target.seq is null)
group by touch.seq
"""

# The newest steps of a path. `find` would load all paths of each transaction.
PATH_STEPS = """
select seq, kind, session, time_us, attribution, touch.before, touch.after
from touch join tx using (seq) where path = ? order by seq desc limit ?
"""


def path_step_in(row: Sequence[Any]) -> PathStep:
    """Convert a row of `PATH_STEPS`."""
    seq, kind, session, time_us, attribution, before, after = row
    is_by_time = attribution is not None and not sqlite.decode(attribution, Attribution).is_by_path
    return PathStep(
        seq, kind, decode_text(session), time_us, is_by_time, before is not None, after is not None
    )


def touching(paths: Sequence[WorkspacePath]) -> str:
    """Return the condition for touches of these paths, or of paths below them."""
    return _any_of("(path = ? or (path >= ? and path < ?))", len(paths))


def _any_of(condition: str, count: int) -> str:
    """Return `count` conditions joined by `or`, as a balanced tree: SQLite limits its depth to 1,000."""
    if count <= 1:
        return condition
    half = count // 2
    return f"({_any_of(condition, half)} or {_any_of(condition, count - half)})"


def bounds(paths: Sequence[WorkspacePath]) -> list[bytes]:
    """Return the values for `touching`. In bytes, "0" follows "/"."""
    return [bound for path in paths for bound in (path.raw, path.raw + b"/", path.raw + b"0")]


def _columns(entry: Entry | None) -> tuple[int | None, str | None, int | None]:
    return (None, None, None) if entry is None else (entry.mode, entry.version, entry.permissions)


def marks(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))


_GLOB_SIGN = re.compile(r"[*?\[]")
_LAST = "\U0010ffff"  # after every name that begins alike
UNREVIEWED = (
    "tx.session is not null", "tx.kind != 'claim'", "tx.seq not in (select seq from temp.reviewed)",
    "(tx.approval is null or json_extract(cast(tx.approval as text), '$.rule') is not null)",
)  # fmt: skip


_OF_TURNS = (
    "(tx.session, tx.turn) in (select json_extract(value, '$[0]'), json_extract(value, '$[1]')"
    " from json_each(?))"
)


def matching_log(wanted: LogQuery, times: Iterable[tuple[str, str, int | None]]) -> tuple[str, list[Any]]:
    """Return what follows `from` in a query of the matching transactions, and its values.

    `times` are conditions in place of its times: column, operator and value, where None is no bound.
    """
    conditions, values = ["1"], list[Any]()
    for column, operator, value in (
        ("seq", "<", wanted.before),
        ("seq", ">", wanted.after),
        *times,
    ):
        if value is not None:
            conditions.append(f"tx.{column} {operator} ?")
            values.append(value)
    for column, names in (("session", wanted.sessions), ("actor", wanted.actors), ("kind", wanted.kinds)):
        if names:
            condition, some = _name_condition(column, names)
            conditions.append(condition)
            values += some
    if wanted.is_in_force or wanted.is_unreviewed:
        conditions.append("tx.undone_by is null")
    if wanted.is_unreviewed:
        conditions += UNREVIEWED
    if wanted.turns:
        conditions.append(f"tx.turn in ({marks(wanted.turns)})")
        values += wanted.turns
    if wanted.of_turns is not None:
        conditions.append(_OF_TURNS)
        values.append(json.dumps(wanted.of_turns))
    if wanted.grep is not None:
        conditions.append("instr(lower(tx.message), lower(?))")
        values.append(encode_text(wanted.grep))
    source = "tx"
    if wanted.paths:
        source = f"(select distinct seq from touch where {touching(wanted.paths)}) join tx using (seq)"  # noqa: S608
        values[:0] = bounds(wanted.paths)
    return f"{source} where {' and '.join(conditions)}", values


def _name_condition(column: str, names: Sequence[str]) -> tuple[str, list[Any]]:
    """Return the condition that a column has a name in `names`, or matches a name as a glob.

    The bounds let SQLite search its index for the names that begin as the glob does.
    """
    globs = [
        (name.replace("[!", "[^"), _GLOB_SIGN.split(name)[0]) for name in names if _GLOB_SIGN.search(name)
    ]
    within = f"{column} >= ? and {column} < ? and {column} glob ?"
    matching = f"tx.{column} in (select {column} from tx where {within})"  # noqa: S608  # the name of a column
    any_of = [f"tx.{column} in ({marks(names)})", *[matching] * len(globs)]
    values = [*names, *(one for glob, start in globs for one in (start, start + _LAST, glob))]
    return f"({' or '.join(any_of)})", list(map(encode_text, values))


def matching_undo(chosen: UndoQuery) -> tuple[str, list[Any]]:
    """Return the condition for the transactions that match and are in force, and its values."""
    conditions = [f"kind in ({marks(chosen.kinds)})", "undone_by is null"]
    values: list[Any] = [*chosen.kinds]
    for condition, value in (
        ("seq >= ?", chosen.since),
        ("seq <= ?", chosen.until),
        ("time_us >= ?", chosen.since_us),
        ("time_us <= ?", chosen.until_us),
    ):
        if value is not None:
            conditions.append(condition)
            values.append(value)
    for column, names in (("session", chosen.sessions), ("actor", chosen.actors)):
        if names:
            conditions.append(f"{column} in ({marks(names)})")
            values += map(encode_text, names)
    if chosen.below is not None:
        conditions.append(f"seq in (select seq from touch where {touching(chosen.below)})")  # noqa: S608
        values += bounds(chosen.below)
    return " and ".join(conditions), values


def transaction_in(row: Sequence[Any], touches: Iterable[Change[Entry]]) -> Transaction:
    seq, oid, kind, actor, session, message, request_id, time_us, undoes, undone_by, _, _, *evidence = row
    approval, attribution, claims, claimed_by, arrival, turn, model = evidence
    undoes_seqs, parts = read(undoes)
    return Transaction(
        Seq(seq),
        CommitId(oid),
        kind,
        Authorship(
            decode_text(actor),
            decode_text(session),
            decode_text(message),
            decode_text(request_id),
            None if approval is None else sqlite.decode(approval, Approval),
            None if attribution is None else sqlite.decode(attribution, Attribution),
            None if arrival is None else sqlite.decode(arrival, Arrival),
            None if turn is None else TurnMark(turn, decode_text(model)),
        ),
        time_us,
        tuple(touches),
        undoes_seqs,
        None if undone_by is None else Seq(undone_by),
        parts,
        tuple(map(Seq, json.loads(claims))) if claims else (),
        None if claimed_by is None else Seq(claimed_by),
    )


def without_claim(transaction: Transaction) -> Transaction:
    """Return the transaction as its commit has it, without a later claim: by NOBODY."""
    if transaction.claimed_by is None:
        return transaction
    author = replace(transaction.authorship, actor=NOBODY, session=None, attribution=None, turn=None)
    return replace(transaction, kind=CLAIMABLE, authorship=author, claimed_by=None)


def touch_in(row: Sequence[Any]) -> Change[Entry]:
    path, _, *sides, source, undone_by = row
    return Change(
        WorkspacePath(os.fsdecode(path)),
        _entry(sides[:3]),
        _entry(sides[3:]),
        None if source is None else WorkspacePath(os.fsdecode(source)),
        None if undone_by is None else Seq(undone_by),
    )


def _entry(columns: Sequence[Any]) -> Entry | None:
    mode, version, permissions = columns
    return None if version is None else Entry(cast("GitMode", mode), Version(version), permissions)


def encode_text(text: str | None) -> str | bytes | None:
    """Encode text that is not UTF-8 as bytes, because SQLite's text is UTF-8."""
    if text is None or text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogateescape")
    return text


def decode_text(value: Any) -> Any:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value


# The undone transactions and paths, rebuilt with the index.
#
# A path of a transaction is undone while an undo of it is in force there. Of several, the newest is recorded.
# A transaction is undone once all its paths are. An undo is a transaction: when it is undone itself,
# the transactions that it took back are in force again, and so on down.

NOTHING = "[]"  # the value of most transactions


class _Undo(Struct, frozen=True):
    """A transaction that undoes others: the paths of each (None: all), and the undo of each own path."""

    paths: Mapping[Seq, Sequence[WorkspacePath] | None]
    undone: Mapping[bytes, int | None]
    is_whole: bool  # none of its paths is undone


class _Move(Struct, frozen=True):
    """A move of a file, with the transactions that made it, and the transactions that undid it."""

    source: bytes
    target: bytes
    made: Sequence[int]
    undone: Sequence[int]


def mark_all(database: sqlite3.Connection, transaction: Transaction) -> None:
    """Record the transactions that `transaction`, which is in the index, undoes or claims."""
    if transaction.claims:
        _mark_claimed(database, transaction)
    database.executemany(
        "insert or replace into undoing values (?, ?)", [(seq, transaction.seq) for seq in transaction.undoes]
    )
    # The newest first, so that the state of all undos of a transaction is known before its own.
    waiting = [-seq for seq in sorted(transaction.undoes, reverse=True)]
    undos: dict[int, _Undo] = {}
    last = None
    while waiting:
        seq = -heappop(waiting)
        if seq != last:
            for below in _mark(database, seq, undos):
                heappush(waiting, -below)
        last = seq


def _mark_claimed(database: sqlite3.Connection, claim: Transaction) -> None:
    """Give the claimed changes the claim's author, so that each query finds them as such."""
    author = claim.authorship
    evidence = _attribution_column(author.attribution or Attribution(is_by_path=True))
    database.executemany(
        "update tx set kind = ?, actor = ?, session = ?, attribution = ?, turn = ?, model = ?, claimed_by = ?"
        " where seq = ? and kind = ? and claimed_by is null",
        [
            (
                CLAIMED, encode_text(author.actor), encode_text(author.session), evidence,
                *_turn_columns(author.turn), claim.seq, seq, CLAIMABLE,
            )
            for seq in claim.claims
        ],
    )  # fmt: skip


def encode_undone(transaction: Transaction) -> str:
    """Encode the undone transactions as JSON.

    Each is a seq, or a seq and its paths as latin-1 of their bytes. A path with only some hunks undone is a
    list with their numbers.
    """
    if not transaction.undoes:
        return NOTHING
    parts: dict[Seq, list[Any]] = {}
    for part in transaction.parts:
        path = part.path.raw.decode("latin-1")
        parts.setdefault(part.seq, []).append([path, *part.hunks] if part.hunks else path)
    return json.dumps([[seq, *parts[seq]] if seq in parts else seq for seq in transaction.undoes])


def read(text: str) -> tuple[tuple[Seq, ...], tuple[Part, ...]]:
    """Decode the result of `encode_undone`."""
    if text == NOTHING:
        return (), ()
    items = [item if isinstance(item, list) else [item] for item in json.loads(text)]
    return tuple(Seq(seq) for seq, *_ in items), tuple(
        _part(Seq(seq), *(path if isinstance(path, list) else [path]))
        for seq, *paths in items
        for path in paths
    )


def whole(text: str) -> tuple[Seq, ...]:
    """Return the transactions with at least one whole path undone, not only hunks."""
    undoes, parts = read(text)
    return tuple(seq for seq, paths in _each(undoes, parts) if paths != [])


def _part(seq: Seq, path: str, *hunks: int) -> Part:
    return Part(seq, WorkspacePath(os.fsdecode(path.encode("latin-1"))), hunks)


def _mark(database: sqlite3.Connection, seq: int, known: dict[int, _Undo]) -> tuple[Seq, ...]:
    """Record for each path of `seq` the newest undo in force. Return the transactions that this affects.

    `known` caches the undos that were read before.
    """
    row = database.execute("select undoes, undone_by from tx where seq = ?", (seq,)).fetchone()
    if row is None:
        return ()
    touches = database.execute(
        "select path, undone_by, after is null from touch where seq = ?", (seq,)
    ).fetchall()
    marks: dict[bytes, int | None] = {path: None for path, _, _ in touches}
    undos = database.execute(
        "select by from undoing join tx on tx.seq = by"
        " where undoing.seq = ? and undone_by is null order by by",
        (seq,),
    ).fetchall()
    for (by,) in undos:
        if by not in known:
            known[by] = _undo(database, by)
        own = known[by].paths[Seq(seq)]
        names = marks if own is None else {path.raw for path in own}
        for path, _, is_gone in touches:
            if path in names and _is_in_force(database, known[by], by, path, seq, is_gone=is_gone):
                marks[path] = by
    changed = [(marks[path], path, seq) for path, former, _ in touches if former != marks[path]]
    database.executemany("update touch set undone_by = ? where path = ? and seq = ?", changed)
    whole = [by for (by,) in undos] if not marks else [mark for mark in marks.values() if mark is not None]
    now = max(whole) if whole and None not in marks.values() else None
    database.execute("update tx set undone_by = ? where seq = ?", (now, seq))
    return read(row[0])[0] if changed or now != row[1] else ()


def _undo(database: sqlite3.Connection, seq: int) -> _Undo:
    (undoes,) = database.execute("select undoes from tx where seq = ?", (seq,)).fetchone()
    undone = dict(database.execute("select path, undone_by from touch where seq = ?", (seq,)).fetchall())
    return _Undo(dict(_each(*read(undoes))), undone, not any(undone.values()))


def _is_in_force(
    database: sqlite3.Connection, undo: _Undo, by: int, path: bytes, seq: int, *, is_gone: bool
) -> bool:
    """Return whether `undo`, which is at least partly in force, is in force for `path` of `seq`."""
    if undo.is_whole:
        return True
    return (
        undo.undone.get(path if is_gone else _find_undone_path(database, path, seq, by, undo.undone)) is None
    )


def _find_undone_path(
    database: sqlite3.Connection, path: bytes, seq: int, by: int, touched: Collection[bytes]
) -> bytes:
    """Find the path where `by` undid `path` of `seq`: the file may have been moved in between.

    If a move had overwritten a file, its undo restores that file, and so is not recorded as a move back. The
    same holds for the undo of that undo.
    """
    current, at = path, seq
    made: list[_Move] = []  # the moves from `path` to `current`
    undone: _Move | None = None  # the move that was undone last
    while True:
        moved = database.execute(
            "select seq, path from touch where source = ? and seq > ? and seq < ? order by seq limit 1",
            (current, at, by),
        ).fetchone() or (by, path)
        backs = [_reversal(database, move, at, by, is_back=True) for move in made]
        back = min(backs, default=by)
        again = _reversal(database, undone, at, by, is_back=False) if undone else by
        at = min(moved[0], back, again)
        if at == by:
            return current if current in touched else path
        if at == back:
            oldest = backs.index(back)
            undone = replace(made[oldest], target=current, undone=[*made[oldest].undone, back])
            del made[oldest:]
            current = undone.source
        elif undone is not None and at == again:
            made.append(replace(undone, made=[*undone.made, again]))
            current, undone = undone.target, None
        else:
            made.append(_Move(current, moved[1], [at], []))
            current = moved[1]


def _reversal(database: sqlite3.Connection, move: _Move, after: int, before: int, *, is_back: bool) -> int:
    """Return the first transaction that undid a move, or an undo of it. Return `before` if there is none.

    `is_back`: the undo brought the file back to the source. Otherwise an undo of the undo moved it once more.
    """
    reversed_by = move.made if is_back else move.undone
    state = "before is null and after is not null and source is null" if is_back else "after is null"
    marks = ", ".join("?" * len(reversed_by))
    undos = f"undoing.seq in ({marks}) and by > ? and by < ?"
    query = f"select min(by) from undoing join touch on touch.seq = by where {undos} and path = ? and {state}"  # noqa: S608
    (first,) = database.execute(query, (*reversed_by, after, before, move.source)).fetchone()
    return before if first is None else int(first)


def _each(undoes: Iterable[Seq], parts: Sequence[Part]) -> Iterator[tuple[Seq, list[WorkspacePath] | None]]:
    """Yield each undone transaction, with the paths of a partly undone one."""
    paths: dict[Seq, list[WorkspacePath]] = {}
    for part in parts:
        known = paths.setdefault(part.seq, [])
        if not part.hunks:  # with hunks, the path itself stays in force
            known.append(part.path)
    for seq in undoes:
        yield seq, paths.get(seq)
