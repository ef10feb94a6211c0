"""Paths by the folders that they lead to: without symlinks, and compared with folders of other names.

A folder has several names if it is mounted twice, or if the file system folds names. The files of proc(5)
lead into other processes, and so into their view of the file system. No path through them is followed.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

from editd.system.mounts import mount_at, mounts
from editd.system.native import NATIVE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd.system.mounts import Mount

LINKS_MAX = 40  # as in the kernel: path_resolution(7)


class ThroughProcess(Exception):
    """The path leads through proc(5)."""


def real_path(path: str) -> str:
    """Return an absolute path without symlinks. Names that do not exist stay.

    Raises ThroughProcess, and OSError if a folder cannot be searched or links form a circle.
    """
    left, done, links = path.split("/")[::-1], "/", 0
    process_devices = set(_process_devices())
    while left:
        name = left.pop()
        if name == "..":
            done = os.path.dirname(done)
        if name in ("", ".", ".."):
            continue
        done, above = os.path.join(done, name), done
        try:
            status = os.lstat(done)
        except (FileNotFoundError, NotADirectoryError):
            continue
        if status.st_dev in process_devices:
            raise ThroughProcess
        if stat.S_ISLNK(status.st_mode):
            links += 1
            if links > LINKS_MAX:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            target = os.readlink(done)
            done = "/" if target.startswith("/") else above
            left += target.split("/")[::-1]
    return done


def is_within(path: str, folder: str) -> bool:
    """Return whether a path without symlinks is `folder` or in it, by any name of the folder."""
    if path == folder or path.startswith(folder.rstrip("/") + "/"):
        return True
    try:
        wanted = os.stat(folder)
    except OSError:
        return False
    if any(_is_same_folder(one, wanted) for one in _upwards(path)):
        return True
    known = mounts()
    inner, outer = _places_on_disk(path, known), _places_on_disk(os.path.realpath(folder), known)
    return any(_is_below(one, other) for one in inner for other in outer)


def _process_devices() -> Iterator[int]:
    """Yield the devices of the mounts of proc(5)."""
    yield from (mount.device for mount in mounts() or () if mount.kind == "proc")
    try:
        yield os.stat(NATIVE.proc).st_dev
    except OSError:
        return


def _upwards(path: str) -> Iterator[str]:
    """Yield the path and the folders above it."""
    yield path
    while (above := os.path.dirname(path)) != path:
        path = above
        yield path


def _is_same_folder(path: str, wanted: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.stat(path), wanted)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _places_on_disk(path: str, known: list[Mount] | None) -> list[tuple[int, bytes]]:
    """Return the device and the path in its file system, for any mount points; empty if unknown.

    A path on an overlay has one more place in each layer that is visible here.
    """
    places: list[tuple[int, bytes]] = []
    left, passed = [os.fsencode(path)], set[int]()
    while left:
        raw = left.pop()
        mount = mount_at(raw, known)
        if mount is None:
            continue
        inside = os.path.join(mount.root, raw[len(mount.path.rstrip(b"/")) :].strip(b"/"))
        places.append((mount.device, inside))
        if mount.number not in passed:  # an overlay may be mounted over its own layer
            passed.add(mount.number)
            layers = filter(os.path.isdir, mount.layers)
            left += [os.path.join(os.path.realpath(layer), inside.lstrip(b"/")) for layer in layers]
    return places


def _is_below(path: tuple[int, bytes], folder: tuple[int, bytes]) -> bool:
    if path[0] != folder[0]:
        return False
    return (path[1] + b"/").startswith(folder[1].rstrip(b"/") + b"/")
