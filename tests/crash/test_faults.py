"""Faults: a disk that says no at any call of a transaction, of packing and of the background.

A scenario is recorded once, then made again for each of its calls on files, and that call fails. The request
is then done, or refused as `io_error` with nothing changed; the daemon goes on, or says in `status` that it
is broken, reads on, takes no edit, and is whole again after its next start. CI tries a sample of the calls.
"""

from __future__ import annotations

import errno
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from editd_client.errors import EditdError
from support import injection
from support.crash_checks import packer, strays, transactions, wait_until
from support.injection import Call, attached
from support.kill_chain import MISSED_SHARE, Chain, of_the_engine, verify_whole
from support.scenarios import ADOPTION, ONE, ROLLBACK, TEN, UNDO, Scenario, standing
from support.workplace import workplace, write

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from editd_client.client import Client
    from support.workplace import Workplace

ASKING = frozenset(
    {"newfstatat", "fstat", "statx", "fstatfs", "openat", "openat2", "read", "pread64", "getdents64"}
    | {"readlinkat", "fcntl", "flistxattr", "fgetxattr", "lseek"}
)  # what changes nothing, and may fail all the same
OPENING = frozenset({"openat", "openat2"})
RETRY_SECONDS = 2.0  # until packing is tried again

pytestmark = pytest.mark.skipif(injection.missing() is not None, reason=f"{injection.missing()}")


@dataclass
class Tally:
    """How many faults came to what."""

    counts: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        return ", ".join(f"{what} {count}" for what, count in sorted(self.counts.items()))


@pytest.fixture(scope="module")
def chain(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chain]:
    with workplace(tmp_path_factory.mktemp("faults") / "place") as place:
        made = Chain(place, bool(request.config.getoption("--long")))
        yield made
        made.close()


# ── Transactions ──


