"""The redo journal: each transaction is recorded and synced before it touches a file.

It consists of segments of frames. A frame holds the records of one batch under one checksum, so that a batch
is in the journal whole or not at all. Segments are created ahead and filled with zeros: an append with
fdatasync then costs a quarter of a safe file save (twice that in a growing or only fallocated file, in a
prototype). They are reused under a higher number. Each frame repeats that number, so that a frame of an
earlier use is never valid.

    segment  = header (64 bytes), frames at multiples of 64
    header   = magic, version, number, CRC-32 of the three; at byte 32 the end of the previous segment
    frame    = magic, version, number, length, CRC-32 of the payload, CRC-32 of all before; payload

C1  `append` returns once its records are durable.
C3  A segment is reused only when the caller has released all its transactions.

A released segment still holds the contents of its last use. `begin_segment` and `erase` remove them.

Does not depend on git or on the workspace's files.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import struct
import zlib
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec import Struct

from editd.advice import Advice, command_term
from editd.errors import HistoryDamaged
from editd.store.acknowledged import (
    ACKNOWLEDGED,
    BEFORE_AT,
    NOBODY,
    AcknowledgedFile,
    PreviousEnd,
    before_in,
    read_acknowledged,
)
from editd.store.journal_record import DECODER, ENCODER, Aborted, Committed, Record, is_excluding
from editd.store.relaxed import last_relaxed_segment, note_relaxed
from editd.system.files import sync_path
from editd.system.filesystem import flush, folder_bytes, write_at, write_out, write_synced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from editd.store.acknowledged import Acknowledged
    from editd.store.git_objects import Oid


Read = TypeVar("Read")

SEGMENT_BYTES = 8 * 1024 * 1024  # some 700 edits of 10 KB; zero-filling one takes about 5 ms
EMPTY_MAX = 2  # empty segments, 16 MiB that no quota counts; more of them, after many edits, are deleted
ALIGNMENT = 64
VERSION = 1
EXCLUDING = 2  # the version of a frame with a change whose content is not in it (`store.excluded`)
TRIES = 5  # of reading a journal whose segments are being renamed

_HEADER = struct.Struct("<8sIQI")
_HEADER_MAGIC = b"editd-j\n"
_FRAME = struct.Struct("<4sIQQII")
_FRAME_MAGIC = b"fRm1"
_VERSIONS = (VERSION, EXCLUDING)  # of frames


class JournalFailed(OSError):
    """A failed append that could not be reverted: whether its records are committed is unknown."""


class JournalPosition(Struct, frozen=True, order=True):
    """A place in the journal: the segment's number and the offset in it."""

    segment: int
    offset: int


class Frame(Struct, frozen=True):
    records: tuple[Record, ...]
    end: JournalPosition


