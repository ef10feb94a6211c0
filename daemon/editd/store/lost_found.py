"""Lost and found: content without a transaction that a crash has left in the workspace, kept for a while.

`History.quarantine` stores it here, in the folder `strays`. A user who misses content after a crash looks
for it within days. So a compaction removes files older than `KEPT_SECONDS`; nothing else does.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from editd.system.filesystem import folder_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

LOST_FOUND = "strays"
KEPT_SECONDS = 30 * 86400


def lost_bytes(folder: str) -> int:
    """Return the disk space of the quarantined files in the state folder."""
    return folder_bytes(os.path.join(folder, LOST_FOUND))


def drop_lost_contents(folder: str, is_dropped: Callable[[bytes], bool]) -> int:
    """Remove the files whose content `is_dropped` accepts; return their number. Raises OSError."""
    dropped = 0
    with contextlib.suppress(FileNotFoundError), os.scandir(os.path.join(folder, LOST_FOUND)) as entries:
        for entry in entries:
            with open(entry.path, "rb") as file:
                content = file.read()
            if is_dropped(content):
                os.unlink(entry.path)
                dropped += 1
    return dropped


def drop_lost(folder: str, now: float) -> int:
    """Remove the files that are too old at `now`, in seconds since the epoch; return the bytes freed."""
    freed = 0
    with contextlib.suppress(FileNotFoundError), os.scandir(os.path.join(folder, LOST_FOUND)) as entries:
        for entry in entries:
            status = entry.stat(follow_symlinks=False)
            if now - status.st_mtime > KEPT_SECONDS:
                os.unlink(entry.path)
                freed += status.st_size
    return freed
