"""The disk: the file system operations that editd needs to be safe.

Owns the descriptor of the workspace's root, and does not know the purpose of a file. A path is bytes relative
to the root, `/` between names; b"" is the root. Each verb works on a name in an open folder, and a folder is
opened in one step from the root.

No folder is ever reached through a symbolic link, and no verb follows one at the end, even if it appears
during the call. openat2(2) promises that, if it may be called. systemd's RestrictSUIDSGID and old container
profiles forbid it, and gVisor has none. Otherwise every name is opened from the folder before it, which is as
safe and a few microseconds a name slower. Other missing system calls have a substitute too (see
`missing_calls`).

A refusal by the kernel is raised as its OSError: ENOENT and ENOTDIR for a missing folder, ELOOP for a
symbolic link on the way, EXDEV for a path that would leave the root. A root that was removed answers ENOENT
to everything.

Call `ignore_lease_signal` before the first read lease is taken.
"""

from __future__ import annotations

import array
import ctypes
import errno
import fcntl
import os
import secrets
import signal
import stat
import struct
import sys
from contextlib import contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING, ClassVar

from msgspec import Struct

from editd.system.native import NATIVE
from editd.system.overlay_lock import has_overlay

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from types import TracebackType
    from typing import Self

PROBE_PREFIX = b".editd-probe-"  # within the names that editd keeps for its temporaries

_SYS_OPENAT2 = 437  # on every architecture but alpha, whose ENOSYS leads to the walk
_RESOLVE_NO_MAGICLINKS, _RESOLVE_NO_SYMLINKS, _RESOLVE_BENEATH = 0x02, 0x04, 0x08
_AT_SYMLINK_NOFOLLOW, _AT_EACCESS = 0x100, 0x200
_FS_IOC_SETFLAGS = 0x40086602 if struct.calcsize("l") == 8 else 0x40046602  # linux/fs.h: _IOW('f', 2, long)
_TOPDIR_FLAG = 0x00020000  # linux/fs.h: FS_TOPDIR_FL, as by chattr +T
_FS_IOC_GETFLAGS = 0x80086601 if struct.calcsize("l") == 8 else 0x80046601  # linux/fs.h: _IOR('f', 1, long)
_INHERITED_FLAGS = 0x2281C4CF  # linux/fs.h: of a folder for its new files, such as compression or no COW
_FOLDER_FLAGS = NATIVE.folder_flags
_HOW = struct.pack(  # struct open_how: flags, mode, resolve
    "=QQQ", _FOLDER_FLAGS, 0, _RESOLVE_BENEATH | _RESOLVE_NO_SYMLINKS | _RESOLVE_NO_MAGICLINKS
)
_STATX_MNT_ID_UNIQUE = 0x4000  # linux/stat.h, since Linux 6.8: of a mount, and never used again
_STATX_BYTES, _MASK, _MOUNT = 256, slice(0, 4), slice(144, 152)  # struct statx: stx_mask, stx_mnt_id
_WRITE_AND_WAIT = 1 | 2 | 4  # SYNC_FILE_RANGE_WAIT_BEFORE, WRITE, WAIT_AFTER
_AT_EMPTY_PATH, _AT_STATX_FORCE_SYNC, _STATX_BASIC_STATS = 0x1000, 0x2000, 0x7FF
NO_SUCH_VERB = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})
"""The errors of a file system that has no RENAME_EXCHANGE or RENAME_NOREPLACE."""
_NO_LINKS = NO_SUCH_VERB | {errno.EPERM, errno.EMLINK, errno.EACCES}
_FORBIDDEN = frozenset({errno.ENOSYS, errno.EPERM, errno.EACCES})
"""The errors of a call that the kernel does not have, or that a sandbox forbids."""
_AT_FDCWD = -100
_NO_NAME = b""  # ENOENT from any call that is allowed at all

_syscall = NATIVE.openat2
_syncfs = NATIVE.syncfs
_renameat2 = NATIVE.renameat2
_statx = NATIVE.statx
_sync_file_range = NATIVE.sync_file_range
_faccessat = NATIVE.faccessat
_list_attributes = NATIVE.lists_attributes
_UNREAD = ctypes.create_string_buffer(_STATX_BYTES)  # for `refresh`, whose caller reads the attributes itself


