"""editd_client.aio: what the asynchronous client does that the other one cannot, against the real daemon."""

from __future__ import annotations

import asyncio
import gc
import inspect
from typing import TYPE_CHECKING, assert_type

import pytest

from editd.wire import messages
from editd_client import session_state
from editd_client.aio import AsyncClient, AsyncEvents
from editd_client.changesets import AsyncChangeset, Changeset
from editd_client.client import Client
from editd_client.errors import EditdError, Unreachable
from editd_client.session_state import Events
from support.scripted_daemon import scripted
from support.workplace import workplace, write

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    from support.workplace import Workplace


def public(kind: type) -> dict[str, inspect.Signature]:
    """What a class offers, and how it is called."""
    names = [name for name in dir(kind) if not name.startswith("_")]
    return {
        name: inspect.signature(found) for name in names if callable(found := getattr(kind, name))
    }  # fmt: skip


@pytest.mark.parametrize(
    ("one", "other", "extra"),
    [
        (Client, AsyncClient, {"listen", "end", "subscribing"}),
        (Events, AsyncEvents, {"begin"}),
        (Changeset, AsyncChangeset, set()),
    ],
)
def test_both_faces_have_the_same_names_that_take_the_same(one: type, other: type, extra: set[str]) -> None:
    first, second = public(one), public(other)
    assert set(second) - set(first) == extra
    assert set(first) <= set(second)
    for name, signature in first.items():
        assert list(signature.parameters.values()) == list(second[name].parameters.values()), name
        assert getattr(one, name).__doc__, name


def test_a_bound_method_shows_what_it_takes_and_is_documented() -> None:
    assert list(inspect.signature(Client.read).parameters)[:3] == ["self", "path", "session"]
    assert inspect.iscoroutinefunction(AsyncClient.read)
    assert "start_line" in str(inspect.getdoc(AsyncClient.read))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workplace]:
    """One daemon for all that only ask."""
    with workplace(tmp_path_factory.mktemp("aio")) as place:
        place.start().close()
        yield place


def alive(
    place: Workplace, run: Callable[[AsyncClient], Awaitable[None]], *, reconnect: bool = False
) -> None:
    """Run this with a client of the place's daemon."""

    async def within() -> None:
        async with AsyncClient(place.socket, reconnect=reconnect) as client:
            await run(client)

    asyncio.run(within())


def test_results_are_typed_for_the_checkers_and_in_truth(served: Workplace) -> None:
    async def run(client: AsyncClient) -> None:
        made = await client.apply([write("a", "1\n")], message="one")
        assert_type(made, messages.ApplyResult)
        assert made.transaction is not None
        assert made.transaction.message == "one"
        read = await client.read("a")
        assert_type(read, messages.ReadResult)
        assert read.content == "1\n"
        assert_type(await client.undo(), messages.UndoResult)
        with pytest.raises(EditdError) as raised:
            await client.read("missing")
        assert raised.value.name == "file_missing"

    alive(served, run)
    with served.client() as client:
        assert_type(client.log(), messages.LogResult)


def test_a_hundred_calls_are_under_way_at_once_on_one_connection(served: Workplace) -> None:
    async def run(client: AsyncClient) -> None:
        head = (await client.status()).head
        made = await asyncio.gather(*(client.apply([write(f"f{n}", f"{n}\n")]) for n in range(100)))
        seqs = sorted(one.transaction.seq for one in made if one.transaction)
        assert seqs == list(range(head + 1, head + 101))
        read = await asyncio.gather(*(client.read(f"f{n}") for n in range(100)))
        assert [one.content for one in read] == [f"{n}\n" for n in range(100)]
        assert client.generation == 1

    alive(served, run)


def test_a_call_that_is_cancelled_breaks_nothing(served: Workplace) -> None:
    async def run(client: AsyncClient) -> None:
        for _ in range(20):
            slow = asyncio.create_task(client.lease_acquire(["never"], 60, wait=0.5))
            edit = asyncio.create_task(client.apply([write("a", "1\n")]))
            await asyncio.sleep(0)
            edit.cancel()
            slow.cancel()
            assert (await client.status()).state == "ready"
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await client.check()
        assert (await client.read("a")).content == "1\n"
        assert client.generation == 1

    with served.client() as owner:
        owner.session_open("owner")
        owner.lease_acquire(["never"], 60)
        alive(served, run)


def test_events_are_an_asynchronous_iterator_beside_other_calls(served: Workplace) -> None:
    async def run(client: AsyncClient) -> None:
        head = (await client.status()).head
        await client.apply([write("e", "0\n")])
        heard: list[int] = []

        async def listen() -> None:
            async for event in client.events(since=head):
                assert event.transaction is not None
                heard.append(event.transaction.seq)
                if len(heard) == 4:
                    return

        listening = asyncio.create_task(listen())
        for n in range(3):
            await client.apply([write("e", f"{n + 1}\n")])
        await asyncio.wait_for(listening, 20)
        assert heard == [head + 1, head + 2, head + 3, head + 4]
        async with await client.subscribe(paths=["b"]) as events:
            assert events.head == head + 4
            assert await events.wait(0.02) is None
            await client.apply([write("e", "9\n"), write("b", "9\n")])
            found = await events.wait(5)
            assert found is not None
        await client.apply([write("b", "10\n")])
        assert await events.wait(0.02) is None

    alive(served, run)


