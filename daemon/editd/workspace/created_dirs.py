"""The folders that are made for what is being staged: noted first, so that a crash leaves none behind.

A note is a path in a file of the daemon's own, not synced: what a power cut leaves of it may miss an empty
folder, and that is all. Only what was not there before is noted, and only an empty folder is removed.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from editd.system.filesystem import write_whole
from editd.workspace.directories import remove_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from editd.system.filesystem import Disk


class CreatedDirs:
    def __init__(self, path: str) -> None:
        """`path` is of the file with the notes. Raises OSError."""
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        with open(path, "rb") as file:
            *whole, _cut = file.read().split(b"\0")  # a path that was cut off had not been made yet
        self._left = whole
        self._is_noted = bool(whole)

    def note(self, paths: Sequence[bytes]) -> None:
        """Note folders that are missing and will be made next. Raises OSError."""
        self._is_noted = True
        write_whole(self._descriptor, b"".join(path + b"\0" for path in paths))

    def forget(self) -> None:
        """Nothing is being staged now: what was noted holds files, or is gone."""
        if self._is_noted and not self._left:
            with suppress(OSError):  # What is noted too long costs a look at the next start.
                os.ftruncate(self._descriptor, 0)
                self._is_noted = False

    def remove_left(self, disk: Disk) -> None:
        """Remove what a daemon that is gone has made, where nothing is in it."""
        for path in sorted(self._left, key=len, reverse=True):
            with suppress(OSError):  # Not empty, or gone.
                remove_folder(disk, path)
        self._left = []
