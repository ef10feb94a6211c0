"""Folded names: whether a file system takes two spellings for one name, and the exact view of one that does.

Two spellings differ in case, or in Unicode form: `é` is one character, or `e` and an accent. ext4 and most
other file systems of Linux distinguish them. exFAT, NTFS, and folders shared with Windows or macOS may not.
A probe finds out, because it depends on how a file system was made and mounted, not only on its kind.

A `FoldingDisk` has an exact view: a name exists only as the disk spells it. So the files agree with a history
whose paths are exact. The only difference is that a name cannot be made if another spelling of it exists:
EEXIST. No check of the spelling is part of the call after it, so another program may change the spelling in
between. Then the call reaches the same file by its older name.
"""

from __future__ import annotations

import errno
import os
import secrets
import unicodedata
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING

from editd.system.filesystem import PROBE_PREFIX, Disk, OpenFolder, mount_id, open_folder, step_into
from editd.system.mounts import mounts_below

if TYPE_CHECKING:
    from collections.abc import Callable

    from editd.system.mounts import Mount

MOUNTS_MAX = 256  # whose probes are remembered
_KNOWN: dict[tuple[int, bytes], str] = {}  # the results of probes, by device and mount
_NO_SUCH_NAME = frozenset({errno.EILSEQ, errno.EINVAL, errno.ENOENT})  # for a name that it cannot hold


OWN_PREFIX = b".editd-"  # of names that are always spelled as they were made


class FoldingFolder(OpenFolder):
    """A folder of a file system that folds names. Each name in it has one spelling: the disk's."""

    def stat(self, name: bytes) -> os.stat_result | None:
        status = super().stat(name)
        return status if status is not None and self._is_spelled(name) else None

    def open(self, name: bytes) -> int:
        self._require(name)
        return super().open(name)

    def open_to_write(self, name: bytes) -> int:
        self._require(name)
        return super().open_to_write(name)

    def link_target(self, name: bytes) -> bytes:
        self._require(name)
        return super().link_target(name)

    def exchange(self, name: bytes, into: OpenFolder, other: bytes) -> None:
        self._require(name)
        if isinstance(into, FoldingFolder):
            into._require(other)
        super().exchange(name, into, other)

    def move(self, name: bytes, into: OpenFolder, other: bytes) -> None:
        self._require(name)
        super().move(name, into, other)

    def link(self, name: bytes, into: OpenFolder, other: bytes) -> None:
        self._require(name)
        super().link(name, into, other)

    def replace(self, name: bytes, into: OpenFolder, other: bytes) -> None:
        """Do as `OpenFolder.replace`. EEXIST if the other name is taken in another spelling."""
        self._require(name)
        if isinstance(into, FoldingFolder) and into.has_other_spelling(other):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), other)
        super().replace(name, into, other)

    def remove(self, name: bytes) -> None:
        self._require(name)
        super().remove(name)

    def remove_folder(self, name: bytes) -> None:
        self._require(name)
        super().remove_folder(name)

    def has_other_spelling(self, name: bytes) -> bool:
        """Return whether the name is taken, and the disk spells it in another way."""
        return super().stat(name) is not None and not self._is_spelled(name)

    def _require(self, name: bytes) -> None:
        if not self._is_spelled(name):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)

    def _is_spelled(self, name: bytes) -> bool:
        return name.startswith(OWN_PREFIX) or name == b"." or name in self.names()


class FoldingDisk(Disk):
    """A disk whose file system folds names, in its exact view."""

    is_folding = True

    def __init__(self, root: str | bytes, key: Callable[[bytes], bytes]) -> None:
        """`key` returns the same for all spellings of one name."""
        super().__init__(root)
        self._key = key

    def folder(self, path: bytes) -> OpenFolder:
        folder = FoldingFolder(super().folder(b"").descriptor)
        for name in path.split(b"/") if path else ():
            with folder:
                folder._require(name)
                folder = FoldingFolder(step_into(folder.descriptor, name, path))
        return folder

    def spelling_of(self, path: bytes) -> bytes:
        """Return the path as the disk spells it, as far as folders lead to it. Raises OSError."""
        names = path.split(b"/")
        for depth, name in enumerate(names):
            try:
                with self.folder(b"/".join(names[:depth])) as folder:
                    present = folder.names()
                    is_other = name not in present and folder.has_other_spelling(name)
            except OSError as error:
                if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                    break
                raise
            if is_other:
                key = self._key(name)
                names[depth] = next((one for one in present if self._key(one) == key), name)
        return b"/".join(names)


