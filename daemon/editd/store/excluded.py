"""The contents of excluded files: named in the store for good, and kept beside it for a short time.

A transaction names a version of an excluded file (`values.excluded_paths`), and neither the journal nor a
pack has its content. Two records make up for that:

    store.git/excluded          a line for a version of a path, only appended: CRC-32, version, path as JSON
    excluded/VERSION-TIME-SEQ   a content of an edit, kept so that the edit can be finished and undone

TIME is the time of the newest edit with the content, in microseconds, and SEQ its transaction. A change by
another program has its line, and its content is never written. Both are durable before the journal has the
transaction (C1), so that recovery finds the content. Packing and the exchange never read the folder.

The line distinguishes a content that was not kept from damage. It stays, because the trees name the version.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from editd.store.checked_lines import checked_line, damage_refusal, read_lines, whole_lines_of
from editd.store.forgotten import read_forgotten, whole_lines
from editd.store.git_objects import oid_of
from editd.system.files import replace_file, replace_file_durably, sync_path
from editd.system.filesystem import write_at
from editd.values.content import Version, version_of
from editd.values.excluded_paths import ExcludedPaths
from editd.values.path import WorkspacePath

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from editd.store.git_objects import Oid

log = logging.getLogger(__name__)

EXCLUDED = "excluded"  # the name of the record in the store, and of the folder beside it
_BODY = re.compile(r'([0-9a-f]{40}) (".*")')
_NAME = re.compile(r"([0-9a-f]{40})-(\d+)-(\d+)")
_UNFINISHED = ".new"


class KeptContent(Struct, frozen=True):
    """A kept content: the time of the newest edit with it, the transaction of that edit, and its size."""

    time_us: int
    seq: int
    size: int


Named = tuple[Version, str]
"""A version that a transaction names without its content, and the path that had it."""

LeftOut = Mapping[Version, tuple[str, bytes | None]]
"""Versions that no record has, each with a path, and with its content if that is known."""


class ExcludedContents:
    """The excluded versions of one history. Used by the engine's thread."""

    rule = ExcludedPaths()
    """The paths that are excluded from now on."""

    def __init__(self, folder: str, store: str) -> None:
        """Touch nothing. `folder` is the state folder, and `store` the repository in it."""
        self._folder = os.path.join(folder, EXCLUDED)
        self._store = store
        self._end = 0  # of the whole lines of the record
        self.paths: dict[Version, str] = {}
        """Each version that a transaction names without its content, with the first path that had it."""
        self._pairs: set[Named] = set()  # of a version and a path: an ordinary file may have the same version
        self.kept: dict[Version, KeptContent] = {}
        self.bytes = 0  # of the kept contents

    def open(self) -> None:
        """Read the record, and the names of the kept contents. Raises HistoryDamaged, OSError."""
        pairs, self._end = _read(self._store)
        self._take(pairs)
        with contextlib.suppress(FileNotFoundError):
            for name in os.listdir(self._folder):
                if name.endswith(_UNFINISHED):  # of an edit that was cut off before its commit point
                    os.unlink(os.path.join(self._folder, name))
        self._list()

    def open_damaged(self) -> None:
        """Read the whole lines of a record that may be damaged, and the names of the kept contents."""
        self._take(read_whole_lines(self._store))
        with contextlib.suppress(OSError):
            self._list()

    def _take(self, pairs: Iterable[Named]) -> None:
        for version, path in pairs:
            self._pairs.add((version, path))
            self.paths.setdefault(version, path)

    def _list(self) -> None:
        self.kept = dict(_list_kept(self._folder))
        self.bytes = sum(kept.size for kept in self.kept.values())

    def files(self) -> list[str]:
        """Return the excluded files that transactions name. For any thread."""
        named = list(self.paths.values())  # in one step, because the engine may add to them
        return sorted(path for path in set(named) if self.rule.covers(WorkspacePath(path)))

    def content(self, version: Version) -> bytes | None:
        """Return a kept content; None for another version, or a damaged or missing file. Raises OSError."""
        kept = self.kept.get(version)
        if kept is None:
            return None
        try:
            with open(self._path(version, kept), "rb") as file:
                content = file.read()
        except FileNotFoundError:
            log.error("the kept content %s was deleted by another program", version)
            self.drop([version])
            return None
        if version_of(content) != version:
            log.error("the kept content %s is damaged", version)
            return None
        return content

    def keep(self, contents: LeftOut, time_us: int, seq: int) -> list[Version]:
        """Record versions, and keep their contents; return the newly kept ones.

        Durable on return. Raises OSError with nothing kept that was not kept before.
        """
        self.name((version, path) for version, (path, _) in contents.items())
        if not os.path.isdir(self._folder):
            os.mkdir(self._folder, 0o700)
            sync_path(os.path.dirname(self._folder))
        made: list[Version] = []
        try:
            for version, (_, content) in contents.items():
                if content is not None:
                    if version not in self.kept:
                        made.append(version)
                    self._keep(version, content, KeptContent(time_us, seq, len(content)))
            sync_path(self._folder)
        except OSError:
            self.take_back(made)
            raise
        return made

    def take_back(self, versions: Iterable[Version]) -> None:
        """Delete contents that were kept for an edit that is refused; log a failure."""
        try:
            self.drop(versions)
        except OSError as error:
            log.warning("contents of a refused edit of an excluded file stay for a while: %s", error)

    def name(self, pairs: Iterable[Named]) -> None:
        """Record versions with their paths, durably. Raises OSError."""
        new = [pair for pair in dict.fromkeys(pairs) if pair not in self._pairs]
        if new:
            self._end = append_excluded(self._store, new, self._end)
            self._take(new)

    def is_named(self, version: Version, path: WorkspacePath) -> bool:
        """Return whether a transaction changed this path from or to a version that it left out."""
        return (version, path.text) in self._pairs

    def drop(self, versions: Iterable[Version]) -> int:
        """Delete kept contents; return their number. Raises OSError."""
        dropped = 0
        for version in list(versions):
            kept = self.kept.pop(version, None)
            if kept is not None:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self._path(version, kept))
                self.bytes -= kept.size
                dropped += 1
        if dropped:
            sync_path(self._folder)
        return dropped

    def drop_old(self, now_us: int, keep_us: int, through: int) -> int:
        """Delete the contents older than `keep_us`, of transactions up to `through`; return their number.

        A content from the future counts as old after the same time: the clock was set back. Raises OSError.
        """
        return self.drop(
            version
            for version, kept in self.kept.items()
            if kept.seq <= through and abs(now_us - kept.time_us) >= keep_us
        )

    def drop_matching(self, is_dropped: Callable[[bytes], bool], through: int) -> int:
        """Delete the contents that `is_dropped` accepts, of transactions up to `through`. Raises OSError."""
        return self.drop(
            version
            for version, kept in list(self.kept.items())
            if kept.seq <= through and is_dropped(self.content(version) or b"")
        )

    def due_us(self, keep_us: int) -> int | None:
        """Return when the next content is old; None without a kept content."""
        return min((kept.time_us + keep_us for kept in self.kept.values()), default=None)

    def _keep(self, version: Version, content: bytes, kept: KeptContent) -> None:
        """Write a content, or give the file that has it the new time."""
        path, known = self._path(version, kept), self.kept.get(version)
        if known is not None:
            os.rename(self._path(version, known), path)
        else:
            try:
                replace_file(path, content, temporary=_UNFINISHED)
            except OSError:
                with contextlib.suppress(OSError):
                    os.unlink(path + _UNFINISHED)
                raise
            self.bytes += kept.size
        self.kept[version] = kept

    def _path(self, version: Version, kept: KeptContent) -> str:
        return os.path.join(self._folder, f"{version}-{kept.time_us}-{kept.seq}")