class OpenFolder(Struct, eq=False):
    """An open folder of the workspace. A name is one name in it, never a path; closed by `with`."""

    descriptor: int

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self.descriptor)

    def close(self) -> None:
        """Close the folder, as `with` does at its end."""
        os.close(self.descriptor)

    def has_other_spelling(self, name: bytes) -> bool:
        """Return whether the name is taken, and the disk spells it in another way."""
        return False

    def stat(self, name: bytes) -> os.stat_result | None:
        """Return the lstat result of `name`; None if it does not exist."""
        try:
            return os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def names(self) -> list[bytes]:
        """Return every name in the folder, in no order."""
        descriptor = self.open_itself()
        try:
            return [os.fsencode(name) for name in os.listdir(descriptor)]
        finally:
            os.close(descriptor)

    def open(self, name: bytes) -> int:
        """Open `name` for reading; ELOOP for a symlink. Never waits: EAGAIN, or a FIFO at its end."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        return os.open(name, flags, dir_fd=self.descriptor)

    def create(self, name: bytes, permissions: int) -> int:
        """Create the file `name` and open it for writing; EEXIST if it exists. The umask applies."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(name, flags, permissions, dir_fd=self.descriptor)

    def open_to_write(self, name: bytes) -> int:
        """Open the existing file `name` for reading and writing; ELOOP for a symlink. Never waits."""
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        return os.open(name, flags, dir_fd=self.descriptor)

    def link_target(self, name: bytes) -> bytes:
        """Return the target of the symlink `name`."""
        return os.readlink(name, dir_fd=self.descriptor)

    def make_link(self, name: bytes, target: bytes) -> None:
        """Create the symlink `name`."""
        os.symlink(target, name, dir_fd=self.descriptor)

    def make_folder(self, name: bytes) -> None:
        """Create the folder `name`, as the umask allows."""
        os.mkdir(name, dir_fd=self.descriptor)

    def exchange(self, name: bytes, into: OpenFolder, other: bytes) -> None:
        """Exchange two names in one step; ENOENT if one is missing. One of NO_SUCH_VERB: not supported."""
        self._rename(name, into, other, NATIVE.exchange_flag)

    def move(self, name: bytes, into: OpenFolder, other: bytes) -> None:
        """Rename to a free name; EEXIST if it is taken."""
        try:
            self._rename(name, into, other, NATIVE.free_name_flag)
        except OSError as error:
            if error.errno not in NO_SUCH_VERB:
                raise
            self._move_without_flag(name, into, other)

    def receive(self, name: bytes, source: OpenFolder, other: bytes) -> None:
        """Rename `other` of another folder to a free name of this one. Errors as in `move`."""
        source.move(other, self, name)

    def _move_without_flag(self, name: bytes, into: OpenFolder, other: bytes) -> None:
        """Give the file the other name, then take the first one away: a taken name is never replaced."""
        try:
            self.link(name, into, other)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            # A check before the rename must do, as `weaker` states.
            if into.stat(other) is not None or into.has_other_spelling(other):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), other) from None
            self.replace(name, into, other)
        else:
            self.remove(name)

    def link(self, name: bytes, into: OpenFolder, other: bytes) -> None:
        """Give a file a second, free name. EPERM, EMLINK: it can have none. EXDEV: on another mount."""
        os.link(name, other, src_dir_fd=self.descriptor, dst_dir_fd=into.descriptor, follow_symlinks=False)

    def replace(self, name: bytes, into: OpenFolder, other: bytes) -> None:
        """Rename over any file with the other name."""
        os.replace(name, other, src_dir_fd=self.descriptor, dst_dir_fd=into.descriptor)

    def remove(self, name: bytes) -> None:
        """Unlink a file or symlink."""
        os.unlink(name, dir_fd=self.descriptor)

    def remove_folder(self, name: bytes) -> None:
        """Remove an empty folder; ENOTEMPTY if it is not."""
        os.rmdir(name, dir_fd=self.descriptor)

    def set_permissions(self, permissions: int) -> None:
        """Give the folder itself these permission bits."""
        descriptor = self.open_itself()
        try:
            os.fchmod(descriptor, permissions)
        finally:
            os.close(descriptor)

    def is_writable(self, name: bytes = b".") -> bool:
        """Whether the daemon may write to `name`, or make and remove names in the folder itself.

        Raises OSError for other obstacles than permissions, such as EROFS.
        """
        if _faccessat is None:  # os.access does not return the errno
            if os.access(name, os.W_OK, dir_fd=self.descriptor, effective_ids=True, follow_symlinks=False):
                return True
            is_read_only = os.fstatvfs(self.descriptor).f_flag & os.ST_RDONLY
            number = errno.EROFS if is_read_only else errno.EACCES
        elif not _faccessat(self.descriptor, name, os.W_OK, _AT_EACCESS | _AT_SYMLINK_NOFOLLOW):
            return True
        else:
            number = ctypes.get_errno()
        if number in (errno.EACCES, errno.EPERM):
            return False
        raise OSError(number, os.strerror(number), name)

    def open_itself(self) -> int:
        """Open the folder for operations that an O_PATH descriptor refuses: list, change the mode, sync."""
        return os.open(b".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self.descriptor)

    def _rename(self, name: bytes, into: OpenFolder, other: bytes, flags: int) -> None:
        if _renameat2 is None or not _may_rename(flags):
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), name)
        if _renameat2(self.descriptor, name, into.descriptor, other, flags):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), name, None, other)


