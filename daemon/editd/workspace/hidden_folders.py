"""Hidden folders: folders with recorded files over which a file system was mounted later.

Their files exist but cannot be seen, so they are not recorded as deleted. The files on the mount are
different files, unknown to the history. The state folder has a list of the mounts that are part of the
workspace. A mount that is not in this list was made while no daemon ran.

Inner workspaces are alike: recorded files may be in them, and belong to another workspace now.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from editd.errors import PermissionDenied
from editd.system.files import replace_file_durably
from editd.system.mounts import MountEvents, mounts, mounts_below
from editd.values.path import WorkspacePath
from editd.workspace.inner_workspaces import InnerWorkspaces

if TYPE_CHECKING:
    from collections.abc import Callable


_MOUNTS_FILE = "mounts"  # of the file in the state folder


class HiddenFolders:
    """The hidden folders of one workspace."""

    def __init__(self, root: str, state: str, has_files: Callable[[WorkspacePath], bool]) -> None:
        """Compare the mounts below `root` with the list in the state folder `state`.

        `has_files` returns whether the history has a file at or below a path. If there is no list yet, the
        present mounts hide nothing.
        """
        self.inner = InnerWorkspaces(root)
        self._root = os.fsencode(root)
        self._path = os.path.join(state, _MOUNTS_FILE)
        self._has_files = has_files
        self._events = MountEvents()
        self._known: set[tuple[bytes, int]] = set()  # path and number
        self._folders: set[bytes] = set()
        self._lock = threading.Lock()
        now = self._current()
        saved = self._saved_mounts()
        self._store(now, {path for path, _ in now if saved is not None and path not in saved})

    def close(self) -> None:
        """Stop watching the mounts."""
        self._events.close()

    def folder_over(self, path: WorkspacePath) -> str:
        """Return the hidden folder that contains `path`; "" if none does."""
        self._refresh()
        raw = path.raw
        for folder in self._folders:
            if raw == folder or raw.startswith(folder + b"/"):
                return os.fsdecode(folder)
        return ""

    def refuse(self, path: WorkspacePath) -> None:
        """Raise PermissionDenied if `path` is in a hidden folder or an inner workspace."""
        folder = path.raw
        while folder := folder.rpartition(b"/")[0]:
            git, marker = self.inner.signs_of(folder)
            if os.access(git, os.F_OK) or os.access(marker, os.F_OK):
                self.inner.refuse(path)
                break
        with self._lock:  # the engine may work in a thread during a `status` request
            if self._events.events():
                self._renew()
        if self._folders and (hidden := self.folder_over(path)):
            raise PermissionDenied(
                f"{path} is hidden: a file system was mounted over {hidden}.",
                hint=f"Unmount {hidden}. To record the files on the mount instead, delete the hidden files, "
                "then mount it again.",
                data={"path": path.text},
            )

    def descriptions(self) -> list[str]:
        """Return a sentence for each hidden folder."""
        self._refresh()
        return [
            f"{os.fsdecode(folder)} is hidden by a file system that was mounted over it: editd records "
            "nothing in it until you unmount that file system."
            for folder in sorted(self._folders)
        ]

    def _refresh(self) -> None:
        with self._lock:
            if self._events.events():
                self._renew()

    def _renew(self) -> None:
        """Compare the mounts with those that are known."""
        now = self._current()
        self._store(now, {path for path, _ in now - self._known})

    def _store(self, now: set[tuple[bytes, int]], new: set[bytes]) -> None:
        """Store which of the new mounts hide recorded files, and save the list of the others."""
        paths = {path for path, _ in now}
        hiding = {path for path in new if self._has_files(WorkspacePath(os.fsdecode(path)))}
        self._folders = (self._folders & paths) | hiding
        self._known = now
        shown = paths - self._folders
        if shown != self._saved_mounts():
            with suppress(OSError):  # At the next start, an unsaved mount hides its own files.
                replace_file_durably(self._path, b"\0".join(sorted(shown)))

    def _saved_mounts(self) -> set[bytes] | None:
        """Return the mounts in the saved list; None if there is none."""
        try:
            with open(self._path, "rb") as file:
                return set(file.read().split(b"\0")) - {b""}
        except OSError:
            return None

    def _current(self) -> set[tuple[bytes, int]]:
        return {(path, mount.number) for path, mount in mounts_below(self._root, mounts()).items()}
