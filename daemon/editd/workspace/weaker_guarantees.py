"""Shortfalls: what the file systems of a workspace cannot give, as sentences for `status`.

Looks at the mounts each time it is asked, since they come and go while the daemon runs.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from editd.system.clock import boot_id
from editd.system.filesystem import missing_calls, open_folder
from editd.system.mounts import mount_of, mounts, mounts_below
from editd.system.name_collisions import folding_mounts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from editd.system.filesystem import RealDisk
    from editd.system.mounts import Mount

SHOWN = 3  # paths in one sentence

_NO_PROC = (
    "The mounts cannot be listed, since /proc is missing: whether the files lie on a disk of this machine, "
    "and whether other file systems are mounted below, is not known."
)
_NO_BOOT_ID = (
    "The boot id cannot be read, since /proc is missing: each start recovers as after a power cut, "
    "and takes a file that another program has emptied or cut off meanwhile for a torn one."
)
_ELSEWHERE = (
    "The state folder lies on another file system than the workspace: what a program writes into a file "
    "that it was just opening when it was replaced may be missed."
)
_RENAMING = (
    "The configuration has files published by a check and a rename: "
    "what another program saves just between the two is lost."
)
_OTHER_MOUNT = (
    "another mount: what a program writes into a file there that it was just opening when it was replaced "
    "may be missed."
)
_TWO_SIDED = (
    "shared with others: what they write on their side makes no notice and is found by `settle`, and by a "
    "scan every 30 seconds; leases do not see that they are writing."
)
_VOLATILE = "not durable: nothing of it outlives the next stop of the machine, even after a sync."
_FOLDING = "and out of scope: files such as README.md and readme.md are one file there"


class WeakerGuarantees:
    """What one workspace has to do without."""

    def __init__(self, disk: RealDisk, state: str, *, publish: str = "exchange") -> None:
        self._disk = disk
        self._is_renaming = publish == "rename"
        known = mounts()
        with disk.folder(b"") as root, open_folder(state) as kept:
            self.is_state_beside = os.fstat(root.descriptor).st_dev == os.fstat(kept.descriptor).st_dev
            self._mount = mount_of(root.descriptor, known)
            self._state_mount = mount_of(kept.descriptor, known)

    def facts(self) -> dict[str, Any]:
        """Return the kind of file system, and the names of what is missing."""
        missing = missing_calls(self._disk) + ([] if mounts() is not None else ["/proc"])
        return {"file_system": None if self._mount is None else self._mount.kind, "missing": missing}

    def weaker(self) -> list[str]:
        """Return what is promised less here than on a local disk, a sentence each."""
        told = list(self._disk.weaker)
        if self._is_renaming:
            told.append(_RENAMING)
        if not self.is_state_beside:
            told.append(_ELSEWHERE)
        if not boot_id():
            told.append(_NO_BOOT_ID)
        known = mounts()
        if known is None:
            return [*told, _NO_PROC]
        for name, mount in (("The workspace", self._mount), ("The history", self._state_mount)):
            told += [f"{name} ({mount.kind}) is {what}" for what in _faults_of(mount)] if mount else []
        return told + list(self._of_mounts_below(known))

    def uncovered(self) -> list[str]:
        """Return what is left out because of its file system."""
        folding = folding_mounts(self._disk.root)
        return [f"{_some(folding)} {_is_or_are(folding)} another file system {_FOLDING}."] if folding else []

    def is_deaf(self, is_watched: Callable[[bytes], bool]) -> bool:
        """Whether somebody may write to a folder that is watched without a notice."""
        if self._mount is not None and self._mount.is_two_sided:
            return True
        below = mounts_below(self._disk.root, mounts())
        return any(mount.is_two_sided and is_watched(path) for path, mount in below.items())

    def _of_mounts_below(self, known: Sequence[Mount]) -> Iterator[str]:
        folding = folding_mounts(self._disk.root)
        below = mounts_below(self._disk.root, list(known))
        faults: dict[str, list[bytes]] = {}
        for path, mount in sorted(below.items()):
            if path not in folding:
                for fault in (_OTHER_MOUNT, *_faults_of(mount)):
                    faults.setdefault(fault, []).append(path)
        for fault, paths in faults.items():
            yield f"{_some(paths)} {_is_or_are(paths)} {fault}"


def _faults_of(mount: Mount) -> Iterator[str]:
    if mount.is_two_sided:
        yield _TWO_SIDED
    if mount.is_volatile:
        yield _VOLATILE


def _some(paths: Iterable[bytes]) -> str:
    texts = [os.fsdecode(path) for path in sorted(paths)]
    return ", ".join(texts[:SHOWN]) + (f" and {len(texts) - SHOWN} more" if len(texts) > SHOWN else "")


def _is_or_are(paths: Sequence[bytes] | dict[bytes, str]) -> str:
    return "is" if len(paths) == 1 else "are"
