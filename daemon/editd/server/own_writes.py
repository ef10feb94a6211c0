"""Our own writes: the files that the newest transactions have published, whose notices need no look.

Publishing moves each file to its path. A notice needs no look if the queue of the system has only moves to
the path, no more than ours, and the file is as we saw it there: the same inode, size and times. Another
program that writes to the file, replaces it or removes it makes another event, one more move, or another
file. `WorkspaceWatcher.recorded` fills `by_path`, and the thread of the watch asks.
"""

from __future__ import annotations

import os
import time

ECHO_SECONDS = 0.1  # after a transaction, notices of its files are taken for its own
KEPT_SECONDS = 5.0  # a notice of the system comes sooner
KEPT_MAX = 1024  # beyond it, older paths are forgotten now and then
LOOKS_MAX = 64  # files of a transaction that are looked at: others wait while a long one is recorded
_IGNORE_RULES = b".gitignore"  # a change of it brings folders into scope

OwnWrite = tuple[float, int, os.stat_result | None]
"""The time, the number of our moves to the path, and the file after the last one."""

_NO_WRITE: OwnWrite = (float("-inf"), 0, None)


class OwnWrites:
    """The newest writes by their paths, relative to the root."""

    def __init__(self, root: bytes) -> None:
        self.root = root
        self.by_path: dict[bytes, OwnWrite] = {}
        self.kept_max = KEPT_MAX

    def is_recent(self, path: bytes) -> bool:
        """Return whether a notice of the path, which needs a look, probably comes from our own write."""
        return self.by_path.get(path, _NO_WRITE)[0] > time.monotonic() - ECHO_SECONDS

    def is_own(self, path: bytes, moves: int) -> bool:
        """Return whether so many moves to a path are all ours, and the last file is there unchanged."""
        at, left, known = self.by_path.get(path, _NO_WRITE)
        if known is None or moves > left or path.endswith(_IGNORE_RULES):
            return False
        try:
            status = os.lstat(os.path.join(self.root, path))
        except OSError:
            return False
        self.by_path[path] = at, left - moves, known
        return _identity_of(status) == _identity_of(known)

    def forget_old(self) -> None:
        """Forget the paths whose notices have come."""
        since = time.monotonic() - KEPT_SECONDS
        self.by_path = {path: own for path, own in self.by_path.copy().items() if own[0] > since}
        self.kept_max = max(KEPT_MAX, 2 * len(self.by_path))


def _identity_of(status: os.stat_result) -> tuple[int, int, int, int, int]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
