"""A file, folder or symlink of the fake disk: its state in memory, and the part of it that is durable."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

SECTOR = 512  # bytes that a disk writes whole
OWNER = (os.geteuid(), os.getegid())
DEVICE = 0x5D15C


@dataclass(slots=True)
class Pending:
    """A change of a file's bytes that no sync has made durable yet."""

    stamp: int  # the length of the disk's log of names at that time
    offset: int
    content: bytes | None  # None: the file was cut to `offset`
    barrier: int | None = None  # written out: durable with the first later change of names


@dataclass(slots=True, eq=False)
class Node:
    """An inode. `entries` is of a folder, `content` of a file, `target` of a symlink."""

    number: int
    mode: int
    content: bytearray = field(default_factory=bytearray)
    entries: dict[bytes, Node] = field(default_factory=dict)
    target: bytes = b""
    links: int = 1
    changed_ns: int = 0  # ctime
    written_ns: int = 0  # mtime
    opened: list[object] = field(default_factory=list)  # by open files, once for each
    locked_by: object = None
    mirrors: set[str] = field(default_factory=set)  # paths of its copies on the real disk
    has_lost: bool = False
    safe_content: bytes = b""
    safe_entries: dict[bytes, Node] = field(default_factory=dict)
    safe_mode: int = 0
    pending: list[Pending] = field(default_factory=list)

    is_folder: bool = False
    is_link: bool = False
    is_file: bool = False

    def __post_init__(self) -> None:
        self.is_folder, self.is_link = stat.S_ISDIR(self.mode), stat.S_ISLNK(self.mode)
        self.is_file = stat.S_ISREG(self.mode)

    def status(self) -> os.stat_result:
        """Return what lstat(2) returns."""
        size = len(self.target) if self.is_link else 4096 if self.is_folder else len(self.content)
        written, changed = self.written_ns // 1_000_000_000, self.changed_ns // 1_000_000_000
        return os.stat_result(
            (self.mode, self.number, DEVICE, self.links, *OWNER, size, written, written, changed),
            {
                "st_mtime": self.written_ns / 1e9,
                "st_ctime": self.changed_ns / 1e9,
                "st_mtime_ns": self.written_ns,
                "st_ctime_ns": self.changed_ns,
                "st_blocks": -(-size // SECTOR),
            },
        )

    def write(self, offset: int, content: bytes, stamp: int) -> None:
        """Write into memory; a gap before `offset` becomes zeros."""
        if len(self.content) < offset:
            self.content.extend(bytes(offset - len(self.content)))
        self.content[offset : offset + len(content)] = content
        self.pending.append(Pending(stamp, offset, content))

    def cut(self, size: int, stamp: int) -> None:
        """Give the file this size in memory."""
        if size < len(self.content):
            del self.content[size:]
        else:
            self.content.extend(bytes(size - len(self.content)))
        self.pending.append(Pending(stamp, size, None))

    def sync(self) -> None:
        """Make the bytes durable, and the mode with them."""
        if self.has_lost:  # then memory has more than the disk will ever get
            content = bytearray(self.safe_content)
            for change in self.pending:
                _apply(content, change)
            self.safe_content = bytes(content)
        else:
            self.safe_content = bytes(self.content)
        self.safe_mode = self.mode
        self.pending.clear()

    def sync_range(self, offset: int, length: int) -> None:
        """Make a range durable, as a write with RWF_DSYNC does. A longer file is synced as a whole."""
        end = offset + length
        if (
            self.has_lost
            or end > len(self.safe_content)
            or any(change.content is None for change in self.pending)
        ):
            self.sync()
            return
        safe = bytearray(self.safe_content)
        safe[offset:end] = self.content[offset:end]
        self.safe_content = bytes(safe)
        self.pending = [one for one in self.pending if not _overlaps(one, offset, end)]

    def lose(self, chance: Random) -> None:
        """Fail to sync: drop each change, or not. Memory keeps them all, and no later sync writes them."""
        content = bytearray(self.safe_content)
        for change in self.pending:
            if change.content is None or chance.random() < 0.5:
                _apply(content, change)
        self.safe_content = bytes(content)
        self.has_lost = True
        self.pending.clear()

    def write_out(self, offset: int, length: int, stamp: int) -> None:
        """Pass a range to the disk's cache (sync_file_range): the next commit of names takes it along."""
        for change in self.pending:
            if change.content is not None and change.offset < offset + length:
                change.barrier = stamp

    def after_cut(self, commits: int, chance: Random) -> bytes:
        """Return bytes that a power cut can leave, if the first `commits` changes of names are durable.

        The size of a file is cut in the order of the names (ext4). Its bytes reach the disk in any order, by
        sectors, and new ones perhaps not at all, or as zeros.
        """
        content = bytearray(self.safe_content)
        fate = chance.choice(("all", "none", "torn"))
        for change in self.pending:
            if change.content is None:
                if change.stamp >= commits:
                    break
                _apply(content, change)
            elif fate == "all" or (change.barrier is not None and change.barrier < commits):
                _apply(content, change)
            elif fate == "torn":
                _tear(content, change.offset, change.content, chance)
        return bytes(content)


def _overlaps(change: Pending, start: int, end: int) -> bool:
    length = len(change.content or b"")
    return change.offset < end and change.offset + length > start


def _apply(content: bytearray, change: Pending) -> None:
    if change.content is not None:
        _put(content, change.offset, change.content)
    elif len(content) > change.offset:
        del content[change.offset :]
    else:
        content.extend(bytes(change.offset - len(content)))


def _put(content: bytearray, offset: int, written: bytes) -> None:
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(written)] = written


def _tear(content: bytearray, offset: int, written: bytes, chance: Random) -> None:
    """Write some sectors of the part that overwrites, and a beginning of the part that is new."""
    end, old_end = offset + len(written), len(content)
    for start in range(offset - offset % SECTOR, min(end, old_end), SECTOR):
        low, high = max(start, offset), min(start + SECTOR, end, old_end)
        if low < high and chance.random() < 0.5:
            content[low:high] = written[low - offset : high - offset]
    if end > old_end:
        cut = chance.randint(max(old_end, offset), end)
        is_zero = chance.random() < 0.25
        new = written[max(old_end, offset) - offset : cut - offset]
        _put(content, max(old_end, offset), bytes(len(new)) if is_zero else new)
