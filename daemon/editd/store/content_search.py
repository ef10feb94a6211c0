"""The search of a whole state folder for contents that `forget` removes, and the proof of the removal.

`python -m editd.store.content_search STATE_FOLDER`, framed messages on stdin and stdout (`system.frames`).

Everything is decompressed: each object and each delta of every pack, and each record in every frame of the
journal, also of an earlier use of a segment. Each value of every database is read, and its pages and its log
are searched as they are. Every other file is searched as it is. Only reads.

A content is sought by its version, and a text by its bytes: in each encoding of Unicode, in Latin-1, with all
kinds of line ends, and as JSON writes it.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import sqlite3
import sys
from typing import TYPE_CHECKING

import pygit2
from msgspec import Struct

from editd.store import sqlite
from editd.store.git_objects import CommitObject, oid_of
from editd.store.git_repository import borrowed_folders, open_store, own_objects
from editd.store.journal import left_frames
from editd.store.journal_record import Committed
from editd.store.packfile import Pack
from editd.store.transaction_record import parse
from editd.system.fast_exit import exit_fast
from editd.system.frames import read_frame, write_frame
from editd.values.content import Version, version_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from editd.system.frames import Frame

_SQLITE = b"SQLite format 3\0"
_RECORD = "forgotten"  # it names the versions, and has no content
ENCODINGS = ("utf-8", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be", "latin-1", "cp1252")
LINE_ENDS = ("\n", "\r\n", "\r")
REMOTE = "remote"  # the copy of the log of all hosts, which is not the history's


class Sought(Struct, frozen=True):
    """The versions and the text of one search; the text in each form that files may have it in."""

    versions: frozenset[Version]
    needles: tuple[bytes, ...] = ()

    @classmethod
    def of(cls, versions: Iterable[str], text: str | None) -> Sought:
        if text is None:
            return cls(frozenset(map(Version, versions)))
        lines = text.replace("\r\n", "\n").replace("\r", "\n")
        forms = {needle for end in LINE_ENDS for needle in _forms(lines.replace("\n", end))}
        return cls(frozenset(map(Version, versions)), tuple(sorted(forms | _forms(text))))

    def is_in(self, content: bytes | mmap.mmap) -> bool:
        """Return whether the text is in the content."""
        return any(content.find(needle) >= 0 for needle in self.needles)

    def is_content(self, content: bytes) -> bool:
        """Return whether it is one of the contents, or has the text in it."""
        return self.is_in(content) or (bool(self.versions) and version_of(content) in self.versions)


def _forms(text: str) -> set[bytes]:
    """Return the bytes of a text in each encoding that has them, and of its forms in JSON."""
    escaped = {json.dumps(text, ensure_ascii=is_ascii)[1:-1] for is_ascii in (True, False)}
    forms = {form.encode("utf-8", "surrogateescape") for form in (text, *escaped)}
    for encoding in ENCODINGS:
        with contextlib.suppress(UnicodeEncodeError):
            forms.add(text.encode(encoding))
    return forms


class Holder(Struct, frozen=True):
    """A file that holds what is sought: the path in the state folder, and what in it."""

    file: str
    part: str


class ContentSearch:
    """One search of the state folder. `looked_at` counts the contents that were compared."""

    def __init__(self, folder: str, sought: Sought) -> None:
        self._folder = folder
        self._sought = sought
        self.looked_at = 0

    def holders(self) -> Iterator[Holder]:
        """Yield what is found, file by file. Files that vanish meanwhile are left out. Raises OSError."""
        for folder, folders, names in os.walk(self._folder):
            folders.sort()
            for name in sorted(names):
                path = os.path.join(folder, name)
                with contextlib.suppress(FileNotFoundError):
                    for part in sorted(set(self._parts(path))):
                        yield Holder(os.path.relpath(path, self._folder), part)

    def _parts(self, path: str) -> Iterator[str]:
        """Yield what in a file holds something that is sought."""
        if os.path.islink(path) or not os.path.isfile(path):
            return
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if not size or os.path.basename(path) == _RECORD:
                return
            with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as content:
                self.looked_at += 1
                if self._sought.is_in(content):
                    yield "its bytes"
                if path.endswith(".pack"):
                    yield from self._in_pack(path)
                elif content[: len(_SQLITE)] == _SQLITE:
                    yield from self._in_database(path)
                elif path.endswith((".segment", ".new")):
                    yield from self._in_segment(content[:])
                elif self._sought.versions and version_of(content[:]) in self._sought.versions:
                    yield "its bytes"

    def _in_pack(self, path: str) -> Iterator[str]:
        pack = Pack(path)
        try:
            for entry in pack.entries():
                self.looked_at += 1
                if self._sought.is_in(entry.content):
                    yield "an object or a delta"
            for oid in pack:
                self.looked_at += 1
                kind, content = pack.read(oid)
                if kind == "blob" and oid.hex() in self._sought.versions:
                    yield f"the content {oid.hex()}"
                if self._sought.is_in(content):
                    yield _name_of(kind, oid.hex(), content)
        finally:
            pack.close()

    def _in_segment(self, content: bytes) -> Iterator[str]:
        for records in left_frames(content):
            for record in records:
                for held in _contents(record) if isinstance(record, Committed) else ():
                    self.looked_at += 1
                    if self._sought.is_content(held):
                        yield f"the record of transaction {record.seq}"

    def _in_database(self, path: str) -> Iterator[str]:
        with contextlib.closing(sqlite.connect_to_read(path)) as database:
            database.text_factory = bytes
            for table in _tables(database):
                for row in database.execute(f'select * from "{table}"'):  # noqa: S608  # the schema's own names
                    for value in row:
                        if isinstance(value, bytes):
                            self.looked_at += 1
                            if self._sought.is_content(value):
                                yield f"a value of {table}"


def _tables(database: sqlite3.Connection) -> list[str]:
    query = "select name from sqlite_master where type = 'table'"
    return [name.decode() for (name,) in database.execute(query).fetchall()]


def _name_of(kind: str, oid: str, content: bytes) -> str:
    """Return a name for an object that has the text in it: for a commit, its transaction's name."""
    if kind == "commit":
        with contextlib.suppress(ValueError):
            return f"the message of transaction {parse(CommitObject.decode(content).message).seq}"
    return f"the name of a file in the folder {oid}" if kind == "tree" else f"the content {oid}"


