"""Weaker guarantees: the promises that a workspace's file systems cannot keep, as sentences for `status`.

Reads the mounts at each call, because they change while the daemon runs.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from editd.system.clock import boot_id
from editd.system.filesystem import missing_calls, open_folder
from editd.system.mounts import folding_mounts, mount_of, mounts, mounts_below

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from editd.system.filesystem import RealDisk
    from editd.system.mounts import Mount

SHOWN = 3  # paths in one sentence

_NO_PROC = (
    "The mounts cannot be listed, because /proc is missing: whether the files are on a disk of this machine, "
    "and whether other file systems are mounted below, is unknown."
)
_NO_BOOT_ID = (
    "The boot id cannot be read, because /proc is missing: each start recovers as after a power cut, and "
    "repairs a file that another program has emptied or truncated meanwhile as if the power cut had torn it."
)
_ELSEWHERE = (
    "The state folder is on another file system than the workspace: if a program opens a file at the moment "
    "of its replacement, editd may miss its write."
)
_RENAMING = (
    "The configuration has files published by a check and a rename: "
    "a save by another program between the two is lost."
)
_OTHER_MOUNT = (
    "another mount: if a program opens a file there at the moment of its replacement, editd may miss "
    "its write."
)
_TWO_SIDED = (
    "shared with others: their writes raise no events, so `settle` and a scan every 30 seconds find them. "
    "Leases do not detect that they are writing."
)
_VOLATILE = "not durable: the next shutdown or crash of the machine deletes it, even after a sync."
_FOLDING = "and out of scope: files such as README.md and readme.md are one file there"


class WeakerGuarantees:
    """The promises that one workspace cannot have."""

    def __init__(self, disk: RealDisk, state: str, *, publish: str = "exchange") -> None:
        self._disk = disk
        self._is_renaming = publish == "rename"
        known = mounts()
        with disk.folder(b"") as root, open_folder(state) as folder:
            self.is_state_beside = os.fstat(root.descriptor).st_dev == os.fstat(folder.descriptor).st_dev
            self._mount = mount_of(root.descriptor, known)
            self._state_mount = mount_of(folder.descriptor, known)

    def facts(self) -> dict[str, Any]:
        """Return the kind of file system, and the names of the missing system calls."""
        missing = missing_calls(self._disk) + ([] if mounts() is not None else ["/proc"])
        return {"file_system": None if self._mount is None else self._mount.kind, "missing": missing}

    def weaker(self) -> list[str]:
        """Return a sentence for each promise that is weaker here than on a local disk."""
        sentences = list(self._disk.weaker)
        if self._is_renaming:
            sentences.append(_RENAMING)
        if not self.is_state_beside:
            sentences.append(_ELSEWHERE)
        if not boot_id():
            sentences.append(_NO_BOOT_ID)
        known = mounts()
        if known is None:
            return [*sentences, _NO_PROC]
        for name, mount in (("The workspace", self._mount), ("The history", self._state_mount)):
            sentences += [f"{name} ({mount.kind}) is {fault}" for fault in _faults_of(mount)] if mount else []
        return sentences + list(self._of_mounts_below(known))

    def uncovered(self) -> list[str]:
        """Return sentences about the mounts left out because of their file system."""
        folding = folding_mounts(self._disk.root)
        return [f"{_some(folding)} {_is_or_are(folding)} another file system {_FOLDING}."] if folding else []

    def is_deaf(self, is_watched: Callable[[bytes], bool]) -> bool:
        """Return whether other programs may write to a watched folder without an event."""
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
