"""A crash at every step: SIGKILL at each system call of a transaction, and of packing.

A scenario is recorded once, then made again for each of its calls, and the daemon is killed as it enters that
call. The next daemon must find the transaction whole or not at all, in the files and in the history; whole
where it was acknowledged; once where it is asked for again. CI tries a sample of the calls.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from editd.store.repack import PACKS_MAX
from support import injection
from support.crash_checks import PATIENCE_SECONDS, is_over, packer, wait_until
from support.injection import Call, attached
from support.kill_chain import (
    KILL,
    MISSED_SHARE,
    Chain,
    Kept,
    of_the_engine,
    verify_whole,
    wait_until_tidy,
    worth_killing_at,
)
from support.scenarios import ADOPTION, LARGE, ONE, ROLLBACK, TEN, TO_FILE, TO_FOLDER, UNDO, Scenario
from support.workplace import workplace, write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.workplace import Workplace

IN_A_THREAD = (UNDO, ROLLBACK, LARGE)
TOGETHER = 40  # of the 500 calls, nearly all of which write a bit more, or remove one pack of fifty
DELAY_SECONDS = 1.0  # for a packing process that outlives its daemon: until the next one is there

PUTS_TOGETHER = """
import os, sys
from editd.store.pack_worker import repack
from editd.store.git_repository import open_store
repository = open_store(sys.argv[1])
print("ready", flush=True)
sys.stdin.read()
repack(repository)
os._exit(0)
"""

pytestmark = pytest.mark.skipif(injection.missing() is not None, reason=f"{injection.missing()}")


@pytest.fixture(scope="module")
def chain(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chain]:
    with workplace(tmp_path_factory.mktemp("chain") / "place") as place:
        made = Chain(place, bool(request.config.getoption("--long")))
        yield made
        made.close()


# ── Transactions ──


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("scenario", "count"),
    [(ONE, 0), (TEN, 2), (UNDO, 0), (ROLLBACK, 0), (ADOPTION, 0), (LARGE, 0), (TO_FOLDER, 1), (TO_FILE, 1)],
    ids=lambda value: value.name if isinstance(value, Scenario) else "",
)
def test_a_transaction_is_whole_or_not_there_wherever_the_daemon_is_killed(
    chain: Chain, scenario: Scenario, count: int, is_long: bool
) -> None:
    if not (count or is_long):
        pytest.skip("the sample leaves it out: run it with --long")
    is_following = scenario in IN_A_THREAD
    calls = chain.record(scenario, is_following=is_following)
    if is_following:
        calls = of_the_engine(calls)
    tried = worth_killing_at(calls, count, is_long=is_long)
    killed, missed = chain.killed, len(chain.missed)
    in_background = calls[replied(calls) :]
    for call in tried:
        try:
            chain.kill_at(scenario, call, is_following=is_following)
        except BaseException:
            print(f"{scenario.name}: killed at {call}\n{chain.place.log()}")
            raise
    print(f"{scenario.name}: {chain.killed - killed} kills stand for {len(calls)} calls, "
          f"{len(chain.missed) - missed} were not reached")  # fmt: skip
    of_the_edit = [call for call in chain.missed[missed:] if call not in in_background]
    assert len(of_the_edit) <= max(2 if is_long else 1, MISSED_SHARE * len(tried)), [
        str(call) for call in of_the_edit
    ]


def replied(calls: list[Call]) -> int:
    """Where among these the reply goes out; what comes after it is in the background, and comes as it may."""
    return next((place for place, call in enumerate(calls) if call.name == "sendto"), len(calls))


def test_a_transaction_is_there_where_the_daemon_is_killed_while_it_syncs_the_files(chain: Chain) -> None:
    sync = Call("syncfs", 1, 0, "")
    chain.kill_at(ONE, sync, is_following=True, within_seconds=PATIENCE_SECONDS)
    assert chain.missed == [] or chain.missed[-1].name != "syncfs"


# ── Packing ──


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("who", ["the packing process", "both", "the daemon, which packing outlives"])
def test_packing_is_whole_wherever_it_is_killed(chain: Chain, who: str, is_long: bool) -> None:
    if who != "both" and not is_long:
        pytest.skip("the sample leaves it out: run it with --long")
    chain.packing = chain.packing or recorded_packing(chain)
    calls = chain.packing
    tried = worth_killing_at(calls, 1, is_long=is_long)
    for call in tried:
        try:
            if who == "the daemon, which packing outlives":
                kill_daemon_while_packing(chain, call)
            else:
                kill_packing(chain, call, with_daemon=who == "both")
        except BaseException:
            print(f"packing: {who} killed at {call}\n{chain.place.log()}")
            raise
    print(f"packing: {who}: {len(tried)} kills stand for {len(calls)} calls")


@pytest.mark.timeout(3600)
def test_packs_are_whole_wherever_their_putting_together_is_killed(tmp_path: Path, is_long: bool) -> None:
    if not is_long:
        pytest.skip("the sample leaves it out: run it with --long")
    with workplace(tmp_path / "place") as place:
        chain, kept = Chain(place, is_long), Kept(place, tmp_path / "copy")
        while len(list((place.store / "objects" / "pack").glob("*.pack"))) < PACKS_MAX:
            chain.start().apply([write("one", f"{time.monotonic()}\n")])
            assert chain.start().check().problems == []  # which packs
        head = chain.start().status().head
        place.stop()
        kept.keep()
        calls = putting_together(place)
        assert len(list((place.store / "objects" / "pack").glob("*.pack"))) == 1
        for call in worth_killing_at(calls, TOGETHER, is_long=False):
            kept.again()
            putting_together(place, call)
            with place.start() as client:
                assert client.check().problems == [], f"killed at {call}"
                assert client.status().head == head
                wait_until_tidy(place)
            place.stop()
        print(f"putting packs together: {TOGETHER} kills at {len(calls)} calls")


def putting_together(place: Workplace, killed_at: Call | None = None) -> list[Call]:
    """The calls of a process that puts the store's packs together; it is killed at one of them."""
    argv = [sys.executable, "-c", PUTS_TOGETHER, str(place.store)]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    with attached(process.pid, [] if killed_at is None else [killed_at.struck(KILL)]) as trace:
        process.stdin.close()
        assert process.wait() == (0 if killed_at is None else -signal.SIGKILL)
        return trace.calls()


