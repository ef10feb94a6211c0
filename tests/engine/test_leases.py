"""engine.leases: against a simple oracle at random, and what it promises one by one."""

from __future__ import annotations

import errno
import itertools
import random
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from editd.engine.leased_paths import WILDCARDS_MAX
from editd.engine.leases import Leases
from editd.errors import InvalidParams, IoError, Leased, Overloaded, Refused
from editd.store.session_store import Lease, Session, SessionStore
from editd.values.glob import Glob
from editd.values.path import WorkspacePath
from editd.values.path_rules import Bounds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SECOND = 1_000_000
PATHS = [WorkspacePath("/".join(names)) for n in (1, 2, 3) for names in itertools.product("ab", repeat=n)]
SESSIONS = "rstu"
GLOBS = ["a", "a/", "b/*", "**", "a/**/b", "*/a", "[ab]", "a/b/?", "**/b", "b"]


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[SessionStore]:
    made = SessionStore(str(tmp_path), 0)
    for name in SESSIONS:
        made.put_session(Session(name, "0" * 64, None, Bounds(None, None), None, "allow", 60.0, 0, False))
    yield made
    made.close(is_clean=True)


def globs(*texts: str) -> tuple[Glob, ...]:
    return tuple(map(Glob.parse, texts))


def covered(paths: tuple[Glob, ...]) -> frozenset[WorkspacePath]:
    """By brute force: every path up to three names deep; the globs above meet there if they meet at all."""
    return frozenset(path for path in PATHS if any(glob.matches(path) for glob in paths))


@dataclass
class Oracle:
    """The same, said simply: sets of paths, and lists."""

    held: dict[int, tuple[str, frozenset[WorkspacePath], int]] = field(default_factory=dict)  # by token
    queue: list[tuple[int, str, frozenset[WorkspacePath], int]] = field(default_factory=list)

    def is_free(self, session: str, paths: frozenset[WorkspacePath], before: int | None = None) -> bool:
        others = [entry[:2] for entry in self.held.values()]
        others += [entry[1:3] for entry in self.queue[:before]]
        return not any(who != session and paths & theirs for who, theirs in others)

    def grant(self, now: int) -> list[int]:
        """The numbers of those in the queue that get what they wait for."""
        granted = []
        place = 0
        while place < len(self.queue):
            number, session, paths, _ = self.queue[place]
            if self.is_free(session, paths, place):
                del self.queue[place]
                granted.append(number)
                self.held[-number - 1] = (session, paths, now)  # until its token is known
            else:
                place += 1
        return granted


