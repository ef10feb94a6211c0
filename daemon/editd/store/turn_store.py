"""The turns of agents' sessions: each prompt with its model and times, and the calls of its tools, in SQLite.

Beside the history and never in it: the history has the number of a turn and the model, and is whole without
this file. A prompt comes here without its secrets (`wire.redaction`), and only as much of it as the
configuration says. A deleted text is overwritten on the disk.

A damaged file is moved aside and replaced by an empty one, when it is opened or later. Each method raises
IoError if the file cannot be read or written.
"""

from __future__ import annotations

import contextlib
import glob
import logging
import os
import sqlite3
from typing import TYPE_CHECKING, Any, TypeVar, cast

from msgspec import Struct

from editd.store import sqlite
from editd.store.index_tables import decode_text, encode_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from contextlib import AbstractContextManager

log = logging.getLogger(__name__)

Result = TypeVar("Result")

TURNS_FILE = "turns.db"
TURN_TABLES = """
create table if not exists turn (
    session blob not null, number integer not null, agent text, conversation text not null, native text,
    parent blob, parent_number integer, source text, model text, began_us integer not null,
    ended_us integer, reason text, head integer not null, prompt text, digest text, characters integer,
    redactions integer not null, transcript text, pid integer, started integer,
    primary key (session, number)
);
create index if not exists turn_by_time on turn(began_us);
create index if not exists turn_by_parent on turn(parent) where parent is not null;
create index if not exists turn_by_prompt on turn(began_us) where prompt is not null;
create index if not exists turn_under_way on turn(session) where ended_us is null;
create table if not exists call (
    session blob not null, number integer not null, name text not null, asked_us integer, outcome text,
    primary key (session, number, name)
) without rowid;
"""
_COLUMNS = (
    "session, number, agent, conversation, native, parent, parent_number, source, model, began_us, ended_us,"
    " reason, head, prompt, digest, characters, redactions, transcript, pid, started"
)
_WITHOUT_PROMPT = _COLUMNS.replace(" prompt,", " null,")
_PROMPTS_OF = "(session = ? or parent = ?) and (prompt is not null or digest is not null)"


class Turn(Struct, frozen=True):
    """One turn of a session, from a prompt to the next one."""

    session: str
    number: int  # from 1, in its session
    agent: str | None
    conversation: str  # the agent's own id, the same after a resume
    native: str | None  # the agent's own id of the turn
    parent: tuple[str, int | None] | None  # the session whose turn started this sub-agent, and its number
    source: str | None
    model: str | None
    began_us: int
    ended_us: int | None
    reason: str | None  # of the end
    head: int  # the newest transaction at the beginning
    prompt: str | None  # without secrets; None if it is not kept
    digest: str | None  # SHA-256 of that text
    characters: int | None  # of the prompt as it was given
    redactions: int
    transcript: str | None  # the agent's own file
    process: tuple[int, int] | None  # of the agent: pid and start


