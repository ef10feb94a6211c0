"""SQLite, as the store's files use it: how long another's lock is waited for, and what its errors come to.

A database is damaged where SQLite finds it so. A lock, a full disk, a lack of descriptors are none of its
own: what is put aside for one of those would be lost.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import sqlite3
import time
from typing import TYPE_CHECKING, Literal

from editd.errors import IoError

if TYPE_CHECKING:
    from collections.abc import Iterator

log = logging.getLogger(__name__)

OPENING_SECONDS = 5.0  # for another program that has it locked; who waits for a daemon waits longer
LOCKED_SECONDS = 0.2  # the same once it is open: everybody waits meanwhile

# What SQLite says where the file is as it should be (sqlite.org/rescode.html), and the error number of that.
_ERRNOS = {
    sqlite3.SQLITE_FULL: errno.ENOSPC,
    sqlite3.SQLITE_BUSY: errno.EBUSY,
    sqlite3.SQLITE_LOCKED: errno.EBUSY,
    sqlite3.SQLITE_PERM: errno.EACCES,
    sqlite3.SQLITE_READONLY: errno.EROFS,
    sqlite3.SQLITE_IOERR: errno.EIO,
    sqlite3.SQLITE_CANTOPEN: errno.EIO,
}
_PRIMARY = 0xFF  # of an error's code; the rest is what kind of such an error it is


def connect(
    path: str, *, journal: Literal["delete", "wal"], synchronous: Literal["full", "off"]
) -> sqlite3.Connection:
    """Open the database at `path`, or make it, for this user alone. Raises OSError, sqlite3.DatabaseError.

    A statement is a transaction of its own but within `writing`. Used by one thread at a time, though not
    always by the same.
    """
    os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
    database = sqlite3.connect(path, timeout=OPENING_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        database.execute(f"pragma journal_mode = {journal}")
        database.execute(f"pragma synchronous = {synchronous}")
    except BaseException:
        database.close()
        raise
    return database


def is_open(database: sqlite3.Connection) -> None:
    """From here on others wait for whoever waits for a lock of it."""
    database.execute(f"pragma busy_timeout = {int(LOCKED_SECONDS * 1000)}")


@contextlib.contextmanager
def writing(database: sqlite3.Connection) -> Iterator[None]:
    """All of it or nothing."""
    database.execute("begin immediate")
    try:
        yield
        database.execute("commit")
    except BaseException:
        if database.in_transaction:
            database.execute("rollback")
        raise


def is_damage(error: sqlite3.Error) -> bool:
    """Is it the database itself that is at fault?"""
    code = _code(error)
    # A file that `connect` could open for writing is read-only by its own header.
    return code & _PRIMARY not in _ERRNOS or code == sqlite3.SQLITE_READONLY


def refusal(error: sqlite3.Error | OSError, what: str) -> IoError:
    """What it comes to for who asked; `what` is the beginning of its sentence."""
    if isinstance(error, OSError):
        return IoError(error, what)
    number = _ERRNOS.get(_code(error) & _PRIMARY)
    if number is None:
        return IoError(OSError(str(error)), what)
    hint = "Another program has it locked: try again when that is done." if number == errno.EBUSY else ""
    return IoError(OSError(number, str(error)), what, hint=hint)


def put_aside(path: str) -> None:
    """Move a database that is damaged, or of another version, into `damaged`, beside what else went there."""
    aside = os.path.join(os.path.dirname(path), "damaged", time.strftime("%Y-%m-%dT%H-%M-%S"))
    for suffix in ("", "-wal", "-shm", "-journal"):
        if os.path.exists(path + suffix):
            os.makedirs(os.path.dirname(aside), 0o700, exist_ok=True)  # the mode is the last folder's alone
            os.makedirs(aside, 0o700, exist_ok=True)
            os.replace(path + suffix, os.path.join(aside, os.path.basename(path) + suffix))
            log.warning("%s is moved to %s, and made anew", path + suffix, aside)


def _code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)  # Python's own errors have none
