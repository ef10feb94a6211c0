"""Starting again on what a crash has left: hot journals, torn and strange files, damage (C3, C5, C7)."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from editd.store.journal import Frame, Journal, JournalPosition, frames, segment_path
from editd.store.journal_record import Committed
from editd.store.sync_state import note_synced
from editd.wire.messages import AnyEdit, Delete, Move, Symlink
from editd_client.errors import EditdError
from support.crash_checks import (
    fsck,
    held,
    history_files,
    in_the_long_form,
    packer,
    strays,
    surveyor,
    transactions,
    wait_until,
)
from support.scenarios import standing
from support.workplace import Workplace, write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd_client.client import Client

UNPACKED, UNPACKED_LONG = 300, 1000
NEXT_PACKER_SECONDS = 2.0  # the next packing process is given so long to do what it must not do yet
RECOVER_SECONDS_MAX = 2.0  # from the exec of the daemon to its answer
FIRST = 1  # the transaction that is packed before the packing process is stopped
Texts = dict[str, str | None]


class HotJournal:
    """A daemon whose packing process stands still, so that its journal is hot whenever it is killed."""

    def __init__(self, place: Workplace) -> None:
        self.place = place
        self._stopped: int | None = None

    @property
    def folder(self) -> str:
        return str(self.place.state / "journal")

    def start(self) -> Client:
        """Start the daemon, and stop its packing process once it has packed a first edit."""
        client = self.place.start()
        client.apply([write("first", "first\n")])
        self._stopped = packer(self.place)
        wait_until(lambda: client.status().journal["unpacked"] == 0, "the first edit is not packed")
        os.kill(self._stopped, signal.SIGSTOP)
        return client

    def kill(self) -> None:
        """Kill the daemon and its packing process."""
        self.place.kill()
        self.let_go()

    def let_go(self) -> None:
        if self._stopped is not None:
            os.kill(self._stopped, signal.SIGKILL)
            self._stopped = None

    def crash_after(self, *made: Texts) -> None:
        """Start, make one transaction of each of `made`, its text in each path (None: deleted), and kill."""
        with self.start() as client:
            for texts in made:
                client.apply([edit(path, text) for path, text in texts.items()])
        self.kill()

    def frames(self) -> list[Frame]:
        return list(frames(self.folder, JournalPosition(0, 0)))

    def records(self) -> list[Committed]:
        return [
            record for frame in self.frames() for record in frame.records if isinstance(record, Committed)
        ]

    def pretend_power_cut(self) -> None:
        """Write the journal anew as it would be if the machine had been started again since."""
        found = self.frames()
        shutil.rmtree(self.folder)
        journal = Journal(self.folder)
        for frame in found:
            journal.append(
                [
                    msgspec.structs.replace(record, boot=b"another boot....")
                    if isinstance(record, Committed)
                    else record
                    for record in frame.records
                ]
            )
        journal.close()


TORN = ["", "after, and", in_the_long_form("\0" * 18), in_the_long_form("before\n")]


@pytest.fixture
def hot(place: Workplace) -> Iterator[HotJournal]:
    made = HotJournal(place)
    yield made
    made.let_go()


def edit(path: str, text: str | None) -> AnyEdit:
    return Delete(path=path) if text is None else write(path, text)


def lose(place: Workplace, texts: Texts) -> None:
    """Let the files hold this, as though it had come out so: nothing then says that more was published."""
    (place.state / "published").unlink(missing_ok=True)
    for path, text in texts.items():
        if text is None:
            (place.root / path).unlink()
        else:
            place.write({path: text})


def outside(client: Client) -> list[Texts]:
    """What was adopted, by transaction: the paths, with their text after it."""
    found: list[Texts] = []
    for transaction in transactions(client):
        if transaction.kind == "outside":
            texts: Texts = {}
            for change in transaction.files:
                gone = change.version is None
                texts[change.path] = None if gone else client.read(change.path, at=transaction.seq).content
            found.append(texts)
    return found


def verify(place: Workplace, expected: Texts, *, adopted: list[Texts]) -> None:
    """Start: the files hold what is expected, what was adopted is in the log, and all agree."""
    with place.start() as client:
        client.settle()
        texts = {path: content.decode() for path, content in held(place).items()}
        assert texts == {"first": "first\n"} | expected
        assert outside(client) == adopted
        assert client.check().problems == []
        assert strays(place.root) == []
    place.stop()
    fsck(place)


# ── A long journal ──


def test_a_thousand_unpacked_transactions_are_recovered_within_two_seconds(
    hot: HotJournal, is_long: bool
) -> None:
    place, unpacked = hot.place, UNPACKED_LONG if is_long else UNPACKED
    place.is_forked = False
    with hot.start() as client:
        for number in range(unpacked):
            client.apply([write(f"{number % 100}.txt", f"{number}\n"), write("newest", f"{number}\n")])
        assert client.status().journal["unpacked"] == unpacked
    hot.kill()
    files = held(place)
    began = time.monotonic()
    with place.start() as client:
        assert client.status().head == FIRST + unpacked
        assert client.read("newest").content == f"{unpacked - 1}\n"
        assert place.process is not None
        taken = time.monotonic() - began if is_long else processor_seconds(place.process.pid)
        assert taken < RECOVER_SECONDS_MAX, "in the gate without the waits for a processor"
        client.settle()
        assert client.status().head == FIRST + unpacked, "something was adopted that nobody did"
        assert client.check().problems == []
    place.stop()
    fsck(place)
    assert held(place) == files


def processor_seconds(pid: int) -> float:
    """Return the time that a process has had a processor."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.long
