"""The scan: a walk over the files in scope, that reads only what has changed since the last one.

What it finds says where to look, never what is true: a file may change while it is read.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import cast

import msgpack

from editd.values.content import GitMode, Version, mode_of, version_of
from editd.workspace.gitindex import GitIndex
from editd.workspace.item import is_temporary
from editd.workspace.scope import Rules, Scope

FILE_BYTES_MAX = 16 * 1024 * 1024  # larger ones are captured when an edit touches them, not by the scan
RACY_NS = 50_000_000  # a file as young as this may change without its times telling: some kernels tick slowly
CACHE_VERSION = 1

Identity = tuple[int, int, int, int, int, int]  # device, inode, size, mtime and ctime in ns, mode


@dataclass(frozen=True, slots=True)
class Folder:
    """The files in scope of one folder; `path` is "" for the root."""

    path: bytes
    files: dict[bytes, tuple[GitMode, Version]]


@dataclass
class Walk:
    """One walk over the workspace; what was left out is counted here when it is done."""

    root: str
    scope: Scope
    known: dict[bytes, tuple[Identity, Version]]
    take: Callable[[bytes, bytes], bool] = lambda _path, _content: True
    indexes: dict[bytes, GitIndex] = field(default_factory=dict)  # of the repositories, by their top folder
    files: int = 0
    content_bytes: int = 0  # of what was read
    strays: list[bytes] = field(default_factory=list)  # temporaries of a daemon that is gone, or of this one
    too_large: list[bytes] = field(default_factory=list)
    unreadable: list[bytes] = field(default_factory=list)
    untaken: int = 0  # files over the budget
    _seen: set[bytes] = field(default_factory=set)

    def folders(self) -> Iterator[Folder]:
        """Every folder with its files, each folder before those in it. Never follows a symlink."""
        waiting: list[tuple[bytes, Rules | None, tuple[bytes, GitIndex] | None]] = [
            (b"", self.scope.rules(b"", None), self._index(b"", None))
        ]
        while waiting:
            path, rules, index = waiting.pop()
            files: dict[bytes, tuple[GitMode, Version]] = {}
            below: list[bytes] = []
            for entry in self._entries(path):
                name = os.fsencode(entry.name)
                here = path + b"/" + name if path else name
                if is_temporary(name):
                    self.strays.append(here)
                elif self._is_in(entry, here, rules, index):
                    if entry.is_dir(follow_symlinks=False):
                        below.append(here)
                    elif (found := self._file(entry, here, index)) is not None:
                        files[name] = found
            yield Folder(path, files)
            for here in sorted(below, reverse=True):
                waiting.append((here, self.scope.rules(here, rules), self._index(here, index)))
        for path in self.known.keys() - self._seen:
            del self.known[path]

    def _entries(self, path: bytes) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(os.path.join(self.root, os.fsdecode(path))) as entries:
                return list(entries)
        except OSError:
            self.unreadable.append(path)
            return []

    def _is_in(
        self, entry: os.DirEntry[str], here: bytes, rules: Rules | None, index: tuple[bytes, GitIndex] | None
    ) -> bool:
        is_folder = entry.is_dir(follow_symlinks=False)
        if index is not None and index[1].is_tracked(_inside(here, index[0]), is_folder=is_folder):
            return self.scope.takes(here, None, is_folder=False)  # only what is never in scope is left out
        return self.scope.takes(here, rules, is_folder=is_folder)

    def _index(self, folder: bytes, above: tuple[bytes, GitIndex] | None) -> tuple[bytes, GitIndex] | None:
        place = os.path.join(self.root, os.fsdecode(folder)) if folder else self.root
        if not os.path.lexists(os.path.join(place, ".git")):
            return above
        if folder not in self.indexes:
            found = GitIndex.of(place)
            if found is None:
                return None
            self.indexes[folder] = found
        return folder, self.indexes[folder]

    def _file(
        self, entry: os.DirEntry[str], path: bytes, index: tuple[bytes, GitIndex] | None
    ) -> tuple[GitMode, Version] | None:
        try:
            found = entry.stat(follow_symlinks=False)
            if not (stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode)):
                return None
            self.files += 1
            self._seen.add(path)
            version = self._version(entry, path, found, index)
        except FileNotFoundError:
            return None  # gone since the folder was listed
        except OSError:
            self.unreadable.append(path)
            return None
        return None if version is None else (mode_of(found.st_mode), version)

    def _version(
        self, entry: os.DirEntry[str], path: bytes, found: os.stat_result, index: tuple[bytes, GitIndex] | None
    ) -> Version | None:
        identity = identity_of(found)
        known = self.known.get(path)
        if known is not None and known[0] == identity:
            return known[1]
        clean = None if index is None else index[1].clean(_inside(path, index[0]), found)
        if clean is not None:
            version = clean[1]
        else:
            if found.st_size > FILE_BYTES_MAX:
                self.too_large.append(path)
                return None
            content = _read(entry, found)
            if not self.take(path, content):
                self.untaken += 1
                return None
            self.content_bytes += len(content)
            version = version_of(content)
        if max(found.st_mtime_ns, found.st_ctime_ns) < time.time_ns() - RACY_NS:
            self.known[path] = (identity, version)
        return version


def identity_of(found: os.stat_result) -> Identity:
    """What tells that a file is the one that was read, as far as the file system can tell."""
    return (
        found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_mode,
    )  # fmt: skip


def load_known(path: str) -> dict[bytes, tuple[Identity, Version]]:
    """What an earlier scan has saved; nothing where that is missing, garbled, or of another version."""
    try:
        with open(path, "rb") as file:
            saved = msgpack.unpackb(file.read(), use_list=False, strict_map_key=False)
        if saved["version"] != CACHE_VERSION:
            return {}
        return {path: (identity, Version(version.hex())) for path, identity, version in saved["files"]}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, msgpack.UnpackException):
        return {}


def save_known(path: str, known: dict[bytes, tuple[Identity, Version]]) -> None:
    """Save it for the next daemon; not synced, for it only saves time. Raises OSError."""
    files = [(path, identity, bytes.fromhex(version)) for path, (identity, version) in known.items()]
    temporary = path + ".tmp"
    with open(temporary, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(cast("bytes", msgpack.packb({"version": CACHE_VERSION, "files": files})))
    os.rename(temporary, path)


def _inside(path: bytes, top: bytes) -> bytes:
    return path[len(top) + 1 :] if top else path


def _read(entry: os.DirEntry[str], found: os.stat_result) -> bytes:
    if stat.S_ISLNK(found.st_mode):
        return os.fsencode(os.readlink(entry.path))
    descriptor = os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        return file.read(FILE_BYTES_MAX + 1)
