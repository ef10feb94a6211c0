"""A crash at every step of a start: SIGKILL at each system call from the taking of the workspace on.

What the killed start has to do is prepared once and copied: a transaction that is half in the files, one that
never came to its record, a first start. The start after it must find all as though there had been no second
crash.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from editd.store import first_scan
from editd.store.git_repository import create_store
from editd.store.history import History
from editd.values.content import Change, FileState
from editd.values.path import WorkspacePath
from editd.values.transaction import Authorship
from editd.wire.messages import Delete
from editd_client.errors import Unreachable
from support import injection
from support.crash_checks import fsck, packer, transactions
from support.harness import BASELINE_US
from support.injection import Call, Paused, attached
from support.kill_chain import KILL, Chain, Kept, leftovers, verify_whole, worth_killing_at
from support.scenarios import TEN, Expected, Standing, differing, standing
from support.workplace import workplace, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from editd.wire.messages import Kind
    from support.workplace import Workplace

STARTED_SECONDS = 1.0  # after a start has said that it is ready, for what it does then
KILLED_SECONDS = 4.0
TRIES = 5
FIRST = {f"{number}/{number}.txt": f"{number}\n" * 20 for number in range(5)}

pytestmark = pytest.mark.skipif(injection.missing() is not None, reason=f"{injection.missing()}")


@dataclass
class Starts(Kept):
    """A workspace as a crash has left it, from which one start after the other is tried."""

    verify: Callable[[], None]

    def record(self) -> list[Call]:
        """The calls of a start, from the taking of the workspace on."""
        self.again()
        daemon = Paused(self.place)
        with attached(daemon.process.pid) as trace:
            daemon.go()
            assert daemon.wait_ready() == "ready", self.place.log()
            time.sleep(STARTED_SECONDS)
            calls = trace.calls()
        self.place.kill()
        daemon.close()
        self.verify()
        self.place.stop()
        taken = next(place for place, call in enumerate(calls) if call.name == "flock")
        return calls[taken:]

    def kill_at(self, call: Call) -> bool:
        """Whether the call was reached."""
        self.again()
        daemon = Paused(self.place)
        is_killed = True
        with attached(daemon.process.pid, [call.struck(KILL)]):
            daemon.go()
            try:
                daemon.process.wait(KILLED_SECONDS)
            except subprocess.TimeoutExpired:
                is_killed = False
                self.place.kill()
        daemon.close()
        self.verify()
        self.place.stop()
        return is_killed


@pytest.fixture
def starts(tmp_path: Path) -> Iterator[Starts]:
    with workplace(tmp_path / "place") as place:
        yield Starts(place, tmp_path / "kept", lambda: None)


def try_all(starts: Starts, what: str, count: int, *, is_long: bool) -> None:
    starts.keep()
    calls = starts.record()
    tried = worth_killing_at(calls, count, is_long=is_long)
    missed: list[Call] = []
    for call in tried:
        try:
            if not starts.kill_at(call):
                missed.append(call)
        except BaseException:
            print(f"{what}: killed at {call}\n{starts.place.log()}")
            raise
    killed = len(tried) - len(missed)
    print(f"{what}: {killed} kills stand for {len(calls)} calls, {len(missed)} were not reached")
    assert len(missed) <= max(1, len(tried) // 20), [str(call) for call in missed]


# ── Recovery ──


def prepare_half(chain: Chain, at: Call, *, is_whole: bool) -> tuple[str, Expected, int]:
    """Leave `TEN` half done, by a kill at that call: its tag, what to expect, and head before it.

    What is left of the edit before may come in between and be counted, so it is tried until some of its
    files are published, or none where it is not to be whole.
    """
    for _ in range(TRIES):
        client, tag, expected, head = chain.begin(TEN)
        packing, daemon = packer(chain.place), chain.place.process
        assert daemon is not None
        os.kill(packing, signal.SIGSTOP)
        with attached(daemon.pid, [at.struck(KILL)]):
            with contextlib.suppress(Unreachable):
                TEN.ask(client, tag)
            with contextlib.suppress(subprocess.TimeoutExpired):
                daemon.wait(KILLED_SECONDS)
        os.kill(packing, signal.SIGKILL)
        if daemon.poll() is None:
            chain.place.kill()
        found = standing(chain.place)
        published = [
            path
            for path, held in expected.after.items()
            if not path.endswith("/") and found.get(path) == held != expected.before.get(path)
        ]
        if found not in (expected.before, expected.after) and bool(published) == is_whole:
            return tag, expected, head
    raise AssertionError(f"it was not left half done in {TRIES} tries")


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("is_whole", [True, False], ids=["half published", "staged"])
def test_a_recovery_that_is_killed_is_done_by_the_next_start(
    starts: Starts, is_whole: bool, is_long: bool
) -> None:
    if not (is_whole or is_long):
        pytest.skip("the sample leaves it out: run it with --long")
    chain = Chain(starts.place, is_long)
    calls = chain.record(TEN)
    record = next(call for call in calls if "fRm1" in call.text)  # the journal's: without it nothing has been
    half = [call for call in calls[calls.index(record) :] if call.name == "renameat2"][4]
    tag, expected, head = prepare_half(chain, half if is_whole else record, is_whole=is_whole)

    def verify() -> None:
        client = chain.start()
        client.settle()
        assert [one.kind for one in transactions(client, after=head)] == ["edit"] * is_whole
        wrong = differing(standing(starts.place), expected.after if is_whole else expected.before)
        assert not wrong, wrong
        TEN.ask(client, tag)
        verify_whole(chain, TEN, tag, expected, head)

    starts.verify = verify
    try_all(starts, "half published" if is_whole else "staged", 1, is_long=is_long)


# ── The first start ──


@pytest.mark.timeout(3600)
def test_a_first_start_that_is_killed_is_made_again_by_the_next(starts: Starts, is_long: bool) -> None:
    if not is_long:
        pytest.skip("the sample leaves it out: run it with --long")
    place = starts.place
    place.write(FIRST)
    files: Standing = standing(place)

    def verify() -> None:
        with place.start() as client:
            client.settle()
            assert client.status().head == 0
            assert {path: client.read(path, at=0).content for path in FIRST} == FIRST
            assert client.check().problems == []
        assert standing(place) == files
        fsck(place)
        assert leftovers(place, files) == []

    starts.verify = verify
    try_all(starts, "first start", 1, is_long=is_long)


def begin_partly(place: Workplace) -> None:
    """Leave a history as a daemon does that is killed during its first scan, after an edit."""
    place.state.mkdir(parents=True)
    create_store(str(place.store))
    first_scan.begin(str(place.state), BASELINE_US)
    history = History.open(str(place.state))
    path, before, after = WorkspacePath("edited.txt"), FileState(b"before\n"), FileState(b"after\n")
    made: list[tuple[Kind, Change[FileState]]] = [
        ("baseline", Change(path, None, before)),
        ("edit", Change(path, before, after)),
    ]
    for kind, change in made:
        draft = history.draft(kind, Authorship("someone"), BASELINE_US + history.head + 1, [change])
        history.commit([draft])
        history.conclude(draft)
    history.close()
    place.write({"edited.txt": "after\n"})


@pytest.mark.timeout(3600)
def test_the_rest_of_a_first_scan_that_is_killed_is_recorded_by_the_next_start(
    starts: Starts, is_long: bool
) -> None:
    place = starts.place
    place.write(FIRST)
    begin_partly(place)
    files: Standing = standing(place)

    def verify() -> None:
        with place.start() as client:
            client.settle()
            assert [one.kind for one in transactions(client, -1)] == [
                "baseline", "baseline", "edit", "baseline",
            ]  # fmt: skip
            assert {path: client.read(path, at=0).content for path in FIRST} == FIRST
            assert client.read("edited.txt", at=1).content == "before\n"
            assert client.check().problems == []
        assert standing(place) == files
        fsck(place)
        assert leftovers(place, files) == []

    starts.verify = verify
    try_all(starts, "rest of the first scan", 1, is_long=is_long)


# ── What a transaction had yet to tidy up ──


def test_a_folder_that_a_deletion_emptied_goes_though_the_one_below_it_went_before_the_crash(
    starts: Starts,
) -> None:
    place = starts.place
    with place.start() as client:
        client.apply([write("above/below/deleted", "text\n")])
        assert client.check().problems == []  # which packs
        packing = packer(place)
        os.kill(packing, signal.SIGSTOP)
        client.apply([Delete(path="above/below/deleted")])
    place.kill()
    os.kill(packing, signal.SIGKILL)
    (place.root / "above").mkdir()
    with place.start() as client:
        client.settle()
        assert standing(place) == {}
