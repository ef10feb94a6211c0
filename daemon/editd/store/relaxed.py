"""Which segments were written with `durability = "relaxed"`: there a power cut may leave a hole.

Frames that are not synced yet reach the disk in any order, so a bad frame with whole ones behind it is no
damage there, but the end of what was durable. The file holds the highest number of such a segment; numbers
only rise, so it is never taken back.
"""

from __future__ import annotations

import os

from editd.errors import HistoryDamaged
from editd.system.atomic_file import replace_file_durably

NAME = "relaxed"


def relaxed_through(folder: str) -> int:
    """The highest number of a segment in `folder` that may have a hole. Raises HistoryDamaged."""
    path = os.path.join(folder, NAME)
    try:
        with open(path, "rb") as file:
            return int(file.read(32))
    except FileNotFoundError:
        return -1
    except ValueError:
        raise HistoryDamaged(
            f"The journal is damaged: {path} holds no number, so damage is not told from a power cut.",
            hint="No transaction is lost by this. Where there was no power cut, the file can go.",
            data={"file": path},
        ) from None


def note_relaxed(folder: str, number: int) -> None:
    """Note that the segment `number` may have a hole from now on; durable on return. Raises OSError."""
    replace_file_durably(os.path.join(folder, NAME), b"%d\n" % number)