def read_excluded(store: str) -> list[Named]:
    """Return the excluded versions of a store with their paths. Raises HistoryDamaged, OSError."""
    return _read(store)[0]


def read_whole_lines(store: str) -> list[Named]:
    """Return the excluded versions that whole lines name with their paths, despite damage around them."""
    known = map(_parse, whole_lines_of(os.path.join(store, EXCLUDED)))
    return list(dict.fromkeys(one for one in known if one is not None))


def append_excluded(store: str, pairs: Iterable[Named], end: int | None = None) -> int:
    """Append versions with their paths to the record, from `end` on, durably; return the new end.

    Without `end`, the missing ones come after the last whole line. Raises HistoryDamaged then, and OSError.
    """
    at = 0 if end is None else end
    if end is None:
        known, at = _read(store)
        pairs = [pair for pair in dict.fromkeys(pairs) if pair not in set(known)]
    lines = b"".join(_line(version, path) for version, path in pairs)
    if not lines:
        return at
    path = os.path.join(store, EXCLUDED)
    is_new = not os.path.exists(path)
    flags = os.O_RDWR | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o600)
    except BlockingIOError:  # another program's lease, whose end no client waits for: a copy takes the path
        with open(path, "rb") as file:
            replace_file_durably(path, file.read(at))
        descriptor = os.open(path, flags, 0o600)
    try:
        os.ftruncate(descriptor, at)  # a torn line of an append that was cut off
        write_at(descriptor, lines, at)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    if is_new:
        sync_path(store)
    return at + len(lines)


def rewrite_excluded(store: str, pairs: Iterable[Named]) -> None:
    """Write the record anew from its whole lines, in a repair. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(store, EXCLUDED))
    append_excluded(store, pairs, 0)


def absent_contents(store: str, *, is_strict: bool = True) -> frozenset[Oid]:
    """Return the contents that no verification and no repair expects: the forgotten and the excluded ones.

    Raises HistoryDamaged if a record of them is damaged, unless not `is_strict`: then whole lines count.
    """
    if is_strict:
        versions = read_forgotten(store).keys() | dict(read_excluded(store)).keys()
    else:
        versions = whole_lines(store).keys() | dict(read_whole_lines(store)).keys()
    return frozenset(map(oid_of, versions))


def _read(store: str) -> tuple[list[Named], int]:
    """Return the versions of the record with their paths, and the end of its whole lines.

    Raises HistoryDamaged for a bad line, but for a torn one at the end: no transaction names its version.
    """
    path = os.path.join(store, EXCLUDED)
    bodies, end = read_lines(path)
    parsed = list(map(_parse, bodies))
    known = [one for one in parsed if one is not None]
    if len(known) < len(parsed):
        raise damage_refusal(path, "it has a line that names no version")
    return list(dict.fromkeys(known)), end


def _parse(body: str) -> Named | None:
    """Return the version and the path of a line; None if it has none."""
    match = _BODY.fullmatch(body)
    with contextlib.suppress(ValueError):
        return None if match is None else (Version(match[1]), str(json.loads(match[2])))
    return None


def _line(version: Version, path: str) -> bytes:
    return checked_line(f"{version} {json.dumps(path)}")


def _list_kept(folder: str) -> Iterator[tuple[Version, KeptContent]]:
    """Yield the kept contents by their files' names; of two files with one content, the later one is last."""
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return
    for name in names:
        match = _NAME.fullmatch(name)
        if match is not None:
            size = os.stat(os.path.join(folder, name)).st_size
            yield Version(match[1]), KeptContent(int(match[2]), int(match[3]), size)