def recorded_packing(chain: Chain, scenario: Scenario = TEN) -> list[Call]:
    client, tag, expected, head = chain.begin(scenario)
    with attached(packer(chain.place)) as trace:
        scenario.ask(client, tag)
        client.check()
        calls = trace.calls()
    verify_whole(chain, scenario, tag, expected, head)
    last = next(place for place, call in enumerate(calls) if call.name == "write" and "packed" in call.text)
    return calls[: last + 1]


def kill_packing(chain: Chain, call: Call, scenario: Scenario = TEN, *, with_daemon: bool) -> None:
    """The packing process is killed; the next one, of this daemon or of the next, does it all."""
    client, tag, expected, head = chain.begin(scenario)
    pid = packer(chain.place)
    with attached(pid, [call.struck(KILL)]):
        scenario.ask(client, tag)
        wait_until(lambda: not Path(f"/proc/{pid}").exists(), f"packing is not killed at {call}")
    if with_daemon:
        chain.place.kill()
    verify_whole(chain, scenario, tag, expected, head)


def kill_daemon_while_packing(chain: Chain, call: Call) -> None:
    """The daemon is killed while packing is held up at a call; it goes on beside the next daemon."""
    client, tag, expected, head = chain.begin(TEN)
    pid = packer(chain.place)
    with attached(pid, [call.struck(f"delay_enter={int(DELAY_SECONDS * 1_000_000)}")]) as trace:
        TEN.ask(client, tag)
        wait_until(lambda: any(one.name == call.name for one in trace.calls()), "packing has not begun")
        time.sleep(0.05)
        chain.place.kill()
        verify_whole(chain, TEN, tag, expected, head)
        wait_until(lambda: is_over(pid), "the old packing process does not end")
    verify_whole(chain, TEN, tag, expected, head)