def _contents(record: Committed) -> Iterator[bytes]:
    for change in record.changes:
        for side in (change.before, change.after):
            if side is not None and side.content is not None:
                yield side.content


# What a `forget` begins with: the versions that hold a text, and which of them the store has itself.


def versions_with(folder: str, sought: Sought) -> set[Version]:
    """Return the versions of files, recorded or proposed, that hold the text. Raises OSError."""
    versions: set[Version] = set()
    packs = os.path.join(folder, "store.git", "objects", "pack")
    for name in sorted(os.listdir(packs)):
        if name.endswith(".pack"):
            pack = Pack(os.path.join(packs, name))
            try:
                for oid in pack:
                    kind, content = pack.read(oid)
                    if kind == "blob" and sought.is_in(content):
                        versions.add(Version(oid.hex()))
            finally:
                pack.close()
    return versions


def sizes_of(
    folder: str, versions: Iterable[Version]
) -> tuple[dict[Version, int], list[Version], list[Version]]:
    """Return the sizes of those contents that the store's packs have themselves.

    The second result has the contents in the user's own repositories, and the third the contents in the
    copy of the log of all hosts.
    """
    store = os.path.join(folder, "store.git")
    own = own_objects(store)
    users = [pygit2.Odb(folder) for folder in borrowed_folders(store) if os.path.isdir(folder)]
    log = os.path.join(folder, REMOTE, "log.git")
    shared = open_store(log).odb if os.path.isdir(log) else ()
    sizes: dict[Version, int] = {}
    borrowed, in_log = [], []
    for version in versions:
        oid = pygit2.Oid(raw=oid_of(version))
        if oid in own:
            sizes[version] = len(own.read(oid)[1])
        if any(oid in odb for odb in users):
            borrowed.append(version)
        if oid in shared:
            in_log.append(version)
    return sizes, borrowed, in_log


def main() -> None:
    """Serve requests until stdin closes; either may be answered `{failed}`.

    `{do: "find", versions, needles}` → `{sizes, borrowed, shared}`;
    `{do: "prove", versions, needles}` → `{holders: [[file, part]], looked_at}`.
    """
    while (request := read_frame(sys.stdin.buffer)) is not None:
        sought = Sought(frozenset(request["versions"]), tuple(request["needles"]))
        try:
            answer = _ANSWERS[request["do"]](sys.argv[1], sought)
        except (OSError, KeyError, ValueError, sqlite3.Error, pygit2.GitError) as error:
            answer = {"failed": str(error)}
        write_frame(sys.stdout.buffer, answer)


def _find(folder: str, sought: Sought) -> Frame:
    versions = set(sought.versions)
    if sought.needles:
        versions |= versions_with(folder, sought)
    sizes, borrowed, shared = sizes_of(folder, sorted(versions))
    return {"sizes": sizes, "borrowed": borrowed, "shared": shared}


def _prove(folder: str, sought: Sought) -> Frame:
    search = ContentSearch(folder, sought)
    holders = [[holder.file, holder.part] for holder in search.holders()]
    return {"holders": holders, "looked_at": search.looked_at}


_ANSWERS: dict[str, Callable[[str, Sought], Frame]] = {"find": _find, "prove": _prove}


if __name__ == "__main__":
    main()
    exit_fast()
