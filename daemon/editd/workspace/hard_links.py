"""Hard links: the names in the workspace that share one file, as the last scan has seen them.

A write through one name makes no notice for the others. So a notice of a file with several names is a notice
of each of them, and a file whose names are unknown needs a scan. A name outside of the watched folders makes
no notice at all: a later scan finds its writes.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec import Struct, field

from editd.values.path import WorkspacePath

if TYPE_CHECKING:
    from collections.abc import Iterable

    from editd.workspace.reader import FileStat


class HardLinks(Struct):
    """The paths of the files with several names, by device and inode."""

    paths: dict[tuple[int, int], set[WorkspacePath]] = field(default_factory=dict)

    @classmethod
    def of(cls, linked: Iterable[tuple[int, int, str]]) -> HardLinks:
        """Return the links of a scan: device, inode and path of each file with several names."""
        links = cls()
        for device, inode, path in linked:
            links.paths.setdefault((device, inode), set()).add(WorkspacePath(path))
        return links

    def other_names(self, path: WorkspacePath, status: FileStat) -> set[WorkspacePath] | None:
        """Return the other paths of a file with several names; None if a scan has to find them."""
        device, inode, *_ = status.identity
        names = self.paths.get((device, inode))
        if names is None:
            return None
        names.add(path)
        return names - {path}


def linked_entry(path: bytes, status: os.stat_result) -> tuple[int, int, str]:
    """Return the entry of a path for `HardLinks.of`."""
    return status.st_dev, status.st_ino, os.fsdecode(path)