def keeps_spelling(folder: OpenFolder) -> bool:
    """Return whether the folder lists a name as it was made: HFS+ changes its form. Raises OSError."""
    stem = os.fsdecode(PROBE_PREFIX) + secrets.token_hex(8)
    for name in (f"{stem}-É".encode(), f"{stem}-E\u0301".encode()):
        try:
            os.close(folder.create(name, 0o600))
        except OSError as error:
            if error.errno in _NO_SUCH_NAME:
                continue
            raise
        is_kept = name in folder.names()
        folder.remove(name)
        if not is_kept:
            return False
    return True


def folding_of(folder: OpenFolder) -> str:
    """Return the differences that its file system ignores: `case`, `form`, `case and form`, or nothing.

    A file is made in the folder for a moment. If that fails, the existing names must do.
    """
    stem = os.fsdecode(PROBE_PREFIX) + secrets.token_hex(8)
    for name in (f"{stem}-é", stem):
        probe = name.encode()
        try:
            os.close(folder.create(probe, 0o600))
        except OSError as error:
            if error.errno in _NO_SUCH_NAME:
                continue
            break
        try:
            other_form = unicodedata.normalize("NFD", name)
            folds = {
                "case": _is_there(folder, name.swapcase()),
                "form": other_form != name and _is_there(folder, other_form),
            }
            return " and ".join(kind for kind, is_folded in folds.items() if is_folded)
        finally:
            with suppress(FileNotFoundError):
                folder.remove(probe)
    return "case" if _folds_names_of(folder) else ""


def folding_mounts(root: bytes, known: list[Mount] | None) -> dict[bytes, str]:
    """Return the mounts below a folder that ignore differences of names, by their paths in it."""
    below = mounts_below(root, known)
    tried = {path: _folding_of_mount(mount) for path, mount in below.items()}
    return {path: folding for path, folding in tried.items() if folding}


def folding_elsewhere(folder: OpenFolder, device: int) -> str:
    """Do as `folding_of` for a folder that may be on another device than `device`, which folds nothing."""
    here = os.fstat(folder.descriptor).st_dev
    if here == device:
        return ""
    mount = mount_id(folder.descriptor)
    if not mount:
        return folding_of(folder)  # the number of a device is reused
    if (here, mount) not in _KNOWN:
        if len(_KNOWN) >= MOUNTS_MAX:
            _KNOWN.clear()
        _KNOWN[here, mount] = folding_of(folder)
    return _KNOWN[here, mount]


@lru_cache(MOUNTS_MAX)
def _folding_of_mount(mount: Mount) -> str:
    try:
        with open_folder(os.fsdecode(mount.path)) as folder:
            return folding_of(folder)
    except OSError:
        return ""  # a file's mount, or one that editd may not enter, so that no edit is in it either


def _is_there(folder: OpenFolder, name: str) -> bool:
    """Return whether a name exists. Its inode does not help: FUSE may give each spelling another inode."""
    try:
        return folder.stat(name.encode()) is not None
    except OSError:
        return False


def _folds_names_of(folder: OpenFolder) -> bool:
    """Return whether the other case of a name in the folder, which is not listed, exists too."""
    try:
        names = {os.fsdecode(name) for name in folder.names()}
    except OSError:
        return False
    for name in names:
        with suppress(UnicodeEncodeError):  # a name that is not text has no case
            if name.swapcase() not in names and _is_there(folder, name.swapcase()):
                return True
    return False
