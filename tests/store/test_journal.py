"""The journal: whole frames or none, told apart from what an earlier use left behind."""

from __future__ import annotations

import errno
import os
import resource
import signal
import zlib
from typing import TYPE_CHECKING

import pytest

from editd.errors import HistoryDamaged
from editd.store.acknowledged import ACKNOWLEDGED, read_acknowledged
from editd.store.journal import (
    _FRAME,
    _FRAME_MAGIC,
    EMPTY_MAX,
    SEGMENT_BYTES,
    VERSION,
    Frame,
    Journal,
    JournalFailed,
    JournalPosition,
    frames,
    read_while_written,
    segment_path,
    segments,
    select_committed,
    whole_records,
)
from editd.store.journal_record import ENCODER, Aborted, ChangeRecord, Committed, EntryRecord
from editd.system import files, filesystem

if TYPE_CHECKING:
    from pathlib import Path


def record(seq: int, content: bytes = b"x") -> Committed:
    change = ChangeRecord(b"a", None, EntryRecord(0o100644, bytes(20), None, content))
    return Committed(seq, bytes(20), "edit", "me", None, "", None, seq, (), (change,))


def seqs(folder: Path) -> list[int]:
    return list(select_committed(frames(str(folder), JournalPosition(0, 0))))


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(str(tmp_path))


def test_what_is_appended_is_read_back_in_its_order(journal: Journal, tmp_path: Path) -> None:
    journal.append([record(1), record(2)])
    journal.append([record(3)])
    read = list(frames(str(tmp_path), JournalPosition(0, 0)))
    assert [[r.seq for r in frame.records] for frame in read] == [[1, 2], [3]]
    assert read[-1].end == journal.position


def test_reading_goes_on_from_a_position(journal: Journal, tmp_path: Path) -> None:
    journal.append([record(1)])
    here = journal.position
    journal.append([record(2)])
    assert [frame.records for frame in frames(str(tmp_path), here)] == [(record(2),)]
    assert [frame.records for frame in frames(str(tmp_path), JournalPosition(0, 0), here)] == [(record(1),)]


def test_c6_an_abort_voids_what_stands_before_it_from_its_seq_on(journal: Journal, tmp_path: Path) -> None:
    journal.append([record(1), record(2), record(3)])
    journal.append([Aborted(2)])
    journal.append([record(2, b"another")])
    standing = select_committed(frames(str(tmp_path), JournalPosition(0, 0)))
    assert list(standing) == [1, 2]
    assert standing[2] == record(2, b"another")


def test_a_record_larger_than_a_segment_gets_one_of_its_own(journal: Journal, tmp_path: Path) -> None:
    large = os.urandom(SEGMENT_BYTES + 5)
    journal.append([record(1)])
    journal.append([record(2, large)])
    journal.append([record(3)])
    standing = select_committed(frames(str(tmp_path), JournalPosition(0, 0)))
    assert list(standing) == [1, 2, 3]
    assert standing[2] == record(2, large)


@pytest.mark.parametrize("cut", [1, 40, 200])
def test_a_frame_cut_off_before_it_was_acknowledged_was_never_there(tmp_path: Path, cut: int) -> None:
    journal = Journal(str(tmp_path))
    journal.append([record(1)])
    acknowledged = (tmp_path / "acknowledged").read_bytes()
    start = journal.position.offset
    journal.append([record(2, b"y" * 500)])
    (tmp_path / "acknowledged").write_bytes(acknowledged)
    blank(segment_path(str(tmp_path), journal.position.segment), start + cut)
    assert seqs(tmp_path) == [1]


@pytest.mark.parametrize("cut", [1, 40, 200])
def test_an_acknowledged_frame_that_is_cut_off_is_damage(journal: Journal, tmp_path: Path, cut: int) -> None:
    journal.append([record(1)])
    start = journal.position.offset
    journal.append([record(2, b"y" * 500)])
    path = segment_path(str(tmp_path), journal.position.segment)
    blank(path, start + cut)
    with pytest.raises(HistoryDamaged, match=f"the frame at byte {start} has a wrong checksum") as refused:
        seqs(tmp_path)
    assert refused.value.data == {"file": path, "offset": start}


