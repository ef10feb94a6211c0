"""Name folding: whether a file system takes two spellings for one name.

Two spellings differ in case, or in Unicode form: `é` is one character, or `e` and an accent. ext4 and most
other file systems of Linux distinguish them. exFAT, NTFS, and folders shared with Windows or macOS may not.
A probe finds out, because it depends on how a file system was made and mounted, not only on its kind.
"""

from __future__ import annotations

import errno
import os
import secrets
import unicodedata
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING

from editd.system.filesystem import PROBE_PREFIX, mount_id, open_folder
from editd.system.mounts import mounts, mounts_below

if TYPE_CHECKING:
    from editd.system.filesystem import RealFolder
    from editd.system.mounts import Mount

MOUNTS_MAX = 256  # whose probes are remembered
_KNOWN: dict[tuple[int, bytes], str] = {}  # the results of probes, by device and mount
_NO_SUCH_NAME = frozenset({errno.EILSEQ, errno.EINVAL, errno.ENOENT})  # for a name that it cannot hold


def folding_of(folder: RealFolder) -> str:
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


def folding_mounts(root: bytes) -> dict[bytes, str]:
    """Return the mounts below a folder that ignore differences of names, by their paths in it."""
    below = mounts_below(root, mounts())
    tried = {path: _folding_of_mount(mount) for path, mount in below.items()}
    return {path: folding for path, folding in tried.items() if folding}


def folding_elsewhere(folder: RealFolder, device: int) -> str:
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
        return ""  # a file's mount, or one that nobody may enter, so nobody edits in it either


def _is_there(folder: RealFolder, name: str) -> bool:
    """Return whether a name exists. Its inode does not help: FUSE may give each spelling another one."""
    try:
        return folder.stat(name.encode()) is not None
    except OSError:
        return False


def _folds_names_of(folder: RealFolder) -> bool:
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