@pytest.mark.parametrize("seed", range(60))
def test_leases_do_what_a_simple_oracle_does(registry: SessionStore, seed: int) -> None:
    chance = random.Random(seed)
    leases, oracle = Leases(registry), Oracle()
    now, highest, number = 0, 0, 0
    waits: dict[int, object] = {}
    got: dict[int, Lease] = {}

    def take_up(ttl_of: dict[int, int]) -> None:
        """Have both give what is free, and compare who got it."""
        nonlocal highest
        got.clear()
        leases.grant_waiting(now)
        expected = oracle.grant(now)
        assert list(got) == expected
        for waiter in expected:
            session, paths, _ = oracle.held.pop(-waiter - 1)
            lease = got[waiter]
            assert lease.token > highest
            highest = lease.token
            oracle.held[lease.token] = (session, paths, now + ttl_of[waiter] * SECOND)
            del waits[waiter]

    ttls: dict[int, int] = {}
    for _ in range(120):
        now += chance.randrange(SECOND)
        for lease in leases.expire(now):
            assert oracle.held.pop(lease.token)[2] <= now
        assert all(end > now for _, _, end in oracle.held.values())
        take_up(ttls)
        session, ttl = chance.choice("rstu"), chance.randint(1, 8)
        paths = globs(*chance.sample(GLOBS, chance.randint(1, 2)))
        match chance.choice(["acquire", "acquire", "wait", "release", "renew", "withdraw", "end", "restart"]):
            case "acquire":
                is_free = oracle.is_free(session, covered(paths))
                try:
                    lease = leases.acquire(session, paths, ttl, now)
                except Leased:
                    assert not is_free
                else:
                    assert is_free
                    assert lease.token > highest
                    highest = lease.token
                    oracle.held[lease.token] = (session, covered(paths), now + ttl * SECOND)
            case "wait":
                number += 1
                ttls[number] = ttl

                def tell(result: Lease | Refused, waiter: int = number) -> None:
                    assert isinstance(result, Lease)
                    got[waiter] = result

                waits[number] = leases.wait(session, paths, ttl, tell)
                oracle.queue.append((number, session, covered(paths), ttl))
            case "release" if oracle.held:
                token = chance.choice(list(oracle.held))
                del oracle.held[token]
                leases.release(next(lease.id for lease in leases if lease.token == token))
            case "renew" if oracle.held:
                token = chance.choice(list(oracle.held))
                who, theirs, _ = oracle.held[token]
                oracle.held[token] = (who, theirs, now + ttl * SECOND)
                leases.renew(next(lease.id for lease in leases if lease.token == token), ttl, now)
            case "withdraw" if waits:
                gone = chance.choice(list(waits))
                assert leases.withdraw(waits.pop(gone))  # type: ignore[arg-type]
                oracle.queue = [entry for entry in oracle.queue if entry[0] != gone]
            case "end":
                ended = {lease.token for lease in leases.end_session(session)}
                assert ended == {token for token, entry in oracle.held.items() if entry[0] == session}
                for token in ended:
                    del oracle.held[token]
                for entry in [entry for entry in oracle.queue if entry[1] == session]:
                    oracle.queue.remove(entry)
                    del waits[entry[0]]
            case "restart" if not waits:
                registry.close(is_clean=False)
                registry = SessionStore(registry._path.rpartition("/")[0], 0)
                leases = Leases(registry)
        take_up(ttls)
        assert {lease.token for lease in leases} == set(oracle.held)
        assert leases.waiting == len(oracle.queue)
        for path in PATHS:
            over = {lease.token for lease in leases.against(None, path, now)}
            assert over == {token for token, entry in oracle.held.items() if path in entry[1]}
    registry.close(is_clean=True)


def test_who_came_first_is_not_overtaken_by_who_asks_for_less(registry: SessionStore) -> None:
    leases = Leases(registry)
    held = leases.acquire("r", globs("a/b"), 10, 0)
    served: list[str] = []

    def serve(result: Lease | Refused) -> None:
        assert isinstance(result, Lease)
        served.append(result.session)

    leases.wait("s", globs("a/"), 10, serve)
    with pytest.raises(Leased) as refused:
        leases.acquire("t", globs("a/c"), 10, 0)  # free, but it would keep s waiting
    assert refused.value.data["waiting"] == "s"
    leases.wait("t", globs("a/c"), 10, serve)
    leases.wait("u", globs("b"), 10, serve)
    leases.grant_waiting(1)
    assert served == ["u"]
    leases.release(held.id)
    leases.grant_waiting(2)
    assert served == ["u", "s"]
    leases.end_session("s")
    leases.grant_waiting(3)
    assert served == ["u", "s", "t"]


def test_what_makes_no_lease_is_refused(registry: SessionStore) -> None:
    leases = Leases(registry)
    for paths, ttl in ((globs(), 1.0), (globs(*["a"] * 65), 1.0), (globs("a"), 0.0), (globs("a"), 86401.0)):
        with pytest.raises(InvalidParams):
            leases.acquire("r", paths, ttl, 0)
    with pytest.raises(InvalidParams) as refused:
        leases.renew("gone", 5, 0)
    assert "lease.list" in refused.value.hint
    assert len(leases) == 0
    held = leases.acquire("r", globs("a"), 86400.0, 0)
    for ttl in (0.0, 86401.0):
        with pytest.raises(InvalidParams):
            leases.renew(held.id, ttl, 0)
    assert leases.get(held.id) == held


