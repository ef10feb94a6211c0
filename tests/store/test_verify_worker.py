"""A check of a long history takes minutes: meanwhile all goes on, and what goes on does not make it wrong."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import sys
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from editd.store.git_objects import object_id
from editd.store.verify import MENDS
from editd.store.verify_history import verify_full
from editd.system.flock import take
from editd_client.errors import EditdError, Unreachable
from support.crash_checks import child, wait_until
from support.harness import Harness, apply, done, pack
from support.harness import write as write_edit
from support.workplace import TOP, write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Executor

    from support.workplace import Workplace

LONG = """
import sys, time
from pathlib import Path

if "editd.store.verify_worker" in sys.orig_argv:
    from contextlib import contextmanager
    from editd.store import git_repository

    # The process writes below the state folder only.
    here, lock = Path(MARKS), git_repository.shared_lock

    @contextmanager
    def shared_lock(store):
        with lock(store):
            (here / "begun").touch()
            while (here / "long").exists():
                time.sleep(0.01)
            yield

    git_repository.shared_lock = shared_lock
"""


SPILLING = """
import sys

if "editd.store.verify_worker" in sys.orig_argv:
    import sqlite3
    from editd.store import git_repository

    lock = git_repository.shared_lock

    def shared_lock(store):
        with sqlite3.connect(":memory:") as spilling:
            spilling.executescript("pragma temp_store = file; create temp table wide (content)")
            spilling.executemany("insert into wide values (zeroblob(10000))", [()] * 1000)  # a cache has 2 MB
        return lock(store)

    git_repository.shared_lock = shared_lock
"""


def import_first(place: Workplace, code: str) -> None:
    """Let each interpreter of the daemon run `code` at its start."""
    folder = place.folder / "first"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(code)
    place.is_forked = False  # so that an interpreter starts, and imports it
    place.variables["PYTHONPATH"] = os.pathsep.join(map(os.fspath, [TOP / "daemon", TOP / "client", folder]))


class LongCheck:
    """A check in the daemon's processes does not get on until `go_on`."""

    def __init__(self, place: Workplace) -> None:
        self._marks = place.state / "marks"
        self._marks.mkdir(0o700, parents=True)
        (self._marks / "long").touch()
        import_first(place, LONG.replace("MARKS", repr(str(self._marks))))

    def wait_until_begun(self) -> None:
        wait_until((self._marks / "begun").exists, "it does not begin")

    def go_on(self) -> None:
        (self._marks / "long").unlink(missing_ok=True)


@pytest.fixture
def long_check(place: Workplace) -> Iterator[LongCheck]:
    made = LongCheck(place)
    yield made
    made.go_on()


@pytest.fixture
def beside() -> Iterator[Executor]:
    with ThreadPoolExecutor() as executor:
        yield executor


def test_packing_goes_on_while_the_history_is_checked(
    place: Workplace, long_check: LongCheck, beside: Executor
) -> None:
    with place.start() as client, place.client() as checking, place.client() as compacting:
        client.apply([write("a", "0\n")])
        asked = beside.submit(checking.check)
        try:
            long_check.wait_until_begun()
            assert take(str(place.state / "packs.staying")) is None, "packs may go"
            collected = beside.submit(compacting.gc)
            wait_until(lambda: client.status().history["compacting"], "it does not begin")
            for number in range(1, 4):
                client.apply([write("a", f"{number}\n")])
                wait_until(lambda: client.status().journal["unpacked"] == 0, "it is not packed")
            assert not asked.done()
            assert not collected.done()
        finally:
            long_check.go_on()
        assert asked.result().problems == []
        assert collected.result().oldest == 0
        assert client.check().problems == []


def test_what_was_packed_since_the_index_was_written_is_not_missing_in_it(place: Workplace) -> None:
    with place.start() as client:
        for number in range(3):
            client.apply([write("a", f"{number}\n")])
    place.stop()
    with contextlib.closing(sqlite3.connect(place.state / "index.db")) as index, index:
        index.execute("delete from tx where seq = 3")
        index.execute("delete from touch where seq = 3")
    assert verify_full(str(place.state), 2) == ([], False)
    problems, is_damaged = verify_full(str(place.state))
    assert "its transaction 3 differs" in problems[0]
    assert not is_damaged