def test_the_last_frame_of_a_segment_is_known_to_the_next_one_without_the_mark(tmp_path: Path) -> None:
    first = Journal(str(tmp_path))
    first.append([record(1)])
    second = Journal(str(tmp_path))
    second.note(first.position, 1)
    acknowledged = (tmp_path / "acknowledged").read_bytes()
    second.append([record(2)])
    (tmp_path / "acknowledged").write_bytes(acknowledged)
    blank(segment_path(str(tmp_path), first.position.segment), 64)
    with pytest.raises(HistoryDamaged, match="the frame at byte 64 has a wrong checksum"):
        seqs(tmp_path)


@pytest.mark.parametrize("size", [0, 10, 40, 100])
def test_a_segment_that_is_cut_off_is_damage(journal: Journal, tmp_path: Path, size: int) -> None:
    journal.append([record(1, b"y" * 500)])
    path = segment_path(str(tmp_path), journal.position.segment)
    os.truncate(path, size)
    with pytest.raises(HistoryDamaged) as refused:
        seqs(tmp_path)
    assert refused.value.data["file"] == path


@pytest.mark.parametrize("name", ["acknowledged", f"{1:016x}.segment"])
def test_what_is_missing_of_a_journal_is_named(journal: Journal, tmp_path: Path, name: str) -> None:
    journal.append([record(1)])
    (tmp_path / name).unlink()
    with pytest.raises(HistoryDamaged, match="it is missing") as refused:
        seqs(tmp_path)
    assert refused.value.data["file"] == str(tmp_path / name)


def test_a_missing_newest_segment_is_named_though_older_ones_are_there(tmp_path: Path) -> None:
    first = Journal(str(tmp_path))
    first.append([record(1)])
    second = Journal(str(tmp_path))
    second.note(first.position, 1)
    second.append([record(2)])
    newest = segment_path(str(tmp_path), second.position.segment)
    os.unlink(newest)
    with pytest.raises(HistoryDamaged, match="it is missing; it had transactions up to 2") as refused:
        seqs(tmp_path)
    assert refused.value.data["file"] == newest


def blank(path: str, start: int) -> None:
    """Overwrite a thousand bytes with zeros."""
    with open(path, "r+b") as file:
        file.seek(start)
        file.write(bytes(1000))


def test_a_flipped_byte_with_whole_frames_after_it_is_damage(journal: Journal, tmp_path: Path) -> None:
    start = 64
    journal.append([record(1, b"z" * 100)])
    journal.append([record(2)])
    path = segment_path(str(tmp_path), journal.position.segment)
    with open(path, "r+b") as file:
        file.seek(start + 60)
        byte = file.read(1)
        file.seek(start + 60)
        file.write(bytes([byte[0] ^ 1]))
    with pytest.raises(HistoryDamaged, match="wrong checksum") as refused:
        seqs(tmp_path)
    assert refused.value.data["file"] == path


