"""Read marks on disk: the versions that each opened session has seen, for the next daemon.

Written within a second and never synced, so that no client waits for it. A power cut may lose some of it, a
SIGKILL the last second. That is safe, because the session store records an unclean end
(`Session.is_in_doubt`). A damaged file is moved aside and replaced by an empty one. Each method raises
IoError if the file cannot be read or written.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sqlite3
from typing import TYPE_CHECKING

from editd.store import sqlite
from editd.values.changeset import Base, ReadMark
from editd.values.content import Version
from editd.values.path import WorkspacePath

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

log = logging.getLogger(__name__)

NAME = "seen.db"
TABLES = """
create table if not exists sight (
    session blob not null, path blob not null, version text, lines text, primary key (session, path)
) without rowid;
create table if not exists used (session blob primary key, time_us integer not null) without rowid;
"""

Row = tuple[str, WorkspacePath, ReadMark | None]  # with the session's name; None deletes the mark


class ReadVersionStore:
    """The read marks of all sessions. Used by one thread at a time."""

    def __init__(self, folder: str) -> None:
        self._path = os.path.join(folder, NAME)
        self.is_whole = True  # False if the file was damaged, and its content is gone
        with self._refusing("read"):
            try:
                self._database = _opened(self._path)
                _prove(self._database)
            except (sqlite3.DatabaseError, ValueError, TypeError) as error:
                if isinstance(error, sqlite3.Error) and not sqlite.is_damage(error):
                    raise
                log.error("the file of the sessions' read marks is damaged: %s: %s", self._path, error)
                self.is_whole = False
                sqlite.put_aside(self._path)
                self._database = _opened(self._path)
        sqlite.is_open(self._database)

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

    def forget(self, session: str) -> None:
        """Delete the marks of a session that has ended."""
        with self._refusing("written"), sqlite.writing(self._database):
            for table in ("sight", "used"):
                self._database.execute(
                    f"delete from {table} where session = ?",  # noqa: S608  # ours
                    (os.fsencode(session),),
                )

    def close(self) -> None:
        self._database.close()

    @contextlib.contextmanager
    def _refusing(self, action: str) -> Iterator[None]:
        try:
            yield
        except (OSError, sqlite3.Error) as error:
            raise sqlite.refusal(
                error, f"The read marks of the sessions, {self._path}, cannot be {action}"
            ) from error


def _opened(path: str) -> sqlite3.Connection:
    opened = sqlite.connect(path, journal="wal", synchronous="off")
    opened.executescript(TABLES)
    return opened


def _prove(opened: sqlite3.Connection) -> None:
    """Verify the whole file. Raises sqlite3.DatabaseError, ValueError, TypeError if it is damaged."""
    flaw = opened.execute("pragma quick_check(1)").fetchone()[0]
    if flaw != "ok":
        raise ValueError(flaw)
    for _, path, version, lines in opened.execute("select session, path, version, lines from sight"):
        WorkspacePath(os.fsdecode(path))
        _sight(version, lines)
    opened.execute("select session, time_us from used").fetchall()


def _sight(version: str | None, lines: str | None) -> ReadMark:
    seen = None if lines is None else tuple((first, last) for first, last in json.loads(lines))
    return ReadMark(Base(None if version is None else Version(version)), seen)