class TurnStore:
    """The turns of one workspace. Used by one thread at a time."""

    def __init__(self, folder: str) -> None:
        """Open the file in `folder`, or create it. Raises IoError."""
        self._folder = folder
        self._path = os.path.join(folder, TURNS_FILE)
        self.is_whole = True  # whether no damaged file was moved aside
        with self._refusing("read"):
            self._database = self._open()

    def _open(self) -> sqlite3.Connection:
        """Open the file, or replace a damaged one. Damage in an old turn is noticed when it is read."""
        database, is_whole = sqlite.open_or_replace(
            self._path, _look, journal="wal", synchronous="normal", tables=TURN_TABLES
        )
        self.is_whole &= is_whole
        database.execute("pragma secure_delete = on")
        sqlite.is_open(database)
        return database

    def under_way(self) -> list[Turn]:
        """Return the turns that have not ended, without their prompts."""
        return self._turns("ended_us is null", (), with_prompts=False)

    def newest(self, session: str) -> Turn | None:
        """Return the newest turn of a session, without its prompt."""
        found = self._turns(
            "session = ? order by number desc limit 1", (encode_text(session),), with_prompts=False
        )
        return found[0] if found else None

    def turns(self, keys: Iterable[tuple[str, int]]) -> dict[tuple[str, int], Turn]:
        """Return the known ones of these turns, by session and number."""
        found: dict[tuple[str, int], Turn] = {}
        for session, number in set(keys):
            for turn in self._turns("session = ? and number = ?", (encode_text(session), number)):
                found[session, number] = turn
        return found

    def native(self, session: str, native: str) -> Turn | None:
        """Return the newest turn of a session with this id of the agent, without its prompt."""
        condition = "session = ? and native = ? order by number desc limit 1"
        found = self._turns(condition, (encode_text(session), native), with_prompts=False)
        return found[0] if found else None

    def before(self, session: str | None, before_us: int | None, limit: int) -> list[Turn]:
        """Return the newest turns that began before a time, of a session with its sub-agents, or of all."""
        conditions, values = ["1"], list[Any]()
        if session is not None:
            conditions.append("(session = ? or parent = ?)")
            values += [encode_text(session)] * 2
        if before_us is not None:
            conditions.append("began_us < ?")
            values.append(before_us)
        where = f"{' and '.join(conditions)} order by began_us desc, number desc limit ?"
        return self._turns(where, (*values, limit))

    def with_text(self, text: str, sessions: Sequence[str] | None) -> list[tuple[str, int]]:
        """Return the turns with this text in the prompt, in either case of ASCII letters.

        `sessions` limits them to these sessions.
        """
        condition = "prompt is not null and instr(lower(prompt), lower(?))"
        values: list[Any] = [_text(text)]
        if sessions is not None:
            condition += f" and session in ({', '.join('?' * len(sessions))})"
            values += [encode_text(session) for session in sessions]
        rows = self._all(f"select session, number from turn where {condition}", values)  # noqa: S608  # ours
        return [(decode_text(session), number) for session, number in rows]

    def put(self, turn: Turn) -> None:
        """Store a turn, in place of an earlier form of it."""
        parent, number = turn.parent or (None, None)
        pid, started = turn.process or (None, None)
        values = (
            encode_text(turn.session), turn.number, _text(turn.agent), _text(turn.conversation),
            _text(turn.native), encode_text(parent), number, _text(turn.source), _text(turn.model),
            turn.began_us, turn.ended_us, _text(turn.reason), turn.head, _text(turn.prompt), turn.digest,
            turn.characters, turn.redactions, _text(turn.transcript), pid, started,
        )  # fmt: skip
        marks = ", ".join("?" * len(values))
        self._write(f"insert or replace into turn ({_COLUMNS}) values ({marks})", values)  # noqa: S608  # marks

    def end(self, session: str, number: int, now_us: int, reason: str) -> None:
        """Note the end of a turn that has not ended."""
        statement = "update turn set ended_us = ?, reason = ? where session = ? and number = ?"
        self._write(f"{statement} and ended_us is null", (now_us, reason, encode_text(session), number))

    def note_model(self, session: str, number: int, model: str) -> None:
        """Note the model of a turn."""
        statement = "update turn set model = ? where session = ? and number = ?"
        self._write(statement, (_text(model), encode_text(session), number))

    def note_call(
        self, session: str, number: int, name: str, *, asked_us: int | None = None, outcome: str | None = None
    ) -> None:
        """Note a call of a tool in a turn: its question to the user, and its outcome. Earlier facts stay."""
        self._write(
            "insert into call values (?, ?, ?, ?, ?) on conflict (session, number, name) do update set"
            " asked_us = coalesce(asked_us, excluded.asked_us),"
            " outcome = coalesce(excluded.outcome, outcome)",
            (encode_text(session), number, _text(name), asked_us, outcome),
        )

    def outcomes(self, session: str, first: int, last: int) -> dict[int, dict[str, int]]:
        """Return how many calls of each of these turns had each outcome."""
        rows = self._all(
            "select number, coalesce(outcome, 'unknown'), count(*) from call"
            " where session = ? and number between ? and ? group by 1, 2",
            (encode_text(session), first, last),
        )
        counts: dict[int, dict[str, int]] = {}
        for number, outcome, count in rows:
            counts.setdefault(number, {})[outcome] = count
        return counts

    # ── the end of prompts ──

    def oldest_prompt_us(self) -> int | None:
        """Return the time of the oldest turn with a kept prompt; None without one."""
        query = "select min(began_us) from turn where prompt is not null"
        return cast("int | None", self._all(query, ())[0][0])

    def drop_old(self, before_us: int) -> int:
        """Delete the prompts of turns that began before a time; their digests stay. Return their number."""
        count = self._write(
            "update turn set prompt = null where prompt is not null and began_us < ?", (before_us,)
        )
        if count:
            self._scrub(pages=False)
        return count

    def count_prompts(self, session: str) -> int:
        """Return the number of prompts that `forget` would delete."""
        query = f"select count(*) from turn where {_PROMPTS_OF}"  # noqa: S608  # ours
        return cast("int", self._all(query, (encode_text(session),) * 2)[0][0])

    def forget(self, session: str) -> int:
        """Delete the prompts of a session and of its sub-agents, with their digests. Return their number.

        Nothing of them stays in this file, and damaged files that were moved aside are deleted.
        """
        statement = f"update turn set prompt = null, digest = null where {_PROMPTS_OF}"  # noqa: S608  # ours
        count = self._write(statement, (encode_text(session),) * 2)
        self._scrub(pages=True)
        self._drop_aside()
        return count

    def forget_with(self, is_in: Callable[[bytes], bool]) -> int:
        """Delete the prompts that have a text, with their digests. Return their number."""
        rows = self._all("select rowid, prompt from turn where prompt is not null", ())
        named = [(rowid,) for rowid, prompt in rows if is_in(prompt.encode())]
        for values in named:
            self._write("update turn set prompt = null, digest = null where rowid = ?", values)
        self._scrub(pages=True)
        self._drop_aside()
        return len(named)

    def _scrub(self, *, pages: bool) -> None:
        with sqlite.refusing(f"Deleted prompts could not be removed from {self._path}"):
            sqlite.scrub(self._database, pages=pages)

    def _drop_aside(self) -> None:
        """Delete damaged files of this store."""
        aside = os.path.join(glob.escape(self._folder), "damaged", "*", f"{TURNS_FILE}*")
        with sqlite.refusing("Damaged files with prompts could not be removed"):
            for path in glob.glob(aside):
                os.unlink(path)
                with contextlib.suppress(OSError):  # other files may be in the folder
                    os.rmdir(os.path.dirname(path))

    def close(self) -> None:
        self._database.close()

    def _turns(self, condition: str, values: Sequence[Any], *, with_prompts: bool = True) -> list[Turn]:
        columns = _COLUMNS if with_prompts else _WITHOUT_PROMPT
        rows = self._all(f"select {columns} from turn where {condition}", values)  # noqa: S608  # ours
        return list(map(_turn, rows))

    def _all(self, query: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        def read(database: sqlite3.Connection) -> list[tuple[Any, ...]]:
            return database.execute(query, values).fetchall()

        return self._whole("read", read)

    def _write(self, statement: str, values: Sequence[Any]) -> int:
        def write(database: sqlite3.Connection) -> int:
            with sqlite.writing(database):
                return database.execute(statement, values).rowcount

        return self._whole("written", write)

    def _whole(self, action: str, use: Callable[[sqlite3.Connection], Result]) -> Result:
        """Use the database; if it is damaged, replace it by an empty one, and use that."""
        with self._refusing(action):
            try:
                return use(self._database)
            except sqlite3.DatabaseError as error:
                if not sqlite.is_damage(error):
                    raise
                log.error("a database is damaged: %s: %s", self._path, error)
                self._database.close()
                sqlite.put_aside(self._path)
                self.is_whole = False
                self._database = self._open()
                return use(self._database)

    def _refusing(self, action: str) -> AbstractContextManager[None]:
        return sqlite.refusing(f"The turns of the sessions, {self._path}, cannot be {action}")


def _turn(row: Sequence[Any]) -> Turn:
    session, *rest = row
    parent, parent_number, pid, started = rest[4], rest[5], rest[-2], rest[-1]
    facts = [
        *rest[:4], None if parent is None else (decode_text(parent), parent_number), *rest[6:-2],
        None if pid is None else (pid, started),
    ]  # fmt: skip
    return Turn(decode_text(session), *facts)


def _text(text: str | None) -> str | None:
    """Return a text that SQLite can hold: a byte that is not UTF-8 is shown as unknown."""
    return None if text is None else text.encode("utf-8", "replace").decode()


def _look(opened: sqlite3.Connection) -> None:
    """Read the turns that are under way. Raises sqlite3.DatabaseError, ValueError, TypeError for damage."""
    for row in opened.execute(f"select {_WITHOUT_PROMPT} from turn where ended_us is null"):  # noqa: S608
        _turn(row)
