"""The mark: the end of the acknowledged part of the journal, to distinguish damage from a torn append.

A frame with a bad checksum is damage before the mark, and an unacknowledged append after it. The mark is
written after each synced append, without a separate sync. A killed daemon leaves it exact. After a
power cut it is no older than the last sync of the workspace's files, and a clean end syncs it. It never
runs ahead of the durable frames, because a power cut would then look like damage.

mark = magic, version, segment, offset, seq, commit, CRC-32 of all before

Each segment's header also has the end of the previous segment (`PreviousEnd`).
"""

from __future__ import annotations

import contextlib
import os
import struct
import zlib

from msgspec import Struct

from editd.advice import Advice, command_term
from editd.errors import HistoryDamaged
from editd.system.files import replace_file
from editd.system.filesystem import write_at

ACKNOWLEDGED = "acknowledged"
NOBODY = bytes(20)  # the commit of a mark without one, as after an abort
BEFORE_AT = 32  # the offset of `PreviousEnd` in a segment's header of 64 bytes
TRIES = 5  # of reading the mark, which the daemon may be writing meanwhile

_MARK = struct.Struct("<8sIQQQ20sI")
_MAGIC = b"editd-a\n"
_VERSION = 1
_BEFORE = struct.Struct("<4sQQI")
_BEFORE_MAGIC = b"bEf1"


class Acknowledged(Struct, frozen=True):
    """The end of the last acknowledged frame, and the newest committed transaction at that point."""

    segment: int
    offset: int
    seq: int
    commit: bytes


class AcknowledgedFile:
    """The writer of the mark, owned by the journal's writer."""

    def __init__(self, folder: str) -> None:
        """Open the mark in the journal's folder, or create an empty one. Raises OSError."""
        path = os.path.join(folder, ACKNOWLEDGED)
        if not os.path.exists(path):
            _make(path)
        self._descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self.segment = 0
        """The segment that the mark names."""
        self.synced_segment = 0
        """After a power cut the mark names this segment or a later one: none of them must be reused."""
        with contextlib.suppress(HistoryDamaged):  # which every reader of the journal reports
            mark = read_acknowledged(folder)
            self.segment = 0 if mark is None else mark.segment

    def write(self, segment: int, offset: int, seq: int, commit: bytes) -> None:
        """Write the mark without a sync. If that fails, the old mark stays, and keeps its segment."""
        with contextlib.suppress(OSError):
            write_at(self._descriptor, _encode(segment, offset, seq, commit), 0)
            self.segment = segment

    def sync(self) -> None:
        """Sync the mark, in any thread. Raises OSError."""
        segment = self.segment  # it may be written again meanwhile
        os.fsync(self._descriptor)
        self.synced_segment = segment

    def close(self) -> None:
        os.close(self._descriptor)


def read_acknowledged(folder: str) -> Acknowledged | None:
    """Return the mark of the journal in `folder`, or None. Raises HistoryDamaged."""
    path = os.path.join(folder, ACKNOWLEDGED)
    content = b""
    for _ in range(TRIES):
        try:
            with open(path, "rb") as file:
                content = file.read(_MARK.size + 1)
        except FileNotFoundError:
            return None
        mark = _parse(content)
        if mark is not None:
            return mark
    raise HistoryDamaged(
        f"The journal is damaged: {path}: its checksum is wrong, so the end of the journal is unknown.",
        hint=Advice("No transaction is lost by this. ", command_term("check --repair"), " rebuilds it."),
        data={"file": path, "offset": 0},
    )


def _make(path: str) -> None:
    """Create an empty mark. It fits a sector, so that overwriting it in place never tears it."""
    replace_file(path, _encode(0, 0, 0, NOBODY))  # the journal removes the temporary after a crash


def _encode(segment: int, offset: int, seq: int, commit: bytes) -> bytes:
    head = _MARK.pack(_MAGIC, _VERSION, segment, offset, seq, commit, 0)[:-4]
    return head + zlib.crc32(head).to_bytes(4, "little")


def _parse(content: bytes) -> Acknowledged | None:
    if len(content) != _MARK.size:
        return None
    magic, version, segment, offset, seq, commit, checksum = _MARK.unpack(content)
    if magic != _MAGIC or version != _VERSION or zlib.crc32(content[:-4]) != checksum:
        return None
    return Acknowledged(segment, offset, seq, commit)


class PreviousEnd(Struct, frozen=True):
    """The number and the end of the previous segment, as a segment's header has them."""

    segment: int
    offset: int

    def packed(self) -> bytes:
        head = _BEFORE.pack(_BEFORE_MAGIC, self.segment, self.offset, 0)[:-4]
        return head + zlib.crc32(head).to_bytes(4, "little")


def before_in(header: bytes) -> PreviousEnd | None:
    """Read the previous segment's end from a segment's header; None if an earlier version wrote none.

    Raises ValueError for a bad checksum.
    """
    content = header[BEFORE_AT : BEFORE_AT + _BEFORE.size]
    if not content.strip(b"\0"):
        return None
    if len(content) < _BEFORE.size:
        raise ValueError("its entry for the previous segment is cut off")
    magic, segment, offset, checksum = _BEFORE.unpack(content)
    if magic != _BEFORE_MAGIC or zlib.crc32(content[:-4]) != checksum:
        raise ValueError("its entry for the previous segment has a wrong checksum")
    return PreviousEnd(segment, offset)
