"""A damaged history: found at the start and by `check`, made no worse, read as far as it is whole, mended."""

from __future__ import annotations

import os
import random
import shutil
from typing import TYPE_CHECKING

import pytest

from editd.errors import HistoryDamaged, IoError, UnknownTransaction
from editd.store.repair import Repair
from editd.store.salvage import Salvage, open_history
from editd.store.verify_history import verify_full
from editd.values.content import version_of
from editd.values.path import WorkspacePath
from editd_client.errors import EditdError
from support.crash_checks import fsck
from support.damage import copy, layout, prepare, readable, state_files
from support.workplace import write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from editd.store.history import History
    from support.damage import Prepared
    from support.workplace import Workplace

FLIPS, FLIPS_LONG = 20, 5000
LAST = 9  # the newest transaction of the prepared history


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return prepare(tmp_path_factory.mktemp("damage") / "made")


def segment(place: Workplace) -> Path:
    return max((place.state / "journal").glob("*.segment"))


def packs(place: Workplace) -> list[Path]:
    return sorted((place.store / "objects/pack").glob("*.pack"), key=os.path.getmtime)


def flip(path: Path, at: int) -> Path:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)
    return path


def flip_in(path: Path, what: bytes, offset: int = 0) -> Path:
    return flip(path, path.read_bytes().index(what) + offset)


def last_frame(place: Workplace) -> int:
    return segment(place).read_bytes().rindex(b"fRm1")


def cut(path: Path, size: int) -> Path:
    os.truncate(path, size)
    return path


def without(path: Path) -> Path:
    path.unlink()
    return path


def without_folder(path: Path) -> Path:
    shutil.rmtree(path)
    return path


