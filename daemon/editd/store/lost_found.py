"""The strays: bytes that a crash has left in the workspace and that no transaction has, kept for a while.

`History.quarantine` puts them here. Whoever misses something after a crash looks for it within days; so what
is older than `KEPT_SECONDS` goes when the history is compacted, and not before.
"""

from __future__ import annotations

import contextlib
import os

from editd.system.filesystem import folder_bytes

NAME = "strays"
KEPT_SECONDS = 30 * 86400


def lost_bytes(folder: str) -> int:
    """What the strays in the state folder take of the disk."""
    return folder_bytes(os.path.join(folder, NAME))


def drop_lost(folder: str, now: float) -> int:
    """Remove those that are too old at `now`, in seconds since the epoch; the bytes that this frees."""
    freed = 0
    with contextlib.suppress(FileNotFoundError), os.scandir(os.path.join(folder, NAME)) as entries:
        for entry in entries:
            found = entry.stat(follow_symlinks=False)
            if now - found.st_mtime > KEPT_SECONDS:
                os.unlink(entry.path)
                freed += found.st_size
    return freed
