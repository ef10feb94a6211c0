"""One daemon for each workspace: an flock(2) on a file that is never unlinked.

The kernel drops it when the last descriptor of the open file is closed, so it ends with the daemon
however the daemon ends. The descriptor is not inherited by an exec'ed child; a forked one would
keep it, which is why the daemon forks none (tried: a forked worker kept a dead daemon's flock).
"""

from __future__ import annotations

import errno
import fcntl
import os

NO_LOCKS = frozenset({errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP})
"""What a file system says that locks no folders, such as NFS."""


class Flock:
    """A file that this process alone has taken, until `release` or its end."""

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        """Let the next one have it; a second call does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def take(path: str, *, wait: bool = False) -> Flock | None:
    """Take the file at `path`, made 0600 where missing.

    Where another holds it, return None, or with `wait` wait until it does not. Raises OSError where
    the file cannot be opened.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    return _locked(os.open(path, flags, 0o600), wait=wait)


def take_folder(path: str) -> Flock | None:
    """Take a folder itself, by whatever path; None where another process holds it.

    Raises OSError, one of NO_LOCKS where the file system locks no folders.
    """
    return _locked(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), wait=False)


def holder_of(folder: str) -> tuple[int, str] | None:
    """Return the process that holds a folder, and its command's name; None if the system does not say."""
    try:
        found = os.stat(folder)
        with open("/proc/locks", encoding="ascii") as file:
            locks = [line.split() for line in file]
        file_id = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
        process = next(int(lock[4]) for lock in locks if lock[1] == "FLOCK" and lock[5] == file_id)
        with open(f"/proc/{process}/comm", encoding="utf-8", errors="replace") as file:
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