def foreign(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def head(place: Workplace) -> Path:
    return place.store / "refs/heads/history"


# What is spoilt → how; each gives the file that is to be named.
SPOILT: dict[str, Callable[[Workplace], Path]] = {
    "the header of the segment": lambda place: flip(segment(place), 9),
    "what the segment's header says of the one before": lambda place: flip(segment(place), 40),
    "the header of a frame": lambda place: flip(segment(place), 64 + 9),
    "the length in a frame": lambda place: flip(segment(place), 64 + 16),
    "the checksum of a frame": lambda place: flip(segment(place), 64 + 25),
    "the payload of a frame": lambda place: flip_in(segment(place), b"new2"),
    "the header of the last frame": lambda place: flip(segment(place), last_frame(place) + 9),
    "the magic of the last frame": lambda place: flip(segment(place), last_frame(place)),
    "the payload of the last frame": lambda place: flip(segment(place), last_frame(place) + 40),
    "the segment, cut off in the middle": lambda place: cut(segment(place), last_frame(place) + 50),
    "the segment, cut off in its header": lambda place: cut(segment(place), 10),
    "the segment, emptied": lambda place: cut(segment(place), 0),
    "the segment, gone": lambda place: without(segment(place)),
    "the journal, gone": lambda place: without_folder(place.state / "journal"),
    "the segment, overwritten with zeros": lambda place: foreign(segment(place), bytes(1 << 20)),
    "the mark": lambda place: flip(place.state / "journal/acknowledged", 30),
    "the mark, cut off": lambda place: cut(place.state / "journal/acknowledged", 20),
    "the mark, gone": lambda place: without(place.state / "journal/acknowledged"),
    "the header of a pack": lambda place: flip(packs(place)[1], 2),
    "the count in a pack": lambda place: flip(packs(place)[1], 11),
    "the body of a pack": lambda place: flip(packs(place)[1], 60),
    "the trailer of a pack": lambda place: flip(packs(place)[1], packs(place)[1].stat().st_size - 3),
    "the body of the newest pack": lambda place: flip(packs(place)[-1], 60),
    "the baseline's pack": lambda place: flip(packs(place)[0], 20),
    "a pack, cut off": lambda place: cut(packs(place)[1], 100),
    "a pack, emptied": lambda place: cut(packs(place)[1], 0),
    "a pack, gone": lambda place: without(packs(place)[1]),
    "a pack in the place of another": lambda place: foreign(packs(place)[1], packs(place)[2].read_bytes()),
    "the header of an index of a pack": lambda place: flip(packs(place)[1].with_suffix(".idx"), 2),
    "an index of a pack": lambda place: flip(packs(place)[1].with_suffix(".idx"), 1040),
    "the trailer of an index of a pack": lambda place: flip(packs(place)[1].with_suffix(".idx"), -3),
    "an index of a pack, cut off": lambda place: cut(packs(place)[1].with_suffix(".idx"), 500),
    "an index of a pack, gone": lambda place: without(packs(place)[1].with_suffix(".idx")),
    "the index of another pack": lambda place: foreign(
        packs(place)[1].with_suffix(".idx"), packs(place)[2].with_suffix(".idx").read_bytes()
    ),
    "the manifest": lambda place: flip(place.store / "manifest", 30),
    "head, another commit": lambda place: foreign(head(place), b"8" * 40 + b"\n"),
    "head, not a commit": lambda place: foreign(head(place), b"nonsense"),
    "head, a digit": lambda place: flip(head(place), 7),
    "head, emptied": lambda place: cut(head(place), 0),
    "head, gone": lambda place: without(head(place)),
    "HEAD": lambda place: flip(place.store / "HEAD", 8),
    "the store's configuration": lambda place: flip(place.store / "config", 20),
}


THROUGH_THE_SOCKET = ("the payload of a frame", "the journal, gone")


@pytest.mark.parametrize("what", SPOILT)
def test_damage_is_named_and_made_no_worse_and_mended(prepared: Prepared, what: str) -> None:
    with copy(prepared) as place:
        file = SPOILT[what](place)
        spoilt = file.read_bytes() if file.exists() else None
        before = state_files(place)
        history = open_history(str(place.state))
        assert isinstance(history, Salvage)
        assert str(file) in history.damage.message
        assert unreadable(history, prepared).keys() < {tx.seq for tx in prepared.transactions}
        history.close()
        assert state_files(place) == before, "it was made worse"
        repair = Repair(str(place.state), held_in(place))
        assert state_files(place) == before, "a plan is only a plan"
        repair.carry_out()
        is_whole(place, prepared, repair)
        assert is_kept(place, file, spoilt)


def test_a_missing_journal_is_mended_where_two_folders_cannot_be_exchanged(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("editd.system.filesystem._renameat2", None)
    test_damage_is_named_and_made_no_worse_and_mended(prepared, "the journal, gone")


def is_kept(place: Workplace, file: Path, spoilt: bytes | None) -> bool:
    """Does the damaged file lie aside, with every byte?"""
    kept = [path for path in (place.state / "damaged").rglob(file.name) if path.is_file()]
    return spoilt is None or spoilt in [path.read_bytes() for path in kept]


def held_in(place: Workplace) -> Callable[[str], bytes | None]:
    files = place.files()
    return files.get


def is_whole(place: Workplace, prepared: Prepared, repair: Repair) -> None:
    """What a repair has made opens, proves, and lacks only what it said was lost."""
    history = open_history(str(place.state))
    assert not isinstance(history, Salvage), history.damage
    failed = unreadable(history, prepared)
    assert int(history.head) == LAST
    assert bool(failed) == bool(repair.lost), (failed, repair.lost)
    history.index.flush()
    assert verify_full(str(place.state)) == ([], False)
    history.close()
    if not repair.lost:  # else git misses what is gone for good
        fsck(place)


def unreadable(history: History, prepared: Prepared) -> dict[int, str]:
    """Which transactions are not as they were, or not all there, with why."""
    failed: dict[int, str] = {}
    for tx in prepared.transactions:
        try:
            found = history.find(tx.seq)
        except UnknownTransaction as error:
            failed[tx.seq] = error.message
            continue
        if (found.id, found.authorship.message) != (tx.id, tx.message):
            failed[tx.seq] = "it is another"
        for path, content in prepared.contents_of(tx.seq).items():
            try:
                entry = history.entry_at(WorkspacePath(path), tx.seq)
            except HistoryDamaged as error:
                failed[tx.seq] = error.message
                continue
            held = None if entry is None else history.content(entry.version)
            if held != content.encode():
                failed[tx.seq] = f"{path} is {held!r}"
    return failed


@pytest.mark.parametrize("what", SPOILT)
def test_a_daemon_says_so_and_serves_what_is_whole(prepared: Prepared, what: str, is_long: bool) -> None:
    if what not in THROUGH_THE_SOCKET and not is_long:
        pytest.skip("the long form starts a daemon on each")
    with copy(prepared) as place:
        file = SPOILT[what](place)
        before = state_files(place)
        with place.start() as client:
            status = client.status()
            assert status.state == "broken"
            assert status.reason is not None
            assert str(file) in status.reason
            with pytest.raises(EditdError) as refused:
                client.apply([write("a", "not now\n")])
            assert refused.value.name == "history_damaged"
            problems = client.check().problems
            assert any(str(file) in problem for problem in problems), problems
            assert [tx.seq for tx in client.log().transactions] == list(range(LAST, -1, -1))
            assert client.read("a").content == "a4\n"
            failed = readable(client, prepared)
            assert len(failed) < LAST, failed
            assert all("history_damaged" in why for why in failed.values()), failed
        place.stop()
        assert state_files(place) == before, "it was made worse"
        mend(place, prepared, file)


def mend(place: Workplace, prepared: Prepared, file: Path) -> None:
    """Repair, and hold what comes out against what there was."""
    spoilt = file.read_bytes() if file.exists() else None
    files = place.files()
    with place.start() as client:
        repaired = client.check(repair=True, lose=True)
    assert repaired.repaired
    assert place.process is not None
    assert place.process.wait(30) == 0
    with place.start() as client:
        client.settle()
        assert client.check().problems == []
        assert client.status().state == "ready"
        assert client.status().head == LAST
        unreadable = readable(client, prepared)
        assert all("history_damaged" in why for why in unreadable.values()), unreadable
        assert bool(unreadable) == bool(repaired.lost), (unreadable, repaired.lost)
        assert client.apply([write("a", "again\n")]).transaction is not None
    place.stop()
    if not repaired.lost:
        fsck(place)
    assert place.files() == files | {"a": b"again\n"}
    assert spoilt is None or repaired.aside is not None
    assert is_kept(place, file, spoilt)


@pytest.mark.timeout(3600)
def test_a_flipped_byte_is_found_and_costs_no_more_than_what_it_lies_in(
    prepared: Prepared, is_long: bool
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    found = harmless = costly = 0
    with copy(prepared) as place:
        sound = layout(place, prepared)
        targets = [path for path in place.state.rglob("*") if path.is_file() and is_history(path, place)]
        for number in range(FLIPS_LONG if is_long else FLIPS):
            path = chance.choice(targets)
            content = path.read_bytes()
            used = len(content.rstrip(b"\0")) + 64 if path.suffix == ".segment" else len(content)
            at = chance.randrange(min(used, len(content)))
            where = f"seed {seed}, flip {number}: byte {at} of {path}"
            patch(path, at, content[at] ^ 1 << chance.randrange(8))
            before = state_files(place)
            history = open_history(str(place.state))
            failed = unreadable(history, prepared)
            if isinstance(history, Salvage):
                found += 1
                costly += bool(failed)
                assert failed.keys() == sound.lost_at(path, at), (where, failed)
                assert state_files(place) == before, where
            else:
                harmless += 1
                assert failed == {}, where
                assert int(history.head) == LAST, where
            history.close()
            patch(path, at, content[at])
            for name in ("index.db-wal", "index.db-shm"):
                (place.state / name).unlink(missing_ok=True)
    print(f"{found} found, {costly} of them lost a content, {harmless} harmless")
    assert found > harmless


def patch(path: Path, at: int, byte: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(bytes([byte]))


@pytest.mark.parametrize("is_file_there", [True, False])
def test_a_content_that_the_baseline_alone_had_is_found_in_its_file_or_said_to_be_lost(
    prepared: Prepared, is_file_there: bool
) -> None:
    with copy(prepared) as place:
        path = "folder/deep/tracked.txt"
        oids = layout(place, prepared).needed[0, path]
        pieces = [piece for piece in layout(place, prepared).pieces if piece.oids & oids and piece.content]
        piece = next(piece for piece in pieces if piece.content == b"deep\n")
        flip(piece.path, piece.end - 2)
        repair = Repair(str(place.state), held_in(place) if is_file_there else lambda _: None)
        assert [path in lost for lost in repair.lost] == ([] if is_file_there else [True])
        repair.carry_out()
        is_whole(place, prepared, repair)


def test_an_index_of_a_pack_that_ends_libgit2_does_not_end_the_daemon(prepared: Prepared) -> None:
    with copy(prepared) as place:
        for pack in packs(place):
            index = flip(pack.with_suffix(".idx"), 1024)  # in the table of first bytes: it points far beyond
            flip(index, 1027)
            history = open_history(str(place.state))
            assert isinstance(history, Salvage)
            assert unreadable(history, prepared) == {}
            history.close()


def is_history(path: Path, place: Workplace) -> bool:
    """Is the file one that the history rests on, and not a cache, a log or a spare?"""
    top = path.relative_to(place.state).parts[0]
    is_spare = path.suffix == ".new" or path.name == "description" or path.stat().st_size == 0
    return top in ("journal", "store.git") and not is_spare


def test_a_store_that_cannot_be_looked_at_is_not_one_without_the_content(
    prepared: Prepared,
) -> None:
    with copy(prepared) as place:
        history = open_history(str(place.state))
        try:
            version = version_of(b"in none of the packs")  # those that are open are read without a look
            packs, away = place.store / "objects/pack", place.store / "objects/away"
            packs.rename(away)
            with pytest.raises(IoError, match="No such file or directory"):
                history.content(version)
            away.rename(packs)
            assert history.content(version) is None
            assert history.content(version_of(prepared.contents[1, "a"].encode())) is not None
        finally:
            history.close()


def test_an_index_that_is_damaged_is_found_by_check_and_made_anew(prepared: Prepared) -> None:
    with copy(prepared) as place:
        open_history(str(place.state)).close()
        index = place.state / "index.db"
        flip_in(index, b"first", 2)
        history = open_history(str(place.state))
        assert not isinstance(history, Salvage)
        history.close()
        problems, is_damaged = verify_full(str(place.state))
        assert str(index) in problems[0]
        assert not is_damaged, "nothing that was recorded depends on the index"
        repair = Repair(str(place.state), held_in(place))
        assert repair.done
        repair.carry_out()
        is_whole(place, prepared, repair)
