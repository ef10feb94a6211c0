"""The journal: each transaction, written down and synced before it touches a file.

Segments of frames; a frame holds the records of one batch under one checksum, so that a batch is
in the journal whole or not at all. Segments are made ahead and filled with zeros, since an append
with fdatasync then costs a quarter of a safe file save (only fallocated, or growing, twice that, in a
prototype), and are used again under a higher number, which each frame repeats, so that
what an earlier use left behind is not taken for a frame.

    segment  = header (64 bytes), frames at multiples of 64
    header   = magic, version, number, CRC-32 of the three; at byte 32 where the segment before it ended
    frame    = magic, version, number, length, CRC-32 of the payload, CRC-32 of all before; payload

C1  `append` returns once its records are durable.
C3  A segment is reused only when the caller has released all its transactions.

Knows nothing of git, nor of the workspace's files.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import struct
import zlib
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from editd.errors import HistoryDamaged
from editd.store.acknowledged import (
    BEFORE_AT,
    NOBODY,
    AcknowledgedFile,
    PreviousEnd,
    before_in,
    read_acknowledged,
)
from editd.store.acknowledged import NAME as MARK
from editd.store.journal_record import DECODER, ENCODER, Aborted, Committed, Record
from editd.store.relaxed import note_relaxed, relaxed_through
from editd.system.atomic_file import sync_path
from editd.system.filesystem import folder_bytes, write_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from editd.store.acknowledged import Acknowledged

SEGMENT_BYTES = 8 * 1024 * 1024  # some 700 edits of 10 KB; zero-filling one takes about 5 ms
SPARES_MAX = 8  # more than that, emptied after a storm, are deleted
ALIGNMENT = 64
VERSION = 1
TRIES = 5  # of reading a journal whose segments are being given new names

_HEADER = struct.Struct("<8sIQI")
_HEADER_MAGIC = b"editd-j\n"
_FRAME = struct.Struct("<4sIQQII")
_FRAME_MAGIC = b"fRm1"


class JournalFailed(OSError):
    """An append failed and could not be taken back: whether its records stand is not known."""


class JournalPosition(Struct, frozen=True, order=True):
    """A place in the journal: the segment's number and the offset in it."""

    segment: int
    offset: int


class Frame(Struct, frozen=True):
    records: tuple[Record, ...]
    end: JournalPosition