def test_what_a_restart_finds_is_packed_though_nobody_edits(hot: HotJournal) -> None:
    hot.crash_after({"a": "1\n"}, {"a": "2\n"})
    with hot.place.start() as client:
        wait_until(lambda: client.status().journal["unpacked"] == 0, "it is not packed")


# ── Files that are not as the journal has them (C5) ──

BEFORE: Texts = {"changed": "before\n", "deleted": "before\n"}
AFTER: Texts = {
    "changed": "after, and longer\n",
    "added": "after\n",
    "folder/added": "after\n",
    "deleted": None,
}
STANDING: Texts = {"changed": "after, and longer\n", "added": "after\n", "folder/added": "after\n"}


def test_what_the_last_transaction_did_not_bring_into_the_files_is_redone(hot: HotJournal) -> None:
    hot.crash_after(BEFORE, AFTER)
    lose(hot.place, {"changed": "before\n", "deleted": "before\n", "added": None, "folder/added": None})
    (hot.place.root / "folder").rmdir()
    verify(hot.place, STANDING, adopted=[])


def test_what_somebody_put_back_after_an_edit_stays_so_when_the_daemon_is_killed(hot: HotJournal) -> None:
    """`git stash` right after an agent's edit, and then the daemon is killed: the stash is not taken back."""
    with hot.start() as client:
        for texts in (BEFORE, AFTER):
            client.apply([edit(path, text) for path, text in texts.items()])
        hot.place.write({"changed": "before\n", "deleted": "before\n"})
        (hot.place.root / "added").unlink()
        hot.kill()
    expected: Texts = {**BEFORE, "folder/added": "after\n"}
    verify(hot.place, expected, adopted=[{"added": None, "changed": "before\n", "deleted": "before\n"}])


def test_somebody_elses_content_is_adopted_after_the_transaction(hot: HotJournal) -> None:
    hot.crash_after(BEFORE, AFTER)
    lose(hot.place, {"changed": "theirs\n", "added": "before\n", "deleted": "theirs\n"})
    theirs: Texts = {"changed": "theirs\n", "added": "before\n", "deleted": "theirs\n"}
    verify(hot.place, STANDING | theirs, adopted=[theirs])


@pytest.mark.long
def test_the_beginning_of_a_file_is_somebodys_where_there_was_no_power_cut(hot: HotJournal) -> None:
    hot.crash_after(BEFORE, AFTER)
    lose(hot.place, {"changed": "after", "added": ""})
    theirs: Texts = {"changed": "after", "added": ""}
    verify(hot.place, STANDING | theirs, adopted=[theirs])


