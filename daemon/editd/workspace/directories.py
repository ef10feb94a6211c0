"""Folders: created above a staged file, recorded for the case of a crash, and removed when empty.

The functions take a disk and a path. An error of the file system is raised as its OSError.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

from editd.system.filesystem import write_whole
from editd.values.path import split_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from editd.system.filesystem import Disk, OpenFolder


UNREACHABLE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
"""Errors of a path on which a folder is missing, or is something other than a folder."""
_STAYS = UNREACHABLE | {errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY, errno.EACCES, errno.EPERM, errno.EROFS}
"""Errors after which a retry is pointless: the folder is gone, not empty, a mount, or not ours to remove."""


def is_folder(disk: Disk, path: bytes) -> bool:
    """Return whether `path` is a folder. Raises NotADirectoryError or ELOOP if it is another kind of file."""
    try:
        with disk.folder(path):
            return True
    except FileNotFoundError:
        return False


def make_folders(
    disk: Disk,
    path: bytes,
    made: Callable[[bytes], None],
    about_to: Callable[[Sequence[bytes]], None] | None = None,
) -> None:
    """Create the folder `path` and the missing ones above it; call `made` with each, topmost first.

    `about_to` is called with all of them before the first is created.
    """
    missing: list[bytes] = []
    while path and not is_folder(disk, path):
        missing.append(path)
        path, _ = split_path(path)
    if missing and about_to is not None:
        about_to(missing)
    for folder_path in reversed(missing):
        above, name = split_path(folder_path)
        with disk.folder(above) as folder:
            try:
                folder.make_folder(name)
            except FileExistsError:
                continue  # Another program was faster. If this is no folder, the next step fails.
        made(folder_path)


def nearest_folder(disk: Disk, path: bytes) -> bytes:
    """Return `path` if it is a folder, otherwise the nearest folder above it."""
    while path:
        with suppress(OSError), disk.folder(path):
            return path
        path, _ = split_path(path)
    return path


def open_nearest(disk: Disk, path: bytes) -> OpenFolder:
    """Open `path` if it is a folder, otherwise the nearest folder above it. Raises OSError."""
    while path:
        with suppress(OSError):
            return disk.folder(path)
        path, _ = split_path(path)
    return disk.folder(path)


def folders_below(disk: Disk, top: bytes) -> list[bytes]:
    """Return `top` and all folders in it, each before those in it. Symlinks are not followed."""
    paths = [top]
    for path in paths:
        with disk.folder(path) as folder:
            for name in folder.names():
                status = folder.stat(name)
                if status is not None and stat.S_ISDIR(status.st_mode):
                    paths.append(path + b"/" + name)
    return paths


def remove_folder(disk: Disk, path: bytes) -> os.stat_result:
    """Remove an empty folder; return its lstat result."""
    above, name = split_path(path)
    with disk.folder(above) as folder:
        status = stat_directory(folder, name)
        folder.remove_folder(name)
    return status


def prune(disk: Disk, paths: Iterable[bytes]) -> set[bytes]:
    """Remove these folders if they are empty, then each folder above that has become empty, except the root.

    Return the folders to retry later, because the disk failed.
    """
    failed: set[bytes] = set()
    for start in sorted(paths, key=len, reverse=True):
        path = start
        try:
            while path:
                remove_folder(disk, path)
                path, _ = split_path(path)
        except OSError as error:
            if error.errno not in _STAYS:
                failed.add(path)
    return failed


def stat_directory(folder: OpenFolder, name: bytes) -> os.stat_result:
    """Return the lstat result of a name. Raises FileNotFoundError."""
    status = folder.stat(name)
    if status is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
    return status


# Folders created for staged files. They are recorded first, so that a crash leaves no empty folders behind.
#
# Each record is a path, in a file of the daemon's own. That file is not synced: a power cut may lose
# records, and then empty folders stay. Only missing folders are recorded, and only empty folders are
# removed.


class CreatedDirs:
    def __init__(self, path: str) -> None:
        """Open the file with the notes at `path`, or create it. Raises OSError."""
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        with open(path, "rb") as file:
            *complete, _torn = file.read().split(b"\0")  # a torn path: its folder was not created
        self._leftovers = complete
        self.is_noted = bool(complete)  # whether there are notes to `forget`

    def close(self) -> None:
        os.close(self._descriptor)

    def note(self, paths: Sequence[bytes]) -> None:
        """Record missing folders that will be created next. Raises OSError."""
        self.is_noted = True
        write_whole(self._descriptor, b"".join(path + b"\0" for path in paths))

    def forget(self) -> None:
        """Clear the notes while nothing is staged.

        Each noted folder has files by then, or is gone.
        """
        if self.is_noted and not self._leftovers:
            with suppress(OSError):  # A note kept too long costs one check at the next start.
                os.ftruncate(self._descriptor, 0)
                self.is_noted = False

    def remove_left(self, disk: Disk) -> None:
        """Remove the folders that an earlier daemon created, if they are empty."""
        for path in sorted(self._leftovers, key=len, reverse=True):
            with suppress(OSError):  # The folder is not empty, or gone.
                remove_folder(disk, path)
        self._leftovers = []