class Journal:
    """The writer. One for each workspace; the caller holds the workspace's flock."""

    def __init__(self, folder: str, *, is_sealed: bool = False) -> None:
        """`is_sealed`: it is damaged, and nothing in its folder is touched."""
        self.folder = folder
        if not is_sealed:
            os.makedirs(folder, 0o700, exist_ok=True)
            for name in os.listdir(folder):
                if name.endswith(".new"):  # that was being made when the daemon ended
                    os.unlink(os.path.join(folder, name))
        self._mark = None if is_sealed else AcknowledgedFile(folder)
        self._spares: list[str] = []
        self._made = itertools.count()  # names no two files that are being made
        self._last_seqs: dict[int, int] = {}  # for each full or current segment, its highest seq
        self._descriptor = -1
        self._size = 0
        self.is_relaxed = False  # an append returns before it is synced: C1 holds but for a power cut
        self._unsynced: Record | None = None  # the newest of those that are to be synced
        self._relaxed_through = relaxed_through(folder) if not is_sealed else 0
        self.position = JournalPosition(0, 0)
        self._next = max(segments(folder), default=0) + 1

    @property
    def bytes(self) -> int:
        """The space that the journal's segments take, spares included."""
        return folder_bytes(self.folder)

    def note(self, end: JournalPosition, seq: int) -> None:
        """Remember that a frame found at start ends here, and that its segment holds records up to `seq`."""
        self._last_seqs[end.segment] = max(seq, self._last_seqs.get(end.segment, 0))
        self.position = max(self.position, end)  # so that packing reads this far; we go on in a new segment

    def append(self, records: Sequence[Record]) -> None:
        """Write `records` as one frame and sync it: the commit point (C1).

        Raises OSError with nothing appended, or JournalFailed where that is in doubt.
        """
        payload = ENCODER.encode(tuple(records))
        length = _FRAME.size + len(payload)
        if self._descriptor < 0 or self.position.offset + length > self._size:
            self._turn(length)
        number, offset = self.position.segment, self.position.offset
        if self.is_relaxed and number > self._relaxed_through:
            note_relaxed(self.folder, number)
            self._relaxed_through = number
        head = _FRAME.pack(_FRAME_MAGIC, VERSION, number, len(payload), zlib.crc32(payload), 0)
        head = head[:-4] + struct.pack("<I", zlib.crc32(head[:-4]))
        try:
            write_at(self._descriptor, head + payload, offset)
            if not self.is_relaxed:
                os.fdatasync(self._descriptor)
        except OSError as error:
            self._take_back(offset, error)
            raise
        self.position = JournalPosition(number, _aligned(offset + length))
        self._unsynced = records[-1] if self.is_relaxed else None
        if not self.is_relaxed:
            self._acknowledge(records[-1], self.position)
        for record in records:
            self._last_seqs[number] = max(self._last_seqs.get(number, 0), record.seq)

    def begin_sync(self) -> tuple[int, Callable[[], None]] | None:
        """What is to be synced, if there is anything: a descriptor to sync, in a thread, and to close; and
        what is to be called when that is done.
        """
        last, end = self._unsynced, self.position
        if last is None or self._descriptor < 0:
            return None

        def done() -> None:
            if self._unsynced is None or self.position.segment != end.segment:
                return  # all of it was synced with something else meanwhile
            self._acknowledge(last, end)
            if self.position == end:
                self._unsynced = None

        return os.dup(self._descriptor), done

    @property
    def is_unsynced(self) -> bool:
        """Whether `begin_sync` has something to sync."""
        return self._unsynced is not None and self._descriptor >= 0

    def _acknowledge(self, last: Record, end: JournalPosition) -> None:
        assert self._mark is not None, "what is sealed is not written"
        seq, commit = (last.seq, last.commit) if isinstance(last, Committed) else (last.seq - 1, NOBODY)
        self._mark.write(end.segment, end.offset, seq, commit)

    def sync_mark(self) -> None:
        """Make durable how far the journal is acknowledged. Raises OSError."""
        if self._mark is not None:
            self._mark.sync()

    def _take_back(self, offset: int, cause: OSError) -> None:
        """Make the half-written frame invalid, durably, and leave this segment for a new one."""
        try:
            write_at(self._descriptor, bytes(_FRAME.size), offset)
            os.fdatasync(self._descriptor)
        except OSError:
            raise JournalFailed(cause.errno, "the journal is in doubt") from cause
        os.close(self._descriptor)
        self._descriptor = -1

    @property
    def has_spare(self) -> bool:
        """Whether a segment is ready for when the current one is full."""
        return bool(self._spares)

    def make_spare(self) -> str:
        """Make one in any thread, to be given to `add_spare`. Raises OSError (a full disk shows here)."""
        return self._make(SEGMENT_BYTES)

    def add_spare(self, path: str) -> None:
        self._spares.append(path)

    def release(self, seq: int) -> None:
        """All transactions up to `seq` are packed, head is durable beyond them, their files too (C3)."""
        if self._mark is None:
            return  # What is sealed is damaged, and keeps all its segments for a repair.
        kept = {self.position.segment, self._mark.segment}
        for number, last in sorted(self._last_seqs.items()):
            if number in kept or last > seq:
                break  # in their order, so that what aborts a record does not go before the record
            del self._last_seqs[number]
            path = segment_path(self.folder, number)
            if len(self._spares) < SPARES_MAX and os.stat(path).st_size == SEGMENT_BYTES:
                self._spares.append(path)
            else:
                os.unlink(path)

    def close(self) -> None:
        self._let_go()
        if self._mark is not None:
            with contextlib.suppress(OSError):
                self._mark.sync()
            self._mark.close()
            self._mark = None

    def _let_go(self) -> None:
        if self._descriptor >= 0 and self._unsynced is not None:
            os.fdatasync(self._descriptor)
            self._acknowledge(self._unsynced, self.position)
            self._unsynced = None
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _turn(self, length: int) -> None:
        """Go on in a new segment with room for `length` bytes."""
        size = max(SEGMENT_BYTES, _aligned(_HEADER.size) + length)
        source = self._spares.pop() if size == SEGMENT_BYTES and self._spares else self._make(size)
        self._let_go()
        before = PreviousEnd(self.position.segment, self.position.offset)
        number, self._next = self._next, self._next + 1
        target = segment_path(self.folder, number)
        os.rename(source, target)  # before the header: a crash in between leaves a segment that holds nothing
        sync_path(self.folder)
        descriptor = os.open(target, os.O_RDWR | os.O_CLOEXEC)
        try:
            head = _HEADER.pack(_HEADER_MAGIC, VERSION, number, 0)[:-4]
            head += struct.pack("<I", zlib.crc32(head))
            write_at(descriptor, head.ljust(BEFORE_AT, b"\0") + before.packed(), 0)
            os.fdatasync(descriptor)
        except OSError:
            os.close(descriptor)
            os.unlink(target)
            raise
        self._descriptor, self._size = descriptor, size
        self.position = JournalPosition(number, _aligned(_HEADER.size))

    def _make(self, size: int) -> str:
        """A new file of `size` zeros, written and synced, under a name that is no segment's yet."""
        path = os.path.join(self.folder, f"{next(self._made):016x}.new")
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            chunk = bytes(1 << 20)
            for offset in range(0, size, len(chunk)):
                write_at(descriptor, chunk[: size - offset], offset)
            os.fsync(descriptor)
        except OSError:
            os.unlink(path)
            raise
        finally:
            os.close(descriptor)
        return path