def open_folder(path: str) -> OpenFolder:
    """Open a folder by its absolute path, symlinks followed: for the daemon's own. Raises OSError."""
    return OpenFolder(os.open(path, _FOLDER_FLAGS))


class Disk:
    """The file system under one root."""

    root: bytes
    """The absolute path of the root as opened, all symlinks resolved."""
    weaker: list[str]
    """The guarantees that this file system cannot give, a sentence each."""
    is_folding: ClassVar[bool] = False
    """Whether the file system takes two spellings for one name; see `system.folded_names`."""
    device: int
    """The device of the root, as st_dev."""
    can_exchange: bool
    """Whether two files can be exchanged."""
    has_leases: bool
    """Whether a lease proves that no program is writing a file."""
    can_sync_whole: bool
    """Whether `sync` can be called. Otherwise `sync_each` makes files durable."""
    mount: bytes
    """The id of its mount. Mounting the same file system again gives another id, even in the same boot.

    Empty if the system has no such ids.
    """

    def __init__(self, root: str | bytes, *, walk: bool = False) -> None:
        """Open `root` and probe its file system. Raises OSError if it is not a folder.

        `walk` forbids openat2, as a sandbox may.
        """
        self.root = os.path.realpath(os.fsencode(root))
        self._descriptor = os.open(self.root, _FOLDER_FLAGS)
        # Kept open: a failed write is reported once, to descriptors that were open at the time (syncfs(2)).
        self._to_sync = OpenFolder(self._descriptor).open_itself()
        root_status = os.fstat(self._descriptor)
        self._identity = root_status.st_dev, root_status.st_ino
        self.device = self._identity[0]
        self.is_walking = walk
        self.is_walking = walk or not self._may_openat2()
        """Whether folders are opened name by name for want of openat2: equally safe."""
        self.can_sync_whole = _may_syncfs()
        self.can_exchange = self.has_leases = True
        self.weaker = self._probe()
        self.mount = mount_id(self._descriptor)

    def close(self) -> None:
        """Close the root."""
        os.close(self._descriptor)
        os.close(self._to_sync)

    def spelling_of(self, path: bytes) -> bytes:
        """Return the path as the disk spells it."""
        return path

    def folder(self, path: bytes) -> OpenFolder:
        """Open a folder. The caller closes it."""
        if not path:
            return OpenFolder(os.dup(self._descriptor))
        if self.is_walking:
            return OpenFolder(_walk(self._descriptor, path))
        assert _syscall is not None  # otherwise it is walking
        while (opened := _syscall(_SYS_OPENAT2, self._descriptor, path, _HOW, len(_HOW))) < 0:
            number = ctypes.get_errno()
            if number not in (errno.EAGAIN, errno.EINTR):  # openat2(2): a rename or a signal; retry
                raise OSError(number, os.strerror(number), path)
        return OpenFolder(opened)

    def sync(self, path: bytes = b"") -> None:
        """Make the whole file system under the folder durable (syncfs).

        After an OSError, the kernel may have dropped the unwritten bytes, though they can still be read, and
        another sync reports nothing. But EMFILE and ENFILE come before anything is tried.
        """
        if not path:
            _sync(self._to_sync)
            return
        with self.folder(path) as folder:
            descriptor = folder.open_itself()
        try:
            _sync(descriptor)
        finally:
            os.close(descriptor)

    def sync_each(self, paths: Iterable[bytes]) -> None:
        """Make these files durable, with the names on the way to them. Errors as in `sync`.

        For a path that is gone or no longer a file, its folder is synced.
        """
        folders = {b""}
        for path in paths:
            names = path.split(b"/")
            folders |= {b"/".join(names[:depth]) for depth in range(1, len(names))}
            self._sync_file(path)
        for path in sorted(folders, reverse=True):  # a folder's content before its own name
            with _ignore_missing(), self.folder(path) as folder:
                _fsync(folder.open_itself())

    def _sync_file(self, path: bytes) -> None:
        above, _, name = path.rpartition(b"/")
        with _ignore_missing(), self.folder(above) as folder:
            status = folder.stat(name)
            if status is not None and stat.S_ISREG(status.st_mode):
                _fsync(folder.open(name))

    def _may_openat2(self) -> bool:
        if _syscall is None:
            return False
        try:
            with self.folder(b"."):
                return True
        except OSError as error:
            if error.errno not in _FORBIDDEN:
                raise
            return False  # if the folder itself may not be entered, the walk raises that

    def is_root_in_place(self) -> bool:
        """Whether the root's path still names the opened folder. Raises OSError if that is unknown."""
        try:
            present = os.lstat(self.root)
            return (present.st_dev, present.st_ino) == self._identity
        except (FileNotFoundError, NotADirectoryError):
            return False

    def is_overlaid(self) -> bool:
        """Return whether an overlay of editd over the root is open (`system.overlay_lock`)."""
        return has_overlay(self._to_sync)

    def _probe(self) -> list[str]:
        stem = PROBE_PREFIX + secrets.token_hex(8).encode()
        first, second = stem + b"-0", stem + b"-1"
        weaker: list[str] = []
        with self.folder(b"") as folder:
            try:
                for name in (first, second):
                    os.close(folder.create(name, 0o600))
                self.can_exchange = _can_exchange(folder, first, second)
                self.has_leases = _can_lease(folder, first)
                weaker += [] if self.can_exchange else [_NO_EXCHANGE]
                weaker += [] if self.has_leases else [_NO_LEASE]
            except OSError as error:
                weaker.append(f"The file system could not be probed: {os.strerror(error.errno or 0)}.")
            finally:
                for name in (first, second):
                    if folder.stat(name) is not None:
                        folder.remove(name)
        return weaker