def test_an_object_that_cannot_be_read_is_named_though_its_pack_has_the_right_checksum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compress, spoilt = zlib.compress, b"spoilt\n"

    def compress_wrongly(content: bytes, level: int) -> bytes:
        return b"no zlib" if content == spoilt else compress(content, level)

    place = Harness(tmp_path / "place")
    place.baseline()
    with place.engine() as engine:
        done(engine, apply(write_edit("a", spoilt.decode())))
        monkeypatch.setattr("editd.store.packfile.zlib.compress", compress_wrongly)
        pack(engine)
    oid = object_id("blob", spoilt).hex()
    assert verify_full(str(place.state)) == ([f"The object {oid} in {place.store} is damaged. {MENDS}"], True)


def test_a_large_comparison_of_the_index_spills_into_the_state_folder(place: Workplace) -> None:
    import_first(place, SPILLING)
    with place.start() as client:
        client.apply([write("a", "0\n")])
        assert client.check().problems == []


def test_a_daemon_that_ends_does_not_wait_for_a_check(
    place: Workplace, long_check: LongCheck, beside: Executor
) -> None:
    stalling = str(TOP / "tests/support/slow_disk_daemon.py")
    place.launcher = (sys.executable, stalling, str(place.folder / "never"))  # it drains for a moment
    with place.start() as client:
        asked = beside.submit(client.check)
        long_check.wait_until_begun()
        place.stop()
        with pytest.raises(EditdError) as refused:
            asked.result()
        assert refused.value.name == "shutting_down"


def test_a_check_ends_with_a_daemon_that_is_killed(
    place: Workplace, long_check: LongCheck, beside: Executor
) -> None:
    with place.start() as client:
        asked = beside.submit(client.check)
        long_check.wait_until_begun()
        prover = child(place, "editd.store.verify_worker")
        assert prover is not None
        place.kill()
        with pytest.raises(Unreachable):
            asked.result()
    wait_until(lambda: not Path(f"/proc/{prover}").exists(), "it goes on")
    long_check.go_on()
    with place.start() as client:
        assert client.check().problems == []


def test_an_index_that_cannot_be_read_is_not_called_damaged(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    harness.baseline({"a": "0\n"})
    with harness.engine() as engine:
        done(engine, apply(write_edit("a", "1\n")))
        pack(engine)
    index = harness.state / "index.db"
    index.rename(harness.state / "index.kept")
    index.mkdir()
    problems, is_damaged = verify_full(str(harness.state))
    assert not is_damaged
    assert problems == [f"{index} could not be compared with the history: disk I/O error."]
    index.rmdir()
    (harness.state / "index.kept").rename(index)
    assert verify_full(str(harness.state)) == ([], False)


@pytest.mark.parametrize(
    ("statement", "seq"),
    [
        ("update tx set message = 'x' where seq = 2", 2),
        ("delete from tx where seq = 1", 1),
        ("update touch set after = before where seq = 3", 3),
        ("insert into touch (path, seq) values (x'61', 0)", 0),
        ("update tx set seq = -1 where seq = 0", -1),
    ],
)
def test_each_row_of_the_index_is_compared_with_its_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statement: str, seq: int
) -> None:
    monkeypatch.setattr("editd.store.verify_history.LOT", 2)
    harness = Harness(tmp_path)
    harness.baseline({"a": "0\n"})
    with harness.engine() as engine:
        for number in range(1, 5):
            done(engine, apply(write_edit("a", f"{number}\n")))
        pack(engine)
    assert verify_full(str(harness.state)) == ([], False)
    with contextlib.closing(sqlite3.connect(harness.state / "index.db")) as index, index:
        index.execute(statement)
    problems, is_damaged = verify_full(str(harness.state))
    assert not is_damaged
    assert f"index.db is damaged: its transaction {seq} differs from the history" in problems[0]
