"""The state files beside the store: what was acknowledged, how far the files are synced, lost and found."""

from __future__ import annotations

import contextlib
import os
import struct
import zlib
from typing import TYPE_CHECKING

from msgspec import Struct

from editd.advice import Advice, command_term
from editd.errors import HistoryDamaged
from editd.system.files import replace_file
from editd.system.filesystem import folder_bytes, write_at

if TYPE_CHECKING:
    from collections.abc import Callable

# The mark: the end of the acknowledged part of the journal, to distinguish damage from a torn append.
#
# A frame with a bad checksum is damage before the mark, and an unacknowledged append after it. The mark is
# written after each synced append, without a separate sync. A killed daemon leaves it exact. After a
# power cut it is no older than the last sync of the workspace's files, and a clean end syncs it. It never
# runs ahead of the durable frames, because a power cut would then look like damage.
#
# mark = magic, version, segment, offset, seq, commit, CRC-32 of all before
#
# Each segment's header also has the end of the previous segment (`PreviousEnd`).

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


# The sync state of the workspace's files: the number of the last durable transaction, written at each sync.
#
# Packing moves head before that sync, so head does not show which files a power cut may have torn. A number
# that is too low only costs checks of good files. A history of an older editd has no such file.
#
# A failed sync leaves the later files in doubt: they are in the page cache, and may never reach the disk.
# That is recorded too, so that the next start rewrites them. The record needs no sync: if a power cut
# destroys it, the next start redoes all later transactions anyway.

_SEQ_BYTES = 8


class SyncedThrough:
    """The number of the newest transaction in the files, durable or not.

    Written without a sync after each batch. A killed daemon leaves all in it that were answered, so that the
    next start redoes only later transactions. After a power cut it is meaningless.
    """

    def __init__(self, folder: str) -> None:
        """Open the file in the state folder; a new one holds 0. Raises OSError."""
        path = os.path.join(folder, "published")
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    @property
    def through(self) -> int:
        """Return the number. Raises OSError."""
        return int.from_bytes(os.pread(self._descriptor, _SEQ_BYTES, 0), "little")

    def note(self, seq: int) -> None:
        """Write the number. If that fails it stays too low, and the next start redoes more than necessary."""
        with contextlib.suppress(OSError):
            write_at(self._descriptor, seq.to_bytes(_SEQ_BYTES, "little"), 0)

    def close(self) -> None:
        os.close(self._descriptor)


def read_synced(folder: str) -> int | None:
    """Return the last seq with all files durable, by the state folder; None if it is unknown."""
    try:
        with open(_path(folder), "rb") as file:
            return int(file.read())
    except (FileNotFoundError, ValueError):
        return None


def note_synced(folder: str, seq: int) -> None:
    """Record that all up to `seq` is already durable in the files. Raises OSError."""
    replace_file(_path(folder), b"%d\n" % seq)


def mark_sync_failed(folder: str) -> None:
    """Record that the unsynced files may never leave the page cache. Raises OSError."""
    os.close(os.open(_doubt(folder), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))


def has_sync_failed(folder: str) -> bool:
    """Return whether a sync has failed, and its files were not rewritten and synced since."""
    return os.path.exists(_doubt(folder))


def clear_sync_failed(folder: str) -> None:
    """Record that the files were rewritten and synced. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_doubt(folder))


def _doubt(folder: str) -> str:
    return os.path.join(folder, "doubt")


def _path(folder: str) -> str:
    return os.path.join(folder, "synced")


# Lost and found: content without a transaction that a crash has left in the workspace, kept for a while.
#
# `History.quarantine` stores it here, in the folder `strays`. A user who misses content after a crash looks
# for it within days. So a compaction removes files older than `KEPT_SECONDS`; nothing else does.

LOST_FOUND = "strays"
KEPT_SECONDS = 30 * 86400


def lost_bytes(folder: str) -> int:
    """Return the disk space of the quarantined files in the state folder."""
    return folder_bytes(os.path.join(folder, LOST_FOUND))


def drop_lost_contents(folder: str, is_dropped: Callable[[bytes], bool]) -> int:
    """Remove the files whose content `is_dropped` accepts; return their number. Raises OSError."""
    dropped = 0
    with contextlib.suppress(FileNotFoundError), os.scandir(os.path.join(folder, LOST_FOUND)) as entries:
        for entry in entries:
            with open(entry.path, "rb") as file:
                content = file.read()
            if is_dropped(content):
                os.unlink(entry.path)
                dropped += 1
    return dropped


def drop_lost(folder: str, now: float) -> int:
    """Remove the files that are too old at `now`, in seconds since the epoch; return the bytes freed."""
    freed = 0
    with contextlib.suppress(FileNotFoundError), os.scandir(os.path.join(folder, LOST_FOUND)) as entries:
        for entry in entries:
            status = entry.stat(follow_symlinks=False)
            if now - status.st_mtime > KEPT_SECONDS:
                os.unlink(entry.path)
                freed += status.st_size
    return freed