@pytest.mark.long
def test_what_is_known_to_have_been_published_is_not_redone(hot: HotJournal) -> None:
    hot.crash_after(BEFORE, AFTER, {"other": "later\n"})
    theirs: Texts = {"changed": "before\n", "added": None}
    lose(hot.place, theirs)
    left: Texts = {"changed": "before\n", "folder/added": "after\n", "other": "later\n"}
    verify(hot.place, left, adopted=[theirs])


@pytest.mark.parametrize("torn", TORN)
def test_what_a_power_cut_has_torn_is_redone_however_long_ago_it_was_published(
    hot: HotJournal, torn: str
) -> None:
    hot.crash_after(BEFORE, AFTER, {"other": "later\n"})
    hot.pretend_power_cut()
    lose(hot.place, {"changed": torn, "added": None, "deleted": "before\n", "other": ""})
    verify(hot.place, STANDING | {"other": "later\n"}, adopted=[])


@pytest.mark.parametrize("torn", [TORN[0], in_the_long_form(TORN[1]), *TORN[2:]])
def test_what_a_power_cut_has_torn_is_redone_though_it_is_packed(hot: HotJournal, torn: str) -> None:
    place = hot.place
    with place.start() as client:
        for texts in ({"first": "first\n"}, BEFORE, AFTER):
            client.apply([edit(path, text) for path, text in texts.items()])
        wait_until(lambda: client.status().journal["unpacked"] == 0, "it is not packed")
    place.kill()
    note_synced(str(place.state), 0)  # as though the cut had come within the second before it is
    hot.pretend_power_cut()
    lose(place, {"first": "", "changed": torn, "added": None, "deleted": "before\n"})
    verify(place, STANDING, adopted=[])


def test_what_is_synced_is_nobodys_but_the_users_after_a_power_cut(hot: HotJournal) -> None:
    place = hot.place
    with place.start() as client:
        for texts in ({"first": "first\n"}, BEFORE, AFTER):
            client.apply([edit(path, text) for path, text in texts.items()])
        wait_until(lambda: client.status().journal["unpacked"] == 0, "it is not packed")
        wait_until(lambda: client.status().journal["unflushed"] == 0, "it is not synced")
    place.kill()
    hot.pretend_power_cut()
    theirs: Texts = {"changed": "before\n", "added": "", "deleted": "before\n"}
    lose(place, theirs)
    verify(place, STANDING | theirs, adopted=[theirs])


@pytest.mark.long
def test_a_file_that_was_made_and_deleted_since_it_was_synced_does_not_come_back_empty(
    hot: HotJournal,
) -> None:
    hot.crash_after({"passing": "soon gone\n"}, {"passing": "changed\n"}, {"passing": None})
    hot.pretend_power_cut()
    lose(hot.place, {"passing": ""})
    verify(hot.place, {}, adopted=[])


@pytest.mark.long
def test_what_a_power_cut_has_torn_and_then_exchanged_is_not_taken_for_somebodys(hot: HotJournal) -> None:
    hot.crash_after({"changed": "before, and long\n"}, {"changed": "after\n"})
    record = hot.records()[-1]
    hot.pretend_power_cut()
    lose(hot.place, {f".editd-{record.token}-0": "before, and"})
    verify(hot.place, {"changed": "after\n"}, adopted=[])


@pytest.mark.long
def test_somebody_elses_content_is_adopted_after_a_power_cut_too(hot: HotJournal) -> None:
    hot.crash_after(BEFORE, AFTER, {"other": "later\n"})
    hot.pretend_power_cut()
    theirs: Texts = {"changed": "theirs\n", "deleted": "theirs\n", "other": "later\nand theirs\n"}
    lose(hot.place, theirs)
    verify(hot.place, STANDING | theirs, adopted=[theirs])


def test_what_somebody_wrote_in_the_moment_of_publishing_is_put_back_and_adopted(hot: HotJournal) -> None:
    hot.crash_after(BEFORE, AFTER)
    record = hot.records()[-1]
    places = {change.path.decode(): place for place, change in enumerate(record.changes)}
    lose(hot.place, {f".editd-{record.token}-{places['changed']}": "theirs\n"})
    verify(hot.place, STANDING | {"changed": "theirs\n"}, adopted=[{"changed": "theirs\n"}])