def segments(folder: str) -> list[int]:
    """The numbers of the segments in `folder`, rising; none where there is no such folder."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    return sorted(int(name[:16], 16) for name in names if name.endswith(".segment"))


def segment_path(folder: str, number: int) -> str:
    return os.path.join(folder, f"{number:016x}.segment")


def frames(folder: str, start: JournalPosition, until: JournalPosition | None = None) -> Iterator[Frame]:
    """The frames from `start` on, up to `until` or to the end of what is whole, in order.

    A frame behind all that is known to be acknowledged (`known_ends`), with no whole frame after it, was cut
    off while it was written: it ends the journal. Any other that is bad is damage: HistoryDamaged; but for
    segments that were written relaxed (`store.relaxed`), where a power cut leaves holes.
    """
    ends = known_ends(folder) if until is None else {}
    holes_through = relaxed_through(folder)
    for number in segments(folder):
        if number < start.segment or (until is not None and number > until.segment):
            continue
        offset = start.offset if number == start.segment else 0
        end = until.offset if until is not None and number == until.segment else None
        yield from _frames_of(
            segment_path(folder, number), number, offset, end, ends.get(number, 0),
            has_holes=number <= holes_through,
        )  # fmt: skip


def read_while_written(read: Callable[[], object]) -> None:
    """Let `read` go through a journal that is being written: what is damaged is so each time that it looks.

    Raises what `read` raises, HistoryDamaged only where no try went well; nothing where each found that a
    segment had just been given another number.
    """
    damage: HistoryDamaged | None = None
    for _ in range(TRIES):
        try:
            read()
        except FileNotFoundError:
            continue
        except HistoryDamaged as found:
            damage = found
        else:
            return
    if damage is not None:
        raise damage


def known_ends(folder: str) -> dict[int, int]:
    """How far each segment is known to hold frames: by the mark, and by the header of the one behind it.

    Raises HistoryDamaged: a segment is missing that is known to have been written, or what tells is damaged.
    """
    mark = read_acknowledged(folder)
    present = segments(folder)
    ends = {} if mark is None else {mark.segment: mark.offset}
    is_marked = False
    not_begun: list[int] = []  # as a crash leaves one that was just renamed, or as damage makes it
    for number in present:
        path = segment_path(folder, number)
        if not _is_begun(path, number):
            not_begun.append(number)
            continue
        with open(path, "rb") as file:
            try:
                before = before_in(file.read(ALIGNMENT))
            except ValueError as error:
                raise _damaged(path, str(error), BEFORE_AT) from error
        if before is not None:
            is_marked = True
            ends[before.segment] = before.offset
    for number in not_begun:
        if ends.get(number):
            raise _damaged(segment_path(folder, number), "it is another segment, or none", 0)
    if mark is None and is_marked:
        raise _damaged(os.path.join(folder, MARK), "it is missing, so where the journal ends is not known")
    if mark is not None and mark.offset and mark.segment not in present:
        missing = segment_path(folder, mark.segment)
        raise _damaged(missing, f"it is missing; it had transactions up to {mark.seq}")
    return ends


def whole_records(folder: str) -> list[Committed]:
    """The records that check and stand, in the order of their seq, whatever is damaged around them."""
    here = JournalPosition(0, 0)
    found = committed(Frame(records, here) for _, _, records in whole_frames(folder))
    return [found[seq] for seq in sorted(found)]


def whole_frames(folder: str) -> Iterator[tuple[int, int, tuple[Record, ...]]]:
    """Every frame that checks, whatever is damaged around it: segment, offset and records, in their order."""
    for number in segments(folder):
        with open(segment_path(folder, number), "rb") as file:
            content = file.read()
        at = _aligned(_HEADER.size)
        while 0 <= at < len(content):
            frame = _frame_at(content, at, number)
            if frame is not None:
                yield number, at, frame[0]
                at = _aligned(at + frame[1])
            else:
                at = _next_magic(content, at)


def committed(read: Iterable[Frame]) -> dict[int, Committed]:
    """The records that stand, by seq; what was aborted is left out (C6)."""
    standing: dict[int, Committed] = {}
    for frame in read:
        for record in frame.records:
            if isinstance(record, Committed):
                standing[record.seq] = record
            else:
                standing = {seq: found for seq, found in standing.items() if seq < record.seq}
    return standing


def acknowledged_seq(mark: Acknowledged, read: Iterable[Frame]) -> int:
    """Return the newest transaction that the mark knows and that no later frame aborts.

    The mark is written after each frame, so a kill in between leaves it one abort behind (C4).
    """
    end = JournalPosition(mark.segment, mark.offset)
    behind = (record for frame in read if frame.end > end for record in frame.records)
    return min([mark.seq, *(record.seq - 1 for record in behind if isinstance(record, Aborted))])


def _frames_of(
    path: str, number: int, offset: int, end: int | None, acknowledged: int, *, has_holes: bool = False
) -> Iterator[Frame]:
    if offset == 0:
        if not _is_begun(path, number):
            return
        offset = _aligned(_HEADER.size)
    with open(path, "rb") as file:
        file.seek(offset)
        content = file.read(-1 if end is None else max(0, end - offset))
    at = 0
    while end is None or offset + at < end:
        frame = _frame_at(content, at, number)
        if frame is None:
            is_known = end is not None or offset + at < acknowledged
            if is_known or (not has_holes and _any_frame_after(content, at, number)):
                raise _damaged(path, f"the frame at byte {offset + at} does not check", offset + at)
            return
        records, length = frame
        at = _aligned(at + length)
        yield Frame(records, JournalPosition(number, offset + at))


def _is_begun(path: str, number: int) -> bool:
    """Has the segment the header of this use of it? Raises HistoryDamaged where it has none at all."""
    with open(path, "rb") as file:
        head = file.read(_HEADER.size)
    if head == bytes(_HEADER.size):
        return False
    if len(head) < _HEADER.size:
        raise _damaged(path, f"it is cut off after {len(head)} bytes", len(head))
    magic, version, found, checksum = _HEADER.unpack(head)
    if magic != _HEADER_MAGIC or zlib.crc32(head[:-4]) != checksum:
        raise _damaged(path, "its header does not check", 0)
    if version != VERSION:
        raise _damaged(path, f"it is of version {version}, made by a newer editd")
    return bool(found == number)  # else taken for reuse, with its new header not yet written


def _frame_at(content: bytes, offset: int, number: int) -> tuple[tuple[Record, ...], int] | None:
    head = content[offset : offset + _FRAME.size]
    if len(head) < _FRAME.size or not head.startswith(_FRAME_MAGIC):
        return None
    _, version, found, length, payload_checksum, checksum = _FRAME.unpack(head)
    if zlib.crc32(head[:-4]) != checksum or found != number or version != VERSION:
        return None
    payload = content[offset + _FRAME.size : offset + _FRAME.size + length]
    if len(payload) != length or zlib.crc32(payload) != payload_checksum:
        return None
    try:
        return DECODER.decode(payload), _FRAME.size + length
    except msgspec.MsgspecError:
        return None


def _any_frame_after(content: bytes, offset: int, number: int) -> bool:
    at = _next_magic(content, offset)
    while at >= 0:
        if _frame_at(content, at, number) is not None:
            return True
        at = _next_magic(content, at)
    return False


def _next_magic(content: bytes, offset: int) -> int:
    """Where after `offset` a frame may begin; -1 for nowhere."""
    at = content.find(_FRAME_MAGIC, offset + 1)
    while at >= 0 and at % ALIGNMENT:
        at = content.find(_FRAME_MAGIC, at + 1)
    return at


def _damaged(path: str, what: str, offset: int | None = None) -> HistoryDamaged:
    return HistoryDamaged(
        f"The journal is damaged: {path}: {what}.",
        hint="Nothing was changed. `editctl check` tells more, `editctl check --repair` mends what can be.",
        data={"file": path} | ({} if offset is None else {"offset": offset}),
    )


def _aligned(offset: int) -> int:
    return -(-offset // ALIGNMENT) * ALIGNMENT
