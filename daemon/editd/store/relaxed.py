"""The segments written with `durability = "relaxed"`: a power cut may leave a hole in them.

Unsynced frames reach the disk in any order. So a bad frame before good ones is no damage in such a
segment, but the end of the durable part. The file holds the highest number of such a segment. Numbers
only rise, so it is never lowered.
"""

from __future__ import annotations

import os

from editd.errors import HistoryDamaged
from editd.system.files import replace_file_durably

RELAXED = "relaxed"


def last_relaxed_segment(folder: str) -> int:
    """Return the highest number of a segment in `folder` that may have a hole. Raises HistoryDamaged."""
    path = os.path.join(folder, RELAXED)
    try:
        with open(path, "rb") as file:
            return int(file.read(32))
    except FileNotFoundError:
        return -1
    except ValueError:
        raise HistoryDamaged(
            f"The journal is damaged: {path} holds no number, so damage looks like a power cut.",
            hint="No transaction is lost by this. Delete the file if there was no power cut.",
            data={"file": path},
        ) from None


def note_relaxed(folder: str, number: int) -> None:
    """Record that the segment `number` may have a hole; durable on return. Raises OSError."""
    replace_file_durably(os.path.join(folder, RELAXED), b"%d\n" % number)
