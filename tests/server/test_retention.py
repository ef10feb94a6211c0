"""server.retention: what goes beyond `history.keep` is compacted, and everything else is as it was."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from editd.errors import IoError
from editd_client.errors import EditdError
from support.workplace import replace, write

if TYPE_CHECKING:
    from support.workplace import Workplace


def keep(place: Workplace, text: str) -> None:
    folder = place.folder / "config" / "editd"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.toml").write_text(f"history.keep = {{ {text} }}\n")


def refused(call: object) -> EditdError:
    with pytest.raises(EditdError) as caught:
        call()  # type: ignore[operator]
    return caught.value


def pack_bytes(place: Workplace) -> int:
    return sum(file.stat().st_size for file in (place.store / "objects" / "pack").iterdir())


def test_the_past_is_compacted_and_all_else_is_as_it_was(place: Workplace) -> None:
    place.write({"a.txt": "0\n", "b/c.txt": "first\n", "still.txt": "never touched\n"})
    keep(place, "count = 58")  # of 63: so few too many that the daemon waits to be asked
    versions = ["0\n"] + [os.urandom(3000).hex() + "\n" for _ in range(60)]
    with place.start() as client:
        for version in versions[1:]:
            client.apply([write("a.txt", version)])
        client.apply([replace("b/c.txt", "first", "second")], request_id="kept")  # 61
        undone = client.undo(3, on_conflict="force").transaction  # 62: an undo of what will be compacted
        assert undone is not None
        client.apply([write("b/new.txt", "x\n")])  # 63
        files = place.files()

        planned = client.gc(dry_run=True)
        assert (planned.oldest, planned.compacted) == (5, 5)
        assert client.status().history["oldest"] == 0
        before = planned.bytes + planned.freed
        assert pack_bytes(place) == before
        done = client.gc()
        assert (done.oldest, done.compacted) == (5, 5)
        assert pack_bytes(place) < before - 4 * 3000
        assert done.bytes == client.status().history["bytes"]
        assert client.status().history["transactions"] == 58
        assert client.gc().compacted == 0

        def look() -> None:
            assert place.files() == files
            assert [tx.seq for tx in client.log(limit=100).transactions] == list(range(63, 4, -1))
            assert client.log(limit=100).transactions[-1].kind == "baseline"
            for asked in (
                lambda: client.show(4),
                lambda: client.undo(3),
                lambda: client.undo(5),
                lambda: client.diff(0),
                lambda: client.read("a.txt", at=4),
                lambda: client.restore(3),
                lambda: client.undo(filter={"since": 2}),  # type: ignore[arg-type]
                lambda: client.subscribe(since=2),
            ):
                refusal = refused(asked)
                assert refusal.name == "unknown_transaction"
                assert "is compacted" in refusal.message
                assert "compacted" in refusal.data
                assert refusal.data["compacted"] == 5
            for seq in (5, 6, 60):
                assert client.read("a.txt", at=seq).content == versions[seq]
            assert client.read("still.txt", at=5).content == "never touched\n"
            assert client.diff(5, 7).diff.count("\n+") >= 1
            assert {line.seq for line in client.blame("still.txt").lines} == {5}
            assert client.check().problems == []

        look()
        place.stop()
    assert place.git("fsck", "--full", "--strict", store=True) is not None
    assert len(place.git("log", "--format=%H", "history", store=True).split()) == 59
    with place.start() as client:
        look()
        place.stop()
    (place.state / "index.db").unlink()  # a cache: it is rebuilt as it was
    with place.start() as client:
        look()
        again = client.apply([replace("b/c.txt", "first", "second")], request_id="kept")
        assert again.transaction is not None
        assert again.transaction.seq == 61
        assert client.undo(60, on_conflict="force").transaction is not None
        assert client.undo(62, on_conflict="force").transaction is not None
        client.restore(5)
        assert (place.root / "a.txt").read_text() == versions[5]
        assert client.check().problems == []


@pytest.mark.long
def test_edits_go_on_while_the_history_is_compacted(place: Workplace) -> None:
    place.write({"a.txt": "0\n"})
    keep(place, "count = 3")
    with place.start() as client, place.client() as other:
        for number in range(100):
            client.apply([write(f"f{number % 40}.txt", os.urandom(500).hex())])
        from threading import Thread

        results: list[object] = []
        running = Thread(target=lambda: results.append(other.gc()))
        running.start()
        made = slowest = 0.0
        while running.is_alive():
            began = time.monotonic()
            client.apply([write("a.txt", f"{made}\n")])
            slowest = max(slowest, time.monotonic() - began)
            made += 1
        running.join()
        assert results
        assert made > 3
        assert slowest < 2.0
        assert client.read("a.txt").content == f"{made - 1}\n"
        client.gc()
        assert client.status().history["transactions"] == 3
        assert client.check().problems == []


def test_what_open_sessions_did_and_the_newest_are_never_compacted(place: Workplace) -> None:
    keep(place, 'count = 1, age = "1s", bytes = "1B"')
    with place.start() as other, place.client() as client:
        other.apply([write("a.txt", "0\n")])
        client.session_open("worker")
        for number in range(3):
            client.apply([write("a.txt", f"{number}\n"), write("b.txt", f"{number}\n")], session="worker")
        other.apply([write("c.txt", "mine\n")])
        time.sleep(1.1)
        assert client.gc().oldest == 1
        client.rollback("worker")
        assert place.files() == {"a.txt": b"0\n", "c.txt": b"mine\n"}
        client.session_close("worker")
        head = client.status().head
        assert client.gc().oldest == head - 1
        assert client.show(head).transaction.kind == "rollback"
        assert client.undo(head).transaction is not None


@pytest.mark.long
def test_bytes_are_kept_to(place: Workplace) -> None:
    keep(place, 'bytes = "100kB"')
    with place.start() as client:
        for _ in range(30):
            client.apply([write("a.txt", os.urandom(5000).hex())])
        done = client.gc()
        assert 0 < done.oldest < 30
        assert done.bytes < 130_000  # the indexes of the packs come to it
        oldest = done.oldest
        client.read("a.txt", at=oldest)
        assert client.check().problems == []


@pytest.mark.long
def test_the_daemon_compacts_by_itself(place: Workplace) -> None:
    with place.start() as client:
        for number in range(12):
            client.apply([write("a.txt", f"{number}\n")])
        keep(place, "count = 4")
        client.config_reload()
        _until(lambda: client.status().history["transactions"] == 4)
        assert client.check().problems == []


def test_the_next_daemon_finishes_a_compaction_that_was_cut_off(place: Workplace) -> None:
    with place.start() as client:
        client.apply([write("a.txt", "0\n")])
    place.stop()
    (place.state / "compacting").touch()
    with place.start() as client:
        _until(lambda: not (place.state / "compacting").exists())
        assert client.check().problems == []


def test_the_marker_stays_until_the_remains_are_gone(place: Workplace) -> None:
    """A daemon that finds the marker compacts once more, so nothing that was cut off stays for ever."""
    keep(place, "count = 2")
    with place.start() as client:
        for number in range(5):
            client.apply([write("a.txt", f"{number}\n")])
        client.log()  # which writes the index
        with contextlib.closing(sqlite3.connect(place.state / "index.db")) as reader:
            reader.execute("begin")
            reader.execute("select * from tx").fetchone()  # it holds the log of the database
            refusal = refused(client.gc)
            assert (refusal.name, refusal.data["errno_name"]) == ("io_error", "EBUSY")
            assert client.status().history["oldest"] == 3
            assert (place.state / "compacting").exists()
        assert client.gc().oldest == 3
        assert not (place.state / "compacting").exists()


def test_a_compactor_that_is_killed_is_a_fault_and_no_end_of_the_daemon(place: Workplace) -> None:
    keep(place, "count = 5")
    place.is_forked = False  # a forked compactor may be done before it is found
    with place.start() as client, ThreadPoolExecutor(1) as beside:
        for number in range(9):
            client.apply([write("a.txt", f"{number}\n")])
        client.status()
        asked = beside.submit(lambda: refused(client.gc))
        while not asked.done():
            for pid in _compactors(place):
                with contextlib.suppress(ProcessLookupError):  # it was struck a moment ago, and is gone
                    os.kill(pid, signal.SIGKILL)
        refusal = asked.result()
        assert refusal.name == "io_error"
        assert "The process that compacts the history died." in refusal.message
        assert client.gc().oldest == 4
        assert client.check().problems == []
    place.stop()


def _compactors(place: Workplace) -> list[int]:
    """The processes that compact for this daemon, the moment that they are that."""
    assert place.process is not None
    found = []
    pid = place.process.pid
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with contextlib.suppress(OSError):
            if b"editd.store.compaction" in Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0"):
                found.append(int(child))
    return found


def _until(is_so: object, seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not is_so():  # type: ignore[operator]
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.05)


def test_what_a_crash_left_is_counted_and_goes_after_thirty_days(place: Workplace) -> None:
    strays = place.state / "strays"
    with place.start() as client:
        client.apply([write("a.txt", "0\n")])
        strays.mkdir()
        for name, days in (("old", 31), ("young", 29)):
            (strays / name).write_bytes(bytes(1000))
            seen = time.time() - days * 86400
            os.utime(strays / name, (seen, seen))
        assert client.status().history["strays"] >= 2000
        client.gc(dry_run=True)
        assert len(list(strays.iterdir())) == 2
        assert client.gc().freed == 1000
        assert [path.name for path in strays.iterdir()] == ["young"]
        assert 1000 <= client.status().history["strays"] < 8192


def test_a_full_disk_gives_gc_no_advice_about_edits() -> None:
    refusal = IoError(OSError(errno.ENOSPC, "full"), "The history cannot be compacted")
    assert refusal.hint == "The disk is full, and nothing was changed. Make room and retry."