def _sync(descriptor: int) -> None:
    if _syncfs is None or _syncfs(descriptor):
        number = errno.ENOSYS if _syncfs is None else ctypes.get_errno()
        raise OSError(number, os.strerror(number))


@contextmanager
def _ignore_missing() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            raise


def _fsync(descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def missing_calls(disk: Disk) -> list[str]:
    """Name the system calls that are missing or forbidden here, and that editd has a substitute for."""
    may = {
        "openat2": not disk.is_walking,
        "renameat2": _may_rename(NATIVE.exchange_flag) and _may_rename(NATIVE.free_name_flag),
        "syncfs": disk.can_sync_whole,
    }
    return [name for name, is_there in may.items() if not is_there]


@cache
def _may_rename(flags: int) -> bool:
    """Whether renameat2(2) reaches a file system, which may refuse with EPERM for its own reasons."""
    if _renameat2 is None:
        return False
    _renameat2(_AT_FDCWD, _NO_NAME, _AT_FDCWD, _NO_NAME, flags)
    return ctypes.get_errno() == errno.ENOENT


@cache
def _may_syncfs() -> bool:
    if _syncfs is None:
        return False
    _syncfs(-1)
    return ctypes.get_errno() not in _FORBIDDEN


def take_lease(descriptor: int, *, alone: bool = False) -> bool:
    """Take a read lease on an open file, until it is closed: while it is held, no program can begin to write.

    Returns True if no program has the file open for writing or mapped writable, and False if no lease is
    possible (another user's file, FUSE, NFS). Raises BlockingIOError if the file is open for writing. A
    program that opens it to write meanwhile waits until it is closed, so hold it for milliseconds only.
    `alone` takes a write lease, which is possible only if no other program has the file open or mapped.
    """
    if not NATIVE.has_leases:
        return False
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK if alone else fcntl.F_RDLCK)
    except BlockingIOError:
        raise
    except OSError:
        return False
    return True


def has_lease(descriptor: int) -> bool:
    """Return whether an open file's read lease holds: no program has begun to open it for writing since."""
    return fcntl.fcntl(descriptor, fcntl.F_GETLEASE) == fcntl.F_RDLCK


