"""The scan: a walk over the files in scope, that reads only what has changed since the last one.

What it finds says where to look, never what is true: a file may change while it is read. Folders are
opened one from another and links never followed, so that a folder exchanged for a link during the walk
leads nowhere. What cannot be read is told, not raised.
"""

from __future__ import annotations

import hashlib
import os
import stat
import struct
import time
from typing import TYPE_CHECKING, cast

import msgpack
from msgspec import Struct, field

from editd.system.filesystem import refresh
from editd.system.mounts import two_sided_below
from editd.values.content import GitMode, Version, mode_of, version_of
from editd.values.path import PATH_BYTES_MAX
from editd.workspace.staged_change import is_temporary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from editd.workspace.git_ignore import IgnoreRules
    from editd.workspace.git_index import GitIndex
    from editd.workspace.scope import WorkspaceScope

FILE_BYTES_MAX = 16 * 1024 * 1024  # larger ones are captured when an edit touches them, not by the scan
OPEN_MAX = 64  # folders on the way that are kept open; a deep tree would use up the descriptors
RACY_NS = 50_000_000  # a file as young as this may change without its times telling: some kernels tick slowly

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_IDENTITY = struct.Struct("<QQQqqI")  # device, inode, size, mtime and ctime in ns, mode
_OID_BYTES = 20
CACHE_VERSION = 2

Known = dict[bytes, bytes]
"""By path: what lstat told of a file when it was read, and the id of what it held, as packed bytes."""


class KnownFolder(Struct, frozen=True):
    """The files in scope of one folder; `path` is "" for the root."""

    path: bytes
    files: dict[bytes, tuple[GitMode, Version]]


class _Level(Struct):
    """A folder on the way from the root to where the walk is."""

    descriptor: int  # -1 while it is closed, deep in the tree
    identity: tuple[int, int]  # device and inode
    path: bytes
    rules: IgnoreRules | None
    is_shared: bool  # whether others may write here past this kernel
    below: list[str] = field(default_factory=list)  # the folders in it that are still to be walked