def test_c3_a_released_segment_is_used_again_and_its_old_frames_are_not_taken_for_new(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path))
    large = b"q" * (SEGMENT_BYTES // 2)
    for seq in range(1, 6):
        journal.append([record(seq, large)])  # one segment each
    first = segments(str(tmp_path))
    journal.sync_mark()
    journal.release(EMPTY_MAX)
    for seq in range(6, 6 + EMPTY_MAX):
        journal.append([record(seq, large)])
    assert len(segments(str(tmp_path))) == len(first)
    assert seqs(tmp_path) == list(range(1 + EMPTY_MAX, 6 + EMPTY_MAX))


def test_a_segment_that_the_mark_may_name_after_a_power_cut_stays(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path))
    large = b"q" * (SEGMENT_BYTES // 2)
    for seq in range(1, 4):
        journal.append([record(seq, large)])  # one segment each
    journal.sync_mark()
    on_disk = (tmp_path / ACKNOWLEDGED).read_bytes()
    named = read_acknowledged(str(tmp_path))
    assert named is not None
    for seq in range(4, 7):
        journal.append([record(seq, large)])
    journal.release(6)
    for seq in range(7, 10):
        journal.append([record(seq, large)])
    assert {named.segment, 4, 5, 6} <= set(segments(str(tmp_path)))
    (tmp_path / ACKNOWLEDGED).write_bytes(on_disk)  # as if the later marks were never written back
    assert seqs(tmp_path)[-6:] == [4, 5, 6, 7, 8, 9]
    journal.sync_mark()
    journal.release(9)
    there = len(segments(str(tmp_path)))
    for seq in range(10, 10 + EMPTY_MAX):
        journal.append([record(seq, large)])
    assert len(segments(str(tmp_path))) == there  # used again, now that the mark is past them


def test_no_segment_keeps_an_erased_record(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path))
    large = b"secret " * (SEGMENT_BYTES // 14)
    for seq in range(1, 5):
        journal.append([record(seq, large)])  # one segment each
    journal.sync_mark()
    journal.release(2)  # they wait for their next use
    journal.begin_segment(4, bytes(20))
    journal.append([record(5)])
    journal.sync_mark()
    journal.erase(4)
    assert not [path for path in tmp_path.iterdir() if b"secret" in path.read_bytes()]
    assert seqs(tmp_path) == [5]
    journal.close()
    journal = Journal(str(tmp_path))
    journal.append([record(6)])
    assert seqs(tmp_path) == [5, 6]


def test_a_record_that_is_not_released_survives_an_erasure(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path))
    for seq in (1, 2):
        journal.append([record(seq)])
        journal.begin_segment(seq, bytes(20))
    journal.sync_mark()
    journal.erase(1)
    assert seqs(tmp_path) == [2]
    assert read_acknowledged(str(tmp_path)) is not None


def test_erasures_without_an_edit_in_between_leave_one_segment(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path))
    journal.append([record(1)])
    for _ in range(3):
        journal.begin_segment(1, bytes(20))
        journal.sync_mark()
        journal.erase(1)
        journal.close()
        journal = Journal(str(tmp_path))
        assert seqs(tmp_path) == []
        assert len(segments(str(tmp_path))) == 1


def test_starts_after_power_cuts_that_leave_the_mark_behind_leave_no_segments_behind(tmp_path: Path) -> None:
    Journal(str(tmp_path)).append([record(1)])
    behind = (tmp_path / ACKNOWLEDGED).read_bytes()
    for seq in range(2, 8):
        (tmp_path / ACKNOWLEDGED).write_bytes(behind)  # the power was cut before its next sync
        journal = Journal(str(tmp_path))
        found = list(frames(str(tmp_path), JournalPosition(0, 0)))
        for frame in found:
            journal.note(frame.end, max(one.seq for one in frame.records))
        journal.acknowledge_found(found[-1])
        journal.sync_mark()  # with the first sync of the files
        behind = (tmp_path / ACKNOWLEDGED).read_bytes()
        journal.release(seq - 1)
        journal.append([record(seq)])
        assert seqs(tmp_path) == [seq - 1, seq]
        assert len(segments(str(tmp_path))) == 2


def test_a_new_journal_goes_on_in_a_segment_of_its_own(tmp_path: Path) -> None:
    first = Journal(str(tmp_path))
    first.append([record(1)])
    second = Journal(str(tmp_path))
    second.append([record(2)])
    assert second.position.segment > first.position.segment
    assert seqs(tmp_path) == [1, 2]


def test_a_segment_that_a_kill_left_without_its_header_is_passed_over(tmp_path: Path) -> None:
    first = Journal(str(tmp_path))
    first.append([record(1)])
    first.close()
    left = segment_path(str(tmp_path), segments(str(tmp_path))[-1] + 1)
    with open(left, "wb") as file:
        file.write(bytes(SEGMENT_BYTES))
    for seq in (2, 3):
        later = Journal(str(tmp_path))
        later.append([record(seq)])
        later.close()
        assert seqs(tmp_path) == list(range(1, seq + 1))


