"""Sessions and their durable store: open ones with their leases, published transactions, and read marks."""

from __future__ import annotations

import contextlib
import json
import os
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec
from msgspec import Struct

from editd.errors import IoError
from editd.store import sqlite
from editd.values.content import Version
from editd.values.glob import GlobSet, known_globs
from editd.values.path import WorkspacePath
from editd.values.path_rules import Bounds, RuleOnPaths, fits
from editd.values.transaction import Base, Published, ReadMark, TurnMark

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from editd.values.glob import Glob
    from editd.wire.messages import OnStale, SessionKind, Unread


class Session(Struct, frozen=True):
    name: str
    token_hash: str  # SHA-256 of its token, in hex; only its owner has the token itself
    actor: str | None
    bounds: Bounds
    on_stale: OnStale | None
    unread: Unread
    ttl: float  # seconds without a connection or a request, after which it ends
    created_us: int
    is_in_doubt: bool = False  # the daemon was killed since then, and may have lost some of its reads
    always_proposes: bool = False  # each of its edits waits for a reviewer
    is_collected: bool = False  # all its edits are one proposal, and it reads through that
    is_draft: bool = False  # that is a draft at first, which the session submits
    kind: SessionKind = "person"
    after: int = 0  # the newest transaction when it was opened: older work under its name is not its own

    def may_write(self, path: WorkspacePath) -> bool:
        return self._may("refuse", path)

    def may_read(self, path: WorkspacePath) -> bool:
        return self._may("refuse reading", path)

    def _may(self, action: Literal["refuse", "refuse reading"], path: WorkspacePath) -> bool:
        rule = self.bounds.rule(action, self.name)
        return rule is None or not fits(rule, path, self.name)


class Pause(Struct, frozen=True):
    """The word of a person that the edits of a session are refused, or wait for a reviewer."""

    session: str
    action: Literal["refuse", "propose"]
    reason: str
    by: str  # an actor
    since_us: int

    @property
    def rule(self) -> RuleOnPaths:
        return RuleOnPaths("pause", self.action, sessions=(self.session,))

    @property
    def text(self) -> str:
        """The fact in one sentence."""
        reason = self.reason.rstrip(".")
        return f"The session {self.session!r} is paused by {self.by}{f': {reason}' if reason else ''}."


class ReviewNote(Struct, frozen=True):
    """The person who has looked at a transaction, and the time."""

    actor: str
    time_us: int


# A lease: a session's claim on paths, which ends at a stated time.


class Lease(Struct, frozen=True):
    id: str
    session: str
    token: int  # fencing token: higher than every earlier lease's
    paths: tuple[Glob, ...]
    expires_us: int  # microseconds since the epoch
    is_of_name: bool = False  # of an unopened name: no end of a session ends it

    @property
    def rule(self) -> RuleOnPaths:
        globs = GlobSet.of(self.paths)
        return RuleOnPaths("lease", "refuse", globs, sessions=(self.session,), until_us=self.expires_us)


SESSIONS_FILE = "sessions.db"
_UNWRITABLE = "The registry of sessions cannot be written"
ASKED_AT_ONCE = 500  # transactions in one query; SQLite takes 999 values in each of its versions
SESSION_TABLES = """
create table if not exists session (name text primary key, written blob not null);
create table if not exists lease (id text primary key, written blob not null);
create table if not exists fact (name text primary key, value integer not null);
create table if not exists published (seq integer primary key, oid text not null, branch text not null);
create table if not exists pause (session text primary key, written blob not null);
create table if not exists reviewed (seq integer primary key, actor text not null, time_us integer not null);
create table if not exists agent_session (name text primary key, after integer not null);
create table if not exists agent_process (pid integer, start integer, primary key (pid, start));
"""


class _Session(msgspec.Struct, frozen=True):
    """A session in its stored form. Its name has no surrogates, which the server refuses."""

    token_hash: str
    actor: str | None
    write: list[str] | None
    read: list[str] | None
    on_stale: str | None
    unread: str
    ttl: float
    created_us: int
    is_in_doubt: bool
    always_proposes: bool = False  # older versions wrote neither this nor the next two
    is_collected: bool = False
    is_draft: bool = False
    kind: str = "person"
    after: int = 0


class _Lease(msgspec.Struct, frozen=True):
    session: str
    token: int
    paths: list[str]
    expires_us: int
    is_of_name: bool = False  # older versions did not write it