class Walk(Struct):
    """One walk over the workspace; what was left out is told here when it is done."""

    root: str
    scope: WorkspaceScope
    known: Known  # brought up to date by the walk
    take: Callable[[bytes, bytes], bool] = lambda _path, _content: True
    """Called with path and content of each file that had to be read; False leaves the file out."""
    skipped: frozenset[bytes] = frozenset()  # paths that are not to be read
    indexes: dict[bytes, GitIndex | None] = field(default_factory=dict)  # by their work tree's folder
    files: int = 0
    content_bytes: int = 0  # of what was read
    strays: list[bytes] = field(default_factory=list)  # temporaries of a daemon that is gone, or of this one
    too_large: list[bytes] = field(default_factory=list)
    too_long: list[bytes] = field(default_factory=list)  # paths that no system call takes
    unreadable: list[bytes] = field(default_factory=list)
    news: int = 0  # changes to `known`
    _seen: set[bytes] = field(default_factory=set)
    _shared: frozenset[bytes] = frozenset()  # where mounts begin that have another side

    def folders(self) -> Iterator[KnownFolder]:
        """Every folder in scope with its files, each before those in it."""
        levels: list[_Level] = []
        entered = self._enter(None, self.root, b"")
        try:
            while entered is not None or levels:
                if entered is not None:
                    levels.append(entered)
                    if len(levels) > OPEN_MAX:
                        _close(levels[-1 - OPEN_MAX])
                    yield self._listed(entered)
                level, entered = levels[-1], None
                if level.below:
                    name = level.below.pop()
                    entered = self._enter(level, name, _join(level.path, os.fsencode(name)))
                else:
                    self._leave(levels)
        finally:
            for level in levels:
                _close(level)
        for path in self.known.keys() - self._seen:
            del self.known[path]
            self.news += 1

    def _leave(self, levels: list[_Level]) -> None:
        """Go back to the folder above, which is opened again where it was closed."""
        left = levels.pop()
        above = levels[-1] if levels else None
        if above is not None and above.descriptor < 0 and left.descriptor >= 0:
            try:
                above.descriptor = os.open("..", _FOLDER, dir_fd=left.descriptor)
                if _place(above.descriptor) != above.identity:  # The folder was moved meanwhile.
                    _close(above)
            except OSError:
                pass
        _close(left)
        if above is not None and above.descriptor < 0 and above.below:
            self.unreadable.append(above.path)
            above.below.clear()

    def _enter(self, above: _Level | None, name: str, path: bytes) -> _Level | None:
        """Open a folder; None where it is gone, or something else by now, or not for us to read."""
        try:
            descriptor = os.open(name, _FOLDER, dir_fd=None if above is None else above.descriptor)
        except (FileNotFoundError, NotADirectoryError):
            if above is None:
                self.unreadable.append(path)
            return None
        except OSError:
            self.unreadable.append(path)
            return None
        if above is None:
            self._shared = two_sided_below(os.fsencode(self.root))
        is_shared = path in self._shared or (above is not None and above.is_shared)
        rules = self.scope.rules(path, None if above is None else above.rules)
        return _Level(descriptor, _place(descriptor), path, rules, is_shared)

    def _listed(self, level: _Level) -> KnownFolder:
        """The files of one folder; the folders in it are noted in the level."""
        files: dict[bytes, tuple[GitMode, Version]] = {}
        index = self._index(level.rules)
        try:
            with os.scandir(level.descriptor) as entries:
                listed = list(entries)
        except OSError:
            self.unreadable.append(level.path)
            listed = []
        for entry in listed:
            name = os.fsencode(entry.name)
            path = _join(level.path, name)
            if is_temporary(name):
                self.strays.append(path)
                continue
            is_folder = _is_folder(entry)
            if len(path) > PATH_BYTES_MAX:
                self.too_long.append(path)
                continue
            if not self._is_in(path, level.rules, index, is_folder=is_folder):
                continue
            if is_folder:
                level.below.append(entry.name)
            elif (found := self._file(entry, path, level, index)) is not None:
                files[name] = found
        return KnownFolder(level.path, files)

    def _is_in(
        self, path: bytes, rules: IgnoreRules | None, index: GitIndex | None, *, is_folder: bool
    ) -> bool:
        if rules and index and index.is_tracked(rules.inside(path), is_folder=is_folder):
            return not self.scope.is_kept_out(path)  # what git tracks it does not ignore
        return self.scope.takes(path, rules, is_folder=is_folder)

    def _index(self, rules: IgnoreRules | None) -> GitIndex | None:
        if rules is None:
            return None
        if rules.place not in self.indexes:
            self.indexes[rules.place] = rules.index()
        return self.indexes[rules.place]

    def _file(
        self, entry: os.DirEntry[str], path: bytes, level: _Level, index: GitIndex | None
    ) -> tuple[GitMode, Version] | None:
        now = time.time_ns()  # before the file is looked at: what is written after has later times
        try:
            if level.is_shared:
                refresh(level.descriptor, os.fsencode(entry.name))
            found = entry.stat(follow_symlinks=False)
            if not (stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode)):
                return None
            self.files += 1
            identity, known = _identity(found), self.known.get(path)
            if known is not None and known.startswith(identity):
                self._seen.add(path)
                return mode_of(found.st_mode), Version(known[_IDENTITY.size :].hex())
            version = self._clean(path, found, level, index)
            if version is None:
                version = self._read(entry.name, path, found, level)
        except (FileNotFoundError, NotADirectoryError):
            return None  # gone since the folder was listed
        except OSError:
            self.unreadable.append(path)
            return None
        if version is None:
            return None
        if max(found.st_mtime_ns, found.st_ctime_ns) < now - RACY_NS:
            self.known[path] = identity + bytes.fromhex(version)
            self._seen.add(path)
            self.news += 1
        return mode_of(found.st_mode), version

    def _clean(
        self, path: bytes, found: os.stat_result, level: _Level, index: GitIndex | None
    ) -> Version | None:
        if index is None or level.rules is None:
            return None
        clean = index.clean(level.rules.inside(path), found)
        return None if clean is None else clean[1]

    def _read(self, name: str, path: bytes, found: os.stat_result, level: _Level) -> Version | None:
        """The version of what the file holds; None where it is left out."""
        if path in self.skipped:
            return None
        if stat.S_ISLNK(found.st_mode):
            return self._taken(path, os.fsencode(os.readlink(name, dir_fd=level.descriptor)))
        descriptor = os.open(name, _FILE, dir_fd=level.descriptor)
        with os.fdopen(descriptor, "rb") as file:
            opened = os.fstat(descriptor)
            if not stat.S_ISREG(opened.st_mode):
                return None  # another thing has taken its name
            if opened.st_size <= FILE_BYTES_MAX:
                return self._taken(path, file.read(FILE_BYTES_MAX + 1))
            if path not in self.known:
                self.too_large.append(path)
                return None
            # What was taken once is followed, whatever its size.
            self.content_bytes += opened.st_size
            digest = hashlib.sha1(b"blob %d\0" % opened.st_size)
            return Version(hashlib.file_digest(file, lambda: digest).hexdigest())

    def _taken(self, path: bytes, content: bytes) -> Version | None:
        if not self.take(path, content):
            return None
        self.content_bytes += len(content)
        return version_of(content)


def load_known(path: str) -> Known:
    """What an earlier scan has saved; nothing where that is missing, garbled, or of another version."""
    try:
        with open(path, "rb") as file:
            saved = msgpack.unpackb(file.read(), strict_map_key=False)
        files = saved["files"] if saved["version"] == CACHE_VERSION else {}
        is_sound = all(
            isinstance(key, bytes) and len(record) == _RECORD_BYTES for key, record in files.items()
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, msgpack.UnpackException):
        return {}
    return files if is_sound else {}


def save_known(path: str, known: Known) -> None:
    """Save it for the next daemon; not synced, for it only saves time. Raises OSError."""
    temporary = path + ".tmp"
    with open(temporary, "wb", opener=lambda name, flags: os.open(name, flags | os.O_CLOEXEC, 0o600)) as file:
        file.write(cast("bytes", msgpack.packb({"version": CACHE_VERSION, "files": known})))
    os.rename(temporary, path)


_RECORD_BYTES = _IDENTITY.size + _OID_BYTES


def _identity(found: os.stat_result) -> bytes:
    """What tells that a file is the one that was read, as far as the file system can tell."""
    return _IDENTITY.pack(
        found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_mode
    )


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:  # lstat says no, on a file system where it must be asked; it will again
        return False


def _place(descriptor: int) -> tuple[int, int]:
    found = os.fstat(descriptor)
    return found.st_dev, found.st_ino


def _close(level: _Level) -> None:
    if level.descriptor >= 0:
        os.close(level.descriptor)
        level.descriptor = -1


def _join(folder: bytes, name: bytes) -> bytes:
    return folder + b"/" + name if folder else name
