"""An item: one change on its way into the files, and the names that it goes by on the disk.

Owns the names of temporaries, and what can be told of a change without looking at the disk.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec import Struct, field

from editd.values.path import TEMPORARY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from editd.values.changeset import Change

_PREFIX = TEMPORARY_PREFIX.encode()


class StagedChange(Struct, eq=False):
    """A change with its target, `name` in `folder`, and its temporary, `temporary` in `aside`."""

    change: Change
    folder: bytes
    name: bytes
    temporary: bytes
    aside: bytes  # `folder`, unless that cannot be made yet, or is to go
    is_spare: bool = False  # the temporary is a spare: it lies in the daemon's own folder, not in `aside`
    is_linked: bool = False  # what it replaces has the temporary's name in the daemon's own folder
    is_taken_back: bool = False  # that is our own version, which `before` has replaced again
    cloned: tuple[int, int, int] | None = None  # device, inode, ctime_ns of whose metadata the temporary has
    lost: list[str] = field(default_factory=list)  # what the file has and will not keep, or not get back

    @property
    def warning(self) -> str:
        """What is lost, as a sentence; "" where nothing is."""
        if not self.lost:
            return ""
        what = ", ".join(self.lost)
        if self.change.after is None:
            return f"{self.change.path}: an undo brings back its bytes and its mode, but not {what}."
        return f"{self.change.path}: {what} could not be kept."

    @property
    def is_mode_only(self) -> bool:
        """Whether the same file is to have other permissions, which needs no temporary."""
        change = self.change
        if change.before is None or change.after is None or change.source is not None:
            return False
        if change.before.version != change.after.version:
            return False
        return not (change.before.is_symlink or change.after.is_symlink)


def item_of(change: Change, temporary: bytes = b"") -> StagedChange:
    """Return the item of a change; its temporary is beside its target."""
    folder, name = split(change.path.raw)
    return StagedChange(change, folder, name, temporary, folder)


def split(path: bytes) -> tuple[bytes, bytes]:
    """Return the folder of a path, b"" for the root, and its name."""
    folder, _, name = path.rpartition(b"/")
    return folder, name


def temporary_name(token: str, index: int) -> bytes:
    """The name of the temporary of a transaction's change, by the transaction's token and its index."""
    return f"{TEMPORARY_PREFIX}{token}-{index}".encode()


def token_of(name: bytes) -> str:
    """Return the token in a temporary's name."""
    return os.fsdecode(name).removeprefix(TEMPORARY_PREFIX).rpartition("-")[0]


def is_temporary(name: bytes) -> bool:
    """Whether a name is one of those that editd keeps for its own temporary files."""
    return name.startswith(_PREFIX)


def folder_that_stays(folder: bytes, created: AbstractSet[str]) -> bytes:
    """Return `folder`, or the one above it that will still be one when the paths `created` are files."""
    names = folder.split(b"/")
    for depth in range(len(names)):
        if os.fsdecode(b"/".join(names[: depth + 1])) in created:
            return b"/".join(names[:depth])
    return folder
