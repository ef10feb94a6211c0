"""SIGKILL at each system call of an exchange with other hosts: of its process, of the daemon, of both.

One scenario takes in two entries of another host, sets a transaction of this host aside, and lands another
one. The other joins a log. Whatever is killed, the next exchange ends it: each transaction is in the log
once, applied or set aside, and all hosts have the same files. CI tries a sample of the calls.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from editd_client.errors import EditdError, Unreachable
from support import injection
from support.crash_checks import PATIENCE_SECONDS, child, is_over, wait_until
from support.hosts import exchange, hosts
from support.injection import Call, attached
from support.kill_chain import KILL, worth_killing_at
from support.log_checker import Acknowledged, check_log, log_of
from support.workplace import replace, workplace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from editd_client.client import Client
    from support.log_checker import Entry
    from support.workplace import Workplace

FILES = {"a.txt": "".join(f"line {number}\n" for number in range(1, 10))}
WORKER = "editd.remote.exchange_worker"
OUTCOMES = ["applied", "applied", "applied", "aside"]  # of a round, in any order
STARTS = {"vfork", "clone", "clone3", "wait4", "waitid"}  # the process of the exchange runs git

pytestmark = pytest.mark.skipif(injection.missing() is not None, reason=f"{injection.missing()}")


class Exchanges:
    """Two hosts. The second one is killed in each round of the scenario."""

    def __init__(self, places: list[Workplace], clients: list[Client], server: Path) -> None:
        self.place = places[1]
        self.places = places
        self.other, self.client = clients
        self.server = server
        self.known: list[Acknowledged] = []
        self.lines = {number: f"line {number}" for number in (2, 5, 8)}
        self.missed = 0

    def begin(self) -> int:
        """Let both hosts edit, with one conflict, and return the number of entries before."""
        exchange(self.other, self.client)
        before = len(log_of(self.server))
        self.client.remote_pause()
        mine = dict(self.lines)
        self._edit(self.other, "host0", 5, self.lines)
        self._edit(self.other, "host0", 2, self.lines)
        self._edit(self.client, "host1", 8, self.lines)
        self._edit(self.client, "host1", 5, mine)
        exchange(self.other)
        self.worker()
        return before

    def _edit(self, client: Client, host: str, number: int, lines: dict[int, str]) -> None:
        line, token = lines[number], f"{host} {number} {len(self.known)}"
        made = client.apply([replace("a.txt", f"{line}\n", f"{token}\n")], on_stale="merge").transaction
        assert made is not None
        lines[number] = token
        self.known.append(Acknowledged(host, made.id, made.seq, {"a.txt": token}, {"a.txt": line}))

    def worker(self) -> int:
        """Return the pid of the process of the exchange, which a pause leaves running for a while."""
        wait_until(lambda: child(self.place, WORKER), "no process of the exchange")
        found = child(self.place, WORKER)
        assert found is not None
        return found

    def is_over(self, before: int) -> bool:
        return len(log_of(self.server)) == before + len(OUTCOMES)

    def verify(self, before: int) -> list[Entry]:
        """Let the hosts exchange, and check what the round has made of the log and of the files."""
        process = self.place.process
        assert process is not None
        if is_over(process.pid):
            process.wait(PATIENCE_SECONDS)
            self.client.close()
            self.client = self.place.start()
        self.client.remote_resume()
        exchange(self.other, self.client)
        entries = log_of(self.server)
        made = [entry.trailers["Outcome"] for entry in entries[before:]]
        assert sorted(made) == sorted(OUTCOMES), made
        assert {entry.origin for entry in entries[before:]} == {one.id for one in self.known[-4:]}
        assert self.places[0].files() == self.places[1].files()
        assert self.client.check().problems == []
        return entries


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exchanges]:
    with hosts(tmp_path_factory.mktemp("exchanges"), 2, FILES) as (places, clients, server):
        made = Exchanges(places, clients, server)
        yield made
        made.client.close()
        check_log(
            server, made.known, {path: text.encode() for path, text in FILES.items()},
            [place.files() for place in places],
        )  # fmt: skip


def of_an_exchange(calls: list[Call]) -> list[Call]:
    """Return the calls that change something, and those that start git or wait for it."""
    last = max((place for place, call in enumerate(calls) if call.is_change), default=0)
    return [call for call in calls[: last + 1] if call.is_change or call.name in STARTS]


def sample(calls: list[Call], count: int, *, is_long: bool) -> list[Call]:
    if is_long:
        return calls
    return [calls[(2 * step + 1) * len(calls) // (2 * count)] for step in range(count)]


@pytest.mark.timeout(7200)
@pytest.mark.parametrize(("who", "count"), [("the exchange", 0), ("both", 0), ("the daemon", 1)])
def test_an_exchange_is_ended_by_the_next_one_wherever_it_is_killed(
    two: Exchanges, who: str, count: int, is_long: bool
) -> None:
    if not (count or is_long):
        pytest.skip("the sample leaves it out: run it with --long")

    def target() -> int:
        process = two.place.process
        assert process is not None
        return process.pid if who == "the daemon" else two.worker()

    before = two.begin()
    with attached(target()) as trace:
        two.client.remote_resume()
        wait_until(lambda: two.is_over(before), "it does not end")
        calls = trace.calls()
    two.verify(before)
    calls = worth_killing_at(calls, count, is_long=True) if who == "the daemon" else of_an_exchange(calls)
    missed = 0
    tried = sample(calls, count, is_long=is_long)
    for call in tried:
        before, pid = two.begin(), target()
        try:
            missed += not killed_at(two, call, pid, before)
            if who == "both":
                two.place.kill()
            two.verify(before)
        except BaseException:
            print(f"{who} killed at {call}\n{two.place.log()}")
            raise
    print(f"exchange: {who}: {len(tried)} kills, {missed} missed")
    assert missed <= max(1, len(tried) // 4)


def killed_at(two: Exchanges, call: Call, pid: int, before: int) -> bool:
    """Let the second host exchange, and kill a process of it at a call. Return whether it came to that."""
    with attached(pid, [call.struck(KILL)]):
        with contextlib.suppress(Unreachable):
            two.client.remote_resume()
        wait_until(lambda: is_over(pid) or two.is_over(before), "it hangs")
    return is_over(pid)


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("who", ["the exchange", "the daemon"])
def test_a_join_is_made_again_wherever_it_is_killed(
    two: Exchanges, tmp_path: Path, who: str, is_long: bool
) -> None:
    if not is_long:
        pytest.skip("the sample leaves it out: run it with --long")
    calls = joined(two, tmp_path / "first", who, None)
    tried = worth_killing_at(calls, 0, is_long=True) if who == "the daemon" else of_an_exchange(calls)
    for number, call in enumerate(tried):
        joined(two, tmp_path / str(number), who, call)
    print(f"join: {who}: {len(tried)} kills")


def joined(two: Exchanges, folder: Path, who: str, call: Call | None) -> list[Call]:
    """Join with a new host, which is killed at a call; join again, and check its files."""
    with workplace(folder) as place, contextlib.ExitStack() as stack:
        client = stack.enter_context(place.start())
        client.remote_init(str(two.server), dry_run=True)  # which starts the process of the exchange
        assert place.process is not None
        pid = place.process.pid if who == "the daemon" else child(place, WORKER)
        assert pid is not None
        is_joined = False
        with attached(pid, [] if call is None else [call.struck(KILL)]) as trace:
            with contextlib.suppress(EditdError, Unreachable):
                client.remote_join(str(two.server))
                is_joined = True
            calls = trace.calls()
        assert is_joined == (call is None or not is_over(pid)), call
        if is_over(place.process.pid):
            place.process.wait(PATIENCE_SECONDS)
            client.close()
            client = stack.enter_context(place.start())
        if client.remote_status().state == "none":
            client.remote_join(str(two.server))
        exchange(two.other, client)
        assert place.files() == two.places[0].files(), call
        assert client.check().problems == []
        return calls
