"""A real disk on which something happens just before a chosen call: an outside write, or an error."""

from __future__ import annotations

import errno
import os
from collections import Counter
from typing import TYPE_CHECKING, Any

from editd.system.filesystem import Disk, OpenFolder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class MeddlingDisk(Disk):
    """`meddle["exchange", 2] = f` runs `f` before the second one, `["move", b"a"]` before `a` is moved."""

    def __init__(self, root: str | bytes) -> None:
        self.meddle: dict[tuple[str, int | bytes], Callable[[], Any]] = {}
        self.counts: Counter[str] = Counter()
        super().__init__(root)
        self.counts.clear()  # of what probing did

    def folder(self, path: bytes) -> OpenFolder:
        return _MeddlingFolder(super().folder(path).descriptor, self)

    def happens(self, verb: str, *names: bytes) -> None:
        self.counts[verb] += 1
        keys: list[int | bytes] = [self.counts[verb], *names]
        for key in keys:
            if (verb, key) in self.meddle:
                self.meddle[verb, key]()


class _MeddlingFolder(OpenFolder):
    disk: MeddlingDisk

    def exchange(self, name: bytes, into: OpenFolder, other: bytes) -> None:
        self.disk.happens("exchange", name, other)
        super().exchange(name, into, other)

    def move(self, name: bytes, into: OpenFolder, other: bytes) -> None:
        self.disk.happens("move", name, other)
        super().move(name, into, other)

    def receive(self, name: bytes, source: OpenFolder, other: bytes) -> None:
        if not isinstance(source, _MeddlingFolder):  # otherwise its `move` does it
            self.disk.happens("move", other, name)
        super().receive(name, source, other)

    def link(self, name: bytes, into: OpenFolder, other: bytes) -> None:
        self.disk.happens("link", name, other)
        super().link(name, into, other)

    def replace(self, name: bytes, into: OpenFolder, other: bytes) -> None:
        self.disk.happens("replace", name, other)
        super().replace(name, into, other)


class DiskWithoutSyncfs(Disk):
    """A real disk on which each file is synced alone; `synced` has their paths."""

    def __init__(self, root: str | bytes) -> None:
        super().__init__(root)
        self.can_sync_whole = False
        self.synced: list[bytes] = []

    def sync_each(self, paths: Iterable[bytes]) -> None:
        self.synced.extend(paths)
        super().sync_each(self.synced)


def failing(number: int = errno.EIO) -> Callable[[], None]:
    """What raises an OSError when it is run."""

    def fail() -> None:
        raise OSError(number, os.strerror(number))

    return fail