def ignore_lease_signal() -> None:
    """Ignore SIGIO: the kernel sends it when another program waits for our lease, and it would end us.

    Call it once at the start of the daemon, in its main thread.
    """
    if NATIVE.has_leases:
        signal.signal(signal.SIGIO, signal.SIG_IGN)


def read_whole(descriptor: int, size: int, bytes_max: int | None = None) -> bytes:
    """Read to the end, however many reads it takes. `size` is a hint only.

    With `bytes_max`, stop at the first byte beyond it: the result is then longer than that.
    """
    parts: list[bytes] = []
    length = 0
    wanted = max(size + 1, 4096)
    while part := os.read(descriptor, wanted):
        parts.append(part)
        length += len(part)
        if len(part) < wanted or (bytes_max is not None and length > bytes_max):
            break  # a short read of a regular file means its end (read(2))
        wanted = max(size + 1 - length, 4096)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def refresh(descriptor: int, name: bytes = b"") -> None:
    """Make the kernel refresh its cached attributes of an open file, or of a name in an open folder.

    On a shared file system it caches sizes and times for some seconds. On a local one this does nothing.
    """
    flags = _AT_STATX_FORCE_SYNC | (_AT_SYMLINK_NOFOLLOW if name else _AT_EMPTY_PATH)
    if _statx is not None:
        _statx(descriptor, name, flags, _STATX_BASIC_STATS, _UNREAD)


def write_whole(descriptor: int, content: bytes) -> None:
    """Write all of `content`, however many writes it takes."""
    written = os.write(descriptor, content) if content else 0
    rest = memoryview(content)[written:]
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def write_at(descriptor: int, content: bytes, offset: int) -> None:
    """Write all of `content` from `offset` on, however many writes it takes."""
    view = memoryview(content)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written


_refused: set[str] = set()  # calls that the kernel or a sandbox refuses to this process


def write_synced(descriptor: int, parts: Sequence[bytes], offset: int) -> None:
    """Write all of `parts` from `offset` on, and return when they are durable (O_DSYNC). Raises OSError."""
    rest = b""
    if NATIVE.synced_write_flag and "pwritev2" not in _refused:
        try:
            written = os.pwritev(descriptor, parts, offset, NATIVE.synced_write_flag)
        except OSError as error:
            if error.errno not in NO_SUCH_VERB | _FORBIDDEN:
                raise
            _refused.add("pwritev2")
        else:
            if written == sum(map(len, parts)):
                return
            rest, offset = b"".join(parts)[written:], offset + written
    write_at(descriptor, rest or b"".join(parts), offset)
    flush(descriptor)


def flush(descriptor: int) -> None:
    """Make the content of an open file durable, but perhaps not its times. Raises OSError."""
    if NATIVE.has_fdatasync:
        os.fdatasync(descriptor)
    else:
        os.fsync(descriptor)


def write_out(descriptor: int, offset: int, length: int) -> None:
    """Pass a written range of a file to the disk, without a flush. Raises OSError.

    The range must not make the file grow. Its content is then in the disk's cache, which the file system
    flushes before its next commit of metadata (a barrier). So a power cut that keeps a later rename on that
    disk keeps the range as well. Without sync_file_range(2) it does the whole sync.
    """
    if _sync_file_range is None or _sync_file_range(descriptor, offset, length, _WRITE_AND_WAIT):
        number = errno.ENOSYS if _sync_file_range is None else ctypes.get_errno()
        if number not in NO_SUCH_VERB | _FORBIDDEN:
            raise OSError(number, os.strerror(number))
        flush(descriptor)


def attributes_of(descriptor: int) -> list[str]:
    """Return the names of the extended attributes, ACLs included; none without support in the file system."""
    if _list_attributes is None:
        return []
    try:
        return _list_attributes(descriptor)
    except OSError as error:
        if error.errno != errno.ENOTSUP:
            raise
        return []


def copy_attribute(source: int, target: int, name: str) -> None:
    """Give an open file an extended attribute of another. Raises OSError."""
    os.setxattr(target, name, os.getxattr(source, name))


def remove_attribute(descriptor: int, name: str) -> None:
    """Remove an extended attribute of an open file. Raises OSError."""
    os.removexattr(descriptor, name)


def file_flags(descriptor: int) -> int:
    """Return the flags that chattr(1) sets; 0 if the file system has none."""
    flags = array.array("i", [0])
    if NATIVE.system != "linux":
        return 0
    try:
        fcntl.ioctl(descriptor, _FS_IOC_GETFLAGS, flags)
    except OSError:
        return 0
    return flags[0]


