"""The first scan of a large workspace: edits do not wait for it, whenever it is interrupted."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pytest

from editd.engine.scan_worker import PROGRESS_SECONDS
from editd.values.content import version_of
from editd.wire.messages import Delete, Move
from editd_client.errors import NothingToUndo, Stale
from support.crash_checks import surveyor, transactions, wait_until
from support.workplace import replace, write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd_client.client import Client
    from support.workplace import Workplace

LARGE_BYTES = 8 * 1024 * 1024
LARGE_FILES = 32  # holes, so that they take no space
SCANNED_FILES = 10  # edits do not wait for a scan that has read so many of them
RUN_SECONDS = 0.03
BEFORE = {"a.txt": "a\n", "b.txt": "b\n", "gone.txt": "gone\n", "below/c.txt": "c\n", "run.sh": "#!\n"}


@pytest.fixture
def large(place: Workplace) -> Workplace:
    """A workspace whose first scan takes so long that edits do not wait for it."""
    place.write(BEFORE)
    for number in range(LARGE_FILES):
        with open(place.root / f"large{number}", "wb") as file:
            file.truncate(LARGE_BYTES)
    os.chmod(place.root / "run.sh", 0o755)
    return place


@contextmanager
def in_the_first_scan(place: Workplace) -> Iterator[Client]:
    """Start the daemon, and stop its first scan halfway; go on with it at the end."""
    client = place.start()
    scan = stop_scan(place, client)
    try:
        yield client
    finally:
        with suppress(ProcessLookupError):
            os.kill(scan, signal.SIGCONT)
        client.close()


def stop_scan(place: Workplace, client: Client) -> int:
    """Let the scan run for a moment at a time, and stop it for good when it has read some of the files.

    While it is stopped, the time to its next report passes. So the rest of its work may be short.
    """
    scan = surveyor(place)
    os.kill(scan, signal.SIGSTOP)

    def has_begun() -> bool:
        if client.status().watcher["files"] > SCANNED_FILES:
            return True
        os.kill(scan, signal.SIGCONT)
        time.sleep(RUN_SECONDS)
        os.kill(scan, signal.SIGSTOP)
        time.sleep(PROGRESS_SECONDS)
        return False

    wait_until(has_begun, "the scan does not begin")
    assert client.status().state == "scanning"
    return scan


def finish(client: Client) -> None:
    wait_until(lambda: client.status().state != "scanning", "the scan does not end")
    assert client.status().state == "ready", client.status().reason
    assert client.check().problems == []


def kinds(client: Client) -> list[str]:
    return [entry.kind for entry in transactions(client, -1)]


def test_an_edit_is_served_during_the_first_scan_and_undone_after_it(large: Workplace) -> None:
    with in_the_first_scan(large) as client:
        client.apply([replace("a.txt", "a", "A")])
        client.apply([write("new.txt", "new\n")])
        assert kinds(client) == ["baseline", "baseline", "edit", "edit"]
    with large.client() as client:
        finish(client)
        assert kinds(client) == ["baseline", "baseline", "edit", "edit", "baseline"]
        assert transactions(client)[-1].files == []
        assert client.read("b.txt", at=0).content == "b\n"
        client.undo(tx=2)
        client.undo(tx=3)
        assert (large.root / "a.txt").read_text() == "a\n"
        assert not (large.root / "new.txt").exists()
        with pytest.raises(NothingToUndo):
            client.undo()
        assert client.check().problems == []


def test_an_edited_deleted_or_moved_file_stays_so_when_the_scan_ends(large: Workplace) -> None:
    with in_the_first_scan(large) as client:
        client.apply([Delete(path="gone.txt", base=version_of(b"gone\n"))])
        client.apply([Move(path="below/c.txt", to="d.txt")])
    with large.client() as client:
        finish(client)
        client.settle()
        newest = transactions(client)[-1]
        assert newest.kind == "baseline", "what the scan found is no outside change"
        assert sorted(path for path in large.files() if not path.startswith("large")) == [
            "a.txt", "b.txt", "d.txt", "run.sh",
        ]  # fmt: skip
        client.undo(tx=2)
        assert (large.root / "gone.txt").read_text() == "gone\n"
        client.restore(0)
        assert {path: content.decode() for path, content in large.files().items() if path in BEFORE} == BEFORE
        assert client.check().problems == []


def test_a_change_by_another_program_makes_an_edit_stale_during_the_first_scan(large: Workplace) -> None:
    with in_the_first_scan(large) as client:
        read = client.read("a.txt")
        large.write({"a.txt": "theirs\n"})
        with pytest.raises(Stale):
            client.apply([write("a.txt", "mine\n", force=False, base=read.version)])
        assert kinds(client) == ["baseline", "baseline", "outside"]
        assert (large.root / "a.txt").read_text() == "theirs\n"
        client.undo(tx=2)
        assert (large.root / "a.txt").read_text() == "a\n"


def test_outside_changes_of_scanned_and_of_edited_files_are_recorded_after_the_scan(large: Workplace) -> None:
    with in_the_first_scan(large) as client:
        client.apply([replace("a.txt", "a", "A")])
        large.write({"a.txt": "theirs\n", "late.txt": "late\n"})
    with large.client() as client:
        finish(client)
        client.settle()
        assert client.read("a.txt", at=client.status().head).content == "theirs\n"
        assert "outside" in kinds(client)
        client.undo(tx=transactions(client)[-1].seq, paths=["a.txt"])
        assert (large.root / "a.txt").read_text() == "A\n"


def test_a_settle_waits_for_the_end_of_the_first_scan(large: Workplace) -> None:
    with ThreadPoolExecutor(1) as pool, in_the_first_scan(large) as client, large.client() as other:
        client.apply([replace("a.txt", "a", "A")])
        settled = pool.submit(other.settle)
        client.apply([replace("b.txt", "b", "B")])
        assert not settled.done()
        os.kill(surveyor(large), signal.SIGCONT)
        assert settled.result(30).head == 5


def test_a_daemon_killed_during_the_first_scan_goes_on_with_it_at_its_next_start(large: Workplace) -> None:
    with in_the_first_scan(large) as client:
        client.apply([replace("a.txt", "a", "A")])
        large.kill()
    large.write({"a.txt": "theirs\n", "b.txt": "B\n"})
    with large.start() as client:
        client.apply([replace("run.sh", "#!", "#!/bin/sh")])
        finish(client)
        client.settle()
        assert (large.state / "scanning").exists() is False
        assert client.read("b.txt", at=0).content == "B\n", "first seen by the second scan"
        outside = [entry for entry in transactions(client) if entry.kind == "outside"]
        assert [[file.path for file in entry.files] for entry in outside] == [["a.txt"]]
        assert client.check().problems == []
    large.stop()
    with large.start() as client:
        assert client.check().problems == []


def test_a_daemon_ended_during_the_first_scan_goes_on_with_it_at_its_next_start(large: Workplace) -> None:
    with in_the_first_scan(large) as client:
        client.apply([replace("a.txt", "a", "A")])
        large.stop()
    with large.start() as client:
        finish(client)
        client.undo(tx=2)
        assert (large.root / "a.txt").read_text() == "a\n"