def test_what_cannot_be_written_down_keeps_no_lease_from_its_end(
    registry: SessionStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lease of a session that is gone, or whose time is over, is no more: the next daemon knows it."""
    leases = Leases(registry)
    leases.acquire("s", globs("a"), 10, 0)
    leases.acquire("t", globs("b"), 10, 0)
    told: list[Lease | Refused] = []
    for session, path in (("r", "a"), ("u", "c")):
        leases.wait(session, globs(path), 10, told.append)
    registry.drop_session("s")
    with monkeypatch.context() as failing:
        failing.setattr(registry, "_write", _fail)
        assert [lease.session for lease in leases.end_session("s")] == ["s"]
        assert leases.grant_waiting(1) == []
        assert [lease.session for lease in leases.expire(10 * SECOND)] == ["t"]
    assert [type(one) for one in told] == [IoError, IoError]
    assert (len(leases), leases.waiting) == (0, 0)
    registry.close(is_clean=True)
    again = Leases(SessionStore(str(tmp_path), 0))
    assert [lease.session for lease in again] == ["t"], "that s is gone is known"
    assert [lease.session for lease in again.expire(10 * SECOND)] == ["t"]


def _fail(*_words: object, **_more: object) -> None:
    raise IoError(OSError(errno.ENOSPC, "full"), "It cannot be written")


def test_a_lease_that_is_over_and_not_swept_yet_is_in_nobodys_way(registry: SessionStore) -> None:
    leases = Leases(registry)
    leases.acquire("r", globs("**"), 1.0, 0)
    path = WorkspacePath("a")
    assert [lease.session for lease in leases.against(None, path, SECOND - 1)] == ["r"]
    assert list(leases.against(None, path, SECOND + 1)) == []


def calls_of(work: Callable[[], object]) -> int:
    """Return the number of functions that `work` calls, which no other load changes."""
    events: list[str] = []

    def note(_frame: object, event: str, _argument: object) -> None:
        events.append(event)

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return sum(event in ("call", "c_call") for event in events)


def test_the_work_for_a_lease_does_not_grow_with_the_leases_that_are_held(
    registry: SessionStore, tmp_path: Path
) -> None:
    """The attack: each lease was compared with each other, 0.2 s of all clients' time for each request."""
    leases = Leases(registry)

    def acquire(number: int) -> int:
        paths = globs(*(f"{number}/{'long' * 20}/{place}" for place in range(64)))
        return calls_of(lambda: leases.acquire(f"s{number}", paths, 1000, 0, is_of_name=True))

    _, second, *_, last = [acquire(number) for number in range(100)]
    assert last < 2 * second
    kept: list[Leases] = []
    registry.close(is_clean=True)
    start = calls_of(lambda: kept.append(Leases(SessionStore(str(tmp_path), 0))))
    assert len(kept[0]) == 100
    assert start < 100 * 64 * 40, "a start compares no lease with another"


def test_the_globs_of_all_leases_and_of_all_waiting_requests_are_limited(registry: SessionStore) -> None:
    leases = Leases(registry)
    fifties = [
        globs(*(f"{number}/*" for number in range(first, first + 50)))
        for first in range(0, WILDCARDS_MAX, 50)
    ]
    held = [leases.acquire("r", fifty, 10, 0) for fifty in fifties]
    for fifty in fifties:
        leases.wait("s", fifty, 10, lambda _ended: None)
    for refused in (
        lambda: leases.acquire("r", globs("more/*"), 10, 0),
        lambda: leases.wait("s", globs("more/*"), 10, lambda _ended: None),
    ):
        with pytest.raises(Overloaded, match="with wildcards") as refusal:
            refused()
        assert "Lease a folder" in refusal.value.hint
    leases.acquire("r", globs("more/", "more/deep/**"), 10, 0)
    leases.release(held[-1].id)
    leases.acquire("r", globs("more/*"), 10, 0)