def test_a_segment_that_was_being_made_is_removed(tmp_path: Path) -> None:
    (tmp_path / f"{1:016x}.new").write_bytes(b"half")
    Journal(str(tmp_path)).append([record(1)])
    assert not list(tmp_path.glob("*.new"))


def test_a_segment_of_a_newer_version_is_not_read_over(journal: Journal, tmp_path: Path) -> None:
    journal.append([record(1)])
    path = segment_path(str(tmp_path), journal.position.segment)
    with open(path, "r+b") as file:
        file.write(b"someone else's file here")
    with pytest.raises(HistoryDamaged):
        seqs(tmp_path)


def test_a_full_disk_refuses_an_append_and_leaves_the_journal_as_it_was(tmp_path: Path) -> None:
    """RLIMIT_FSIZE stands in for the full disk: making a large segment fails half-way (EFBIG)."""
    journal = Journal(str(tmp_path))
    journal.append([record(1)])
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    was = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (SEGMENT_BYTES, before[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            journal.append([record(2, bytes(SEGMENT_BYTES * 2))])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, was)
    journal.append([record(2)])
    assert seqs(tmp_path) == [1, 2]


def test_committed_takes_frames_in_their_order() -> None:
    here = JournalPosition(1, 64)
    read = [Frame((record(1),), here), Frame((Aborted(1),), here), Frame((record(1, b"new"),), here)]
    assert select_committed(read) == {1: record(1, b"new")}


def test_relaxed_a_hole_that_a_power_cut_left_is_the_end_and_else_it_is_damage(tmp_path: Path) -> None:
    for is_relaxed in (True, False):
        folder = tmp_path / str(is_relaxed)
        journal = Journal(str(folder))
        journal.append([record(1)])
        journal.is_relaxed = is_relaxed
        first = journal.position
        journal.append([record(2)])
        journal.append([record(3)])
        assert seqs(folder) == [1, 2, 3]  # as a killed daemon leaves it
        with open(segment_path(str(folder), first.segment), "r+b") as file:  # as a power cut may
            file.seek(first.offset)
            file.write(bytes(64))
        if not is_relaxed:
            with pytest.raises(HistoryDamaged):
                seqs(folder)
            continue
        assert seqs(folder) == [1]
        again = Journal(str(folder))
        for frame in frames(str(folder), JournalPosition(0, 0)):
            again.note(frame.end, 1)
        again.append([record(2, b"another")])
        assert seqs(folder) == [1, 2]
        again.close()


def test_relaxed_what_is_synced_later_is_acknowledged_then(journal: Journal, tmp_path: Path) -> None:
    journal.is_relaxed = True
    journal.append([record(1)])
    mark = read_acknowledged(str(tmp_path))
    assert mark is not None
    assert mark.seq == 0
    begun = journal.begin_sync()
    assert begun is not None
    journal.append([record(2)])  # meanwhile
    os.close(begun[0])
    begun[1]()
    mark = read_acknowledged(str(tmp_path))
    assert mark is not None
    assert mark.seq == 1
    journal.is_relaxed = False
    journal.append([record(3)])  # which syncs the one before, too
    assert journal.begin_sync() is None
    mark = read_acknowledged(str(tmp_path))
    assert mark is not None
    assert mark.seq == 3


FINE, RENAMED, DAMAGED = None, FileNotFoundError(), HistoryDamaged("a byte")


@pytest.mark.parametrize(
    ("looks", "is_damaged"),
    [
        ([FINE], False),
        ([DAMAGED, FINE], False),
        ([RENAMED, DAMAGED, FINE], False),
        ([RENAMED] * 5, False),
        ([DAMAGED] * 5, True),
        ([RENAMED] * 4 + [DAMAGED], True),
    ],
)
def test_what_is_damaged_while_it_is_written_is_so_each_time(
    looks: list[Exception | None], is_damaged: bool
) -> None:
    left = iter(looks)

    def read() -> None:
        if (found := next(left)) is not None:
            raise found

    if is_damaged:
        with pytest.raises(HistoryDamaged):
            read_while_written(read)
    else:
        read_while_written(read)
    assert list(left) == []


def test_a_disk_that_does_not_read_is_told_at_once() -> None:
    def read() -> None:
        raise OSError(errno.EIO, "an I/O error")

    with pytest.raises(OSError, match="an I/O error"):
        read_while_written(read)


def test_a_frame_that_cannot_be_taken_back_durably_leaves_the_journal_in_doubt(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal.append([record(1)])

    def fail(*_arguments: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr("editd.store.journal.os.fdatasync", fail)
    monkeypatch.setattr("editd.store.journal.write_synced", fail)
    with pytest.raises(JournalFailed):
        journal.append([record(2)])


def test_the_segment_of_an_abort_stays_as_long_as_the_segment_of_what_it_aborts(
    tmp_path: Path,
) -> None:
    """Transaction 2 is aborted and made anew; transaction 3, not packed, holds its old segment."""
    journal = Journal(str(tmp_path), segment_bytes=4096)
    journal.append([record(1), record(2, b"old"), record(3, bytes(3700))])
    journal.append([Aborted(2)])
    journal.append([record(2, b"new")])
    journal.append([record(3, b"z" * 3800)])
    journal.sync_mark()
    journal.release(2)
    journal.append([record(4, b"z" * 3800)])
    journal.append([record(5, b"z" * 3800)])
    kept = select_committed(frames(str(tmp_path), JournalPosition(0, 0)))
    assert list(kept) == [1, 2, 3, 4, 5]
    assert kept[2] == record(2, b"new")


def test_a_segments_name_is_durable_before_it_is_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a power cut may keep the frame under the old name, among the segments to be reused."""
    journal = Journal(str(tmp_path), segment_bytes=4096)
    journal.append([record(1)])
    done: list[str] = []

    def sync_path(path: str) -> None:
        files.sync_path(path)
        done.append(path)

    def write_at(descriptor: int, content: bytes, offset: int) -> None:
        done.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        filesystem.write_at(descriptor, content, offset)

    monkeypatch.setattr("editd.store.journal.sync_path", sync_path)
    monkeypatch.setattr("editd.store.journal.write_at", write_at)
    journal.append([record(2, bytes(3900))])
    assert journal.position.segment == 2
    assert done.index(journal.folder) < done.index(segment_path(journal.folder, 2))


def test_the_segment_that_the_mark_names_stays_while_the_mark_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_words: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    journal = Journal(str(tmp_path), segment_bytes=4096)
    journal.append([record(1, bytes(3700))])
    monkeypatch.setattr("editd.store.acknowledged.write_at", fail)
    journal.append([record(2, bytes(3700))])
    journal.append([record(3, bytes(3700))])
    journal.sync_mark()
    journal.release(2)
    journal.append([record(4, bytes(3700))])
    journal.close()
    assert list(select_committed(frames(str(tmp_path), JournalPosition(0, 0)))) == [1, 2, 3, 4]


def test_an_append_after_relaxed_ones_syncs_them_too(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    fdatasync = os.fdatasync
    journal.is_relaxed = True
    journal.append([record(1)])

    def note(descriptor: int) -> None:
        synced.append(descriptor)
        fdatasync(descriptor)

    monkeypatch.setattr("editd.store.journal.os.fdatasync", note)
    journal.is_relaxed = False
    journal.append([record(2)])
    assert len(synced) == 1
    journal.append([record(3)])
    assert len(synced) == 1, "an append syncs itself"


def test_relaxed_no_more_is_acknowledged_than_was_synced(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path))
    journal.is_relaxed = True
    journal.append([record(1)])
    end = journal.position
    begun = journal.begin_sync()
    assert begun is not None
    descriptor, synced = begun
    journal.append([record(2)])
    os.fdatasync(descriptor)
    os.close(descriptor)
    synced()
    mark = read_acknowledged(str(tmp_path))
    assert mark is not None
    assert (mark.seq, mark.offset) == (1, end.offset)


def test_relaxed_what_is_appended_during_a_sync_waits_for_the_next_sync(
    journal: Journal, tmp_path: Path
) -> None:
    journal.is_relaxed = True
    journal.append([record(1)])
    for newest in (2, 3):
        begun = journal.begin_sync()
        assert begun is not None
        descriptor, synced = begun
        if newest == 2:
            journal.append([record(2)])
        os.close(descriptor)
        synced()
        assert journal.is_unsynced == (newest == 2)
    mark = read_acknowledged(str(tmp_path))
    assert mark is not None
    assert mark.seq == 2


def test_relaxed_a_segment_is_synced_before_it_is_left_and_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    fdatasync = os.fdatasync

    def note(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fdatasync(descriptor)

    journal = Journal(str(tmp_path))
    journal.is_relaxed = True
    journal.append([record(1)])
    first = segment_path(str(tmp_path), journal.position.segment)
    monkeypatch.setattr("editd.store.journal.os.fdatasync", note)
    journal.append([record(2, bytes(SEGMENT_BYTES))])
    assert first in synced
    synced.clear()
    journal.close()
    assert segment_path(str(tmp_path), journal.position.segment) in synced


def test_damage_behind_a_mark_that_a_power_cut_kept_old_is_found_by_the_frames_after_it(
    journal: Journal, tmp_path: Path
) -> None:
    journal.append([record(1)])
    mark = (tmp_path / "acknowledged").read_bytes()
    start = journal.position.offset
    journal.append([record(2, b"y" * 500)])
    journal.append([record(3)])
    (tmp_path / "acknowledged").write_bytes(mark)
    with open(segment_path(str(tmp_path), journal.position.segment), "r+b") as file:
        file.seek(start + 100)
        file.write(b"damaged")
    with pytest.raises(HistoryDamaged, match=f"the frame at byte {start} has a wrong checksum"):
        seqs(tmp_path)


def test_so_many_free_segments_are_kept_and_no_more(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path), segment_bytes=4096)
    for seq in range(1, 21):
        journal.append([record(seq, bytes(3700))])
    journal.sync_mark()
    journal.release(20)
    assert len(list(tmp_path.glob("*.segment"))) == EMPTY_MAX + 1, "those kept, and the one in use"


@pytest.mark.needs("leases")
def test_a_spare_with_the_lease_of_another_program_is_replaced_at_once(
    journal: Journal, tmp_path: Path
) -> None:
    """The attack: a program leases the spare segments, and each open that waits lasts 45 seconds."""
    filesystem.ignore_lease_signal()
    spare = journal.make_empty_segment()
    journal.add_empty_segment(spare)
    with open(spare, "rb") as leased:
        assert filesystem.take_lease(leased.fileno())
        journal.append([record(1)])
        assert os.fstat(leased.fileno()).st_nlink == 0
    assert (seqs(tmp_path), os.path.exists(spare)) == ([1], False)


def test_a_segment_that_could_not_be_filled_is_removed(
    journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = set(tmp_path.iterdir())
    monkeypatch.setattr("editd.store.journal.write_at", fail)
    with pytest.raises(OSError, match="No space left"):
        journal.make_empty_segment()
    assert set(tmp_path.iterdir()) == before


def test_a_frame_that_is_no_record_is_damage_though_its_checksums_are_right(
    journal: Journal, tmp_path: Path
) -> None:
    journal.append([record(1)])
    end = journal.position
    broken = ENCODER.encode((record(2),)).replace(b"\xa2me", b"\xa2\x81\x81")  # an actor that is not UTF-8
    write_frame = _FRAME.pack(_FRAME_MAGIC, VERSION, end.segment, len(broken), zlib.crc32(broken), 0)[:-4]
    write_frame += zlib.crc32(write_frame).to_bytes(4, "little")
    path = segment_path(str(tmp_path), end.segment)
    with open(path, "r+b") as file:
        file.seek(end.offset)
        file.write(write_frame + broken)
    assert seqs(tmp_path) == [1]
    assert [one.seq for one in whole_records(str(tmp_path))] == [1]
