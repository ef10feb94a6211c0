"""Folders: made where a file needs them, removed where nothing is left in them.

Functions of a disk and a path; what the disk refuses is raised as its OSError.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

from editd.workspace.staged_change import split

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from editd.system.filesystem import Disk, OpenFolder

NO_WAY = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
"""What the disk says where a folder is missing, or something else stands in its place."""
_STAYS = NO_WAY | {errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY, errno.EACCES, errno.EPERM, errno.EROFS}
"""What the disk says of a folder that is gone, holds something, is a mount's, or is not ours to remove."""


def is_folder(disk: Disk, path: bytes) -> bool:
    """Whether `path` is a folder. NotADirectoryError or ELOOP where something else is in the way."""
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
    """Make the folder `path` and those above it that are missing; tell `made` each, topmost first.

    `about_to` is told them all before the first is made.
    """
    missing: list[bytes] = []
    while path and not is_folder(disk, path):
        missing.append(path)
        path, _ = split(path)
    if missing and about_to is not None:
        about_to(missing)
    for folder_path in reversed(missing):
        above, name = split(folder_path)
        with disk.folder(above) as folder:
            try:
                folder.make_folder(name)
            except FileExistsError:
                continue  # Somebody was quicker; if it is no folder, the next step finds out.
        made(folder_path)


def nearest_folder(disk: Disk, path: bytes) -> bytes:
    """Return `path` if it is a folder, else the nearest one above it."""
    while path:
        with suppress(OSError), disk.folder(path):
            return path
        path, _ = split(path)
    return path


def open_nearest(disk: Disk, path: bytes) -> OpenFolder:
    """Open the folder `path` if it is one, otherwise the nearest one above it. Raises OSError."""
    while path:
        with suppress(OSError):
            return disk.folder(path)
        path, _ = split(path)
    return disk.folder(path)


def folders_below(disk: Disk, top: bytes) -> list[bytes]:
    """Return `top` and all folders in it, each before those in it. Links are not followed."""
    paths = [top]
    for path in paths:
        with disk.folder(path) as folder:
            for name in folder.names():
                found = folder.stat(name)
                if found is not None and stat.S_ISDIR(found.st_mode):
                    paths.append(path + b"/" + name)
    return paths


def remove_folder(disk: Disk, path: bytes) -> os.stat_result:
    """Remove an empty folder; return what it was."""
    above, name = split(path)
    with disk.folder(above) as folder:
        found = stat_directory(folder, name)
        folder.remove_folder(name)
    return found


def prune(disk: Disk, paths: Iterable[bytes]) -> set[bytes]:
    """Remove those folders that are empty, and those above them that are so then, but never the root.

    Returns those that may have to be tried again, since the disk has failed.
    """
    failed: set[bytes] = set()
    for start in sorted(paths, key=len, reverse=True):
        path = start
        try:
            while path:
                remove_folder(disk, path)
                path, _ = split(path)
        except OSError as error:
            if error.errno not in _STAYS:
                failed.add(path)
    return failed


def stat_directory(folder: OpenFolder, name: bytes) -> os.stat_result:
    """What lstat says of a name, or FileNotFoundError."""
    found = folder.stat(name)
    if found is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
    return found
