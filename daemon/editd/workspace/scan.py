"""The scan: a walk over the files in scope that reads only the files changed since the last scan.

Its results name the files to read again. They are no proof of content, because a file may change during the
read. Each folder is opened relative to its parent and symlinks are never followed, so a folder that becomes a
symlink during the walk is skipped. Unreadable paths are listed, not raised.
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
from editd.workspace.hard_links import linked_entry
from editd.workspace.staged_change import is_temporary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from editd.workspace.git_ignore import IgnoreRules
    from editd.workspace.git_worktree import GitIndex
    from editd.workspace.scope import WorkspaceScope

FILE_BYTES_MAX = 16 * 1024 * 1024  # larger ones are captured when an edit touches them, not by the scan
OPEN_MAX = 64  # folders from the root to the current one; a deep tree would exhaust the descriptors
REPORT_FILES = 64  # between two calls of `Walk.report`
RACY_NS = 50_000_000  # a younger file may change within a clock tick, with the same times

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_IDENTITY = struct.Struct("<QQQqqI")  # device, inode, size, mtime and ctime in ns, mode
OID_BYTES = 20
CACHE_VERSION = 2

Known = dict[bytes, bytes]
"""By path: a file's lstat result when it was read, and its blob id, as packed bytes."""


class KnownFolder(Struct, frozen=True):
    """The files in scope of one folder; `path` is "" for the root."""

    path: bytes
    files: dict[bytes, tuple[GitMode, Version]]


class _Level(Struct):
    """A folder between the root and the current position of the walk."""

    descriptor: int  # -1 while it is closed, deep in the tree
    identity: tuple[int, int]  # device and inode
    path: bytes
    rules: IgnoreRules | None
    is_shared: bool  # whether another machine or system may write here, past this kernel
    below: list[str] = field(default_factory=list)  # names of its folders that the walk has not entered yet