def test_a_wait_that_is_given_up_loses_no_event(served: Workplace) -> None:
    async def run(client: AsyncClient) -> None:
        head = (await client.status()).head
        events = client.events(since=head)
        heard: list[int] = []
        edits = [asyncio.create_task(client.apply([write("w", f"{n}\n")])) for n in range(50)]
        while len(heard) < 50:
            event = await events.wait(0.0001)
            if event is not None and event.transaction is not None:
                heard.append(event.transaction.seq)
        await asyncio.gather(*edits)
        assert heard == list(range(head + 1, head + 51))
        await events.close()
        await events.close()

    alive(served, run)


def test_events_that_nobody_takes_are_bounded_and_end_in_a_resync(
    served: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_state, "WAITING_MAX", 5)

    async def run(client: AsyncClient) -> None:
        events = await client.subscribe()
        for n in range(12):
            await client.apply([write("r", f"{n}\n")])
        await client.status()
        heard = [await events.wait(5) for _ in range(6)]
        assert [one.event for one in heard if one] == ["transaction"] * 5 + ["resync"]
        assert heard[5] is not None
        assert heard[5].data == {"from": events.head + 5, "head": events.head + 12, "reason": "behind"}
        await client.apply([write("r", "and on\n")])
        after = await events.wait(5)
        assert after is not None
        assert after.transaction is not None
        assert after.transaction.seq == events.head + 13

    alive(served, run)


def test_a_daemon_that_is_silent_is_unreachable_for_that_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading

    monkeypatch.setattr("editd_client.aio.SILENCE_SECONDS_MAX", 0.05)
    over = threading.Event()

    def answer(_: messages.Params) -> messages.Empty:
        over.wait(5)
        return messages.Empty()

    async def run() -> None:
        async with AsyncClient(str(tmp_path / "s"), reconnect=False) as client:
            with pytest.raises(Unreachable, match="has not answered `abort`") as raised:
                await client.abort("c")
            over.set()
        assert "may or may not" in raised.value.hint

    with scripted(tmp_path / "s", answer):
        asyncio.run(run())


@pytest.mark.parametrize("answer", [{"surprise": 1}, messages.Empty(), b"\xff"])
def test_what_is_no_answer_of_the_protocol_is_told_as_such(tmp_path: Path, answer: object) -> None:
    async def run() -> None:
        async with AsyncClient(str(tmp_path / "s"), reconnect=False) as client:
            with pytest.raises(Unreachable, match="`settle` is not understood"):
                await client.settle()

    with scripted(tmp_path / "s", lambda _: answer):
        asyncio.run(run())


@pytest.mark.filterwarnings("error::ResourceWarning", "error::pytest.PytestUnraisableExceptionWarning")
def test_closing_is_clean_whatever_is_under_way(served: Workplace) -> None:
    async def run() -> None:
        client = AsyncClient(served.socket)
        await client.status()
        events = await client.subscribe()
        waiting = [asyncio.create_task(client.apply([write("a", f"{n}\n")])) for n in range(10)]
        hearing = asyncio.create_task(events.wait())
        await asyncio.sleep(0)
        await client.close()
        await client.close()
        for said in (hearing, *waiting):
            with pytest.raises(Unreachable):
                await said
        with pytest.raises(Unreachable, match="closed"):
            await client.status()
        never = AsyncClient(served.socket)
        opening = asyncio.create_task(never.status())
        await asyncio.sleep(0)
        await never.close()
        with pytest.raises(Unreachable):
            await opening

    asyncio.run(run(), debug=True)
    gc.collect()


def test_where_no_daemon_listens_the_first_call_says_so(tmp_path: Path) -> None:
    async def run() -> None:
        with pytest.raises(Unreachable, match="No daemon answers"):
            await AsyncClient(str(tmp_path / "s")).status()

    asyncio.run(run())


@pytest.mark.parametrize("seconds", [1e12, float("inf"), float("nan"), -1.0])
def test_a_wait_that_no_clock_knows_is_refused(served: Workplace, seconds: float) -> None:
    async def run(client: AsyncClient) -> None:
        with pytest.raises(EditdError, match="`wait` is a number of seconds, up to a day"):
            await client.lease_acquire(["a"], 1.0, wait=seconds)
        with pytest.raises(EditdError, match="`timeout` is a number of seconds, up to a day"):
            await client.settle(seconds)
        await client.status()

    alive(served, run)
    with served.client() as client:
        with pytest.raises(EditdError, match="`wait` is") as raised:
            client.lease_acquire(["a"], 1.0, wait=seconds)
        assert (raised.value.name, raised.value.data) == ("invalid_params", {"field": "wait"})
        with pytest.raises(EditdError, match="`timeout` is"):
            client.settle(seconds)
        client.status()
