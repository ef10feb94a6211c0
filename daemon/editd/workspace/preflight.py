"""Obstacles: why changes cannot be published, found before anything is done.

Policy about what is on the disk: a hard link is not to be parted, a read-only file is not to be written
although a rename could, and nothing but a file or a symlink is ever replaced.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from msgspec import Struct

from editd.errors import NotAFile, PermissionDenied
from editd.system.filesystem import RealFolder
from editd.system.name_collisions import folding_elsewhere
from editd.workspace.directories import NO_WAY, folders_below, open_nearest, stat_directory
from editd.workspace.reader import refusal_of
from editd.workspace.staged_change import StagedChange, is_temporary, item_of, split

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from collections.abc import Set as AbstractSet

    from editd.system.filesystem import Disk, OpenFolder
    from editd.values.changeset import Change
    from editd.values.path import WorkspacePath


def check(disk: Disk, changes: Sequence[Change], pending: Iterable[Change] = ()) -> None:
    """Refuse what cannot be published; `pending` is what will be published before. As `Files.check`."""
    earlier = tuple(pending)
    gone: set[bytes] = set()
    for change in (*earlier, *changes):
        (gone.add if change.after is None else gone.discard)(change.path.raw)
    ours = {change.path for change in earlier}
    look = _Look(disk, gone)
    for change in changes:
        if change.path in ours:
            continue  # What will stand there then is no one's but ours.
        try:
            look.check(item_of(change))
        except OSError as error:
            raise refusal_of(error, change.path, "could not be looked at") from error


def is_kept_out(disk: Disk, path: WorkspacePath) -> bool:
    """Whether `path` is on a mount whose file system takes two spellings for one name. Raises Refused."""
    try:
        with open_nearest(disk, split(path.raw)[0]) as folder:
            return bool(_folding(disk, folder))
    except OSError as error:
        if error.errno in NO_WAY:  # A folder became a symlink, or went, just now.
            return False
        raise refusal_of(error, path, "could not be looked at") from error


def _folding(disk: Disk, folder: OpenFolder) -> str:
    assert isinstance(folder, RealFolder)
    return folding_elsewhere(folder, disk.device)


class _Look(Struct, frozen=True):
    disk: Disk
    gone: AbstractSet[bytes]  # paths that will not be there by then

    def check(self, item: StagedChange) -> None:
        try:
            with self.disk.folder(item.folder) as folder:
                self._check_names(item.change.path, folder)
                found = folder.stat(item.name)
                if found is not None:
                    self._check_target(item, found, folder)
        except OSError as error:
            if error.errno not in NO_WAY:
                raise
            if item.change.after is not None:
                self._check_way(item.change.path)

    def _check_target(self, item: StagedChange, found: os.stat_result, folder: OpenFolder) -> None:
        path, is_deleted = item.change.path, item.change.after is None
        if stat.S_ISDIR(found.st_mode):
            if is_deleted or not self._is_emptied(path.raw):
                raise _not_a_file(path, "is a folder that is not empty")
            return
        if not (stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode)):
            raise _not_a_file(path, "is a fifo, a socket or a device")
        if is_deleted and not folder.is_writable():
            raise _denied(path, "is in a folder that editd may not write to", "Make the folder writable.")
        if stat.S_ISREG(found.st_mode):
            _check_file(item, found, folder)

    def _check_way(self, path: WorkspacePath) -> None:
        """Refuse where a name above `path` is not a folder and is not deleted either."""
        names = path.raw.split(b"/")[:-1]
        for depth, name in enumerate(names):
            here = b"/".join(names[: depth + 1])
            with self.disk.folder(b"/".join(names[:depth])) as folder:
                self._check_names(path, folder)
                found = folder.stat(name)
            if found is None or here in self.gone:
                return
            if not stat.S_ISDIR(found.st_mode):
                folder_name = os.fsdecode(here)
                raise _not_a_file(path, f"cannot be in {folder_name}, which is not a folder", folder_name)

    def _check_names(self, path: WorkspacePath, folder: OpenFolder) -> None:
        """Refuse where two spellings are one file: leases, undo and `protect` go by the path."""
        if folding := _folding(self.disk, folder):
            raise _denied(
                path,
                f"is on a file system that ignores {folding} in names",
                "Edit it outside of editd, or move it to a file system that tells all names apart.",
            )

    def _is_emptied(self, top: bytes) -> bool:
        """Whether nothing but empty folders will be left in the folder `top`."""
        for path in folders_below(self.disk, top):
            with self.disk.folder(path) as folder:
                for name in folder.names():
                    is_folder = stat.S_ISDIR(stat_directory(folder, name).st_mode)
                    if not (is_folder or path + b"/" + name in self.gone or is_temporary(name)):
                        return False
        return True


def _check_file(item: StagedChange, found: os.stat_result, folder: OpenFolder) -> None:
    path, is_deleted = item.change.path, item.change.after is None
    if found.st_nlink > 1 and not is_deleted:
        raise _denied(
            path,
            f"is hard-linked: {found.st_nlink} names share it, and replacing one would part them",
            "Break the link first (copy the file, and move the copy over it), or edit it outside.",
        )
    if item.is_mode_only:
        if os.geteuid() not in (0, found.st_uid):
            raise _denied(path, "belongs to another user", "Only its owner can change its mode.")
    elif not found.st_mode & stat.S_IWUSR or not folder.is_writable(item.name):
        raise _denied(
            path, "is read-only", "Make it writable first (chmod u+w), if it is meant to be changed."
        )


def _denied(path: WorkspacePath, what: str, hint: str) -> PermissionDenied:
    return PermissionDenied(f"{path} {what}.", hint=hint, data={"path": path.text})


def _not_a_file(path: WorkspacePath, what: str, obstacle: str | None = None) -> NotAFile:
    return NotAFile(
        f"{path} {what}.",
        hint="Choose another path, or move what is in the way in the same changeset.",
        data={"path": path.text, "obstacle": obstacle or path.text},
    )
