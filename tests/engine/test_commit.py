"""engine.commit: what stands, and what is left, when a commit ends half-way (C1, C3, C4, C6, C7)."""

from __future__ import annotations

import errno
import gc
import os
import shutil
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from msgspec.structs import replace

from editd.engine.commands import NeedsDelay
from editd.errors import Broken, IoError, Stale
from editd.store.acknowledged import AcknowledgedFile
from editd.store.verify import verify_quick
from editd.values.content import Change, FileState, version_of
from editd.values.transaction import Approval, Authorship, Base, Outcome
from editd.workspace.reader import OPEN_MAX
from support import edit_messages
from support.crash_checks import wait_until
from support.harness import (
    FakeClock,
    Harness,
    answer,
    apply,
    done,
    names_below,
    pack,
    path_of,
    refused,
    sync,
    write,
)
from support.racing_disk import DiskWithoutSyncfs, MeddlingDisk, failing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from editd.store.history import History, TransactionDraft

HOUR_US = 3600 * 1_000_000


@pytest.fixture
def place(tmp_path: Path) -> Harness:
    return Harness(tmp_path / "place")


def failing_exchange(root: str) -> MeddlingDisk:
    disk = MeddlingDisk(root)
    disk.meddle["exchange", 1] = failing(errno.EIO)
    return disk


@pytest.mark.needs("exchange")
def test_an_edit_that_was_refused_while_it_was_published_does_not_come_back_after_a_kill(
    place: Harness,
) -> None:
    place.baseline({"a": "old\n"})
    with place.killed(make_disk=failing_exchange) as engine:
        assert isinstance(refused(engine, apply(write("a", "new\n"))), IoError)
    with place.engine() as engine:
        assert engine.history.head == 0
        assert place.files() == {"a": "old\n"}
        assert done(engine, apply(write("a", "newer\n"))).seq == 1


@pytest.mark.needs("exchange")
def test_an_edit_behind_one_that_was_refused_while_it_was_published_takes_its_number(place: Harness) -> None:
    place.baseline({"a": "old\n", "b": "old\n"})
    with place.killed(make_disk=failing_exchange) as engine:
        first, second = engine.run_batch([apply(write("a", "new\n")), apply(write("b", "new\n"))])
        assert isinstance(first, IoError)
        assert isinstance(second, Outcome)
        assert second.transaction is not None
        assert second.transaction.seq == engine.history.head == 1
    with place.engine() as engine:
        assert engine.history.head == 1
        assert place.files() == {"a": "old\n", "b": "new\n"}
        pack(engine)
    assert list(verify_quick(str(place.state))) == []


