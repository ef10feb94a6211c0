"""The system calls of this process on the fake disk: `os`, `open`, `fcntl`, and the calls beyond POSIX.

The product touches the disk by `os`, `open` and `fcntl` in `system`, `store` and `workspace`, and by the
native calls of `system.filesystem`. So the fake stands below all of them, at the calls themselves: what is
tested is the product as it is, with nothing in it for the test.

A path below the root of the fake disk, and a descriptor from `FIRST` on, belong to it. All others are the
real system's, and so are databases (`is_real`), which SQLite writes by itself.
"""

from __future__ import annotations

import array
import builtins
import contextlib
import ctypes
import errno
import fcntl
import io
import itertools
import os
import stat
import struct
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from editd.system import filesystem, proc
from editd.system.mounts import MountEvents
from editd.workspace import hidden_folders
from simulation.disk import FakeDisk, failure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from simulation.mirror import Mirror
    from simulation.node import Node

    Path = str | bytes | os.PathLike[str]

FIRST = 1_000_000  # no process of ours has so many descriptors
_NUMBERS = itertools.count(FIRST)  # of all worlds, because garbage of an earlier one may close its own
FREE_FILES = 10_000_000
MOUNT = b"mount-01"
PAGE = 4096
_FLOCK = "hhqqi"
_WRITES = os.O_WRONLY | os.O_RDWR
REAL = os.open, os.close  # of the real system, whatever is in force


class Killed(BaseException):
    """The process is killed at this call. No handler of the product may catch it."""


@dataclass(slots=True, eq=False)
class Open:
    """An open file description, which several descriptors may share."""

    node: Node
    flags: int
    offset: int = 0
    lease: int = fcntl.F_UNLCK
    is_lease_broken: bool = False
    users: int = 1

    @property
    def is_writing(self) -> bool:
        return bool(self.flags & _WRITES)