class SessionStore:
    """The sessions, leases and facts of one workspace. Used by one thread at a time."""

    def __init__(self, folder: str, now_us: int) -> None:
        """Open the file in `folder`, or create it. Raises IoError."""
        self._path = os.path.join(folder, SESSIONS_FILE)
        is_new = not os.path.exists(self._path)
        self.was_ended_cleanly = False
        self.sessions: list[Session] = []
        self.leases: list[Lease] = []
        self.pauses: list[Pause] = []
        self.last_token = 0
        self.has_published = False  # whether `published` may return something
        self.agent_sessions: list[tuple[str, int]] = []  # name and `after`, the oldest first
        self.agent_processes: list[tuple[int, int]] = []  # pid and start, the oldest first
        with sqlite.refusing(f"The registry of sessions, {self._path}, cannot be read"):
            self._database, is_whole = sqlite.open_or_replace(
                self._path, self._load, journal="delete", synchronous="full", tables=SESSION_TABLES
            )
            if not is_whole:
                self.was_ended_cleanly = self.has_published = False
                self.sessions, self.leases, self.pauses = [], [], []
                self.agent_sessions, self.agent_processes = [], []
                self.last_token = now_us // 1_000_000
            self.was_ended_cleanly |= is_new
            self._write("insert or replace into fact values ('running', 1)")
            sqlite.is_open(self._database)

    def _load(self, database: sqlite3.Connection) -> None:
        self.was_ended_cleanly = _fact(database, "running") == 0
        self.sessions = [_session(*row) for row in database.execute("select * from session")]
        self.leases = [_lease(*row) for row in database.execute("select * from lease")]
        self.pauses = [sqlite.decode(row[0], Pause) for row in database.execute("select written from pause")]
        self.last_token = _fact(database, "token")
        self.has_published = database.execute("select 1 from published limit 1").fetchone() is not None
        names = database.execute("select name, after from agent_session order by rowid")
        self.agent_sessions = names.fetchall()
        self.agent_processes = database.execute(
            "select pid, start from agent_process order by rowid"
        ).fetchall()
        sqlite.verify_pages(database, "integrity_check")

    def put_session(self, session: Session) -> None:
        """Store a session; durable on return. Raises IoError."""
        written = _Session(
            session.token_hash, session.actor, _texts(session.bounds.write), _texts(session.bounds.read),
            session.on_stale, session.unread, session.ttl, session.created_us, session.is_in_doubt,
            session.always_proposes, session.is_collected, session.is_draft, session.kind,
            session.after,
        )  # fmt: skip
        self._write("insert or replace into session values (?, ?)", session.name, sqlite.encode(written))

    def drop_session(self, name: str) -> None:
        self._write("delete from session where name = ?", name)

    def put_lease(self, lease: Lease) -> None:
        """Store a lease and its token; durable on return. Raises IoError."""
        paths = [glob.text for glob in lease.paths]
        written = _Lease(lease.session, lease.token, paths, lease.expires_us, lease.is_of_name)
        self._write(
            "insert or replace into lease values (?, ?)", lease.id, sqlite.encode(written),
            token=lease.token,
        )  # fmt: skip

    def drop_lease(self, name: str) -> None:
        self._write("delete from lease where id = ?", name)

    def put_published(self, seqs: Collection[int], published: Published) -> None:
        """Record the git commit of published transactions; durable on return. Raises IoError."""
        rows = [(seq, published.commit, published.branch) for seq in seqs]
        with sqlite.refusing(_UNWRITABLE), sqlite.writing(self._database):
            self._database.executemany("insert or replace into published values (?, ?, ?)", rows)
        self.has_published = True

    def publications_of(self, seqs: Collection[int]) -> dict[int, Published]:
        """Return the git commits of the published ones of these transactions. Raises IoError."""
        return {seq: Published(oid, branch) for seq, oid, branch in self._of("published", seqs)}

    def _of(self, table: str, seqs: Collection[int]) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of these transactions. Raises IoError."""
        ordered = sorted(seqs)
        for start in range(0, len(ordered), ASKED_AT_ONCE):
            few = ordered[start : start + ASKED_AT_ONCE]
            marks = ", ".join("?" * len(few))
            query = f"select * from {table} where seq in ({marks})"  # noqa: S608  # ours, and marks only
            with sqlite.refusing("The registry of sessions cannot be read"):
                rows = self._database.execute(query, few).fetchall()
            yield from rows

    def put_pause(self, pause: Pause) -> None:
        """Store a pause in place of an earlier one of its session; durable on return. Raises IoError."""
        self._write("insert or replace into pause values (?, ?)", pause.session, sqlite.encode(pause))

    def drop_pause(self, session: str) -> None:
        self._write("delete from pause where session = ?", session)

    def put_agent_session(self, name: str, after: int) -> None:
        """Store the name of an agent's session; durable on return. Raises IoError.

        `after` is the newest transaction that is not its work.
        """
        self._write("insert or ignore into agent_session values (?, ?)", name, after)

    def drop_agent_session(self, name: str) -> None:
        self._write("delete from agent_session where name = ?", name)

    def put_agent_process(self, key: tuple[int, int]) -> None:
        """Store the process of an agent by pid and start; durable on return. Raises IoError."""
        self._write("insert or ignore into agent_process values (?, ?)", *key)

    def drop_agent_process(self, key: tuple[int, int]) -> None:
        self._write("delete from agent_process where pid = ? and start = ?", *key)

    def mark(self, seqs: Collection[int], mark: ReviewNote | None) -> list[int]:
        """Mark transactions as reviewed, or take the marks back; durable on return. Raises IoError.

        Return those whose mark has changed: an earlier mark stays.
        """
        marked = self.marks_of(seqs).keys()
        changed = sorted(marked if mark is None else set(seqs) - marked)
        with sqlite.refusing(_UNWRITABLE), sqlite.writing(self._database):
            if mark is None:
                self._database.executemany("delete from reviewed where seq = ?", [(seq,) for seq in changed])
            else:
                rows = [(seq, mark.actor, mark.time_us) for seq in changed]
                self._database.executemany("insert into reviewed values (?, ?, ?)", rows)
        return changed

    def marks_of(self, seqs: Collection[int]) -> dict[int, ReviewNote]:
        """Return the marks of these transactions, without the unmarked ones. Raises IoError."""
        rows = self._of("reviewed", seqs)
        return {seq: ReviewNote(actor, time_us) for seq, actor, time_us in rows}

    def list_marked(self) -> list[int]:
        """Return every transaction that has a mark. Raises IoError."""
        with sqlite.refusing("The registry of sessions cannot be read"):
            return [row[0] for row in self._database.execute("select seq from reviewed")]

    def close(self, *, is_clean: bool) -> None:
        """Close the file. `is_clean`: all read marks of the sessions were written before."""
        if is_clean:
            with contextlib.suppress(IoError):
                self._write("insert or replace into fact values ('running', 0)")
        self._database.close()

    def _write(self, statement: str, *values: object, token: int | None = None) -> None:
        with sqlite.refusing(_UNWRITABLE), sqlite.writing(self._database):
            self._database.execute(statement, values)
            if token is not None and token > self.last_token:
                self._database.execute("insert or replace into fact values ('token', ?)", (token,))
        if token is not None:
            self.last_token = max(self.last_token, token)


def _fact(database: sqlite3.Connection, name: str) -> int:
    row = database.execute("select value from fact where name = ?", (name,)).fetchone()
    return 0 if row is None else int(row[0])


def _session(name: str, written: bytes) -> Session:
    kept = sqlite.decode(written, _Session)
    return Session(
        name, kept.token_hash, kept.actor, Bounds(_globs(kept.write), _globs(kept.read)),
        cast("OnStale | None", kept.on_stale), cast("Unread", kept.unread), kept.ttl, kept.created_us,
        kept.is_in_doubt, kept.always_proposes, kept.is_collected, kept.is_draft,
        cast("SessionKind", kept.kind), kept.after,
    )  # fmt: skip


def _lease(name: str, written: bytes) -> Lease:
    kept = sqlite.decode(written, _Lease)
    paths = known_globs(kept.paths)
    return Lease(name, kept.session, kept.token, paths, kept.expires_us, kept.is_of_name)


def _texts(globs: tuple[Glob, ...] | None) -> list[str] | None:
    return None if globs is None else [glob.text for glob in globs]


def _globs(texts: list[str] | None) -> tuple[Glob, ...] | None:
    return None if texts is None else known_globs(texts)


# Read marks on disk: the versions that each opened session has seen, for the next daemon; and the brackets
# that are open beyond their connection, which a SIGKILL must not lose, and a power cut ends anyway.
#
# Written within a second and never synced, so that no client waits for it. A power cut may lose some of it,
# a SIGKILL the last second. That is safe, because the session store records an unclean end
# (`Session.is_in_doubt`). A damaged file is moved aside and replaced by an empty one. Each method raises
# IoError if the file cannot be read or written.

READ_MARKS_FILE = "seen.db"
READ_MARK_TABLES = """
create table if not exists sight (
    session blob not null, path blob not null, version text, lines text, primary key (session, path)
) without rowid;
create table if not exists used (session blob primary key, time_us integer not null) without rowid;
create table if not exists span (name text primary key, written blob not null);
"""


class StoredSpan(msgspec.Struct, frozen=True):
    """An open bracket with a key, in its stored form."""

    name: str
    actor: str
    session: str
    command: str
    paths: list[str] | None
    key: str
    ends_us: int
    process: tuple[int, int] | None  # pid and start
    head: int
    asked: int | None = None  # the newest transaction when the agent asked its user about it
    turn: TurnMark | None = None  # older versions wrote neither this nor the next
    call: str | None = None


Row = tuple[str, WorkspacePath, ReadMark | None]  # with the session's name; None deletes the mark


class ReadVersionStore:
    """The read marks of all sessions. Used by one thread at a time."""

    def __init__(self, folder: str) -> None:
        self._path = os.path.join(folder, READ_MARKS_FILE)
        with self._refusing("read"):
            self._database, self.is_whole = sqlite.open_or_replace(
                self._path, _verify_rows, journal="wal", synchronous="off", tables=READ_MARK_TABLES
            )
            self._used = sqlite.UsedBytes(self._database, READ_MARK_TABLES)
            sqlite.is_open(self._database)  # `is_whole` is False if the content of a damaged file is gone

    @property
    def stored_bytes(self) -> int:
        """The bytes of the marks and the brackets, as after the last write."""
        return self._used.bytes

    def of(self, session: str) -> list[tuple[WorkspacePath, ReadMark]]:
        with self._refusing("read"):
            rows = self._database.execute(
                "select path, version, lines from sight where session = ?", (os.fsencode(session),)
            ).fetchall()
        return [(WorkspacePath(os.fsdecode(path)), _sight(version, lines)) for path, version, lines in rows]

    def used_us(self, session: str) -> int:
        """Return the time of the session's last use, or 0."""
        with self._refusing("read"):
            row = self._database.execute(
                "select time_us from used where session = ?", (os.fsencode(session),)
            ).fetchone()
        return 0 if row is None else int(row[0])

    def write(self, rows: Iterable[Row], used: Mapping[str, int]) -> None:
        """Write new marks and times of use, all or none."""
        with self._refusing("written"), sqlite.writing(self._database):
            for session, path, sight in rows:
                key = (os.fsencode(session), path.raw)
                if sight is None:
                    self._database.execute("delete from sight where session = ? and path = ?", key)
                else:
                    lines = None if sight.lines is None else json.dumps(sight.lines)
                    self._database.execute(
                        "insert or replace into sight values (?, ?, ?, ?)", (*key, sight.base.version, lines)
                    )
            self._database.executemany(
                "insert or replace into used values (?, ?)",
                [(os.fsencode(session), time_us) for session, time_us in used.items()],
            )
        with self._refusing("read"):
            self._used.measure()

    def forget(self, session: str) -> None:
        """Delete the marks of a session that has ended."""
        with self._refusing("written"), sqlite.writing(self._database):
            for table in ("sight", "used"):
                self._database.execute(
                    f"delete from {table} where session = ?",  # noqa: S608  # ours
                    (os.fsencode(session),),
                )
        with self._refusing("read"):
            self._used.measure()

    def spans(self) -> list[StoredSpan]:
        """Return the open brackets, the oldest first."""
        with self._refusing("read"):
            rows = self._database.execute("select written from span order by rowid").fetchall()
        return [sqlite.decode(written, StoredSpan) for (written,) in rows]

    def put_span(self, span: StoredSpan) -> None:
        with self._refusing("written"), sqlite.writing(self._database):
            self._database.execute("insert into span values (?, ?)", (span.name, sqlite.encode(span)))

    def drop_span(self, name: str) -> None:
        with self._refusing("written"), sqlite.writing(self._database):
            self._database.execute("delete from span where name = ?", (name,))

    def close(self) -> None:
        self._database.close()

    def _refusing(self, action: str) -> AbstractContextManager[None]:
        return sqlite.refusing(f"The read marks of the sessions, {self._path}, cannot be {action}")


def _verify_rows(opened: sqlite3.Connection) -> None:
    """Decode every read mark. Raises sqlite3.DatabaseError, ValueError, TypeError if one is damaged."""
    sqlite.verify_pages(opened, "quick_check")
    for _, path, version, lines in opened.execute("select session, path, version, lines from sight"):
        WorkspacePath(os.fsdecode(path))
        _sight(version, lines)
    opened.execute("select session, time_us from used").fetchall()
    for (written,) in opened.execute("select written from span"):
        sqlite.decode(written, StoredSpan)


def _sight(version: str | None, lines: str | None) -> ReadMark:
    seen = None if lines is None else tuple((first, last) for first, last in json.loads(lines))
    return ReadMark(Base(None if version is None else Version(version)), seen)
