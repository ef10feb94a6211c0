"""The sync state of the workspace's files: the number of the last durable transaction, written at each sync.

Packing moves head before that sync, so head does not show which files a power cut may have torn. A number
that is too low only costs checks of good files. A history of an older editd has no such file.

A failed sync leaves the later files in doubt: they are in the page cache, and may never reach the disk.
That is recorded too, so that the next start rewrites them. The record needs no sync: if a power cut
destroys it, the next start redoes all later transactions anyway.
"""

from __future__ import annotations

import contextlib
import os

from editd.system.files import replace_file
from editd.system.filesystem import write_at

_SEQ_BYTES = 8


class SyncedThrough:
    """The number of the newest transaction in the files, durable or not.

    Written without a sync after each batch. A killed daemon leaves all in it that were answered, so that the
    next start redoes only later transactions. After a power cut it is meaningless.
    """

    def __init__(self, folder: str) -> None:
        """Open the file in the state folder; a new one holds 0. Raises OSError."""
        path = os.path.join(folder, "published")
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    @property
    def through(self) -> int:
        """Return the number. Raises OSError."""
        return int.from_bytes(os.pread(self._descriptor, _SEQ_BYTES, 0), "little")

    def note(self, seq: int) -> None:
        """Write the number. If that fails it stays too low, and the next start redoes more than necessary."""
        with contextlib.suppress(OSError):
            write_at(self._descriptor, seq.to_bytes(_SEQ_BYTES, "little"), 0)

    def close(self) -> None:
        os.close(self._descriptor)


def read_synced(folder: str) -> int | None:
    """Return the last seq with all files durable, by the state folder; None if it is unknown."""
    try:
        with open(_path(folder), "rb") as file:
            return int(file.read())
    except (FileNotFoundError, ValueError):
        return None


def note_synced(folder: str, seq: int) -> None:
    """Record that all up to `seq` is already durable in the files. Raises OSError."""
    replace_file(_path(folder), b"%d\n" % seq)


def mark_sync_failed(folder: str) -> None:
    """Record that the unsynced files may never leave the page cache. Raises OSError."""
    os.close(os.open(_doubt(folder), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))


def has_sync_failed(folder: str) -> bool:
    """Return whether a sync has failed, and its files were not rewritten and synced since."""
    return os.path.exists(_doubt(folder))


def clear_sync_failed(folder: str) -> None:
    """Record that the files were rewritten and synced. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_doubt(folder))


def _doubt(folder: str) -> str:
    return os.path.join(folder, "doubt")


def _path(folder: str) -> str:
    return os.path.join(folder, "synced")
