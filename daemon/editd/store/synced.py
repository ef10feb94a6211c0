"""How far the files are on the disk for good: a number that is written down each time they were synced.

Packing moves head on before that, so head does not tell what a power cut may have torn. A number that is too
low costs a look at files that are well; none at all is that of an older editd, which had no such file.
"""

from __future__ import annotations

import os

from editd.system.disk import write_whole


def read_synced(folder: str) -> int | None:
    """The seq up to which all files are durable, as noted in the state folder; None where nobody knows."""
    try:
        with open(_path(folder), "rb") as file:
            return int(file.read())
    except (FileNotFoundError, ValueError):
        return None


def note_synced(folder: str, seq: int) -> None:
    """Note that all up to `seq` is durable in the files, which it is already. Raises OSError."""
    temporary = _path(folder) + ".new"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        write_whole(descriptor, b"%d\n" % seq)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.rename(temporary, _path(folder))


def _path(folder: str) -> str:
    return os.path.join(folder, "synced")
