"""Files: replaced in one step and synced; read without blocking, when another program owns them; locked."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from functools import cache
from typing import TYPE_CHECKING

from editd.system.filesystem import write_whole
from editd.system.native import NATIVE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import BufferedReader


# The daemon's own files, which outlive a power cut: replaced in one step and synced.


def replace_file_durably(path: str, content: bytes, *, temporary: str = ".new") -> None:
    """Replace the file in one step, and return when the new one outlives a power cut. Raises OSError."""
    replace_file(path, content, temporary=temporary)
    sync_path(os.path.dirname(path))


def replace_file(path: str, content: bytes, *, temporary: str = ".new") -> None:
    """Replace the file: a reader, now or after a crash, sees the old or the new content, whole.

    A crash may leave a file with `temporary` at the end of its name. After a power cut the old content may be
    back, until the folder is synced. Raises OSError.
    """
    descriptor = os.open(path + temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        write_whole(descriptor, content)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.rename(path + temporary, path)


def read_or_empty(path: str) -> bytes:
    """Return the content of the file at `path`, or nothing if there is no file. Raises OSError."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return b""


def sync_path(path: str) -> None:
    """Make the bytes of a file, or the names in a folder, durable. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@cache
def boot_name() -> str:
    """Return the UUID of this boot of the machine, within which a process's start counts; "" if unknown."""
    try:
        return read_proc(f"{NATIVE.proc}/sys/kernel/random/boot_id").decode("ascii").strip()
    except OSError:
        return ""


def boot_id() -> bytes:
    """Return the 16 bytes of `boot_name`; b"" if unknown.

    After another boot, files that were not synced may be torn.
    """
    return bytes.fromhex(boot_name().replace("-", ""))


def read_proc(path: str) -> bytes:
    """Return the bytes of a file of proc(5). Raises OSError.

    `open` makes twice as many system calls, and each of them waits for Python's lock if a thread is busy.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts: list[bytes] = []
        while part := os.read(descriptor, _PROC_BYTES):
            parts.append(part)
    finally:
        os.close(descriptor)
    return b"".join(parts)


_PROC_BYTES = 1024 * 1024  # of one read


@cache
def creation_mask() -> int:
    """Return the umask of this process, which never changes it."""
    with contextlib.suppress(OSError), open("/proc/self/status", encoding="ascii") as file:
        for line in file:
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    mask = os.umask(0o077)  # a kernel without the file; a new file of another thread is private meanwhile
    os.umask(mask)
    return mask


# Regular files of other programs, opened without blocking on a FIFO or a terminal.

_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NULL = os.stat(os.devnull).st_rdev  # users link to it for an empty file


def open_regular(path: str | bytes) -> BufferedReader:
    """Open a regular file for reading, symbolic links followed. Raises OSError for other kinds."""
    descriptor = os.open(path, _FLAGS)
    try:
        if not _is_plain(os.fstat(descriptor)):
            raise OSError(errno.EINVAL, "not a regular file", path)
    except BaseException:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "rb")


def would_block(path: str | bytes) -> bool:
    """Return whether opening it for reading may wait, as for a FIFO: it is no regular file and no folder."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return False
    return not (_is_plain(found) or stat.S_ISDIR(found.st_mode))


def git_folder(path: bytes) -> bytes | None:
    """Return git's own folder, absolute: a `.git` or the folder that it names (gitrepository-layout(5))."""
    if os.path.isdir(path):
        return path
    try:
        with open_regular(path) as file:
            text = file.read(65536)
    except (OSError, ValueError):
        return None
    if not text.startswith(b"gitdir: ") or b"\0" in text:
        return None
    return os.path.normpath(os.path.join(os.path.dirname(path), text[8:].rstrip(b"\r\n")))


def users_git_files() -> Iterator[bytes]:
    """Yield the files that git reads with every repository of a user (git-config(1) and gitignore(5))."""
    home = os.fsencode(os.path.expanduser("~"))
    yield os.path.join(home, b".gitconfig")
    folder = os.environb.get(b"XDG_CONFIG_HOME") or os.path.join(home, b".config")
    for name in (b"config", b"ignore", b"attributes"):
        yield os.path.join(folder, b"git", name)


def _is_plain(found: os.stat_result) -> bool:
    return stat.S_ISREG(found.st_mode) or (stat.S_ISCHR(found.st_mode) and found.st_rdev == _NULL)


# One daemon for each workspace: an flock(2) on a file that is never unlinked.
#
# The kernel drops it when the last descriptor of the open file is closed, so it ends with the daemon. A
# child does not inherit the descriptor, but has it until its exec. If the daemon is killed in that moment,
# the lock outlives it by up to 50 ms (measured on a busy machine). So the daemon forks no child that does
# not exec.

NO_LOCKS = frozenset({errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP})
"""The errors of a file system that has no locks on folders, such as NFS."""


class Flock:
    """A locked file, held by this process until `release` or its end."""

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        """Release the lock; a second call does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def take(path: str, *, wait: bool = False) -> Flock | None:
    """Lock the file at `path`, made 0600 if missing.

    If another process holds it, return None, or with `wait` wait for its release. Raises OSError if the
    file cannot be opened.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    return _locked(os.open(path, flags, 0o600), wait=wait)


def take_folder(path: str) -> Flock | None:
    """Lock a folder itself, by any of its paths; return None if another process holds it.

    Raises OSError; it is one of NO_LOCKS if the file system has no locks on folders.
    """
    return _locked(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), wait=False)


def holder_of(folder: str) -> tuple[int, str] | None:
    """Return the process that holds a folder, and its command's name; None if the system does not show it."""
    try:
        found = os.stat(folder)
        with open(f"{NATIVE.proc}/locks", encoding="ascii") as file:
            locks = [line.split() for line in file]
        file_id = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
        process = next(int(lock[4]) for lock in locks if lock[1] == "FLOCK" and lock[5] == file_id)
        with open(f"{NATIVE.proc}/{process}/comm", encoding="utf-8", errors="replace") as file:
            return process, file.read().strip()
    except (OSError, StopIteration, ValueError, IndexError):
        return None


def _locked(descriptor: int, *, wait: bool) -> Flock | None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError:
        os.close(descriptor)
        raise
    return Flock(descriptor)