class Journal:
    """The writer, one for each workspace; the caller holds the workspace's flock."""

    def __init__(self, folder: str, *, is_sealed: bool = False, segment_bytes: int = SEGMENT_BYTES) -> None:
        """Open the journal in `folder`. `is_sealed`: it is damaged, so never write to its folder.

        New segments have `segment_bytes`, or more for a larger frame.
        """
        self.folder = folder
        self._segment_bytes = segment_bytes
        if not is_sealed:
            os.makedirs(folder, 0o700, exist_ok=True)
            for name in os.listdir(folder):
                if name.endswith(".new"):  # unfinished when the last daemon ended
                    os.unlink(os.path.join(folder, name))
        self._mark = None if is_sealed else AcknowledgedFile(folder)
        self._empty_segments: list[str] = []
        self._made = itertools.count()  # unique names of unfinished files
        self._last_seqs: dict[int, int] = {}  # for each full or current segment, its highest seq
        self._descriptor = -1
        self._size = 0
        self.is_relaxed = False  # an append returns before its sync: a power cut may take it, with its files
        self._unsynced: Record | None = None  # the newest unsynced record
        self._relaxed_through = last_relaxed_segment(folder) if not is_sealed else 0
        self.position = JournalPosition(0, 0)
        self._next = max(segments(folder), default=0) + 1

    @property
    def bytes(self) -> int:
        """The disk space of the journal's segments, empty ones included."""
        return folder_bytes(self.folder)

    def note(self, end: JournalPosition, seq: int) -> None:
        """Record the end of a frame found at start, and that its segment holds records up to `seq`."""
        self._last_seqs[end.segment] = max(seq, self._last_seqs.get(end.segment, 0))
        self.position = max(self.position, end)  # so that packing reads this far; appends use a new segment

    def acknowledge_found(self, last: Frame) -> None:
        """Make the frames found at start durable, before a client gets an answer from them. Raises OSError.

        A killed daemon may have written a frame without its sync, as it does with `is_relaxed`. The frames up
        to the mark were synced before it. The mark moves to the segment of the last frame if it names an
        earlier one, as after a power cut: it would keep each later segment (`release`), one for each start.
        """
        mark = None if self._mark is None else read_acknowledged(self.folder)
        if self._mark is None or mark is None or last.end <= JournalPosition(mark.segment, mark.offset):
            return
        for number in self._last_seqs:
            if number >= mark.segment:
                sync_path(segment_path(self.folder, number))
        if self._mark.segment < last.end.segment:
            self._acknowledge(last.records[-1], last.end)

    def append(self, records: Sequence[Record]) -> None:
        """Write `records` as one frame and sync it: the commit point (C1).

        An older editd takes a frame of version `EXCLUDING` for damage, and so starts no recovery from it.
        A relaxed journal only passes the frame to the disk, so that no later rename outlives it there.
        Raises OSError with nothing appended, or JournalFailed if that is in doubt.
        """
        payload = ENCODER.encode(tuple(records))
        length = _FRAME.size + len(payload)
        if self._descriptor < 0 or self.position.offset + length > self._size:
            self._turn(length)
        number, offset = self.position.segment, self.position.offset
        if self.is_relaxed and number > self._relaxed_through:
            note_relaxed(self.folder, number)
            self._relaxed_through = number
        version = EXCLUDING if any(map(is_excluding, records)) else VERSION
        head = _FRAME.pack(_FRAME_MAGIC, version, number, len(payload), zlib.crc32(payload), 0)
        head = head[:-4] + struct.pack("<I", zlib.crc32(head[:-4]))
        try:
            if self.is_relaxed:
                write_at(self._descriptor, head + payload, offset)
                write_out(self._descriptor, offset, length)
            elif self._unsynced is None:
                write_synced(self._descriptor, (head, payload), offset)
            else:  # with the relaxed appends before it
                write_at(self._descriptor, head + payload, offset)
                flush(self._descriptor)
        except BaseException as error:
            self._take_back(offset, error)
            raise
        try:
            self._note_appended(number, offset + length, records)
        except Exception as error:
            raise JournalFailed(getattr(error, "errno", 0), f"the journal is in doubt: {error}") from error

    def _note_appended(self, number: int, end: int, records: Sequence[Record]) -> None:
        self.position = JournalPosition(number, -(-end // ALIGNMENT) * ALIGNMENT)
        self._unsynced = records[-1] if self.is_relaxed else None
        if not self.is_relaxed:
            self._acknowledge(records[-1], self.position)
        for record in records:
            self._last_seqs[number] = max(self._last_seqs.get(number, 0), record.seq)

    def begin_sync(self) -> tuple[int, Callable[[], None]] | None:
        """Return a descriptor to sync and close in any thread, and a function to call then, or None."""
        last, end = self._unsynced, self.position
        if last is None or self._descriptor < 0:
            return None

        def done() -> None:
            if self._unsynced is None or self.position.segment != end.segment:
                return  # another sync has covered it meanwhile
            self._acknowledge(last, end)
            if self.position == end:
                self._unsynced = None

        return os.dup(self._descriptor), done

    @property
    def is_unsynced(self) -> bool:
        """Whether an append waits for `begin_sync`."""
        return self._unsynced is not None and self._descriptor >= 0

    def _acknowledge(self, last: Record, end: JournalPosition) -> None:
        assert self._mark is not None, "a sealed journal is never written"
        seq, commit = (last.seq, last.commit) if isinstance(last, Committed) else (last.seq - 1, NOBODY)
        self._mark.write(end.segment, end.offset, seq, commit)

    def sync_mark(self) -> None:
        """Sync the mark of the acknowledged end. Raises OSError."""
        if self._mark is not None:
            self._mark.sync()

    def _take_back(self, offset: int, cause: BaseException) -> None:
        """Invalidate the partly written frame, durably, and close this segment."""
        try:
            write_at(self._descriptor, bytes(_FRAME.size), offset)
            flush(self._descriptor)
        except OSError:
            raise JournalFailed(getattr(cause, "errno", 0), "the journal is in doubt") from cause
        os.close(self._descriptor)
        self._descriptor = -1

    @property
    def has_empty_segment(self) -> bool:
        """Whether an empty segment is ready for use after the current one."""
        return bool(self._empty_segments)

    def make_empty_segment(self) -> str:
        """Create an empty segment, in any thread. Raises OSError, as on a full disk."""
        return self._make(self._segment_bytes)

    def add_empty_segment(self, path: str) -> None:
        self._empty_segments.append(path)

    def release(self, seq: int) -> None:
        """Free segments: all transactions up to `seq` are packed, with head and files durable (C3).

        The segments from the synced mark's on stay. After a power cut the mark may name any of them.
        """
        if self._mark is None:
            return  # A sealed journal is damaged, and keeps all its segments for a repair.
        for number, last in sorted(self._last_seqs.items()):
            if number >= self._mark.synced_segment or last > seq:
                break  # in their order, so that an abort is never freed before its record
            del self._last_seqs[number]
            path = segment_path(self.folder, number)
            if len(self._empty_segments) < EMPTY_MAX and os.stat(path).st_size == self._segment_bytes:
                self._empty_segments.append(path)
            else:
                os.unlink(path)

    def begin_segment(self, seq: int, commit: Oid) -> None:
        """Append to a new segment from now on, so that `erase` can remove all earlier ones.

        The mark moves there, too. `seq` and `commit` are the newest transaction's. Raises OSError.
        """
        self._remove_empty_segments()  # the new segment would keep what one of them holds
        self._turn(0)
        if self._mark is not None:
            self._mark.write(self.position.segment, self.position.offset, seq, commit)

    def erase(self, seq: int) -> None:
        """Remove released segments from the disk, also segments that wait for their next use.

        `seq` is as for `release`. Raises OSError.
        """
        self.release(seq)
        self._remove_empty_segments()
        through = 0 if self._mark is None else self._mark.synced_segment
        for number in segments(self.folder):
            if number < through and number not in self._last_seqs:
                os.unlink(segment_path(self.folder, number))  # without a frame of its present use
        sync_path(self.folder)

    def _remove_empty_segments(self) -> None:
        while self._empty_segments:
            os.unlink(self._empty_segments[-1])
            self._empty_segments.pop()

    def close(self) -> None:
        self._let_go()
        if self._mark is not None:
            with contextlib.suppress(OSError):
                self._mark.sync()
            self._mark.close()
            self._mark = None

    def _let_go(self) -> None:
        if self._descriptor >= 0 and self._unsynced is not None:
            flush(self._descriptor)
            self._acknowledge(self._unsynced, self.position)
            self._unsynced = None
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _turn(self, length: int) -> None:
        """Switch to a new segment with room for `length` bytes."""
        size = max(self._segment_bytes, _align(_HEADER.size) + length)
        taken = self._open_empty_segment() if size == self._segment_bytes else None
        source, descriptor = taken if taken is not None else self._create(size)
        try:
            position = self._begin(source, descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor, self._size, self.position = descriptor, size, position

    def _begin(self, source: str, descriptor: int) -> JournalPosition:
        """Close the current segment, and make an open file the next one. Return the place of its frames."""
        self._let_go()
        before = PreviousEnd(self.position.segment, self.position.offset)
        number, self._next = self._next, self._next + 1
        target = segment_path(self.folder, number)
        os.rename(source, target)  # before the header: a crash in between leaves an empty segment
        sync_path(self.folder)
        try:
            head = _HEADER.pack(_HEADER_MAGIC, VERSION, number, 0)[:-4]
            head += struct.pack("<I", zlib.crc32(head))
            write_at(descriptor, head.ljust(BEFORE_AT, b"\0") + before.packed(), 0)
            flush(descriptor)
        except BaseException:
            os.unlink(target)
            raise
        return JournalPosition(number, _align(_HEADER.size))

    def _open_empty_segment(self) -> tuple[str, int] | None:
        """Take an empty segment, and open it; None without one. Remove one with a lease of another program.

        An open that waits for the end of the lease would hold all clients up.
        """
        while self._empty_segments:
            path = self._empty_segments.pop()
            try:
                return path, os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            except BlockingIOError:
                os.unlink(path)
        return None

    def _make(self, size: int) -> str:
        """Create a file of `size` zeros, synced, under a temporary name; return its path."""
        path, descriptor = self._create(size)
        os.close(descriptor)
        return path

    def _create(self, size: int) -> tuple[str, int]:
        """Create a file as `_make` does. Return its path and its open descriptor."""
        path = os.path.join(self.folder, f"{next(self._made):016x}.new")
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            chunk = bytes(1 << 20)
            for offset in range(0, size, len(chunk)):
                write_at(descriptor, chunk[: size - offset], offset)
            os.fsync(descriptor)
        except OSError:
            os.close(descriptor)
            os.unlink(path)
            raise
        return path, descriptor


def segments(folder: str) -> list[int]:
    """Return the numbers of the segments in `folder`, rising; none without the folder."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    return sorted(int(name[:16], 16) for name in names if name.endswith(".segment"))


def segment_path(folder: str, number: int) -> str:
    return os.path.join(folder, f"{number:016x}.segment")


def frames(folder: str, start: JournalPosition, until: JournalPosition | None = None) -> Iterator[Frame]:
    """Yield the frames from `start` on, up to `until` or to the last valid one, in order.

    A bad frame after the acknowledged end (`known_ends`), with no valid frame after it, was torn by a crash:
    it ends the journal. Any other bad frame raises HistoryDamaged, except in relaxed segments
    (durability = "relaxed"), because a power cut leaves holes there.
    """
    ends = known_ends(folder) if until is None else {}
    holes_through = last_relaxed_segment(folder)
    for number in segments(folder):
        if number < start.segment or (until is not None and number > until.segment):
            continue
        offset = start.offset if number == start.segment else 0
        end = until.offset if until is not None and number == until.segment else None
        yield from _frames_of(
            segment_path(folder, number), number, offset, end, ends.get(number, 0),
            has_holes=number <= holes_through,
        )  # fmt: skip


def read_while_written(read: Callable[[], Read]) -> Read | None:
    """Call `read` on a journal that is being written; retry, because real damage appears every time.

    Returns its result, or None if a segment was renamed during each try. Raises the errors of `read`, and
    HistoryDamaged only if no try succeeds.
    """
    damage: HistoryDamaged | None = None
    for _ in range(TRIES):
        try:
            return read()
        except FileNotFoundError:
            continue
        except HistoryDamaged as error:
            damage = error
    if damage is not None:
        raise damage
    return None


def known_ends(folder: str) -> dict[int, int]:
    """Return the known end of each segment, by the mark and by the header of the next segment.

    Raises HistoryDamaged if a written segment is missing, or if the mark or a header is damaged.
    """
    mark = read_acknowledged(folder)
    present = segments(folder)
    ends = {} if mark is None else {mark.segment: mark.offset}
    is_marked = False
    not_begun: list[int] = []  # without a header of this use: renamed before a crash, or damaged
    for number in present:
        path = segment_path(folder, number)
        if not _is_begun(path, number):
            not_begun.append(number)
            continue
        with open(path, "rb") as file:
            try:
                before = before_in(file.read(ALIGNMENT))
            except ValueError as error:
                raise _damage_refusal(path, str(error), BEFORE_AT) from error
        if before is not None:
            is_marked = True
            ends[before.segment] = before.offset
    for number in not_begun:
        if ends.get(number):
            raise _damage_refusal(segment_path(folder, number), "it is another segment, or none", 0)
    if mark is None and is_marked:
        raise _damage_refusal(
            os.path.join(folder, ACKNOWLEDGED), "it is missing, so the end of the journal is unknown"
        )
    if mark is not None and mark.offset and mark.segment not in present:
        missing = segment_path(folder, mark.segment)
        raise _damage_refusal(missing, f"it is missing; it had transactions up to {mark.seq}")
    return ends


def whole_records(folder: str) -> list[Committed]:
    """Return the committed records of all valid frames, by seq, despite damage around them."""
    nowhere = JournalPosition(0, 0)
    records_by_seq = select_committed(Frame(records, nowhere) for _, _, records in whole_frames(folder))
    return [records_by_seq[seq] for seq in sorted(records_by_seq)]


def whole_frames(folder: str) -> Iterator[tuple[int, int, tuple[Record, ...]]]:
    """Yield every valid frame despite damage around it: segment, offset and records, in their order."""
    for number in segments(folder):
        with open(segment_path(folder, number), "rb") as file:
            content = file.read()
        at = _align(_HEADER.size)
        while 0 <= at < len(content):
            frame = _frame_at(content, at, number)
            if frame is not None:
                yield number, at, frame[0]
                at = _align(at + frame[1])
            else:
                at = _next_magic(content, at)


def left_frames(content: bytes) -> Iterator[tuple[Record, ...]]:
    """Yield the records of every whole frame in a segment's bytes, also of an earlier use."""
    at = _next_magic(content, -1)
    while at >= 0:
        _, _, number, _, _, _ = _FRAME.unpack(content[at : at + _FRAME.size].ljust(_FRAME.size, b"\0"))
        if (frame := _frame_at(content, at, number)) is not None:
            yield frame[0]
        at = _next_magic(content, at)


def select_committed(read: Iterable[Frame]) -> dict[int, Committed]:
    """Return the committed records by seq, without the aborted ones (C6)."""
    standing: dict[int, Committed] = {}
    for frame in read:
        for record in frame.records:
            if isinstance(record, Committed):
                standing[record.seq] = record
            else:
                standing = {seq: other for seq, other in standing.items() if seq < record.seq}
    return standing


def acknowledged_seq(mark: Acknowledged, read: Iterable[Frame]) -> int:
    """Return the newest acknowledged transaction that no frame after the mark aborts.

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
        offset = _align(_HEADER.size)
    with open(path, "rb") as file:
        file.seek(offset)
        content = file.read(-1 if end is None else max(0, end - offset))
    at = 0
    while end is None or offset + at < end:
        frame = _frame_at(content, at, number)
        if frame is None:
            is_known = end is not None or offset + at < acknowledged
            if is_known or (not has_holes and _any_frame_after(content, at, number)):
                raise _damage_refusal(
                    path, f"the frame at byte {offset + at} has a wrong checksum", offset + at
                )
            return
        records, length = frame
        at = _align(at + length)
        yield Frame(records, JournalPosition(number, offset + at))


def _is_begun(path: str, number: int) -> bool:
    """Return whether the segment has the header of its current use. Raises HistoryDamaged for a bad one."""
    with open(path, "rb") as file:
        head = file.read(_HEADER.size)
    if head == bytes(_HEADER.size):
        return False
    if len(head) < _HEADER.size:
        raise _damage_refusal(path, f"it is cut off after {len(head)} bytes", len(head))
    magic, version, header_number, checksum = _HEADER.unpack(head)
    if magic != _HEADER_MAGIC or zlib.crc32(head[:-4]) != checksum:
        raise _damage_refusal(path, "its header has a wrong checksum", 0)
    if version != VERSION:
        raise _damage_refusal(path, f"it is of version {version}, made by a newer editd")
    return bool(header_number == number)  # False for a reused segment whose new header is not written yet


def _frame_at(content: bytes, offset: int, number: int) -> tuple[tuple[Record, ...], int] | None:
    head = content[offset : offset + _FRAME.size]
    if len(head) < _FRAME.size or not head.startswith(_FRAME_MAGIC):
        return None
    _, version, frame_number, length, payload_checksum, checksum = _FRAME.unpack(head)
    if zlib.crc32(head[:-4]) != checksum or frame_number != number or version not in _VERSIONS:
        return None
    payload = content[offset + _FRAME.size : offset + _FRAME.size + length]
    if len(payload) != length or zlib.crc32(payload) != payload_checksum:
        return None
    try:
        return DECODER.decode(payload), _FRAME.size + length
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):  # the last two are not msgspec's own
        return None


def _any_frame_after(content: bytes, offset: int, number: int) -> bool:
    at = _next_magic(content, offset)
    while at >= 0:
        if _frame_at(content, at, number) is not None:
            return True
        at = _next_magic(content, at)
    return False


def _next_magic(content: bytes, offset: int) -> int:
    """Return the next possible start of a frame after `offset`; -1 if there is none."""
    at = content.find(_FRAME_MAGIC, offset + 1)
    while at >= 0 and at % ALIGNMENT:
        at = content.find(_FRAME_MAGIC, at + 1)
    return at


def _damage_refusal(path: str, problem: str, offset: int | None = None) -> HistoryDamaged:
    return HistoryDamaged(
        f"The journal is damaged: {path}: {problem}.",
        hint=Advice(
            "Nothing was changed. Run ",
            command_term("check"),
            " for details, then ",
            command_term("check --repair"),
            ".",
        ),
        data={"file": path} | ({} if offset is None else {"offset": offset}),
    )


def _align(offset: int) -> int:
    return -(-offset // ALIGNMENT) * ALIGNMENT
