"""Hidden folders: those of which a mount took the place while the daemon ran.

Their files are there and cannot be seen, so that nothing of them is deleted. The files on the mount are
others, of which the history knows nothing.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from editd.errors import PermissionDenied
from editd.system.mounts import MountEvents, mounts, mounts_below
from editd.values.path import WorkspacePath

if TYPE_CHECKING:
    from collections.abc import Callable


class Hidden:
    """The hidden folders of one workspace. A mount that was there at the start hides nothing."""

    def __init__(self, root: str, has_files: Callable[[WorkspacePath], bool]) -> None:
        """`has_files` tells whether the history has a file at or below a path."""
        self._root = os.fsencode(root)
        self._has_files = has_files
        self._events = MountEvents()
        self._known = self._mounted()
        self._folders: set[bytes] = set()
        self._looking = threading.Lock()

    def close(self) -> None:
        """Notice no more mounts."""
        self._events.close()

    def folder_over(self, path: WorkspacePath) -> str:
        """Return the hidden folder in which `path` lies; "" where it can be seen."""
        self._look()
        raw = path.raw
        for folder in self._folders:
            if raw == folder or raw.startswith(folder + b"/"):
                return os.fsdecode(folder)
        return ""

    def refuse(self, path: WorkspacePath) -> None:
        """Raise PermissionDenied where `path` lies in a hidden folder."""
        folder = self.folder_over(path)
        if folder:
            raise PermissionDenied(
                f"{path} is hidden: a file system was mounted over {folder} while the daemon ran.",
                hint=f"Unmount {folder}, or restart the daemon, which takes its new files in.",
                data={"path": path.text},
            )

    def told(self) -> list[str]:
        """Return what is hidden, a sentence for each folder."""
        self._look()
        return [
            f"{os.fsdecode(folder)} is hidden by a file system that was mounted over it while the daemon "
            "ran: nothing in it is recorded until it is unmounted or the daemon is restarted."
            for folder in sorted(self._folders)
        ]

    def _look(self) -> None:
        with self._looking:  # the engine may work in a thread, while `status` is answered
            if not self._events.have_come():
                return
            now = self._mounted()
            new = {path for path, _ in now - self._known}
            hiding = {path for path in new if self._has_files(WorkspacePath(os.fsdecode(path)))}
            self._folders = (self._folders & {path for path, _ in now}) | hiding
            self._known = now

    def _mounted(self) -> set[tuple[bytes, int]]:
        return {(path, mount.number) for path, mount in mounts_below(self._root, mounts()).items()}
