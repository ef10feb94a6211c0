"""SQLite for the store's files: connections, lock timeouts, and the meaning of errors.

A database is damaged only if SQLite reports damage. A lock, a full disk or a lack of descriptors is no
damage: a database that was replaced because of one would be lost.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import sqlite3
import time
from typing import TYPE_CHECKING, Literal, TypeVar

from msgspec import MsgspecError, Struct, convert, to_builtins

from editd.errors import IoError, Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

log = logging.getLogger(__name__)

Written = TypeVar("Written", bound=Struct)

OPENING_SECONDS = 5.0  # to wait for another program's lock at start; clients wait longer for the daemon
LOCKED_SECONDS = 0.2  # to wait for a lock later, because all clients wait meanwhile

# SQLite's errors for an undamaged file (sqlite.org/rescode.html), and the matching error numbers.
_ERRNOS = {
    sqlite3.SQLITE_FULL: errno.ENOSPC,
    sqlite3.SQLITE_BUSY: errno.EBUSY,
    sqlite3.SQLITE_LOCKED: errno.EBUSY,
    sqlite3.SQLITE_PERM: errno.EACCES,
    sqlite3.SQLITE_READONLY: errno.EROFS,
    sqlite3.SQLITE_IOERR: errno.EIO,
    sqlite3.SQLITE_CANTOPEN: errno.EIO,
    sqlite3.SQLITE_PROTOCOL: errno.EIO,  # a lock of the log failed repeatedly
}
_SAID_OF_EIO = {sqlite3.SQLITE_CORRUPT: errno.EIO}  # SQLite takes an EIO at a read for damage, too
_PRIMARY = 0xFF  # the bits of the primary error code; the others are its extension


def connect_to_read(path: str, *, is_unchanging: bool = False) -> sqlite3.Connection:
    """Open a database only to read it. Nothing may write to it meanwhile if it `is_unchanging`.

    Raises sqlite3.Error.
    """
    from urllib.parse import quote  # no start needs it

    uri = f"file:{quote(os.fsencode(path))}?mode=ro" + ("&immutable=1" if is_unchanging else "")
    return sqlite3.connect(uri, uri=True, isolation_level=None)


def connect(
    path: str,
    *,
    journal: Literal["delete", "wal"],
    synchronous: Literal["full", "normal", "off"],
    tables: str = "",
) -> sqlite3.Connection:
    """Open or create the database at `path`, for this user alone. Raises OSError, sqlite3.DatabaseError.

    `tables` are SQL statements that make what is not there yet.
    Outside `writing`, each statement is a transaction. One thread at a time may use the connection, not
    always the same one.
    """
    os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
    database = sqlite3.connect(path, timeout=OPENING_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        database.execute(f"pragma journal_mode = {journal}")
        database.execute(f"pragma synchronous = {synchronous}")
        database.executescript(tables)
    except BaseException:
        database.close()
        raise
    return database


def open_or_replace(
    path: str,
    load: Callable[[sqlite3.Connection], None],
    *,
    journal: Literal["delete", "wal"],
    synchronous: Literal["full", "normal", "off"],
    tables: str,
    rescue: Callable[[str, sqlite3.Connection], None] | None = None,
) -> tuple[sqlite3.Connection, bool]:
    """Open the database and `load` it; replace a damaged one by an empty one. Return whether it was whole.

    `rescue` copies what is whole from the damaged one, at its new path, into the empty one.
    `load` raises an error if what it reads is damaged. Raises OSError, sqlite3.Error for any other failure,
    such as a disk that cannot read the file: an empty one would hide what is there.
    """
    is_whole = True
    try:
        database = connect(path, journal=journal, synchronous=synchronous, tables=tables)
        load(database)
    except (sqlite3.DatabaseError, MsgspecError, ValueError, TypeError, Refused) as error:
        if isinstance(error, sqlite3.Error) and not is_damage(error):
            raise
        _read_through(path)
        log.error("a database is damaged: %s: %s", path, error)
        is_whole = False
        aside = put_aside(path)
        database = connect(path, journal=journal, synchronous=synchronous, tables=tables)
        if rescue is not None:
            rescue(aside, database)
    return database, is_whole


def _read_through(path: str) -> None:
    """Raise OSError if the disk cannot read the file: SQLite says of that, too, that it is damaged."""
    with open(path, "rb", buffering=0) as file:
        while file.read(1 << 20):
            continue


def verify_pages(database: sqlite3.Connection, check: Literal["integrity_check", "quick_check"]) -> None:
    """Raise ValueError if SQLite finds the file damaged. `quick_check` leaves out the indexes."""
    if (flaw := database.execute(f"pragma {check}(1)").fetchone()[0]) != "ok":
        raise ValueError(flaw)


def is_open(database: sqlite3.Connection) -> None:
    """Shorten the lock timeout, because clients wait for the daemon from now on."""
    database.execute(f"pragma busy_timeout = {int(LOCKED_SECONDS * 1000)}")


@contextlib.contextmanager
def writing(database: sqlite3.Connection) -> Iterator[None]:
    """Run the statements in one transaction; roll back on an error.

    An exception between two statements of Python can leave a transaction open, which is rolled back first.
    """
    if database.in_transaction:
        database.execute("rollback")
    try:
        database.execute("begin immediate")
        yield
        database.execute("commit")
    except BaseException:
        if database.in_transaction:
            database.execute("rollback")
        raise


def scrub(database: sqlite3.Connection, *, pages: bool = True) -> None:
    """Remove deleted rows from the disk: from the freed pages, unless `pages` is false, and from the log.

    A freed page, and the free part of a used one, keep the bytes of their rows until they are used again.
    Raises OSError if another program reads the log, and sqlite3.Error.
    """
    if pages:
        database.execute("vacuum")
    is_busy = database.execute("pragma wal_checkpoint(truncate)").fetchone()[0]
    if is_busy:
        raise OSError(errno.EBUSY, "another program reads the database")


class UsedBytes:
    """The bytes of a database's pages that hold something, beyond an empty one's."""

    def __init__(self, database: sqlite3.Connection, tables: str) -> None:
        """`tables` is the script that makes the empty one."""
        self._database = database
        with contextlib.closing(sqlite3.connect(":memory:")) as empty:
            empty.executescript(tables)
            self._empty = _used_bytes(empty)
        self.bytes = 0
        self.measure()

    def measure(self) -> None:
        """Measure again, after a write."""
        self.bytes = max(0, _used_bytes(self._database) - self._empty)


def _used_bytes(database: sqlite3.Connection) -> int:
    pages, free, size = (
        int(database.execute(f"pragma {name}").fetchone()[0])
        for name in ("page_count", "freelist_count", "page_size")
    )
    return (pages - free) * size


def is_damage(error: sqlite3.Error) -> bool:
    """Return whether the error means that the database is damaged."""
    code = _code(error)
    # A file that `connect` could open for writing is read-only by its own header.
    return code & _PRIMARY not in _ERRNOS or code == sqlite3.SQLITE_READONLY


def refusal(error: sqlite3.Error | OSError, failure: str) -> IoError:
    """Convert a SQLite error to a Refused. `failure` starts the message."""
    if isinstance(error, OSError):
        return IoError(error, failure)
    primary = _code(error) & _PRIMARY
    number = _ERRNOS.get(primary, _SAID_OF_EIO.get(primary))
    if number is None:
        return IoError(OSError(str(error)), failure)
    hint = "Retry when the program that has locked it is done." if number == errno.EBUSY else ""
    return IoError(OSError(number, str(error)), failure, hint=hint)


@contextlib.contextmanager
def refusing(failure: str) -> Iterator[None]:
    """Convert the errors of SQLite and the disk to IoError. `failure` starts the message."""
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        raise refusal(error, failure) from error


def encode(written: Struct) -> bytes:
    """Encode as JSON in ASCII, because a text may hold surrogates for bytes that are not UTF-8."""
    return json.dumps(to_builtins(written)).encode()


def decode(written: bytes, form: type[Written]) -> Written:
    """Decode what `encode` made. Raises ValueError or MsgspecError if it is damaged."""
    return convert(json.loads(written), type=form)


def put_aside(path: str) -> str:
    """Move a database that is damaged, or of another version, into a new folder in `damaged`.

    Return its new path.
    """
    aside = os.path.join(os.path.dirname(path), "damaged", time.strftime("%Y-%m-%dT%H-%M-%S"))
    for suffix in ("", "-wal", "-shm", "-journal"):
        if os.path.exists(path + suffix):
            os.makedirs(os.path.dirname(aside), 0o700, exist_ok=True)  # the mode is the last folder's alone
            os.makedirs(aside, 0o700, exist_ok=True)
            os.replace(path + suffix, os.path.join(aside, os.path.basename(path) + suffix))
            log.warning("moved %s to %s; creating a new one", path + suffix, aside)
    return os.path.join(aside, os.path.basename(path))


def _code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)  # Python's own errors have none
