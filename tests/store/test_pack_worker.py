"""store.pack_worker and store.compaction: what must be durable, or held, before the next step is taken."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import astuple

from editd.errors import HistoryDamaged, UnknownTransaction
from editd.store.compaction import CompactionLimits, Compactor, end
from editd.store.git_repository import COMPACTING, move_head
from editd.store.journal import JournalPosition, segment_path, segments
from editd.store.pack_worker import Packer
from editd.store.salvage import open_history
from editd.store.verify import verify_quick
from editd.system.files import sync_path
from editd.system.flock import take
from editd.system.frames import read_frame, write_frame
from support.crash_checks import wait_until
from support.harness import Harness, apply, done, pack, write

KEEP_ALL = CompactionLimits(3, 3, None)


@pytest.fixture
def place(tmp_path: Path) -> Harness:
    return Harness(tmp_path / "place")


def edit_thrice(place: Harness) -> None:
    place.baseline()
    with place.engine() as engine:
        for number in range(3):
            done(engine, apply(write("a", f"{number}\n" * 50)))
        pack(engine)


def test_a_pack_is_kept_from_any_gc_until_head_names_it(
    place: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[list[str]] = []

    def look(store: str, head: bytes) -> None:
        kept.append([name for name in os.listdir(f"{store}/objects/pack") if name.endswith(".keep")])
        move_head(store, head)

    monkeypatch.setattr("editd.store.pack_worker.move_head", look)
    edit_thrice(place)
    assert [len(names) for names in kept] == [1]


def test_a_head_that_may_not_be_durable_is_moved_once_more(
    place: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its sync fails after its rename, so that it names the newest commit and may go back in a power cut."""
    place.baseline()
    moved: list[bytes] = []

    def move(store: str, head: bytes) -> None:
        moved.append(head)
        move_head(store, head)
        if len(moved) == 1:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    with place.engine() as engine:
        done(engine, apply(write("a", "1\n")))
        due = engine.recorder.packing_due()
        assert due is not None
        packer = Packer(engine.history.folder)
        monkeypatch.setattr("editd.store.pack_worker.move_head", move)
        with pytest.raises(OSError, match="Input/output error"):
            packer.pack(*due)
        packer.pack(*due)
    assert len(moved) == 2
    assert moved[0] == moved[1]