@pytest.mark.long
def test_what_is_left_of_a_transaction_that_never_stood_is_removed(hot: HotJournal) -> None:
    hot.crash_after(BEFORE, AFTER)
    lose(hot.place, {".editd-0123456789abcdef-0": "staged\n", "folder/.editd-0123456789abcdef-1": "staged\n"})
    verify(hot.place, STANDING, adopted=[])


@pytest.mark.long
def test_a_folder_in_the_place_of_a_file_is_left_alone(hot: HotJournal) -> None:
    hot.crash_after(BEFORE, AFTER)
    (hot.place.root / "changed").unlink()
    lose(hot.place, {"changed/theirs": "theirs\n"})
    expected: Texts = {"added": "after\n", "folder/added": "after\n", "changed/theirs": "theirs\n"}
    with hot.place.start() as client:
        client.settle()
        texts = {path: content.decode() for path, content in held(hot.place).items()}
        assert texts == {"first": "first\n"} | expected
        assert client.read("changed", at=3).content == AFTER["changed"]
        assert client.check().problems == []


# ── Files and folders that took each other's place ──

BECOMES_FOLDER: tuple[tuple[AnyEdit, ...], ...] = (
    (Move(path="d0/f", to="d0/f/inner"),),  # into itself
    (Delete(path="d1/f"), write("d1/f/inner", "inner\n")),
    (Move(path="d2/f", to="d2/f/deep/inner"), write("d2/f/other", "other\n")),
)
BECOMES_FILE: tuple[tuple[AnyEdit, ...], ...] = (
    (Move(path="e0/f/inner", to="e0/f"), Delete(path="e0/f/deep/other")),
    (Delete(path="e1/f/inner"), Delete(path="e1/f/deep/other"), Symlink(path="e1/f", target="elsewhere")),
)


@pytest.mark.parametrize("is_cut", [False, True], ids=["killed", "power cut"])
def test_recovery_keeps_files_that_were_folders_and_what_lies_in_folders_that_were_files(
    hot: HotJournal, is_cut: bool
) -> None:
    texts: Texts = {f"d{number}/f": "text\n" for number in range(len(BECOMES_FOLDER))}
    for number in range(len(BECOMES_FILE)):
        texts |= {f"e{number}/f/inner": "inner\n", f"e{number}/f/deep/other": "other\n"}
    with hot.start() as client:
        client.apply([edit(path, text) for path, text in texts.items()])
        for edits in (*BECOMES_FOLDER, *BECOMES_FILE):
            client.apply(edits)
    hot.kill()
    if is_cut:
        hot.pretend_power_cut()
    verify_agreement(hot.place, head=2 + len(BECOMES_FOLDER) + len(BECOMES_FILE))


def test_a_file_takes_the_place_of_an_emptied_folder_though_the_daemon_was_killed_before(
    hot: HotJournal,
) -> None:
    folder = hot.place.root / "d" / "f"
    with hot.start() as client:
        client.apply([write("d/f/inner", "inner\n"), write("d/f/gone", "gone\n")])
        (folder / "of the user").mkdir()
        client.apply([Delete(path="d/f/gone")])
        client.apply([Move(path="d/f/inner", to="d/f")])
    hot.kill()
    deletion = hot.records()[-2]
    folder.unlink()  # Leave it as a kill between the two would have.
    lose(hot.place, {"d/f/inner": "inner\n", f"d/f/.editd-{deletion.token}-0": "gone\n"})
    (folder / "of the user").mkdir()
    verify(hot.place, {"d/f": "inner\n"}, adopted=[])


def test_somebodys_symlink_in_the_place_of_a_folder_is_adopted_by_recovery(hot: HotJournal) -> None:
    hot.crash_after({"d/f": "text\n", "d/gone": "text\n"}, {"d/f": "changed\n", "d/gone": None})
    shutil.rmtree(hot.place.root / "d")
    (hot.place.root / "d").symlink_to("elsewhere")
    with hot.place.start() as client:
        client.settle()
        assert {path for texts in outside(client) for path in texts} == {"d/f", "d"}
        assert client.read("d/f", at=3).content == "changed\n"
        assert client.check().problems == []
    assert (hot.place.root / "d").is_symlink()