class Walk(Struct):
    """One walk over the workspace; its lists of omitted files are complete when the walk is done."""

    root: str
    scope: WorkspaceScope
    known: Known  # brought up to date by the walk
    take: Callable[[bytes, bytes], bool] = lambda _path, _content: True
    """Called with path and content of each file read; False leaves the file out."""
    report: Callable[[int, int], None] = lambda _files, _content_bytes: None
    """Called with the numbers of files and bytes after each file read, and now and then between others."""
    skipped: frozenset[bytes] = frozenset()  # paths to leave unread
    indexes: dict[bytes, GitIndex | None] = field(default_factory=dict)  # by the top of the work tree
    files: int = 0
    content_bytes: int = 0  # of all files read
    strays: list[bytes] = field(default_factory=list)  # temporaries of an earlier daemon, or of this one
    linked: list[tuple[int, int, str]] = field(default_factory=list)  # see `HardLinks.of`
    too_large: list[bytes] = field(default_factory=list)
    too_long: list[bytes] = field(default_factory=list)  # paths longer than a system call accepts
    unreadable: list[bytes] = field(default_factory=list)
    news: int = 0  # changes to `known`
    _seen: set[bytes] = field(default_factory=set)
    _shared: frozenset[bytes] = frozenset()  # the tops of mounts that others may write past this kernel

    def folders(self) -> Iterator[KnownFolder]:
        """Yield every folder in scope with its files, each before those in it."""
        levels: list[_Level] = []
        entered = self._enter(None, self.root, b"")
        try:
            while entered is not None or levels:
                if entered is not None:
                    levels.append(entered)
                    if len(levels) > OPEN_MAX:
                        _close(levels[-1 - OPEN_MAX])
                    yield self._list(entered)
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
        """Return to the parent folder, and open it again if it was closed."""
        left = levels.pop()
        parent = levels[-1] if levels else None
        if parent is not None and parent.descriptor < 0 and left.descriptor >= 0:
            try:
                parent.descriptor = os.open("..", _FOLDER, dir_fd=left.descriptor)
                if _identity_of_folder(parent.descriptor) != parent.identity:  # The folder was moved.
                    _close(parent)
            except OSError:
                pass
        _close(left)
        if parent is not None and parent.descriptor < 0 and parent.below:
            self.unreadable.append(parent.path)
            parent.below.clear()

    def _enter(self, parent: _Level | None, name: str, path: bytes) -> _Level | None:
        """Open a folder; None if it is gone, replaced by something else, or unreadable."""
        try:
            descriptor = os.open(name, _FOLDER, dir_fd=None if parent is None else parent.descriptor)
        except (FileNotFoundError, NotADirectoryError):
            if parent is None:
                self.unreadable.append(path)
            return None
        except OSError:
            self.unreadable.append(path)
            return None
        if parent is None:
            self._shared = two_sided_below(os.fsencode(self.root))
        is_shared = path in self._shared or (parent is not None and parent.is_shared)
        rules = self.scope.rules(path, None if parent is None else parent.rules)
        return _Level(descriptor, _identity_of_folder(descriptor), path, rules, is_shared)

    def _list(self, level: _Level) -> KnownFolder:
        """Return the files of one folder; its folders are added to `level.below`."""
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
            elif (record := self._file(entry, path, level, index)) is not None:
                files[name] = record
        return KnownFolder(level.path, files)

    def _is_in(
        self, path: bytes, rules: IgnoreRules | None, index: GitIndex | None, *, is_folder: bool
    ) -> bool:
        if rules and index and index.is_tracked(rules.inside(path), is_folder=is_folder):
            return not self.scope.is_kept_out(path, is_folder=is_folder)  # git never ignores a tracked file
        return self.scope.takes(path, rules, is_folder=is_folder)

    def _index(self, rules: IgnoreRules | None) -> GitIndex | None:
        if rules is None:
            return None
        if rules.worktree not in self.indexes:
            self.indexes[rules.worktree] = rules.index()
        return self.indexes[rules.worktree]

    def _file(
        self, entry: os.DirEntry[str], path: bytes, level: _Level, index: GitIndex | None
    ) -> tuple[GitMode, Version] | None:
        now = time.time_ns()  # before the lstat: a later write has later times
        try:
            if level.is_shared:
                refresh(level.descriptor, os.fsencode(entry.name))
            status = entry.stat(follow_symlinks=False)
            if not (stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode)):
                return None
            self.files += 1
            if self.files % REPORT_FILES == 1:
                self.report(self.files, self.content_bytes)
            if status.st_nlink > 1 and stat.S_ISREG(status.st_mode):
                self.linked.append(linked_entry(path, status))
            identity, known = _identity(status), self.known.get(path)
            if known is not None and known.startswith(identity):
                self._seen.add(path)
                return mode_of(status.st_mode), Version(known[_IDENTITY.size :].hex())
            version = self._clean(path, status, level, index)
            if version is None:
                version = self._read(entry.name, path, status, level)
        except (FileNotFoundError, NotADirectoryError):
            return None  # removed since the folder was listed
        except OSError:
            self.unreadable.append(path)
            return None
        if version is None:
            return None
        if max(status.st_mtime_ns, status.st_ctime_ns) < now - RACY_NS:
            self.known[path] = identity + bytes.fromhex(version)
            self._seen.add(path)
            self.news += 1
        return mode_of(status.st_mode), version

    def _clean(
        self, path: bytes, status: os.stat_result, level: _Level, index: GitIndex | None
    ) -> Version | None:
        if index is None or level.rules is None:
            return None
        clean = index.clean(level.rules.inside(path), status)
        return None if clean is None else clean[1]

    def _read(self, name: str, path: bytes, status: os.stat_result, level: _Level) -> Version | None:
        """Return the version of the file's content; None if the file is left out."""
        if path in self.skipped:
            return None
        if stat.S_ISLNK(status.st_mode):
            return self._version(path, os.fsencode(os.readlink(name, dir_fd=level.descriptor)))
        descriptor = os.open(name, _FILE, dir_fd=level.descriptor)
        with os.fdopen(descriptor, "rb") as file:
            opened = os.fstat(descriptor)
            if not stat.S_ISREG(opened.st_mode):
                return None  # replaced by something else
            if opened.st_size <= FILE_BYTES_MAX:
                return self._version(path, file.read(FILE_BYTES_MAX + 1))
            if path not in self.known:
                self.too_large.append(path)
                return None
            # A file that was recorded once stays recorded, regardless of its size.
            self.content_bytes += opened.st_size
            digest = hashlib.sha1(b"blob %d\0" % opened.st_size)
            return Version(hashlib.file_digest(file, lambda: digest).hexdigest())

    def _version(self, path: bytes, content: bytes) -> Version | None:
        if not self.take(path, content):
            return None
        self.content_bytes += len(content)
        self.report(self.files, self.content_bytes)
        return version_of(content)


def load_known(path: str) -> Known:
    """Return the results of an earlier scan; empty if the file is missing, damaged or of another version."""
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
    """Save the results for the next daemon. Not synced, because a loss only costs time. Raises OSError."""
    temporary = path + ".tmp"
    with open(temporary, "wb", opener=lambda name, flags: os.open(name, flags | os.O_CLOEXEC, 0o600)) as file:
        file.write(cast("bytes", msgpack.packb({"version": CACHE_VERSION, "files": known})))
    os.rename(temporary, path)


_RECORD_BYTES = _IDENTITY.size + OID_BYTES


def _identity(status: os.stat_result) -> bytes:
    """Return the facts that show whether this is still the file that was read."""
    return _IDENTITY.pack(
        status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_mode
    )


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:  # lstat failed, on a file system without types in its listings; `_file` calls it again
        return False


def _identity_of_folder(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


def _close(level: _Level) -> None:
    if level.descriptor >= 0:
        os.close(level.descriptor)
        level.descriptor = -1


def _join(folder: bytes, name: bytes) -> bytes:
    return folder + b"/" + name if folder else name
