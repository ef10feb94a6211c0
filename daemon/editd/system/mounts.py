"""Mounts: the file systems that this process can reach, with their paths.

Reads the mount table of proc(5). Knows kinds of file systems, and not the purpose of their files. Without
/proc the table is None: then no mount is known.
"""

from __future__ import annotations

import os
import re
import select
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct

from editd.system.native import NATIVE
from editd.system.proc import read_proc

if TYPE_CHECKING:
    from collections.abc import Callable
    from io import BufferedReader


TABLE = f"{NATIVE.proc}/self/mountinfo"

_TWO_SIDED = frozenset(
    {"fuse", "9p", "virtiofs", "nfs", "nfs4", "cifs", "smb3", "smbfs", "ceph", "afs", "vboxsf", "prl_fs",
     "vmhgfs", "lustre", "gfs2", "ocfs2", "orangefs"}
)  # fmt: skip
_IN_MEMORY = frozenset({"tmpfs", "ramfs"})
_NEVER_SYNCED = frozenset({b"volatile", b"fsync=volatile"})  # of an overlay, by older and newer kernels
_LAYER = re.compile(rb"(lowerdir|lowerdir\+|datadir\+|upperdir)=")
_BETWEEN_LAYERS = re.compile(rb"(?<!\\):+")
_PROTECTED = re.compile(rb"\\([\\:,])")  # a colon, a comma or a backslash in the name of a layer
_ESCAPED = re.compile(rb"\\([0-7]{3})")  # a space, a tab, a line's end or a backslash in a name


class Mount(Struct, frozen=True):
    """One line of the table."""

    number: int  # the kernel's id of the mount, which is reused when it is gone
    device: int  # as st_dev of its files, but on btrfs
    path: bytes  # the mount point
    kind: str  # of file system, such as `ext4` or `fuse.sshfs`
    options: frozenset[bytes]  # the mount's, and the file system's
    root: bytes = b"/"  # the folder of the file system that is mounted: another folder for a bind mount

    @property
    def is_two_sided(self) -> bool:
        """Whether other machines reach the same files past this kernel, which does not notice them."""
        return self.kind in _TWO_SIDED or self.kind.startswith("fuse.")

    @property
    def layers(self) -> tuple[bytes, ...]:
        """The folders that an overlay consists of, as they were named when it was mounted."""
        if self.kind != "overlay":
            return ()
        named = [option.partition(b"=")[2] for option in self.options if _LAYER.match(option)]
        folders = (folder for names in named for folder in _BETWEEN_LAYERS.split(_unescape(names)))
        return tuple(_PROTECTED.sub(rb"\1", folder) for folder in folders if folder.startswith(b"/"))

    @property
    def is_volatile(self) -> bool:
        """Whether nothing outlives the machine, even after a sync."""
        is_never_synced = self.kind == "overlay" and not _NEVER_SYNCED.isdisjoint(self.options)
        return self.kind in _IN_MEMORY or is_never_synced


def mounts(table: str = TABLE) -> list[Mount] | None:
    """Return every mount that this process can reach, in the kernel's order; None if unknown."""
    try:
        return [_parse(line) for line in read_proc(table).split(b"\n") if line]
    except OSError:
        return None


def mount_of(descriptor: int, known: list[Mount] | None) -> Mount | None:
    """Return the mount that an open file is on; None if unknown."""
    try:
        with open(f"{NATIVE.proc}/self/fdinfo/{descriptor}", "rb") as file:
            numbers = [int(line.split()[1]) for line in file if line.startswith(b"mnt_id:")]
        if not numbers:  # gVisor shows none
            return mount_at(os.readlink(os.fsencode(f"{NATIVE.proc}/self/fd/{descriptor}")), known)
    except OSError:
        return None
    return next((mount for mount in known or () if mount.number in numbers), None)


def mount_at(path: bytes, known: list[Mount] | None) -> Mount | None:
    """Return the mount that an absolute path without symlinks is on, by the mount points above it."""
    above = [mount for mount in known or () if (path + b"/").startswith(mount.path.rstrip(b"/") + b"/")]
    return max(reversed(above), key=lambda mount: len(mount.path), default=None)


def mounts_below(folder: bytes, known: list[Mount] | None) -> dict[bytes, Mount]:
    """Return the mounts below a folder by their paths in it; of several at one path, the visible one."""
    prefix = folder.rstrip(b"/") + b"/"
    return {
        mount.path[len(prefix) :]: mount
        for mount in known or ()
        if mount.path.startswith(prefix) and len(mount.path) > len(prefix)
    }


def two_sided_below(folder: bytes) -> frozenset[bytes]:
    """Return the paths of two-sided mounts in a folder; b"" for the folder itself."""
    known = mounts()
    two_sided = {path for path, mount in mounts_below(folder, known).items() if mount.is_two_sided}
    try:
        descriptor = os.open(folder, NATIVE.folder_flags)
    except OSError:
        return frozenset(two_sided)
    try:
        its = mount_of(descriptor, known)
    finally:
        os.close(descriptor)
    return frozenset(two_sided | {b""} if its is not None and its.is_two_sided else two_sided)


def _parse(line: bytes) -> Mount:
    fields = line.split()
    end = fields.index(b"-")  # the number of the fields before it varies
    major, minor = fields[2].split(b":")
    return Mount(
        number=int(fields[0]),
        device=os.makedev(int(major), int(minor)),
        path=_unescape(fields[4]),
        kind=os.fsdecode(fields[end + 1]),
        options=frozenset(fields[5].split(b",") + fields[end + 3].split(b",")),
        root=_unescape(fields[3]),
    )


def _unescape(name: bytes) -> bytes:
    return _ESCAPED.sub(lambda escape: bytes([int(escape[1], 8)]), name)


class MountEvents:
    """Changes of the mount table since the last call, for the price of one poll(2)."""

    def __init__(self, table: str = TABLE) -> None:
        try:
            self._table: BufferedReader | None = open(table, "rb")  # noqa: SIM115  # as long as this lives
        except OSError:
            self._table = None
        self._poll = select.poll()
        if self._table is not None:
            self._poll.register(self._table, select.POLLPRI)
        self.events: Callable[[], list[tuple[int, int]]] = partial(self._poll.poll, 0)
        """Return a list that is empty if none was mounted or unmounted since the last call; see proc(5)."""

    def close(self) -> None:
        """Close the table."""
        if self._table is not None:
            self._poll.unregister(self._table)
            self._table.close()
            self._table = None