def test_a_file_of_somebody_that_is_too_large_to_be_recorded_does_not_keep_the_daemon_from_starting(
    hot: HotJournal,
) -> None:
    (hot.place.folder / "config" / "editd").mkdir()
    (hot.place.folder / "config" / "editd" / "config.toml").write_text("file_bytes_max = 1_000_000\n")
    hot.crash_after(BEFORE, AFTER)
    lose(hot.place, {"changed": "theirs\n" * 200_000})
    with hot.place.start() as client:
        client.settle()
        assert client.read("changed", at=3).content == AFTER["changed"]
        assert any("changed" in problem for problem in client.check().problems)
    assert (hot.place.root / "changed").stat().st_size == 1_400_000


def verify_agreement(place: Workplace, head: int) -> None:
    """Start: the files are as they were, nobody is said to have done anything, and the history has it all."""
    before = standing(place)
    with place.start() as client:
        client.settle()
        assert client.status().head == head, transactions(client)
        assert client.check().problems == []
        assert standing(place) == before
        client.restore(head)
        assert standing(place) == before, "the history has another tree than the files"
    place.stop()
    fsck(place)


# ── The index is a cache ──


@pytest.mark.parametrize("is_hot", [True, False])
@pytest.mark.parametrize("damage", ["deleted", in_the_long_form("garbled"), in_the_long_form("emptied")])
def test_an_index_that_is_lost_is_built_again(hot: HotJournal, damage: str, is_hot: bool) -> None:
    place = hot.place
    with hot.start() as client:
        first = client.apply(
            [write("a", "one\n"), write("b", "one\n")], message="ünï", session="s"
        ).transaction
        client.apply([write("a", "two\n")], request_id="twice", actor="somebody")
        assert first is not None
        client.undo(first.seq, on_conflict="force")
        log = transactions(client)
    hot.kill()
    if not is_hot:
        place.start().close()
        place.stop()
    index = place.state / "index.db"
    for suffix in ("-wal", "-shm"):
        index.with_name(index.name + suffix).unlink(missing_ok=True)
    if damage == "deleted":
        index.unlink()
    else:
        index.write_bytes(b"" if damage == "emptied" else b"nonsense" * 1000)
    with place.start() as client:
        assert transactions(client) == log
        again = client.apply([write("a", "two\n")], request_id="twice", actor="somebody").transaction
        assert again == log[2], "the same id again is answered from the history (C7)"
        assert client.check().problems == []


# ── Damage ──