def test_a_pack_that_failed_is_made_again_from_where_head_is(
    place: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    place.baseline()
    with place.engine() as engine:
        for number in range(2):
            done(engine, apply(write(f"file-{number}", "new\n")))
        due = engine.recorder.packing_due()
        assert due is not None
        packer = Packer(str(place.state))
        monkeypatch.setattr("editd.store.pack_worker.move_head", fail)
        with pytest.raises(OSError, match="No space"):
            packer.pack(*due)
        monkeypatch.undo()
        packer.pack(*due)
        assert packer.packed == 2
        engine.recorder.packed(2, due[1])
    assert list(verify_quick(str(place.state))) == []


def test_a_transaction_that_the_journal_does_not_have_is_damage(place: Harness) -> None:
    place.baseline()
    with place.engine() as engine:
        done(engine, apply(write("a", "1\n")))
        due = engine.recorder.packing_due()
        assert due is not None
        start, _, through = due
        with pytest.raises(HistoryDamaged, match="The journal has no transaction 1"):
            Packer(engine.history.folder).pack(start, start, through)


def waits_for_a_lock(pid: int) -> bool:
    lines = Path("/proc/locks").read_text().splitlines()
    return any(words[1] == "->" and words[5] == str(pid) for words in map(str.split, lines))


def test_a_packing_process_waits_for_the_one_that_a_killed_daemon_left(place: Harness) -> None:
    place.baseline()
    with place.engine() as engine:
        done(engine, apply(write("a", "1\n")))
        due = engine.recorder.packing_due()
        assert due is not None
        start, until, through = due
        left = take(str(place.state / "packing"))
        assert left is not None
        argv = [sys.executable, "-m", "editd.store.pack_worker", str(place.state)]
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            write_frame(process.stdin, {"start": astuple(start), "until": astuple(until), "through": through})
            process.stdin.close()
            wait_until(
                lambda: process.poll() is not None or waits_for_a_lock(process.pid), "it does not wait"
            )
            assert process.poll() is None
            left.release()
            answer = read_frame(process.stdout)
        assert answer == {"packed": 1, "until": list(astuple(until))}
        engine.recorder.packed(through, until)


def test_the_pack_of_a_compaction_is_synced_before_it_takes_its_place(
    place: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit_thrice(place)
    steps: list[tuple[str, str]] = []
    rename = os.rename

    def sync(path: str) -> None:
        steps.append(("sync", os.path.basename(path)))
        sync_path(path)

    def move(source: str, target: str) -> None:
        steps.append(("rename", os.path.basename(source)))
        rename(source, target)

    monkeypatch.setattr("editd.store.compaction.sync_path", sync)
    monkeypatch.setattr("editd.store.compaction.os.rename", move)
    Compactor(str(place.state)).prepare(KEEP_ALL, is_dry=False)
    moved = [name for step, name in steps if step == "rename" and name.endswith((".pack", ".idx"))]
    assert len(moved) == 2
    for name in moved:
        assert steps.index(("sync", name)) < steps.index(("rename", name))


def test_the_marker_of_a_compaction_stays_until_the_old_packs_are_gone(
    place: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon that finds the marker compacts once more, so nothing that was cut off stays for ever."""
    edit_thrice(place)
    compactor = Compactor(str(place.state))
    compactor.prepare(KEEP_ALL, is_dry=False)
    marker = place.state / COMPACTING

    def fail(_store: str, _names: list[str]) -> None:
        assert marker.exists()
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as context:
        context.setattr("editd.store.compaction.drop_packs", fail)
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            compactor.sweep([])
    assert marker.exists()
    compactor.sweep([])
    assert marker.exists()  # contents outside the packs are removed next
    end(str(place.state))
    assert not marker.exists()


def test_a_pack_that_head_has_yet_to_name_is_not_compacted(place: Harness) -> None:
    edit_thrice(place)

    def packs() -> set[str]:
        plan: dict[str, Any] = Compactor(str(place.state)).prepare(KEEP_ALL, is_dry=True)
        return set(plan["packs"])

    loose = packs()
    for name in loose:
        (place.store / "objects" / "pack" / f"{name}.keep").touch()
    assert loose
    assert not loose & packs()


@pytest.mark.parametrize("most", [1, 2])
def test_a_size_that_is_too_small_for_the_newest_leaves_those_that_must_stay(
    place: Harness, most: int
) -> None:
    edit_thrice(place)
    plan: dict[str, Any] = Compactor(str(place.state)).prepare(CompactionLimits(0, most, 1), is_dry=True)
    assert plan["floor"] == most


def test_the_note_of_a_failed_sync_goes_with_the_first_sync_that_succeeds(place: Harness) -> None:
    place.baseline()

    def is_in_doubt() -> bool:
        history = open_history(str(place.state))
        try:
            return history.is_in_doubt
        finally:
            history.close()

    history = open_history(str(place.state))
    history.mark_sync_failed()
    history.close()
    assert is_in_doubt()
    history = open_history(str(place.state))
    history.note_synced(0)
    history.close()
    assert not is_in_doubt()


def test_a_transaction_that_is_packed_is_not_packed_again_though_the_journal_still_has_it(
    place: Harness,
) -> None:
    """A packing process that was killed begins where the last one was known to be."""
    place.baseline()
    with place.engine() as engine:
        done(engine, apply(write("a", "1\n")))
        pack(engine)
        done(engine, apply(write("a", "2\n")))
        due = engine.recorder.packing_due()
        assert due is not None
        _, until, through = due
        Packer(engine.history.folder).pack(JournalPosition(0, 0), until, through)
        engine.recorder.packed(through, until)
        assert engine.history.packed == 2


def test_a_segment_that_is_released_while_the_packing_process_lists_it_is_no_failure(
    place: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of it is packed. The daemon uses it again under another name, or removes it, at any moment."""
    place.baseline()
    with place.engine() as engine:
        done(engine, apply(write("a", "1\n")))
        pack(engine)
    removed: list[str] = []

    def release_after_listing(folder: str) -> list[int]:
        numbers = segments(folder)
        if not removed:
            removed.append(segment_path(folder, numbers[0]))
            os.unlink(removed[0])
        return numbers

    with place.engine() as engine:
        done(engine, apply(write("a", "2\n")))
        due = engine.recorder.packing_due()
        assert due is not None
        _, until, through = due
        monkeypatch.setattr("editd.store.journal.segments", release_after_listing)
        Packer(engine.history.folder).pack(JournalPosition(0, 0), until, through)
        engine.recorder.packed(through, until)
        assert engine.history.packed == 2
    assert len(removed) == 1


def test_what_is_packed_does_not_wait_for_packing_any_more(place: Harness) -> None:
    place.baseline()
    with place.engine() as engine:
        done(engine, apply(write("a", "1\n" * 1000)))
        assert engine.history.pending.bytes > 2000
        pack(engine)
        assert engine.history.pending.bytes == 0


def test_the_beginning_of_several_ids_names_none_of_them(
    place: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit_thrice(place)
    with place.engine() as engine:
        monkeypatch.setattr(engine.history.index, "by_id", lambda _prefix: [1, 2])
        with pytest.raises(UnknownTransaction, match="the beginning of several ids"):
            engine.history.find("abcd")
