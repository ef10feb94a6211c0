"""The mark: how far the journal was acknowledged, so that damage at its end is told from a torn tail.

A frame that does not check is damage up to the mark, and behind it an append that nobody was told of. The
mark is written once an append is synced, without a sync of its own: a killed daemon leaves it exact, a power
cut no older than the last sync of the workspace's files, a clean end has synced it. It never runs ahead of
what is durable, else a power cut would look like damage.

    mark     = magic, version, segment, offset, seq, commit, CRC-32 of all before

Beside it each segment's header says where the segment before it ended (`PreviousEnd`).
"""

from __future__ import annotations

import contextlib
import os
import struct
import zlib

from msgspec import Struct

from editd.errors import HistoryDamaged
from editd.system.atomic_file import replace_file
from editd.system.filesystem import write_at

NAME = "acknowledged"
NOBODY = bytes(20)  # the commit of a mark that does not know it, as when the last was taken back
BEFORE_AT = 32  # where it begins in a segment's first 64 bytes
TRIES = 5  # the packing process may read the mark while it is being written

_MARK = struct.Struct("<8sIQQQ20sI")
_MAGIC = b"editd-a\n"
_VERSION = 1
_BEFORE = struct.Struct("<4sQQI")
_BEFORE_MAGIC = b"bEf1"


class Acknowledged(Struct, frozen=True):
    """The end of the last acknowledged frame, and the newest transaction that stands by then."""

    segment: int
    offset: int
    seq: int
    commit: bytes


class AcknowledgedFile:
    """The writer, which belongs to the journal's."""

    def __init__(self, folder: str) -> None:
        """Open the mark in the journal's folder; where there is none it begins empty. Raises OSError."""
        path = os.path.join(folder, NAME)
        if not os.path.exists(path):
            _make(path)
        self._descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self.segment = 0
        """The segment that the mark names: while it does, that one must stay."""
        with contextlib.suppress(HistoryDamaged):  # which every reader of the journal reports
            found = read_acknowledged(folder)
            self.segment = 0 if found is None else found.segment

    def write(self, segment: int, offset: int, seq: int, commit: bytes) -> None:
        """Write the mark without a sync. If that fails, the mark stays behind, and so does its segment."""
        with contextlib.suppress(OSError):
            write_at(self._descriptor, _packed(segment, offset, seq, commit), 0)
            self.segment = segment

    def sync(self) -> None:
        """Make it durable. Raises OSError."""
        os.fsync(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)


def read_acknowledged(folder: str) -> Acknowledged | None:
    """The mark of the journal in `folder`; None where there is none. Raises HistoryDamaged."""
    path = os.path.join(folder, NAME)
    content = b""
    for _ in range(TRIES):
        try:
            with open(path, "rb") as file:
                content = file.read(_MARK.size + 1)
        except FileNotFoundError:
            return None
        mark = _parsed(content)
        if mark is not None:
            return mark
    raise HistoryDamaged(
        f"The journal is damaged: {path}: it does not check, so where the journal ends is not known.",
        hint="No transaction is lost by this. `editctl check --repair` makes it anew.",
        data={"file": path, "offset": 0},
    )


def _make(path: str) -> None:
    """The empty mark, durable under its name: written over in place it fits a sector, and is never torn."""
    replace_file(path, _packed(0, 0, 0, NOBODY))  # the journal removes what a crash leaves of it


def _packed(segment: int, offset: int, seq: int, commit: bytes) -> bytes:
    head = _MARK.pack(_MAGIC, _VERSION, segment, offset, seq, commit, 0)[:-4]
    return head + zlib.crc32(head).to_bytes(4, "little")


def _parsed(content: bytes) -> Acknowledged | None:
    if len(content) != _MARK.size:
        return None
    magic, version, segment, offset, seq, commit, checksum = _MARK.unpack(content)
    if magic != _MAGIC or version != _VERSION or zlib.crc32(content[:-4]) != checksum:
        return None
    return Acknowledged(segment, offset, seq, commit)


class PreviousEnd(Struct, frozen=True):
    """What a segment's header says of the one that was written before it: its number, and where it ended."""

    segment: int
    offset: int

    def packed(self) -> bytes:
        head = _BEFORE.pack(_BEFORE_MAGIC, self.segment, self.offset, 0)[:-4]
        return head + zlib.crc32(head).to_bytes(4, "little")


def before_in(header: bytes) -> PreviousEnd | None:
    """Read it from a segment's first 64 bytes; None where an earlier version wrote none.

    Raises ValueError where it does not check.
    """
    found = header[BEFORE_AT : BEFORE_AT + _BEFORE.size]
    if not found.strip(b"\0"):
        return None
    magic, segment, offset, checksum = _BEFORE.unpack(found)
    if magic != _BEFORE_MAGIC or zlib.crc32(found[:-4]) != checksum:
        raise ValueError("what it says of the segment before it does not check")
    return PreviousEnd(segment, offset)
