"""A site: a target and its temporary with their folders open, so that nothing moves under our hands.

Owns the look: whether a name holds exactly what it should, with nobody writing it.
"""

from __future__ import annotations

import stat
import time
from typing import TYPE_CHECKING

from msgspec import Struct

from editd.errors import InUse, NotAFile, TooLarge
from editd.workspace.reader import read_name

if TYPE_CHECKING:
    import os

    from editd.system.filesystem import OpenFolder
    from editd.values.content import FileState
    from editd.values.path import WorkspacePath
    from editd.workspace.staged_change import StagedChange

SETTLE_TRIES, SETTLE_SECONDS = 200, 0.001
"""How often, and how far apart, two files change places until one of them is no longer being written.

Reached only if two other programs hold two versions of one file open at once; a fifth of a second is
more than any save was seen to take.
"""


class OpenTarget(Struct, frozen=True):
    """An item with its folders open. What the disk refuses is raised as its OSError."""

    item: StagedChange
    folder: OpenFolder
    aside: OpenFolder

    def exchange(self) -> None:
        """Let target and temporary change places; FileNotFoundError if one is missing.

        In this order, since whoever watches the folder then hears of the target's coming last.
        """
        self.folder.exchange(self.item.name, self.aside, self.item.temporary)

    def insert(self) -> None:
        """Give the temporary its target's name; FileExistsError if something has it."""
        self.aside.move(self.item.temporary, self.folder, self.item.name)

    def extract(self) -> None:
        """Give the target its temporary's name."""
        self.folder.move(self.item.name, self.aside, self.item.temporary)

    def replace(self) -> None:
        """Rename the temporary over the target."""
        self.aside.replace(self.item.temporary, self.folder, self.item.name)

    def target_holds(self, state: FileState | None) -> bool:
        """Whether the target is exactly `state`."""
        return holds(self.folder, self.item.name, self.item.change.path, state)

    def temporary_holds(self, state: FileState | None) -> bool:
        """Whether the temporary is exactly `state`."""
        return holds(self.aside, self.item.temporary, self.item.change.path, state)

    def quarantine(self) -> FileState | None:
        """Let what lies under the temporary name stay there; return it unless it is `before` or `after`.

        While somebody is still writing it, it changes places with what stands at the path; InUse if
        that does not end.
        """
        change = self.item.change
        for _ in range(SETTLE_TRIES):
            try:
                found = read_name(self.aside, self.item.temporary, change.path, quiet=True)
            except (InUse, NotAFile):
                try:
                    self.exchange()
                except FileNotFoundError:
                    self.insert()  # Nothing stands at the path any more: whoever writes it has it back.
                    return None
                time.sleep(SETTLE_SECONDS)
                continue
            state = None if found is None else found.state()
            return None if state in (change.before, change.after) else state
        raise InUse(change.path.text)


def holds(folder: OpenFolder, name: bytes, path: WorkspacePath, state: FileState | None) -> bool:
    """Whether a name holds exactly `state`, content and git's mode, with nobody writing it.

    `state` None: whether there is nothing. Reads no more than `state` is long.
    """
    bytes_max = 0 if state is None else len(state.content)
    try:
        found = read_name(folder, name, path, quiet=True, bytes_max=bytes_max)
    except (InUse, NotAFile, TooLarge):
        return False
    if found is None or state is None:
        return found is None and state is None
    return found.mode == state.mode and found.content == state.content


def open_regular(folder: OpenFolder, name: bytes) -> int | None:
    """Return a descriptor to read a regular file; None if it is anything else or nothing."""
    found = folder.stat(name)
    return folder.open(name) if found is not None and stat.S_ISREG(found.st_mode) else None


def identity_of(found: os.stat_result) -> tuple[int, int, int]:
    """Device, inode and ctime_ns: equal only if neither the file nor its metadata have changed."""
    return found.st_dev, found.st_ino, found.st_ctime_ns
