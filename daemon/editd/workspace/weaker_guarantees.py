"""Weaker guarantees: the promises that a workspace's file systems cannot keep, as sentences for `status`.

Reads the mounts at each call, because they change while the daemon runs.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from editd.errors import join_names
from editd.system import confinement
from editd.system.filesystem import missing_calls, open_folder
from editd.system.folded_names import folding_mounts
from editd.system.mounts import mount_of, mounts, mounts_below
from editd.system.native import NATIVE
from editd.system.proc import boot_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from editd.system.filesystem import Disk
    from editd.system.mounts import Mount

_NO_PROC = (
    "The mounts cannot be listed, because /proc is missing: whether the files are on a disk of this machine, "
    "and whether other file systems are mounted below, is unknown."
)
_NO_BOOT_ID = (
    "The boot id cannot be read: each start recovers as after a power cut. If another program has meanwhile "
    "put back, emptied or truncated a file of the newest edits, the file gets the content of its edit again."
)
_ELSEWHERE = (
    "The state folder is on another file system than the workspace: if a program opens a file at the moment "
    "of its replacement, editd may miss its write."
)
_IN_PLACE = (
    "such a file is written in place. A reader may see half of an edit, a power cut may leave one, and "
    "a write of another program in the same moment may be lost."
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
_OF_A_SERVER = "on a shared file system: an edit is as durable as the server of that file system makes it."
_VOLATILE = "not durable: the next shutdown or crash of the machine deletes it, even after a sync."
_FOLDING_ROOT = (
    "The workspace is on a file system that takes two spellings for one name, such as README.md and "
    "readme.md: editd uses the disk's spelling. An event may name a file by another, so `settle` and a "
    "scan every 30 seconds find the changes of other programs."
)
_FOLDING = "and out of scope: files such as README.md and readme.md are one file there"

_OF_THE_SYSTEM = {  # whether the system has the calls for it
    "This system reports no changes of files: editd finds other programs' changes at an edit of the file, at "
    "`settle`, and by a scan every 30 seconds.": NATIVE.has_inotify,
    "This system does not name the program at the other end of a socket: only the permissions of the socket "
    "keep other users out, and an agent may approve its own proposals.": NATIVE.peer_credentials is not None,
    "Extended attributes and ACLs cannot be read here: a file loses them when it is edited.": (
        NATIVE.lists_attributes is not None
    ),
    "Processes that a hook or a check leaves behind cannot all be found, and may go on.": (
        NATIVE.prctl is not None
    ),
}


class WeakerGuarantees:
    """The promises that one workspace cannot have."""

    def __init__(
        self, disk: Disk, state: str, *, publish: str = "exchange", in_place: Sequence[str] = ()
    ) -> None:
        self._disk = disk
        self._in_place = tuple(in_place)
        self._is_renaming = publish == "rename"
        known = mounts()
        with disk.folder(b"") as root, open_folder(state) as folder:
            self.is_state_beside = os.fstat(root.descriptor).st_dev == os.fstat(folder.descriptor).st_dev
            self._mount = mount_of(root.descriptor, known)
            self._state_mount = mount_of(folder.descriptor, known)

    def facts(self, known: list[Mount] | None) -> dict[str, Any]:
        """Return the system, the kind of file system, and the names of the missing system calls."""
        missing = missing_calls(self._disk) + ([] if known is not None else ["/proc"])
        return {
            "name": NATIVE.system,
            "file_system": None if self._mount is None else self._mount.kind,
            "missing": missing,
        }

    def weaker(self, known: list[Mount] | None) -> list[str]:
        """Return a sentence for each promise that is weaker here than on a local disk.

        `known` is the result of `mounts`, which one `status` reads once. If a thread is busy, each system
        call waits for Python's lock.
        """
        sentences = list(self._disk.weaker)
        if self._is_renaming:
            sentences.append(_RENAMING)
        if self._in_place:
            sentences.append(f"{', '.join(self._in_place)}: {_IN_PLACE}")
        if self._disk.is_folding:
            sentences.append(_FOLDING_ROOT)
        if not self.is_state_beside:
            sentences.append(_ELSEWHERE)
        if not boot_id():
            sentences.append(_NO_BOOT_ID)
        sentences += [sentence for sentence, has_it in _OF_THE_SYSTEM.items() if not has_it]
        sentences += confinement.missing()
        if known is None:
            return [*sentences, _NO_PROC]
        if (mount := self._mount) is not None:
            sentences += [f"The workspace ({mount.kind}) is {fault}" for fault in _faults_of(mount)]
        if (mount := self._state_mount) is not None:
            faults = _faults_of(mount, if_shared=_OF_A_SERVER)
            sentences += [f"The history ({mount.kind}) is {fault}" for fault in faults]
        return sentences + list(self._of_mounts_below(known))

    def describe_uncovered(self, known: list[Mount] | None) -> list[str]:
        """Return sentences about the mounts left out because of their file system."""
        folding = folding_mounts(self._disk.root, known)
        return [f"{_some(folding)} {_is_or_are(folding)} another file system {_FOLDING}."] if folding else []

    def is_deaf(self, is_watched: Callable[[bytes], bool]) -> bool:
        """Return whether a write to a watched folder may raise no event, or one with another spelling."""
        if self._disk.is_folding or (self._mount is not None and self._mount.is_two_sided):
            return True
        below = mounts_below(self._disk.root, mounts())
        return any(mount.is_two_sided and is_watched(path) for path, mount in below.items())

    def _of_mounts_below(self, known: list[Mount]) -> Iterator[str]:
        folding = folding_mounts(self._disk.root, known)
        below = mounts_below(self._disk.root, known)
        faults: dict[str, list[bytes]] = {}
        for path, mount in sorted(below.items()):
            if path not in folding:
                for fault in (_OTHER_MOUNT, *_faults_of(mount)):
                    faults.setdefault(fault, []).append(path)
        for fault, paths in faults.items():
            yield f"{_some(paths)} {_is_or_are(paths)} {fault}"


def _faults_of(mount: Mount, if_shared: str = _TWO_SIDED) -> Iterator[str]:
    if mount.is_two_sided:
        yield if_shared
    if mount.is_volatile:
        yield _VOLATILE


def _some(paths: Iterable[bytes]) -> str:
    return join_names([os.fsdecode(path) for path in sorted(paths)])


def _is_or_are(paths: Sequence[bytes] | dict[bytes, str]) -> str:
    return "is" if len(paths) == 1 else "are"
