"""Hidden folders: those of which a mount took the place after the history knew their files.

Their files are there and cannot be seen, so that nothing of them is deleted. The files on the mount are
others, of which the history knows nothing. The mounts with files that the history does know are kept in
the state folder: a mount that is not among them came while no daemon ran.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from editd.errors import PermissionDenied
from editd.system.atomic_file import replace_file_durably
from editd.system.mounts import MountEvents, mounts, mounts_below
from editd.values.path import WorkspacePath

if TYPE_CHECKING:
    from collections.abc import Callable


_NAME = "mounts"  # of the file in the state folder


class HiddenFolders:
    """The hidden folders of one workspace."""

    def __init__(self, root: str, state: str, has_files: Callable[[WorkspacePath], bool]) -> None:
        """`has_files` tells whether the history has a file at or below a path; `state` is the state folder.

        In a state folder that names no mounts yet, those that are there now hide nothing.
        """
        self._root = os.fsencode(root)
        self._path = os.path.join(state, _NAME)
        self._has_files = has_files
        self._events = MountEvents()
        self._known: set[tuple[bytes, int]] = set()  # path and number
        self._folders: set[bytes] = set()
        self._looking = threading.Lock()
        now = self._mounted()
        kept = self._kept()
        self._take(now, {path for path, _ in now if kept is not None and path not in kept})

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
                f"{path} is hidden: a file system was mounted over {folder}.",
                hint=f"Unmount {folder}. To have the files on the mount recorded, delete those that it hides "
                "and mount it again.",
                data={"path": path.text},
            )

    def told(self) -> list[str]:
        """Return what is hidden, a sentence for each folder."""
        self._look()
        return [
            f"{os.fsdecode(folder)} is hidden by a file system that was mounted over it: nothing in it is "
            "recorded until it is unmounted."
            for folder in sorted(self._folders)
        ]

    def _look(self) -> None:
        with self._looking:  # the engine may work in a thread, while `status` is answered
            if not self._events.have_come():
                return
            now = self._mounted()
            self._take(now, {path for path, _ in now - self._known})

    def _take(self, now: set[tuple[bytes, int]], new: set[bytes]) -> None:
        """Note which of the new mounts hide something, and keep the others."""
        paths = {path for path, _ in now}
        hiding = {path for path in new if self._has_files(WorkspacePath(os.fsdecode(path)))}
        self._folders = (self._folders & paths) | hiding
        self._known = now
        shown = paths - self._folders
        if shown != self._kept():
            with suppress(OSError):  # A mount that is not kept hides its own files at the next start.
                replace_file_durably(self._path, b"\0".join(sorted(shown)))

    def _kept(self) -> set[bytes] | None:
        """Return the mounts that were kept; None if none ever were."""
        try:
            with open(self._path, "rb") as file:
                return set(file.read().split(b"\0")) - {b""}
        except OSError:
            return None

    def _mounted(self) -> set[tuple[bytes, int]]:
        return {(path, mount.number) for path, mount in mounts_below(self._root, mounts()).items()}