class Calls:
    """The calls of one process at a time. `before` is run at the entry of each call that changes the disk."""

    def __init__(self, disk: FakeDisk, root: str, before: Callable[[str], None], mirror: Mirror) -> None:
        self.disk, self.root, self.mirror = disk, root, mirror
        self._prefix = root + "/"
        self.before = before
        self.files: dict[int, Open] = {}
        self._first = next(_NUMBERS)
        self.is_dead = False
        self.is_dying = False  # at this very call
        self.is_suspended = False  # all calls are the real system's
        self.boot = 1
        self.touched: tuple[tuple[Node, bytes], ...] = ()  # the names of the last exchange or move
        self.on_lease_end: Callable[[Node], None] = lambda _node: None

    # ── descriptors ──

    def die(self) -> None:
        """Close all that the process had open, as the kernel does at its end."""
        self.is_dead = self.is_dying = True
        for number in list(self.files):
            self._release(self.files.pop(number))

    def live(self) -> None:
        """Begin a new process."""
        self.is_dead = self.is_dying = False

    def _enter(self, name: str = "") -> None:
        """Begin a call; one with a `name` changes the disk."""
        if name and not self.is_dead:
            self.before(name)
        if self.is_dead:
            raise Killed

    def _of(self, descriptor: int) -> Open:
        try:
            return self.files[descriptor]
        except KeyError:
            if self.is_dead:
                raise Killed from None
            raise failure(errno.EBADF) from None

    def _add(self, opened: Open) -> int:
        number = next(_NUMBERS)
        self.files[number] = opened
        return number

    def _release(self, opened: Open) -> None:
        opened.users -= 1
        if opened.users:
            return
        node = opened.node
        node.opened.remove(opened)
        if node.locked_by is opened:
            node.locked_by = None
        if opened.is_writing:
            self.mirror.update(node)
        if opened.lease != fcntl.F_UNLCK:
            self.on_lease_end(node)

    # ── whose a call is ──

    def is_fake(self, path: object) -> bool:
        """Return whether a path or a descriptor is of the fake disk."""
        if isinstance(path, int):
            return path >= FIRST
        if self.is_suspended:
            return False
        text = path if isinstance(path, str) else os.fsdecode(path)  # type: ignore[arg-type]
        return text.startswith(self._prefix) and not self.is_real(text)

    def is_real(self, path: str) -> bool:
        """Return whether a path below the root is a database's, where a damaged one is put, or git's."""
        return ".db" in path or "/damaged" in path or "/remote/log.git" in path

    def _start(self, path: Path, dir_fd: int | None) -> tuple[Node, bytes]:
        """Return the folder where a path begins, and the path from there."""
        raw = os.fsencode(path)
        if dir_fd is None:
            return self.disk.root, raw[len(self._prefix) :]
        return self._of(dir_fd).node, raw

    def _node(self, path: Path | int, dir_fd: int | None = None, *, follows: bool = True) -> Node:
        if isinstance(path, int):
            return self._of(path).node
        return self.disk.walk(*self._start(path, dir_fd), follows_last=follows)

    def _parent(self, path: Path, dir_fd: int | None) -> tuple[Node, bytes]:
        return self.disk.parent_of(*self._start(path, dir_fd))

    # ── calls ──

    def open(self, path: Path, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        self._enter("open" if flags & (os.O_CREAT | os.O_TRUNC) else "")
        try:
            is_new = bool(flags & os.O_CREAT and flags & os.O_EXCL)  # then no symlink is followed
            node = self._node(path, dir_fd, follows=not (is_new or flags & os.O_NOFOLLOW))
        except FileNotFoundError:
            if not flags & os.O_CREAT:
                raise
            folder, name = self._parent(path, dir_fd)
            while (link := folder.entries.get(name)) is not None:  # a symlink to a missing file
                folder, name = self.disk.parent_of(folder, link.target)
            node = self.disk.create(folder, name, mode)
            self.mirror.put(folder, name, node)
        else:
            if is_new:
                raise failure(errno.EEXIST, path)
            if node.is_link and not flags & os.O_PATH:
                raise failure(errno.ELOOP, path)
            if flags & os.O_DIRECTORY and not node.is_folder:
                raise failure(errno.ENOTDIR, path)
            if flags & _WRITES and node.is_folder:
                raise failure(errno.EISDIR, path)
            if flags & os.O_TRUNC and node.is_file and node.content:
                self.disk.cut(node, 0)
        return self._add(self.open_node(node, flags))

    def open_node(self, node: Node, flags: int) -> Open:
        """Open a node. Another program's open for writing breaks leases: see `Outsider`."""
        opened = Open(node, flags)
        if not flags & os.O_PATH:
            node.opened.append(opened)
        else:
            opened.users += 1  # it counts for no lease, and is never released
        return opened

    def close(self, descriptor: int) -> None:
        opened = self.files.pop(descriptor, None)
        if opened is not None:
            self._release(opened)
        elif not self.is_dead and descriptor > self._first:  # otherwise the garbage of an earlier world
            raise failure(errno.EBADF)

    def dup(self, descriptor: int) -> int:
        opened = self._of(descriptor)
        opened.users += 1
        return self._add(opened)

    def read(self, descriptor: int, length: int) -> bytes:
        opened = self._readable(descriptor)
        content = bytes(opened.node.content[opened.offset : opened.offset + length])
        opened.offset += len(content)
        return content

    def pread(self, descriptor: int, length: int, offset: int) -> bytes:
        return bytes(self._readable(descriptor).node.content[offset : offset + length])

    def _readable(self, descriptor: int) -> Open:
        opened = self._of(descriptor)
        if opened.flags & os.O_ACCMODE == os.O_WRONLY or opened.flags & os.O_PATH:
            raise failure(errno.EBADF)
        if opened.node.is_folder:
            raise failure(errno.EISDIR)
        return opened

    def write(self, descriptor: int, content: bytes) -> int:
        opened = self._of(descriptor)
        if opened.flags & os.O_APPEND:
            opened.offset = len(opened.node.content)
        written = self.pwrite(descriptor, content, opened.offset)
        opened.offset += written
        return written

    def pwrite(self, descriptor: int, content: bytes, offset: int) -> int:
        opened, content = self._of(descriptor), bytes(content)
        if not opened.is_writing:
            raise failure(errno.EBADF)
        if opened.flags & os.O_APPEND:  # pwrite(2): Linux appends, whatever the offset
            offset = len(opened.node.content)
        try:
            self._enter("write")
        except Killed:
            self._write_pages(opened.node, offset, content)
            raise
        self.disk.write(opened.node, offset, content)
        return len(content)

    def _write_pages(self, node: Node, offset: int, content: bytes) -> None:
        """Write the first of several pages: a kill may come between two of them, and never within one."""
        pages = (len(content) - 1) // PAGE
        if self.is_dying and pages:
            self.disk.write(node, offset, content[: pages // 2 * PAGE])
        self.is_dying = False

    def pwritev(self, descriptor: int, parts: Sequence[bytes], offset: int, flags: int = 0) -> int:
        content = b"".join(parts)
        written = self.pwrite(descriptor, content, offset)
        if flags & os.RWF_DSYNC:
            node = self._of(descriptor).node
            self._enter_sync("dsync", node)
            node.sync_range(offset, written)
        return written

    def _enter_sync(self, name: str, node: Node) -> None:
        try:
            self._enter(name)
        except OSError:
            self.disk.fail_to_sync(node)
            raise

    def lseek(self, descriptor: int, offset: int, whence: int) -> int:
        opened = self._of(descriptor)
        base = {os.SEEK_SET: 0, os.SEEK_CUR: opened.offset, os.SEEK_END: len(opened.node.content)}[whence]
        opened.offset = base + offset
        return opened.offset

    def ftruncate(self, descriptor: int, size: int) -> None:
        opened = self._of(descriptor)
        self._enter("truncate")
        if not opened.is_writing:
            raise failure(errno.EINVAL)
        self.disk.cut(opened.node, size)

    def fsync(self, descriptor: int) -> None:
        node = self._of(descriptor).node
        self._enter_sync("fsync", node)
        self.disk.sync(node)
        self.mirror.update(node)

    def fstat(self, descriptor: int) -> os.stat_result:
        return self._of(descriptor).node.status()

    def stat(
        self, path: Path | int, *, dir_fd: int | None = None, follow_symlinks: bool = True
    ) -> os.stat_result:
        self._enter()
        return self._node(path, dir_fd, follows=follow_symlinks).status()

    def lstat(self, path: Path, *, dir_fd: int | None = None) -> os.stat_result:
        return self.stat(path, dir_fd=dir_fd, follow_symlinks=False)

    def access(self, path: Path, _mode: int, **more: Any) -> bool:
        try:
            self.stat(path, dir_fd=more.get("dir_fd"))
        except OSError:
            return False
        return True

    def listdir(self, path: Path | int = ".") -> list[Any]:
        self._enter()
        node = self._node(path)
        if not node.is_folder:
            raise failure(errno.ENOTDIR, path)
        names = list(node.entries)
        return names if isinstance(path, bytes) else [os.fsdecode(name) for name in names]

    def scandir(self, path: Path | int = ".") -> _Scan:
        folder = self._node(path)
        above = os.fsdecode(path) if not isinstance(path, int) else ""
        names = [os.fsdecode(name) for name in self.listdir(path)]
        return _Scan([_Entry(name, os.path.join(above, name), folder, self) for name in names])

    def mkdir(self, path: Path, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        self._enter("mkdir")
        folder, name = self._parent(path, dir_fd)
        self.disk.make_folder(folder, name, mode)
        self.mirror.put(folder, name, folder.entries[name])

    def rmdir(self, path: Path, *, dir_fd: int | None = None) -> None:
        self._enter("rmdir")
        folder, name = self._parent(path, dir_fd)
        self.disk.remove_folder(folder, name)
        self.mirror.put(folder, name, None)

    def unlink(self, path: Path, *, dir_fd: int | None = None) -> None:
        self._enter("unlink")
        folder, name = self._parent(path, dir_fd)
        self.disk.unlink(folder, name)
        self.mirror.put(folder, name, None)

    def symlink(self, target: Path, path: Path, *, dir_fd: int | None = None, **_more: Any) -> None:
        self._enter("symlink")
        folder, name = self._parent(path, dir_fd)
        self.disk.make_link(folder, name, os.fsencode(target))

    def readlink(self, path: Path, *, dir_fd: int | None = None) -> Any:
        node = self._node(path, dir_fd, follows=False)
        if not node.is_link:
            raise failure(errno.EINVAL, path)
        return node.target if isinstance(path, bytes) else os.fsdecode(node.target)

    def link(
        self, path: Path, other: Path, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None,
        follow_symlinks: bool = True,
    ) -> None:  # fmt: skip
        self._enter("link")
        node = self._node(path, src_dir_fd, follows=follow_symlinks)
        self.disk.link(node, *self._parent(other, dst_dir_fd))

    def rename(
        self, path: Path, other: Path, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None
    ) -> None:
        self._enter("rename")
        (folder, name), (into, new) = self._parent(path, src_dir_fd), self._parent(other, dst_dir_fd)
        node = self.disk.child(folder, name)
        self.disk.rename(folder, name, into, new)
        self.mirror.put(into, new, node)
        self.mirror.put(folder, name, None)

    def chmod(self, path: Path | int, mode: int, **more: Any) -> None:
        self._enter("chmod")
        self.disk.set_mode(self._node(path, more.get("dir_fd")), mode)

    def fchown(self, descriptor: int, owner: int, group: int) -> None:
        node = self._of(descriptor).node
        if (owner, group) not in ((-1, -1), (node.status().st_uid, node.status().st_gid)):
            raise failure(errno.EPERM)

    def fstatvfs(self, descriptor: int) -> os.statvfs_result:
        self._of(descriptor)
        return os.statvfs_result(
            (4096, 4096, 1 << 20, 1 << 20, 1 << 20, FREE_FILES, FREE_FILES, FREE_FILES, 0, 255)
        )

    # ── fcntl ──

    def fcntl(self, descriptor: int, request: int, argument: Any = 0) -> Any:
        opened = self._of(descriptor)
        if request == fcntl.F_SETLEASE:
            self._set_lease(opened, argument)
            return 0
        if request == fcntl.F_GETLEASE:
            return fcntl.F_UNLCK if opened.is_lease_broken else opened.lease
        if request == fcntl.F_OFD_GETLK:
            return struct.pack(_FLOCK, fcntl.F_UNLCK, 0, 0, 0, 0)
        raise failure(errno.EINVAL)

    def _set_lease(self, opened: Open, kind: int) -> None:
        others = [other for other in opened.node.opened if isinstance(other, Open)]
        if kind == fcntl.F_UNLCK and opened.lease == fcntl.F_UNLCK:
            raise failure(errno.EAGAIN)
        if kind == fcntl.F_RDLCK and any(other.is_writing for other in others):
            raise failure(errno.EAGAIN)
        if kind == fcntl.F_WRLCK and any(other is not opened for other in others):
            raise failure(errno.EAGAIN)
        is_leased = any(other.lease != fcntl.F_UNLCK and other is not opened for other in others)
        if is_leased and kind == fcntl.F_WRLCK:
            raise failure(errno.EAGAIN)
        opened.lease, opened.is_lease_broken = kind, False

    def flock(self, descriptor: int, _operation: int) -> None:
        opened = self._of(descriptor)
        if opened.node.locked_by not in (None, opened):
            raise failure(errno.EAGAIN)
        opened.node.locked_by = opened

    def ioctl(self, descriptor: int, _request: int, argument: Any = 0) -> int:
        self._of(descriptor)
        if isinstance(argument, array.array):
            argument[0] = 0  # no flags
            return 0
        raise failure(errno.ENOTTY)

    # ── beyond POSIX ──

    def openat2(self, _number: int, folder: int, path: bytes, _how: bytes, _size: int) -> int:
        try:
            self._enter()
            node = self.disk.walk(self._of(folder).node, path, has_links=False)
            if not node.is_folder:
                raise failure(errno.ENOTDIR, path)
        except OSError as error:
            return _failed(error)
        return self._add(self.open_node(node, os.O_PATH))

    def renameat2(self, source: int, name: bytes, target: int, other: bytes, flags: int) -> int:
        try:
            folder, into = self._of(source).node, self._of(target).node
            self.touched = (folder, name), (into, other)
            self._enter("exchange" if flags == 2 else "move")
            verb = self.disk.exchange if flags == 2 else self.disk.move
            verb(folder, name, into, other)
        except OSError as error:
            return _failed(error)
        return 0

    def syncfs(self, descriptor: int) -> int:
        try:
            self._of(descriptor)
            self._enter("syncfs")
        except OSError as error:
            self.disk.fail_to_sync()
            return _failed(error)
        self.disk.sync_all()
        return 0

    def statx(self, _descriptor: int, _name: bytes, _flags: int, mask: int, result: Any) -> int:
        if mask & 0x4000:  # STATX_MNT_ID_UNIQUE
            result[0:4] = mask.to_bytes(4, "little")
            result[144:152] = MOUNT
        return 0

    def sync_file_range(self, descriptor: int, offset: int, length: int, _flags: int) -> int:
        self._enter("write out")
        self._of(descriptor).node.write_out(offset, length, self.disk.stamp)
        return 0

    def faccessat(self, folder: int, name: bytes, _mode: int, _flags: int) -> int:
        try:
            self.disk.child(self._of(folder).node, name)
        except OSError as error:
            return _failed(error)
        return 0

    # ── Python's files ──

    def open_file(
        self, path: Path | int, mode: str = "r", *args: Any, opener: Any = None, **more: Any
    ) -> Any:
        """Do as `open`."""
        writing = set("wax+") & set(mode)
        flags = os.O_RDONLY if not writing else os.O_RDWR if "+" in mode else os.O_WRONLY
        flags |= {
            "w": os.O_CREAT | os.O_TRUNC,
            "a": os.O_CREAT | os.O_APPEND,
            "x": os.O_CREAT | os.O_EXCL,
        }.get(mode[0], 0)
        if isinstance(path, int):
            descriptor = path
        elif opener is not None:
            descriptor = opener(path, flags)
        else:
            descriptor = self.open(path, flags, 0o666)
        raw = _Raw(self, descriptor, is_reading=not writing or "+" in mode, is_writing=bool(writing))
        buffering = more.pop("buffering", -1)
        if buffering == 0:
            return raw
        buffered: Any = (
            io.BufferedRandom(raw)
            if "+" in mode
            else io.BufferedWriter(raw)
            if writing
            else io.BufferedReader(raw)
        )
        return buffered if "b" in mode else io.TextIOWrapper(buffered, **more)


class Current:
    """The calls of several processes in turn: those of `now`, or the real system's if no process runs."""

    now: Calls | None = None

    def is_fake(self, path: object) -> bool:
        return self.now is not None and self.now.is_fake(path)

    @property
    def boot(self) -> int:
        return 0 if self.now is None else self.now.boot

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            return getattr(self.now, name)(*given, **named)

        return call

    @contextlib.contextmanager
    def running(self, calls: Calls) -> Iterator[None]:
        """Let a process run, in the middle of another one or of none, until the block ends."""
        before, self.now = self.now, calls
        try:
            yield
        finally:
            self.now = before


class _Raw(io.RawIOBase):
    """An open file of the fake disk, for Python's buffers."""

    def __init__(self, calls: Calls, descriptor: int, *, is_reading: bool, is_writing: bool) -> None:
        self._calls, self._descriptor = calls, descriptor
        self._is_reading, self._is_writing = is_reading, is_writing

    @property
    def name(self) -> int:
        return self._descriptor

    def readable(self) -> bool:
        return self._is_reading

    def writable(self) -> bool:
        return self._is_writing

    def seekable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def readinto(self, buffer: Any) -> int:
        content = self._calls.read(self._descriptor, len(buffer))
        buffer[: len(content)] = content
        return len(content)

    def write(self, content: Any) -> int:
        return self._calls.write(self._descriptor, bytes(content))

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        return self._calls.lseek(self._descriptor, offset, whence)

    def tell(self) -> int:
        return self._calls.lseek(self._descriptor, 0, os.SEEK_CUR)

    def truncate(self, size: int | None = None, /) -> int:
        wanted = self.tell() if size is None else size
        self._calls.ftruncate(self._descriptor, wanted)
        return wanted

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._calls.close(self._descriptor)


@dataclass(slots=True)
class _Entry:
    """An entry of `os.scandir`."""

    name: str
    path: str
    folder: Node
    calls: Calls

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        return self.calls.disk.walk(
            self.folder, os.fsencode(self.name), follows_last=follow_symlinks
        ).status()

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return stat.S_ISDIR(self.stat(follow_symlinks=follow_symlinks).st_mode)

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return stat.S_ISREG(self.stat(follow_symlinks=follow_symlinks).st_mode)

    def is_symlink(self) -> bool:
        return stat.S_ISLNK(self.stat(follow_symlinks=False).st_mode)

    def inode(self) -> int:
        return self.stat(follow_symlinks=False).st_ino


class _Scan:
    """The result of `os.scandir`."""

    def __init__(self, entries: list[_Entry]) -> None:
        self._entries = iter(entries)

    def __enter__(self) -> Iterator[_Entry]:
        return self._entries

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[_Entry]:
        return self._entries

    def __next__(self) -> _Entry:
        return next(self._entries)

    def close(self) -> None:
        """Do nothing: no descriptor is open."""


def _failed(error: OSError) -> int:
    ctypes.set_errno(error.errno or errno.EIO)
    return -1


# ── in force ──

_BY_FIRST = (
    "open", "close", "dup", "read", "pread", "write", "pwrite", "pwritev", "lseek", "ftruncate", "fsync",
    "fstat", "stat", "lstat", "access", "listdir", "scandir", "mkdir", "rmdir", "unlink", "readlink",
    "rename", "chmod",
    "fchown", "fstatvfs",
)  # fmt: skip
_ALIASES = {"fdatasync": "fsync", "fchmod": "chmod", "remove": "unlink", "replace": "rename"}
_NATIVE = {
    "_syscall": "openat2", "_renameat2": "renameat2", "_syncfs": "syncfs", "_statx": "statx",
    "_sync_file_range": "sync_file_range", "_faccessat": "faccessat",
}  # fmt: skip


@contextlib.contextmanager
def in_force(calls: Calls | Current) -> Iterator[None]:
    """Let this process make its system calls on the fake disk, until the block ends."""
    before: list[tuple[Any, str, Any]] = []

    def put(owner: Any, name: str, function: Any) -> None:
        before.append((owner, name, getattr(owner, name)))
        setattr(owner, name, function)

    try:
        for name in (*_BY_FIRST, *_ALIASES):
            put(os, name, _either(calls, getattr(calls, _ALIASES.get(name, name)), getattr(os, name)))
        put(os, "symlink", _by(calls, calls.symlink, os.symlink, 1))
        put(os, "link", _by(calls, calls.link, os.link, 0))
        put(os, "fdopen", _either(calls, calls.open_file, os.fdopen))
        opened = _opener(calls, builtins.open)
        put(builtins, "open", opened)
        put(io, "open", opened)
        for name in ("fcntl", "flock", "ioctl"):
            put(fcntl, name, _either(calls, getattr(calls, name), getattr(fcntl, name)))
        for name, own in _NATIVE.items():
            put(filesystem, name, getattr(calls, own))
        put(filesystem, "_list_attributes", lambda _descriptor: [])
        filesystem._may_rename.cache_clear()
        put(filesystem, "_may_rename", lambda _flags: True)
        put(filesystem, "_may_syncfs", lambda: True)
        put(
            hidden_folders, "MountEvents", partial(MountEvents, os.devnull)
        )  # nothing is mounted in this world
        put(hidden_folders, "mounts", list)
        put(proc, "boot_name", lambda: f"00000000-0000-0000-0000-{calls.boot:012x}")
        yield
    finally:
        for owner, name, function in reversed(before):
            setattr(owner, name, function)


def _either(calls: Calls | Current, fake: Any, real: Any) -> Any:
    """Return a function that is `fake` for a file of the fake disk, by its first argument or its folder."""

    def call(first: Any, *more: Any, **named: Any) -> Any:
        folder = named.get("dir_fd", named.get("src_dir_fd"))
        if (folder is not None and folder >= FIRST) or (folder is None and calls.is_fake(first)):
            return fake(first, *more, **named)
        return real(first, *more, **named)

    return call


def _by(calls: Calls | Current, fake: Any, real: Any, at: int) -> Any:
    def call(*given: Any, **named: Any) -> Any:
        folder = named.get("dir_fd", named.get("src_dir_fd"))
        if (folder is not None and folder >= FIRST) or (folder is None and calls.is_fake(given[at])):
            return fake(*given, **named)
        return real(*given, **named)

    return call


def _opener(calls: Calls | Current, real: Any) -> Any:
    def call(path: Any, *more: Any, **named: Any) -> Any:
        if calls.is_fake(path):
            return calls.open_file(path, *more, **named)
        return real(path, *more, **named)

    return call
