"""The checksums of proposals and grants, and the rescue of the whole ones from a damaged database.

A seal is the checksum of all rows of one proposal or grant, written with them. The rows name contents by
version, which is a checksum as well. So each flipped bit that changes a meaning is found. It costs the one
proposal that it is in, because `rescue` copies the others into a new database.

The functions take a database with the tables of `store.proposals`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import sqlite3
import tempfile
from glob import escape, glob
from typing import TYPE_CHECKING, Literal

from msgspec import Struct, json

from editd.errors import join_names
from editd.store import sqlite
from editd.system.files import replace_file_durably
from editd.values.content import version_of

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping, Sequence, Set

PROPOSALS_FILE = "proposals.db"
NOTE = "proposals.lost"  # beside a damaged database in `damaged/`
SEAL_TABLES = """
create table if not exists seal (
    kind text not null, number integer not null, sum blob not null, primary key (kind, number)) without rowid;
"""
SEALED = 1  # the `user_version` of a database with seals
Kind = Literal["proposal", "grant"]
Row = tuple[object, ...]
Key = tuple[Kind, int]

COLUMNS = {  # of each table: a flipped bit may have renamed one
    "proposal": "number, state, session, request_id, revision, changed_us, written",
    "revision": "proposal, revision, seq, time_us, request_id, fingerprint",
    "file": (
        "proposal, revision, position, path, source, base_version, base_mode, base_permissions, "
        "proposed_version, proposed_mode, proposed_permissions"
    ),
    "hunk": (
        "proposal, revision, number, position, id, kind, old_start, old_end, new_start, new_end, verdict"
    ),
    "content": "version, size, bytes",
    "decision": "proposal, number, written",
    "comment": "proposal, number, written",
    "check_result": "proposal, number, written",
    "author": "proposal, number, written",
    "intent": "proposal, written",
    '"grant"': "number, written",
    "seal": "kind, number, sum",
}
PARTS = ("revision", "file", "hunk", "decision", "comment", "check_result", "author", "intent")
_OF_KIND: Mapping[Kind, Sequence[str]] = {"proposal": ("proposal", *PARTS), "grant": ('"grant"',)}
_BASE, _PROPOSED = 5, 8  # columns of `file` with a version
_REQUEST = 4  # the column of `revision` with the id of a request
_UNIQUE = 3  # first columns that identify a row of `file` or `hunk`; of the other tables, more do no harm


class Flaw(Struct, frozen=True):
    """One damage of the database; `key` is the proposal or grant that it costs, if any."""

    key: Key | None
    what: str
    requests: tuple[str, ...] = ()
    """The ids of the requests that made the proposal, as far as they can be read."""

    @property
    def name(self) -> str:
        return "a part" if self.key is None else f"{self.key[0]} {self.key[1]}"

    @property
    def sentence(self) -> str:
        return f"{self.name.capitalize()} of proposals.db is damaged: {self.what}."


def is_or_are(flaws: Sequence[Flaw]) -> str:
    """Return the names of lost proposals and grants, with the verb."""
    return f"{join_names([flaw.name for flaw in flaws])} {'is' if len(flaws) == 1 else 'are'}"


def note_lost(damaged: str, flaws: Sequence[Flaw]) -> None:
    """Write beside a damaged database what it has cost, for `losses`. Raises OSError."""
    if flaws:
        replace_file_durably(os.path.join(os.path.dirname(damaged), NOTE), json.encode(flaws))


def losses(folder: str) -> Iterator[str]:
    """Yield a sentence for each damaged database in `damaged/` that has cost something.

    A proposal that its author or the log of all hosts has made again is not lost. Raises OSError,
    sqlite3.Error.
    """
    for note in sorted(glob(os.path.join(escape(folder), "damaged", "*", NOTE))):
        with open(note, "rb") as file:
            flaws = remaining_flaws(json.decode(file.read(), type=list[Flaw]), _requests(folder))
        if flaws:
            names = join_names([flaw.name for flaw in flaws])
            yield f"A damaged proposals.db has cost {names}. To confirm, delete {os.path.dirname(note)}."


def remaining_flaws(flaws: Iterable[Flaw], requests: Container[object]) -> list[Flaw]:
    """Return the flaws of proposals that no request has made again."""
    return [flaw for flaw in flaws if not any(request in requests for request in flaw.requests)]


def _requests(folder: str) -> set[object]:
    """Return the ids of the requests that made the present proposals."""
    path = os.path.join(folder, PROPOSALS_FILE)
    if not os.path.exists(path):
        return set()
    with contextlib.closing(sqlite.connect_to_read(path)) as database:
        return {request for (request,) in database.execute("select request_id from revision")}


def seal(database: sqlite3.Connection, kind: Kind, number: int) -> None:
    """Write the checksum of a proposal's or grant's present rows; remove it if there are none."""
    rows = {table: _rows_of(database, table, number) for table in _OF_KIND[kind]}
    if any(rows.values()):
        database.execute("insert or replace into seal values (?, ?, ?)", (kind, number, _sum(rows)))
    else:
        database.execute("delete from seal where kind = ? and number = ?", (kind, number))


def seal_all(database: sqlite3.Connection) -> None:
    """Seal all that an earlier version has written without seals."""
    if not _is_unsealed(database):
        return
    with sqlite.writing(database):
        for kind, (table, *_) in _OF_KIND.items():
            for (number,) in database.execute(f"select number from {table}").fetchall():  # noqa: S608  # ours
                seal(database, kind, number)
        database.execute(f"pragma user_version = {SEALED}")


def _is_unsealed(database: sqlite3.Connection) -> bool:
    has_version = database.execute("pragma user_version").fetchone()[0] != 0
    return not has_version and database.execute("select 1 from seal limit 1").fetchone() is None


def flaws_of(database: sqlite3.Connection) -> list[Flaw]:
    """Return the damage of an open database, at most one of each proposal. Reads all of it."""
    try:
        sqlite.verify_pages(database, "integrity_check")
        unsound, sound = 0, set[object]()
        for row in database.execute(f"select {COLUMNS['content']} from content"):  # noqa: S608  # ours
            unsound += not _is_sound(row)
            sound.update(row[:1] if _is_sound(row) else ())
        _, flaws = _compare_seals(
            {table: _all(database, table) for table in COLUMNS if table != "content"}, sound
        )
    except (sqlite3.DatabaseError, ValueError) as error:
        if isinstance(error, sqlite3.Error) and not sqlite.is_damage(error):
            raise
        return [Flaw(None, str(error))]
    return flaws or [Flaw(None, "a content that no proposal has")][:unsound]


def flaws_in(path: str) -> list[Flaw]:
    """Return the damage of a database that a daemon may have open. Raises OSError, sqlite3.Error."""
    if not os.path.exists(path):
        return []
    has_log = os.path.exists(f"{path}-wal") and os.path.getsize(f"{path}-wal") > 0
    try:
        with contextlib.closing(sqlite.connect_to_read(path, is_unchanging=not has_log)) as database:
            database.execute("begin")
            return [] if _is_unsealed(database) else flaws_of(database)
    except sqlite3.DatabaseError as error:
        if not sqlite.is_damage(error):
            raise
        return [Flaw(None, str(error))]


def rescue(damaged: str, database: sqlite3.Connection) -> list[Flaw]:
    """Copy the whole proposals and grants of a damaged database into an empty one; return what is lost.

    The damaged file is not written to. Raises OSError, sqlite3.Error for a failure of the disk.
    """
    tables = _readable(damaged)
    contents = {row[0]: row for row in tables.pop("content") if _is_sound(row)}
    whole, flaws = _compare_seals(tables, contents.keys())
    whole["content"] = [contents[version] for version in sorted(_versions(whole["file"]), key=str)]
    with sqlite.writing(database):
        for table, rows in whole.items():
            marks = ", ".join("?" * len(COLUMNS[table].split(",")))
            database.executemany(
                f"insert into {table} ({COLUMNS[table]}) values ({marks})",  # noqa: S608  # ours
                rows,
            )
        database.execute(f"pragma user_version = {SEALED}")
    return flaws if tables["seal"] else [*flaws, Flaw(None, "none of it can be read")]


def _compare_seals(
    tables: Mapping[str, Sequence[Row]], sound: Set[object]
) -> tuple[dict[str, list[Row]], list[Flaw]]:
    """Return the rows of whole proposals and grants, and the flaws of the others.

    `sound` has the versions of the whole contents.
    """
    seals = {(kind, number): total for kind, number, total in tables["seal"]}
    chosen: dict[str, list[Row]] = {table: [] for table in tables}
    flaws: list[Flaw] = []
    for kind, parts in _OF_KIND.items():
        by_number = _by_number(tables, parts)
        for number in by_number.keys() | {number for known, number in seals if known == kind}:
            rows = by_number.get(number) or {table: [] for table in parts}
            total = seals.get((kind, number))
            if total != _sum(rows):
                fact = "its rows are not as they were written" if rows[parts[0]] else "it is missing"
                flaws.append(Flaw((kind, _number(number)), fact, _requests_in(rows)))
            elif missing := _versions(rows.get("file", ())) - sound:
                fact = f"the content {min(map(str, missing))[:12]} is"
                flaws.append(Flaw((kind, _number(number)), fact, _requests_in(rows)))
            else:
                for table in parts:
                    chosen[table] += rows[table]
                chosen["seal"].append((kind, number, total))
    return chosen, sorted(flaws, key=lambda flaw: str(flaw.key))


def _requests_in(rows: Mapping[str, Sequence[Row]]) -> tuple[str, ...]:
    requests = (row[_REQUEST] for row in rows.get("revision", ()))
    return tuple(request for request in requests if isinstance(request, str))


def _by_number(
    tables: Mapping[str, Sequence[Row]], parts: Sequence[str]
) -> dict[object, dict[str, list[Row]]]:
    """Return the rows of each proposal or grant, by its number and by table."""
    numbers = {row[0] for table in parts for row in tables[table]}
    rows: dict[object, dict[str, list[Row]]] = {number: {table: [] for table in parts} for number in numbers}
    for table in parts:
        for row in tables[table]:
            rows[row[0]][table].append(row)
    return rows


def _versions(files: Iterable[Row]) -> set[object]:
    return {row[at] for row in files for at in (_BASE, _PROPOSED)} - {None}


def _is_sound(content: Row) -> bool:
    version, size, raw = content
    return isinstance(raw, bytes) and size == len(raw) and version == version_of(raw)


def _number(number: object) -> int:
    return number if isinstance(number, int) else -1


def _sum(rows: Mapping[str, Sequence[Row]]) -> bytes:
    """Return the checksum of the rows of one proposal or grant, by table, in any order."""
    sums = hashlib.sha256()
    for table, of_table in rows.items():
        sums.update(ascii((table, sorted(map(ascii, of_table)))).encode())
    return sums.digest()


def _rows_of(database: sqlite3.Connection, table: str, number: int) -> list[Row]:
    key = COLUMNS[table].partition(",")[0]
    query = f"select {COLUMNS[table]} from {table} where {key} = ?"  # noqa: S608  # ours
    return database.execute(query, (number,)).fetchall()


def _all(database: sqlite3.Connection, table: str, order: str = "") -> list[Row]:
    query = f"select {COLUMNS[table]} from {table} not indexed {order}"  # noqa: S608  # ours
    return database.execute(query).fetchall()


def _readable(damaged: str) -> dict[str, list[Row]]:
    """Return the rows of a damaged database that can be read. It is copied, because reading may write."""
    with tempfile.TemporaryDirectory(dir=os.path.dirname(damaged), prefix="rescue-") as folder:
        copy = os.path.join(folder, os.path.basename(damaged))
        for suffix in ("", "-wal"):
            with contextlib.suppress(FileNotFoundError):
                shutil.copyfile(damaged + suffix, copy + suffix)
        with contextlib.closing(sqlite3.connect(copy, isolation_level=None)) as database:
            database.text_factory = _text
            return {table: _from_both_ends(database, table) for table in COLUMNS}


def _text(raw: bytes) -> str:
    """Return a text, also one with a flipped bit, whose seal does not fit then."""
    return raw.decode("utf-8", "replace")


def _from_both_ends(database: sqlite3.Connection, table: str) -> list[Row]:
    """Return the rows of a table up to a damaged page from its beginning, and from its end."""
    has_rowid = table in ("proposal", "content", '"grant"')
    key = "rowid" if has_rowid else ", ".join(COLUMNS[table].split(", ")[:_UNIQUE])
    rows: dict[Row, None] = {}
    for order in ("asc", "desc"):
        ordered = ", ".join(f"{column} {order}" for column in key.split(", "))
        for row in _until_damage(database, f"select {COLUMNS[table]} from {table} order by {ordered}"):  # noqa: S608  # ours
            rows[row] = None
    return list(rows)


def _until_damage(database: sqlite3.Connection, query: str) -> Iterator[Row]:
    with contextlib.suppress(sqlite3.DatabaseError):
        yield from database.execute(query)