def gives_to_new_files(descriptor: int) -> bool:
    """Return whether a new file in an open folder gets more than the umask leaves: a group, an ACL, a flag.

    True if that is unknown.
    """
    if os.fstat(descriptor).st_mode & stat.S_ISGID or file_flags(descriptor) & _INHERITED_FLAGS:
        return True
    try:
        return bool(attributes_of(descriptor))
    except OSError:
        return True


def make_apart(path: str) -> None:
    """Create a folder and the missing ones above it, and let ext4 place it far from its neighbours.

    ext4 looks for a free inode in the group of the folder. Without a journal it skips each inode that was
    freed there in the last minutes, so after many deletions nearby a new file takes twenty times as long.
    It chooses another group if the parent has the flag of a top-level folder. Others refuse the flag.
    """
    parent = os.path.dirname(path)
    os.makedirs(parent, 0o700, exist_ok=True)
    descriptor = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        flags = file_flags(descriptor)
        _set_flags(descriptor, flags | _TOPDIR_FLAG)
        with suppress(FileExistsError):
            os.mkdir(path, 0o700)
        _set_flags(descriptor, flags)
    finally:
        os.close(descriptor)


def _set_flags(descriptor: int, flags: int) -> None:
    if NATIVE.system == "linux":
        with suppress(OSError):  # a file system without this flag, or without flags
            fcntl.ioctl(descriptor, _FS_IOC_SETFLAGS, array.array("i", [flags]))


def free_inodes(folder: OpenFolder) -> int | None:
    """Return how many more files a folder's file system takes; None if there is no limit, as on btrfs."""
    status = os.fstatvfs(folder.descriptor)
    return status.f_favail if status.f_files else None


def folder_bytes(path: str) -> int:
    """Return the bytes of the files directly in a folder; files renamed meanwhile may be left out.

    Returns 0 if the folder is gone or no descriptors are left, because no answer should fail for that.
    """
    total = 0
    try:
        listing = os.scandir(path)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.EMFILE, errno.ENFILE):
            raise
        return 0
    with listing as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                total += entry.stat().st_size
    return total


_NO_EXCHANGE = (
    "This file system cannot exchange two files. editd publishes by a check and a rename, and loses a file "
    "that another program renames into place between the two."
)
_NO_LEASE = (
    "This file system has no leases. editd judges by a file's times whether another program is writing it, "
    "and may miss a write under way."
)


def mount_id(descriptor: int) -> bytes:
    """Return the id of the mount that an open file is on; b"" if libc or the kernel has no such id."""
    buffer = ctypes.create_string_buffer(_STATX_BYTES)
    if _statx is None or _statx(descriptor, b"", _AT_EMPTY_PATH, _STATX_MNT_ID_UNIQUE, buffer):
        return b""
    is_known = int.from_bytes(buffer.raw[_MASK], sys.byteorder) & _STATX_MNT_ID_UNIQUE
    return buffer.raw[_MOUNT] if is_known else b""


def _walk(root: int, path: bytes) -> int:
    """Do as openat2(2) in `Disk.folder`, one name at a time."""
    if path.startswith(b"/") or b".." in path.split(b"/"):
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), path)
    folder = os.dup(root)
    for name in path.split(b"/"):
        try:
            below = step_into(folder, name, path)
        finally:
            os.close(folder)
        folder = below
    return folder


def step_into(folder: int, name: bytes, path: bytes) -> int:
    """Open the folder `name` in an open folder, and never through a symlink. `path` is for the error."""
    while True:
        try:
            return os.open(name, _FOLDER_FLAGS | os.O_NOFOLLOW, dir_fd=folder)
        except OSError as error:
            if error.errno not in (errno.ENOTDIR, errno.ELOOP):  # systems differ for a symlink
                raise
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
        if not stat.S_ISDIR(mode):  # otherwise another program has just put it there
            number = errno.ELOOP if stat.S_ISLNK(mode) else errno.ENOTDIR
            raise OSError(number, os.strerror(number), path)


def _can_exchange(folder: OpenFolder, first: bytes, second: bytes) -> bool:
    try:
        folder.exchange(first, folder, second)
    except OSError as error:
        if error.errno not in NO_SUCH_VERB:
            raise
        return False
    return True


def _can_lease(folder: OpenFolder, name: bytes) -> bool:
    descriptor = folder.open(name)
    try:
        return take_lease(descriptor)
    finally:
        os.close(descriptor)
