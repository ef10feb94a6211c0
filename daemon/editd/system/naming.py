"""Naming: whether a file system takes two spellings for one name.

Two spellings differ in case, or in Unicode form: `é` is one character, or `e` and an accent. ext4 and most
others of Linux tell them apart. exFAT, NTFS, and folders that are shared with Windows or macOS may not.
It is tried out, since it depends on how a file system was made and mounted, not only on its kind.
"""

from __future__ import annotations

import errno
import os
import secrets
import unicodedata
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING

from editd.system.disk import PROBE_PREFIX, open_folder
from editd.system.mounts import mounts, mounts_below

if TYPE_CHECKING:
    from editd.system.disk import RealFolder
    from editd.system.mounts import Mount

MOUNTS_MAX = 256  # of which it is remembered what was tried
_NO_SUCH_NAME = frozenset({errno.EILSEQ, errno.EINVAL, errno.ENOENT})  # said of a name that it cannot hold


def folding_of(folder: RealFolder) -> str:
    """Return what its file system does not tell apart: `case`, `form`, `case and form`, or nothing.

    A file is made in the folder for a moment. Where none can be, the names that are there must do.
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
            folds = {"case": _is_one(folder, name, name.swapcase())}
            folds["form"] = _is_one(folder, name, unicodedata.normalize("NFD", name))
            return " and ".join(kind for kind, is_folded in folds.items() if is_folded)
        finally:
            with suppress(FileNotFoundError):
                folder.remove(probe)
    return "case" if _folds_names_of(folder) else ""


def folding_mounts(root: bytes) -> dict[bytes, str]:
    """Return the mounts below a folder that do not tell all names apart, by their paths in it."""
    below = mounts_below(root, mounts())
    tried = {path: _folding_of_mount(mount) for path, mount in below.items()}
    return {path: folding for path, folding in tried.items() if folding}


@lru_cache(MOUNTS_MAX)
def _folding_of_mount(mount: Mount) -> str:
    try:
        with open_folder(os.fsdecode(mount.path)) as folder:
            return folding_of(folder)
    except OSError:
        return ""  # a file's mount, or one that nobody may enter: then nobody edits in it either


def _is_one(folder: RealFolder, name: str, other: str) -> bool:
    if name == other:
        return False
    try:
        first, second = folder.stat(name.encode()), folder.stat(other.encode())
    except OSError:
        return False
    return first is not None and second is not None and first.st_ino == second.st_ino


def _folds_names_of(folder: RealFolder) -> bool:
    """Whether a name that is there is found in the other case, too, which is not there."""
    try:
        names = {os.fsdecode(name) for name in folder.names()}
    except OSError:
        return False
    for name in names:
        with suppress(UnicodeEncodeError):  # a name that is no text has no case
            if name.swapcase() not in names and _is_one(folder, name, name.swapcase()):
                return True
    return False
