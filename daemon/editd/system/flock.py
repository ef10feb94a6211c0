"""One holder for each file or folder: an flock(2) on a file that is never unlinked.

The kernel drops it when the last descriptor of the open file is closed, so it ends with its process. A
child does not inherit the descriptor, but has it until its exec. If the daemon is killed in that moment,
the lock outlives it by up to 50 ms (measured on a busy machine). So the daemon forks no child that does
not exec.
"""

from __future__ import annotations

import errno
import fcntl
import os

from editd.system.native import NATIVE

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
    return _lock(os.open(path, flags, 0o600), wait=wait)


def take_folder(path: str) -> Flock | None:
    """Lock a folder itself, by any of its paths; return None if another process holds it.

    Raises OSError; it is one of NO_LOCKS if the file system has no locks on folders.
    """
    return _lock(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), wait=False)


def holder_of(folder: str) -> tuple[int, str] | None:
    """Return the process that holds a folder, and its command's name; None if the system does not show it."""
    try:
        status = os.stat(folder)
        with open(f"{NATIVE.proc}/locks", encoding="ascii") as file:
            locks = [line.split() for line in file]
        file_id = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
        process = next(int(lock[4]) for lock in locks if lock[1] == "FLOCK" and lock[5] == file_id)
        with open(f"{NATIVE.proc}/{process}/comm", encoding="utf-8", errors="replace") as file:
            return process, file.read().strip()
    except (OSError, StopIteration, ValueError, IndexError):
        return None


def _lock(descriptor: int, *, wait: bool) -> Flock | None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError:
        os.close(descriptor)
        raise
    return Flock(descriptor)