def test_a_frame_that_is_cut_off_at_the_end_is_as_if_it_had_never_been(hot: HotJournal) -> None:
    hot.crash_after(BEFORE, AFTER)
    *_, before, last = hot.frames()
    path = Path(segment_path(hot.folder, last.end.segment))
    content = bytearray(path.read_bytes())
    torn = content[before.end.offset : (before.end.offset + last.end.offset) // 2]
    content[last.end.offset : last.end.offset + len(torn)] = torn
    path.write_bytes(content)
    verify(hot.place, STANDING, adopted=[])


@pytest.mark.parametrize(
    "part", ["payload", in_the_long_form("header of a frame"), in_the_long_form("header of the segment")]
)
def test_damage_in_the_journal_is_refused_by_name_and_nothing_is_touched(hot: HotJournal, part: str) -> None:
    place = hot.place
    hot.crash_after(BEFORE, AFTER, {"other": "later\n"})
    found = hot.frames()
    end = found[-3].end  # where the frame with AFTER begins
    path = Path(segment_path(hot.folder, end.segment))
    sound = path.read_bytes()
    at = {"payload": end.offset + 60, "header of a frame": end.offset + 9, "header of the segment": 9}[part]
    path.write_bytes(sound[:at] + bytes([sound[at] ^ 1]) + sound[at + 1 :])
    lose(place, {"changed": "before\n"})  # so that there would be something to do
    files, history = held(place), history_files(place)
    assert str(path) in broken(place)
    assert (held(place), history_files(place)) == (files, history)
    assert strays(place.root) == []
    path.write_bytes(sound)
    lose(place, {"changed": AFTER["changed"]})
    verify(place, STANDING | {"other": "later\n"}, adopted=[])


def test_a_store_without_its_newest_pack_is_refused_by_name(hot: HotJournal) -> None:
    place = hot.place
    hot.crash_after(BEFORE)
    packs = sorted((place.store / "objects" / "pack").glob("*.pack"), key=os.path.getmtime)
    packs[-1].rename(place.folder / "aside")
    assert str(packs[-1]) in broken(place)
    (place.folder / "aside").rename(packs[-1])
    verify(place, BEFORE, adopted=[])


def broken(place: Workplace) -> str:
    """What a daemon says of itself that has found its history damaged; it takes no edit, and ends cleanly."""
    with place.start() as client:
        status = client.status()
        assert status.state == "broken"
        assert status.reason is not None
        with pytest.raises(EditdError) as refused:
            client.apply([write("changed", "not now\n")])
        assert refused.value.name == "history_damaged"
        assert not client.check().ok
    place.stop()
    assert "Traceback" not in place.log()
    return status.reason


# ── The baseline ──


def test_killed_between_the_baseline_and_the_first_edit(place: Workplace) -> None:
    place.write({"first": "first\n", "a": "a\n"})
    with place.start() as client:
        client.settle()
        assert client.status().head == 0
    place.kill()
    with place.start() as client:
        client.apply([write("a", "changed\n")])
        client.undo()
        assert client.read("a").content == "a\n"
    place.stop()
    verify(place, {"a": "a\n"}, adopted=[])


@pytest.mark.long
def test_killed_at_any_moment_of_the_baseline(place: Workplace) -> None:
    content = {f"{number % 50}/{number}.txt": f"{number}\n" * 50 for number in range(3000)}
    place.write(content)
    chance = random.Random(1)
    for _ in range(8):
        argv = [sys.executable, "-m", "editd", "--foreground", "-C", str(place.root)]
        place.process = subprocess.Popen(argv, env=place.environment, stderr=subprocess.DEVNULL)
        wait_until(lambda: (place.state / "lock").exists() or place.process is None, "it does not start")
        time.sleep(chance.uniform(0, 0.4))
        place.kill()
    with place.start() as client:
        client.settle()
        assert client.status().head == 0
        client.apply([write("0/0.txt", "changed\n")])
        assert client.read("0/0.txt", at=0).content == content["0/0.txt"]
        assert client.check().problems == []
    place.stop()
    fsck(place)
    assert list((place.store / "objects" / "pack").glob("tmp_*")) == []


def test_the_surveying_process_killed_during_the_baseline_begins_again(place: Workplace) -> None:
    place.write({f"{number}.txt": f"{number}\n" * 50 for number in range(5000)})
    with place.start() as client:
        os.kill(surveyor(place), signal.SIGKILL)
        client.settle()
        assert client.status().head == 0
        assert client.read("7.txt", at=0).content == "7\n" * 50


# ── A packing process that outlives its daemon ──


@pytest.mark.long
def test_a_packer_that_outlives_its_daemon_does_not_move_head_back(place: Workplace) -> None:
    packs = place.store / "objects" / "pack"
    noise = random.Random(1).randbytes(6_000_000).hex()
    with place.start() as client:
        client.settle()
        client.apply([write("large", noise)])
        wait_until(lambda: list(packs.glob("tmp_pack_*")), "nothing is packed")
        old = packer(place)
        os.kill(old, signal.SIGSTOP)
    place.kill()
    try:
        with place.start() as client:
            client.apply([write("a", "1\n")])
            client.apply([write("a", "2\n")])
            until = time.monotonic() + NEXT_PACKER_SECONDS
            while client.status().journal["unpacked"] and time.monotonic() < until:
                time.sleep(0.01)
            os.kill(old, signal.SIGCONT)
            wait_until(lambda: client.status().journal["unpacked"] == 0, "it is not packed")
            wait_until(lambda: not is_running(old), "the old packer does not end")
        place.kill()
    finally:
        if is_running(old):
            os.kill(old, signal.SIGKILL)
    verify_head(place, 3)


def verify_head(place: Workplace, head: int) -> None:
    assert int(place.git("rev-list", "--count", "history", store=True)) == head + 1
    with place.start() as client:
        assert client.status().head == head
        assert client.check().problems == []
    place.stop()
    fsck(place)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
