"""How far the files are on the disk for good: a number that is written down each time they were synced.

Packing moves head on before that, so head does not tell what a power cut may have torn. A number that is too
low costs a look at files that are well; none at all is that of an older editd, which had no such file.

A sync that failed leaves the files beyond that number in doubt: the page cache still has them, and the disk
may never get them. That is noted, too, so that the next start writes them anew. The note itself need not be
synced: where it is lost with the machine's power, all beyond the number is redone in any case.
"""

from __future__ import annotations

import os
from contextlib import suppress

from editd.system.atomic_file import replace_file
from editd.system.filesystem import write_at

_SEQ_BYTES = 8


class SyncedThrough:
    """The number of the newest transaction that is in the files, as the page cache has it.

    Written without a sync after each transaction: a killed daemon leaves it exact, so that the next start
    redoes only what may not be in the files. After a power cut it means nothing.
    """

    def __init__(self, folder: str) -> None:
        """Open it in the state folder; where there is none it begins at 0. Raises OSError."""
        path = os.path.join(folder, "published")
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    @property
    def through(self) -> int:
        """Return the number. Raises OSError."""
        return int.from_bytes(os.pread(self._descriptor, _SEQ_BYTES, 0), "little")

    def note(self, seq: int) -> None:
        """Write the number down. If that fails it stays too low, and a start redoes more than it has to."""
        with suppress(OSError):
            write_at(self._descriptor, seq.to_bytes(_SEQ_BYTES, "little"), 0)

    def close(self) -> None:
        os.close(self._descriptor)


def read_synced(folder: str) -> int | None:
    """The seq up to which all files are durable, as noted in the state folder; None where nobody knows."""
    try:
        with open(_path(folder), "rb") as file:
            return int(file.read())
    except (FileNotFoundError, ValueError):
        return None


def note_synced(folder: str, seq: int) -> None:
    """Note that all up to `seq` is durable in the files, which it is already. Raises OSError."""
    replace_file(_path(folder), b"%d\n" % seq)


def mark_sync_failed(folder: str) -> None:
    """Note that the files beyond what is synced may be in the page cache only, for good. Raises OSError."""
    os.close(os.open(_doubt(folder), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))


def has_sync_failed(folder: str) -> bool:
    """Whether a sync has failed and none has succeeded after what it was for had been written anew."""
    return os.path.exists(_doubt(folder))


def clear_sync_failed(folder: str) -> None:
    """The files were written anew, and synced. Raises OSError."""
    with suppress(FileNotFoundError):
        os.unlink(_doubt(folder))


def _doubt(folder: str) -> str:
    return os.path.join(folder, "doubt")


def _path(folder: str) -> str:
    return os.path.join(folder, "synced")
