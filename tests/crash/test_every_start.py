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

import injection
from crash_checks import fsck, packer, transactions
from editd.wire.messages import Delete
from editd_client.errors import Unreachable
from injection import Call, Paused, attached
from kill_chain import KILL, Chain, Kept, leftovers, verify_whole, worth_killing_at
from scenarios import TEN, Expected, Standing, differing, standing
from workplace import workplace, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

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