@pytest.mark.needs("exchange")
def test_a_kill_between_an_abort_and_the_note_of_it_is_no_damage(
    place: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal then ends before what the mark says was acknowledged, and the abort says why."""
    place.baseline({"a": "old\n"})
    with place.killed(make_disk=failing_exchange) as engine:
        done(engine, apply(write("b", "b\n")))
        acknowledge = AcknowledgedFile.write

        def write_first(mark: AcknowledgedFile, segment: int, offset: int, seq: int, commit: bytes) -> None:
            if seq == 2:
                acknowledge(mark, segment, offset, seq, commit)

        monkeypatch.setattr(AcknowledgedFile, "write", write_first)
        refused(engine, apply(write("a", "new\n")))
        monkeypatch.undo()
    with place.engine() as engine:
        assert engine.history.head == 1
        assert place.files() == {"a": "old\n", "b": "b\n"}
        assert done(engine, apply(write("a", "newer\n"))).seq == 2


def test_nothing_is_left_beside_the_files_if_the_history_cannot_be_asked(
    place: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.baseline({"a": "old\n"})
    before = names_below(place.root)

    def fail(_path: object) -> bool:
        raise IoError(OSError(errno.EIO, os.strerror(errno.EIO)), "The index cannot be read")

    with place.engine() as engine:
        monkeypatch.setattr(engine.history.index, "is_touched", fail)
        refused(engine, apply(write("d/e/new", "1\n"), write("a", "2\n")))
        assert names_below(place.root) == before


def test_two_edits_of_one_turn_leave_nothing_if_the_journal_cannot_be_written(
    place: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.baseline({"a": "old\n"})
    before = names_below(place.root)

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    requests = [apply(write("d/e/new", "1\n")), apply(write("d/e/newer", "2\n"))]
    with place.engine() as engine:
        monkeypatch.setattr(engine.history.journal, "append", fail)
        assert all(isinstance(result, IoError) for result in engine.run_batch(requests))
        assert names_below(place.root) == before
        monkeypatch.undo()
        assert all(isinstance(result, Outcome) for result in engine.run_batch(requests))
        assert engine.history.head == 2


@pytest.mark.needs("exchange")
def test_two_edits_of_one_turn_that_are_refused_while_they_are_published_leave_nothing(
    place: Harness,
) -> None:
    """The second has put its content into the folder that was made for the first."""

    def failing_twice(root: str) -> MeddlingDisk:
        disk = failing_exchange(root)
        disk.meddle["exchange", 2] = failing(errno.EIO)
        return disk

    place.baseline({"a": "old\n", "b": "old\n"})
    before = names_below(place.root)
    with place.engine(make_disk=failing_twice) as engine:
        results = engine.run_batch(
            [
                apply(write("d/e/new", "1\n"), write("a", "1\n")),
                apply(write("d/e/newer", "2\n"), write("b", "2\n")),
            ]
        )
        assert all(isinstance(result, IoError) for result in results)
        assert names_below(place.root) == before


def test_a_segment_is_not_used_again_before_its_files_are_synced(place: Harness) -> None:
    place.segment_bytes = 8 << 20  # a segment that one edit outgrows is not used again
    place.baseline()
    with place.engine() as engine:
        for number in range(3):
            done(engine, apply(edit_messages.write(path_of(f"f{number}"), os.urandom(4 << 20), force=True)))
        engine.history.journal.sync_mark()  # which alone frees nothing
        pack(engine)
        assert not engine.history.journal.has_empty_segment
        sync(engine)
        assert engine.history.journal.has_empty_segment


def test_one_request_id_twice_in_one_turn_is_done_once(place: Harness) -> None:
    place.baseline({"a": "x\n"})
    request = apply(edit_messages.replace(path_of("a"), "x", "xx"), request_id="r1")
    with place.engine() as engine:
        first, second = engine.run_batch([request, request])
    assert isinstance(first, Outcome)
    assert isinstance(second, Outcome)
    assert first.transaction is not None
    assert second.transaction is not None
    assert first.transaction.seq == second.transaction.seq == 1
    assert place.files() == {"a": "xx\n"}


def test_one_request_id_of_two_sessions_is_two_requests(place: Harness) -> None:
    place.baseline()
    with place.engine() as engine:
        first = done(engine, apply(write("a", "1\n"), session="s", request_id="r1"))
        second = done(engine, apply(write("b", "2\n"), session="t", request_id="r1"))
    assert (first.seq, second.seq) == (1, 2)
    assert place.files() == {"a": "1\n", "b": "2\n"}


@pytest.mark.parametrize(("dry_run", "head"), [(True, 0), (False, 1)])
def test_a_refused_dry_run_does_not_record_an_outside_change(
    place: Harness, dry_run: bool, head: int
) -> None:
    place.baseline({"a": "old\n"})
    stale = edit_messages.write(path_of("a"), b"mine\n", base=Base(version_of(b"old\n")))
    with place.engine() as engine:
        place.write({"a": "theirs\n"})
        assert isinstance(refused(engine, msgspec.structs.replace(apply(stale), dry_run=dry_run)), Stale)
        assert engine.history.head == head


def test_an_outside_change_that_a_dry_run_met_is_recorded_by_the_next_edit_of_its_turn(
    place: Harness,
) -> None:
    place.baseline({"a": "old\n"})
    stale = edit_messages.write(path_of("a"), b"mine\n", base=Base(version_of(b"old\n")))
    trial = msgspec.structs.replace(apply(stale), dry_run=True)
    with place.engine() as engine:
        place.write({"a": "theirs\n"})
        refusal, outcome = engine.run_batch([trial, apply(write("a", "mine\n"))])
        assert isinstance(refusal, Stale)
        assert isinstance(outcome, Outcome)
        assert engine.history.head == 2
        assert engine.history.content(version_of(b"theirs\n")) == b"theirs\n"


def test_times_are_those_of_the_clock_also_if_it_was_set_back(place: Harness) -> None:
    place.baseline()
    now_us = 1_800_000_000_000_000
    place.clock = FakeClock(now_us + HOUR_US)
    with place.engine() as engine:
        done(engine, apply(write("a", "1\n")))
        place.clock.us = now_us
        second = done(engine, apply(write("a", "2\n")))
        assert (second.seq, second.time_us) == (2, now_us)


def draft(history: History, path: str, content: bytes) -> TransactionDraft:
    changes = [Change(path_of(path), None, FileState(content))]
    return history.draft("edit", Authorship("somebody", None, ""), BEGIN_US + history.head, changes)


BEGIN_US = 1_800_000_000_000_000


def test_bytes_that_a_later_transaction_needs_stay_when_an_earlier_number_is_packed(place: Harness) -> None:
    """The first draft of `a` is taken back, and its number goes to another transaction."""
    place.baseline()
    with place.engine() as engine:
        history = engine.history
        history.revert([draft(history, "a", b"mine\n")])

        def commit(path: str, content: bytes) -> None:
            made = draft(history, path, content)
            history.commit([made])
            history.conclude(made)

        commit("b", b"other\n")
        due = engine.recorder.packing_due()
        commit("a", b"mine\n")
        assert due is not None
        history.note_packed(due[2], due[1])
        assert history.content(version_of(b"mine\n")) == b"mine\n"


def test_an_edit_of_a_file_that_only_its_owner_may_read_is_packed_and_checks_clean(place: Harness) -> None:
    """Its permissions go into the journal's record, from which packing makes the commit anew."""
    place.baseline({"secret": "1\n"})
    (place.root / "secret").chmod(0o600)
    with place.engine() as engine:
        transaction = done(engine, apply(write("secret", "2\n")))
        pack(engine)
        assert engine.history.packed == transaction.seq
    assert (place.root / "secret").stat().st_mode & 0o777 == 0o600
    assert list(verify_quick(str(place.state))) == []


@pytest.mark.parametrize("target", ["second", "{root}/second"])
def test_an_edit_through_two_symlinks_follows_the_second_to_where_the_changeset_has_put_it(
    place: Harness, target: str
) -> None:
    place.write({"a": "A\n", "b": "B\n"})
    (place.root / "first").symlink_to(target.format(root=place.root))
    (place.root / "second").symlink_to("a")
    place.baseline()
    with place.engine() as engine:
        put = edit_messages.symlink(path_of("second"), "b", base=Base(version_of(b"a")))
        done(engine, apply(put, write("first", "new\n")))
    assert (place.root / "a").read_text() == "A\n"
    assert (place.root / "b").read_text() == "new\n"


def test_what_a_trial_undo_would_make_is_no_content_of_the_history_afterwards(place: Harness) -> None:
    place.baseline({"a": "a\n"})
    tried = FileState(b"only tried\n")
    with place.engine() as engine:
        with engine.history.trial() as record:
            record([Change(path_of("a"), FileState(b"a\n"), tried)], [], [])
            assert engine.history.content(tried.version) == b"only tried\n"
        assert engine.history.content(tried.version) is None


def test_an_edit_is_done_though_its_number_cannot_be_noted_as_published(place: Harness) -> None:
    place.baseline({"a": "old\n"})
    (place.state / "published").symlink_to("/dev/full")
    with place.killed() as engine:
        assert done(engine, apply(write("a", "new\n"))).seq == 1
    with place.engine() as engine:
        assert engine.history.head == 1
        assert place.files() == {"a": "new\n"}


@pytest.mark.needs("exchange")
def test_an_abort_that_cannot_be_written_stops_the_engine_until_the_next_start(
    place: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal may still have the refused transaction, so only a recovery knows what is there."""
    place.baseline({"a": "old\n"})

    def fail(_drafts: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with place.killed(make_disk=failing_exchange) as engine:
        monkeypatch.setattr(engine.history, "abort", fail)
        assert isinstance(refused(engine, apply(write("a", "new\n"))), Broken)
        assert isinstance(engine.recorder.broken, Broken)
        assert isinstance(refused(engine, apply(write("b", "new\n"))), Broken)


def test_without_syncfs_each_published_file_is_synced(place: Harness) -> None:
    place.baseline()
    disk = DiskWithoutSyncfs(str(place.root))
    with place.engine(make_disk=lambda _root: disk) as engine:
        done(engine, apply(write("a", "a\n"), write("d/b", "b\n")))
        sync(engine)
    assert sorted(disk.synced) == [b"a", b"d/b"]


def test_an_edit_is_not_named_among_the_changes_that_its_reader_did_not_know(place: Harness) -> None:
    place.baseline({"a": "0\n"})
    with place.engine() as engine:
        done(engine, apply(write("a", "1\n")))
        engine.recorder.adopt({path_of("a"): FileState(b"2\n")})
        place.write({"a": "2\n"})
        result = answer(engine, apply(write("a", "3\n")))
        assert isinstance(result, Outcome)
        named = {path.text: [int(made.seq) for made in by] for path, by in result.changed_by.items()}
        assert named == {"a": [2]}


# A file that was read stays open, under its lease, until it has been replaced.


def leases_being_broken() -> list[str]:
    return [line for line in Path("/proc/locks").read_text().splitlines() if "BREAKING" in line]


@pytest.mark.needs("leases")
def test_a_program_that_begins_to_write_after_the_read_gets_its_file_back_and_loses_nothing(
    place: Harness,
) -> None:
    def save() -> None:
        (place.root / "a").write_text("theirs\n")  # waits for the lease

    writer = threading.Thread(target=save)

    def begin_to_save() -> None:
        inode = os.stat(place.root / "a").st_ino
        writer.start()
        wait_until(
            lambda: any(f":{inode} " in line for line in leases_being_broken()), "the program does not wait"
        )

    def racing(root: str) -> MeddlingDisk:
        disk = MeddlingDisk(root)
        disk.meddle["exchange", 1] = begin_to_save
        return disk

    place.baseline({"a": "old\n"})
    edit = edit_messages.replace(path_of("a"), "old", "new", base=Base(version_of(b"old\n")))
    with place.engine(make_disk=racing) as engine:
        result = answer(engine, apply(edit))
        writer.join()
        if isinstance(result, NeedsDelay):  # the program had not finished when the edit was planned again
            result = answer(engine, apply(edit))
        assert isinstance(result, Stale), result
        assert place.files() == {"a": "theirs\n"}
        assert engine.history.content(version_of(b"theirs\n")) == b"theirs\n"


@pytest.mark.needs("exchange")
def test_a_save_that_a_newer_save_kept_from_its_path_is_in_the_history(place: Harness) -> None:
    def racing(root: str) -> MeddlingDisk:
        disk = MeddlingDisk(root)
        disk.meddle["exchange", 1] = lambda: place.write({"a": "theirs\n"})
        disk.meddle["exchange", 2] = save_again
        return disk

    def save_again() -> None:
        place.write({"new": "newest\n"})
        (place.root / "new").replace(place.root / "a")

    place.baseline({"a": "old\n"})
    edit = edit_messages.replace(path_of("a"), "old", "new", base=Base(version_of(b"old\n")))
    with place.engine(make_disk=racing) as engine:
        assert isinstance(answer(engine, apply(edit)), Stale)
        assert place.files() == {"a": "newest\n"}
        assert engine.history.content(version_of(b"theirs\n")) == b"theirs\n"


@pytest.mark.needs("exchange")
def test_a_file_whose_mode_changes_between_the_check_and_the_exchange_is_looked_at(place: Harness) -> None:
    def make_executable(root: str) -> MeddlingDisk:
        disk = MeddlingDisk(root)
        disk.meddle["exchange", 1] = lambda: (place.root / "a").chmod(0o755)
        return disk

    place.baseline({"a": "old\n"})
    with place.engine(make_disk=make_executable) as engine:
        assert done(engine, apply(write("a", "new\n"))).seq == 2  # after the outside change of the mode
        assert os.access(place.root / "a", os.X_OK)


def open_descriptors() -> int:
    """The number of open files, without those of garbage such as the scan that took the baseline."""
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def test_a_batch_leaves_no_file_open_and_others_can_write_at_once(place: Harness) -> None:
    names = [f"f{number}" for number in range(OPEN_MAX + 2)]
    place.baseline(dict.fromkeys(names, "old\n"))
    with place.engine() as engine:
        done(engine, apply(write("f0", "first\n")))
        for wanted in ([names[0]], names):
            before = open_descriptors()
            edits = [edit_messages.replace(path_of(name), "\n", "!\n") for name in wanted]
            done(engine, apply(*edits))
            refused(engine, apply(edit_messages.replace(path_of("f1"), "not there", "")))
            assert open_descriptors() == before
            for name in names:
                os.close(os.open(place.root / name, os.O_WRONLY | os.O_NONBLOCK))


@pytest.mark.needs("exchange")
def test_an_edit_goes_with_its_folder_if_that_moves_before_the_exchange(
    place: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.baseline({"d/a": "old\n", "other/a": "theirs\n"})
    with place.engine() as engine:
        if (make := engine.files.make_ahead()) is not None:
            engine.files.made_ahead(make())
        done(engine, apply(write("d/a", "older\n")))
        commit = engine.history.commit

        def move_first(drafts: Sequence[TransactionDraft]) -> None:
            (place.root / "d").rename(place.root / "moved")
            (place.root / "other").rename(place.root / "d")
            commit(drafts)

        with monkeypatch.context() as patched:
            patched.setattr(engine.history, "commit", move_first)
            assert done(engine, apply(write("d/a", "new\n"))).seq == 2
        assert place.files() == {"moved/a": "new\n", "d/a": "theirs\n"}
        inspection = engine.recorder.inspect()
        for path in ("d/a", "moved/a", "other/a"):
            inspection.look(path_of(path))
        (outside,) = inspection.record()
        assert [touch.path.text for touch in outside.touches] == ["d/a", "moved/a", "other/a"]


def test_without_spares_an_edit_is_planned_again_if_its_folder_moves_before_the_exchange(
    place: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.baseline({"d/a": "old\n", "other/a": "theirs\n"})
    with place.engine() as engine:
        commit = engine.history.commit

        def move_first(drafts: Sequence[TransactionDraft]) -> None:
            if not (place.root / "moved").exists():
                (place.root / "d").rename(place.root / "moved")
                (place.root / "other").rename(place.root / "d")
            commit(drafts)

        monkeypatch.setattr(engine.history, "commit", move_first)
        done(engine, apply(write("d/a", "new\n")))
        texts = {path: text for path, text in place.files().items() if ".editd-" not in path}
        assert texts == {"moved/a": "old\n", "d/a": "new\n"}


@pytest.mark.needs("leases")
def test_only_replaced_files_stay_open_for_the_replies(place: Harness) -> None:
    place.baseline({"a": "old\n", "b": "old\n"})
    with place.engine() as engine:
        done(engine, apply(write("a", "first\n")))  # which opens what every edit needs
        before = open_descriptors()
        if (make := engine.files.make_ahead()) is not None:
            engine.files.made_ahead(make())
        missing = apply(edit_messages.replace(path_of("b"), "not there", ""))
        for requests, is_open in (
            ([apply(write("a", "new\n"))], True),
            ([missing], False),
            ([apply(write("a", "newer\n")), missing], False),
            ([apply(write("made", "new\n"))], False),
        ):
            engine.carry_out(requests)
            assert (open_descriptors() > before) == is_open
            for name in ("a", "b"):
                os.close(os.open(place.root / name, os.O_WRONLY | os.O_NONBLOCK))
            engine.recorder.clean_up()
            assert open_descriptors() == before


def test_a_client_with_a_reply_finds_no_file_of_the_daemon(place: Harness) -> None:
    place.baseline({"a": "old\n", "d/b": "old\n"})
    with place.engine() as engine:
        for edit in (write("a", "new\n"), edit_messages.delete(path_of("d/b"))):
            engine.carry_out([apply(edit)])
            assert set(os.listdir(place.root)) <= {"a", "d"}
        assert not (place.root / "d").exists()


def test_a_turn_without_a_cleaning_before_it_cleans_up_first(place: Harness) -> None:
    place.baseline({"a": "old\n"})
    with place.engine() as engine:
        if (make := engine.files.make_ahead()) is not None:
            engine.files.made_ahead(make())
        done(engine, apply(write("a", "first\n")))  # which opens what every edit needs
        before = open_descriptors()
        for number in range(3):
            engine.carry_out([apply(write("a", f"{number}\n"))])
        engine.recorder.clean_up()
        assert open_descriptors() == before


def test_a_turn_that_reads_many_files_makes_nobody_wait(
    place: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"f{number}" for number in range(OPEN_MAX + 1)]
    place.baseline(dict.fromkeys(names, "old\n"))
    with place.engine() as engine:
        commit = engine.history.commit

        def write_first(drafts: Sequence[TransactionDraft]) -> None:
            for name in names:
                os.close(os.open(place.root / name, os.O_WRONLY | os.O_NONBLOCK))
            commit(drafts)

        monkeypatch.setattr(engine.history, "commit", write_first)
        done(engine, apply(*[write(name, "new\n") for name in names]))


def test_the_approval_of_a_transaction_is_in_the_journal_in_git_and_in_the_index(tmp_path: Path) -> None:
    """The index finds what a proposal has landed, also after it is rebuilt from either of the others."""
    approval = Approval(7, 2, (1, 3), "ann", "ann's page", None, is_modified=True)
    by_rule = Approval(rule="small, in tests")
    harness = Harness(tmp_path)
    harness.baseline({"a": "one\n"})
    approved, landed = (
        replace(apply(write("a", text)), authorship=Authorship("somebody", approval=made))
        for text, made in (("two\n", approval), ("three\n", by_rule))
    )
    harness.crash(approved, landed, apply(write("a", "four\n")))
    for is_packed in (False, True):
        for file in harness.state.glob("index.db*"):
            file.unlink()
        with harness.engine() as engine:
            index = engine.history.index
            assert (index.of_proposal(7), index.of_proposal(8)) == ([1], [])
            found = [engine.history.find(seq).authorship.approval for seq in (1, 2, 3)]
            assert found == [approval, by_rule, None]
            assert not is_packed or engine.recorder.packing_due() is None
            pack(engine)


def test_an_index_with_transactions_that_a_power_cut_took_from_the_journal_is_built_anew(
    tmp_path: Path,
) -> None:
    """With relaxed durability the index may be on disk before the journal; their numbers are given anew."""
    harness, ahead = Harness(tmp_path / "place"), Harness(tmp_path / "ahead")
    harness.baseline({"a": "one\n"})
    harness.crash(apply(write("a", "two\n")))
    shutil.copytree(harness.folder, ahead.folder, dirs_exist_ok=True)
    ahead.crash(apply(write("lost", "1\n")), apply(write("lost too", "2\n")))
    with ahead.engine() as engine:
        assert engine.history.index.last == 3
    for file in ahead.state.glob("index.db*"):
        shutil.copy(file, harness.state)
    with harness.engine() as engine:
        assert engine.history.index.last == 1
        made = done(engine, apply(write("kept", "3\n")))
        assert [found.touches for found in engine.history.index.following(1, 10)] == [made.touches]
        pack(engine)
    assert list(verify_quick(str(harness.state))) == []