FOUND_BY_EXCHANGE = pytest.mark.needs("exchange")  # the thread that publishes is the one that exchanges


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("scenario", "count"),
    [
        (ONE, 0),
        (TEN, 2),
        pytest.param(UNDO, 1, marks=FOUND_BY_EXCHANGE),
        pytest.param(ROLLBACK, 0, marks=FOUND_BY_EXCHANGE),
        (ADOPTION, 0),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_transaction_is_done_or_refused_whole_wherever_the_disk_says_no(
    chain: Chain, scenario: Scenario, count: int, is_long: bool
) -> None:
    if not (count or is_long):
        pytest.skip("the sample leaves it out: run it with --long")
    calls = recorded(chain, scenario)
    tally = Tally()
    faults = [(one, error) for one in calls for error in errors_of(one)]
    for call, error in sample(faults, count, is_long):
        try:
            fail_at(chain, scenario, call, error, tally)
        except BaseException:
            print(f"{scenario.name}: {error} at {call}\n{chain.place.log()}")
            raise
    print(f"{scenario.name}: {len(calls)} calls; {tally}")
    assert tally.counts["not reached"] <= max(1, MISSED_SHARE * len(faults)), tally


def recorded(chain: Chain, scenario: Scenario) -> list[Call]:
    """The calls on files from the request to its reply, of the second run: the first may create."""
    client, tag, expected, head = chain.begin(scenario)
    scenario.meddle(chain.place, tag)
    scenario.ask(client, tag)
    client, tag, expected, head = chain.begin(scenario)
    assert chain.place.process is not None
    with attached(chain.place.process.pid, is_following=is_in_a_thread(scenario)) as trace:
        scenario.meddle(chain.place, tag)
        scenario.ask(client, tag)
        calls = trace.calls()
    verify_whole(chain, scenario, tag, expected, head)
    if is_in_a_thread(scenario):
        calls = of_the_engine(calls)
        exchange = next(place for place, call in enumerate(calls) if "RENAME_EXCHANGE" in call.text)
        wakes = (place for place, call in enumerate(calls) if call.name == "sendto" and place > exchange)
        reply = next(wakes)  # each slice of the plan wakes the loop, too
    else:
        reply = next(place for place, call in enumerate(calls) if call.is_reply)
    return [call for call in calls[:reply] if is_on_files(call)]


def is_in_a_thread(scenario: Scenario) -> bool:
    """Whether the engine does it beside the loop, which it tells when that is done."""
    return scenario in (UNDO, ROLLBACK)


def is_on_files(call: Call) -> bool:
    """Whether a disk may fail it. No disk fails to release a lock; SQLite would keep it until its end."""
    is_release = call.name == "fcntl" and "F_UNLCK" in call.text
    return (call.is_change or call.name in ASKING) and not call.name.startswith("send") and not is_release


def errors_of(call: Call) -> list[str]:
    found = ["EIO"]
    if call.is_change:
        found += ["ENOSPC", "EINTR"] if call.name not in OPENING else ["ENOSPC"]
    if call.name in OPENING:
        found += ["EMFILE", "ENFILE"]
    return found


def sample(found: list[tuple[Call, str]], count: int, is_long: bool) -> list[tuple[Call, str]]:
    """All of them; in the short form so many that change something, evenly spread."""
    if is_long:
        return found
    changing = [(call, error) for call, error in found if call.is_change and call.name not in OPENING]
    return [changing[(2 * step + 1) * len(changing) // (2 * count)] for step in range(count)]


def fail_at(chain: Chain, scenario: Scenario, call: Call, error: str, tally: Tally) -> None:
    client, tag, expected, head = chain.begin(scenario)
    process = chain.place.process
    assert process is not None
    refusal: EditdError | None = None
    is_done = False
    strike = call.struck(f"error={error}")
    with attached(process.pid, [strike], is_following=is_in_a_thread(scenario)) as trace:
        scenario.meddle(chain.place, tag)
        try:
            is_done = scenario.ask(client, tag).transaction is not None
        except EditdError as refused:
            refusal = refused
        is_struck = bool(trace.struck())
    tally.counts["done" if is_done else "refused"] += 1
    tally.counts["not reached"] += not is_struck
    if refusal is not None:
        verify_refusal(refusal, error)
    if client.status().state == "broken":
        tally.counts["broken"] += 1
        verify_broken(client)
        chain.place.stop()
    elif not is_done:
        verify_nothing_done(chain, client, scenario, expected.before, expected.kinds_before, head)
    chain.verify(scenario, tag, expected, head, is_acknowledged=is_done)


def verify_refusal(refusal: EditdError, error: str) -> None:
    """It says what the disk said, and what to do."""
    assert refusal.name == "io_error", (refusal.name, str(refusal))
    assert refusal.hint
    assert "Traceback" not in str(refusal)
    assert refusal.data["errno"] == getattr(errno, error), refusal.data


def verify_broken(client: Client) -> None:
    """It says why, takes no edit, and reads on."""
    status = client.status()
    assert status.reason
    with pytest.raises(EditdError) as refused:
        client.apply([write("another", "text\n")])
    assert refused.value.name == "io_error"
    assert client.log(limit=1).transactions


def verify_nothing_done(
    chain: Chain, client: Client, scenario: Scenario, before: object, kinds: Sequence[str], head: int
) -> None:
    """Nothing was changed, but what somebody else did may be recorded by now."""
    del scenario
    assert standing(chain.place) == before
    made = tuple(one.kind for one in transactions(client, after=head))
    assert made in ((), tuple(kinds))
    assert strays(chain.place.root) == []


# ── Packing ──


@pytest.mark.timeout(3600)
def test_packing_is_tried_again_wherever_the_disk_says_no(chain: Chain, is_long: bool) -> None:
    client, tag, expected, head = chain.begin(TEN)
    with attached(packer(chain.place)) as trace:
        TEN.ask(client, tag)
        client.check()
        calls = trace.calls()
    verify_whole(chain, TEN, tag, expected, head)
    last = next(place for place, call in enumerate(calls) if call.name == "write" and "packed" in call.text)
    calls = [call for call in calls[:last] if is_on_files(call) and not call.text.startswith("0,")]
    tally = Tally()
    faults = [(one, error) for one in calls for error in errors_of(one) if error != "EINTR"]
    last_step = next(
        (call, error) for call, error in faults if call.name == "unlink" and ".keep" in call.text
    )
    for call, error in sample(faults, 1, is_long) + [last_step] * (not is_long):
        try:
            fail_packing_at(chain, call, error, tally)
        except BaseException:
            print(f"packing: {error} at {call}\n{chain.place.log()}")
            raise
    print(f"packing: {len(calls)} calls; {tally}")


def fail_packing_at(chain: Chain, call: Call, error: str, tally: Tally) -> None:
    client, tag, expected, head = chain.begin(TEN)
    with attached(packer(chain.place), [call.struck(f"error={error}")]) as trace:
        TEN.ask(client, tag)
        wait_until(lambda: trace.struck() or not client.status().journal["unpacked"], "nothing is packed")
        is_struck = bool(trace.struck())
        assert client.apply([], request_id=f"{tag}-none") is not None  # others are answered meanwhile
    tally.counts["struck" if is_struck else "not reached"] += 1
    wait_until(lambda: not client.status().journal["unpacked"], "it is not packed in the end")
    assert client.status().state == "ready"
    verify_whole(chain, TEN, tag, expected, head)


# ── The sync of the files ──

SYNC_FAILS = "inject=syncfs:error=EIO:when=1"


@pytest.mark.needs("syncfs")
def test_what_a_failed_sync_may_have_dropped_is_written_anew_by_the_next_daemon(chain: Chain) -> None:
    client, tag, expected, head = chain.begin(TEN)
    place = chain.place
    wait_until(lambda: not client.status().journal["unflushed"], "it is not synced")
    assert place.process is not None
    with attached(place.process.pid, [SYNC_FAILS], is_following=True, calls="syncfs") as trace:
        TEN.ask(client, tag)
        wait_until(lambda: client.status().state == "broken", "the sync does not fail")
        verify_broken(client)
        place.stop()
        assert len(trace.calls()) == 1, "another one would say that all is well"
    before = inodes(place)
    client = chain.start()
    wait_until(lambda: not client.status().journal["unflushed"], "it is not synced")
    after = inodes(place)
    written = {change.path for change in transactions(client, after=head)[-1].files if change.version}
    assert {path for path in after if after[path] != before[path]} == written
    verify_whole(chain, TEN, tag, expected, head)
    chain.restart()
    assert inodes(place) == after, "the doubt is gone"


def inodes(place: Workplace) -> dict[str, int]:
    return {path: (place.root / path).lstat().st_ino for path in standing(place) if not path.endswith("/")}
