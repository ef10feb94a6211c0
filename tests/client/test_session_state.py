"""editd_client.session_state: what a client goes on with when its connection, or the daemon, is gone."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest

from editd.wire import messages
from editd_client.aio import AsyncClient
from editd_client.client import Client
from editd_client.errors import EditdError, Unreachable
from support.crash_checks import wait_until
from support.scripted_daemon import scripted
from support.socket_proxy import MOMENTS, Moment, cutter
from support.workplace import replace, workplace, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from support.workplace import Workplace


@contextlib.contextmanager
def killed_all_the_time(place: Workplace, times: int, seed: int) -> Iterator[threading.Event]:
    """Kill the daemon and start it again, so often; the event is set when that is over."""
    choice, over, failures = random.Random(seed), threading.Event(), list[BaseException]()

    def torment() -> None:
        try:
            for _ in range(times):
                time.sleep(choice.uniform(0.0, 0.25))
                place.kill()
                place.start().close()
        except BaseException as failure:  # noqa: BLE001  # told in the test's own thread
            failures.append(failure)
        finally:
            over.set()

    thread = threading.Thread(target=torment)
    thread.start()
    try:
        yield over
    finally:
        thread.join()
        assert not failures, failures


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workplace]:
    """One daemon for all that only cut the connection to it."""
    with workplace(tmp_path_factory.mktemp("cut")) as place:
        place.start().close()
        yield place


def add(path: str, line: str) -> messages.Replace:
    """One more line at the end: made twice, it stands there twice."""
    return replace(path, "end\n", f"{line}\nend\n")


def test_each_acknowledged_edit_of_a_stream_is_there_once_however_often_the_daemon_dies(
    place: Workplace, is_long: bool
) -> None:
    place.start().close()
    written = 0
    with Client(place.socket) as client:
        client.apply([write("a", "end\n")])
        with killed_all_the_time(place, 100 if is_long else 2, seed=1) as over:
            while not over.is_set() or written < 20:
                client.apply([add("a", str(written))])
                written += 1
        lines = client.read("a").content.splitlines()
        assert lines == [*map(str, range(written)), "end"]
        assert client.status().head == written + 1
        assert client.generation > 2
        assert client.check().ok
    print(f"{written} edits, {client.generation - 1} connections anew")


def test_pipelined_edits_and_a_subscription_outlive_every_death_without_a_gap_or_a_double(
    place: Workplace, is_long: bool
) -> None:
    place.start().close()

    async def run() -> None:
        heard: list[int] = []
        written: dict[str, int] = {}
        async with AsyncClient(place.socket) as client, AsyncClient(place.socket) as listener:

            async def listen() -> None:
                async for event in listener.events(since=0):
                    if event.transaction is not None:
                        heard.append(event.transaction.seq)
                        if event.transaction.message == "the last":
                            return

            async def author(path: str, over: threading.Event) -> None:
                written[path] = 0
                await client.apply([write(path, "end\n")])
                while not over.is_set() or written[path] < 10:
                    await client.apply([add(path, str(written[path]))])
                    written[path] += 1

            for each in (client, listener):
                await each.status()  # who was never connected is told at once that nobody answers
            listening = asyncio.create_task(listen())
            with killed_all_the_time(place, 60 if is_long else 2, seed=2) as over:
                await asyncio.gather(*(author(f"f{n}", over) for n in range(4)))
                await asyncio.to_thread(over.wait)
            last = await client.apply([write("last", "")], message="the last")
            await asyncio.wait_for(listening, 60)
            assert last.transaction is not None
            assert heard == list(range(1, last.transaction.seq + 1))
            assert last.transaction.seq == sum(written.values()) + len(written) + 1
            for path, count in written.items():
                assert (await client.read(path)).content.splitlines() == [*map(str, range(count)), "end"]
            print(f"{len(heard)} transactions, {listener.generation - 1} connections of the listener anew")

    asyncio.run(run())


@pytest.mark.parametrize("is_async", [False, True])
def test_a_daemon_that_dies_as_it_is_found_again_is_waited_for_once_more(
    place: Workplace, *, is_async: bool
) -> None:
    place.start().close()
    found = threading.Event()

    def let_one_in_and_die() -> None:
        os.unlink(place.socket)
        with socket.socket(socket.AF_UNIX) as short_lived:
            short_lived.bind(place.socket)
            short_lived.listen(1)
            found.set()
            short_lived.accept()[0].close()
            os.unlink(place.socket)
        place.start().close()

    async def ask_twice() -> int:
        async with AsyncClient(place.socket) as client:
            await client.status()
            die()
            return (await client.status()).pid

    def die() -> None:
        place.kill()
        thread.start()
        assert found.wait(10)

    thread = threading.Thread(target=let_one_in_and_die)
    if is_async:
        pid = asyncio.run(ask_twice())
    else:
        with Client(place.socket) as client:
            client.status()
            die()
            pid = client.status().pid
    thread.join()
    assert place.process is not None
    assert pid == place.process.pid


REPEATED: dict[str, Callable[[Client], object]] = {
    "apply": lambda client: client.apply([add("a", "more")]),
    "undo": lambda client: client.undo(),
    "redo": lambda client: (client.undo(), client.redo()),
    "rollback": lambda client: client.rollback("s"),
    "restore": lambda client: client.restore(client.status().head - 1),
    "read": lambda client: client.read("a"),
    "log": lambda client: client.log(),
}


def test_whatever_is_repeated_takes_effect_once_wherever_the_connection_is_cut(
    served: Workplace, tmp_path: Path
) -> None:
    with cutter(tmp_path / "c", served.socket) as wire, Client(str(tmp_path / "c")) as client:
        for moment in MOMENTS:
            for name, act in REPEATED.items():
                client.apply([write("a", "1\nend\n")])
                client.apply([write("a", "2\nend\n")], session="s")
                client.read("a")
                head, cuts = client.status().head, wire.cuts
                wire.cut = moment
                act(client)
                assert wire.cuts == cuts + 1, name
                changes = {"read": 0, "log": 0, "redo": 2}.get(name, 1)
                assert client.status().head == head + changes, (name, moment)


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_transaction_comes_about_once_wherever_the_connection_is_cut(
    served: Workplace, tmp_path: Path, moment: Moment
) -> None:
    with cutter(tmp_path / "c", served.socket) as wire, Client(str(tmp_path / "c")) as client:
        client.apply([write("a", "end\n")])
        for step in range(6):
            head = client.status().head
            with client.transaction(f"step {step}") as t:
                acts: list[Callable[[], object]] = [
                    lambda: t.read("a"),
                    lambda step=step: t.stage([add("a", f"one {step}")]),  # type: ignore[misc]
                    lambda step=step: t.replace("a", "end\n", f"two {step}\nend\n"),  # type: ignore[misc]
                    lambda: t.read("a"),
                    t.diff,
                ]
                for number, act in enumerate(acts):
                    wire.cut = moment if number == step else None
                    act()
                wire.cut = moment if step == 5 else None
            assert t.result.transaction is not None
            assert t.result.transaction.seq == head + 1
            assert client.status().head == head + 1
            wanted = [f"{word} {n}" for n in range(step + 1) for word in ("one", "two")]
            assert client.read("a").content.splitlines() == [*wanted, "end"]
        assert wire.cuts == 6


HELLO = messages.HelloResult(
    server=messages.Server(name="editd", version="0"), protocol=1,
    workspace=messages.Workspace(root="/", id="0"), head=0, limits={}, dialects=[], encodings=[],
)  # fmt: skip

UNSAFE: dict[str, Callable[[Client], object]] = {
    "session.open": lambda client: client.session_open("s"),
    "lease.acquire": lambda client: client.lease_acquire(["a"], 1.0),
    "publish": lambda client: client.publish("it"),
    "exec.end": lambda client: client.exec_end("e", 0),
}


def test_what_must_not_be_done_twice_says_what_is_not_known(tmp_path: Path) -> None:
    with scripted(tmp_path / "s", lambda _: None) as asked:
        for name, act in UNSAFE.items():
            with Client(str(tmp_path / "s")) as client:
                with pytest.raises(Unreachable, match=f"went away during `{name}`") as raised:
                    act(client)
                assert raised.value.hint.startswith("It is not known whether "), name
        assert [params.method for params in asked] == list(UNSAFE)


def test_a_daemon_that_dies_of_a_request_is_asked_five_times(tmp_path: Path) -> None:
    def dies(params: messages.Params) -> messages.HelloResult | None:
        return HELLO if isinstance(params, messages.Hello) else None

    with scripted(tmp_path / "s", dies) as asked, Client(str(tmp_path / "s")) as client:
        with pytest.raises(Unreachable, match="went away during `status`"):
            client.status()
        assert [params.method for params in asked] == ["status", *["hello", "status"] * 4]


def test_what_was_read_before_the_daemon_died_still_makes_an_edit_stale(place: Workplace) -> None:
    place.start().close()
    edits: list[messages.AnyEdit] = [
        add("a", "late"),
        messages.Delete(path="a"),
        messages.Patch(patch="--- a/a\n+++ b/a\n@@ -2,1 +2,1 @@\n-end\n+END\n"),
        messages.Chmod(path="a", executable=True),
        messages.Move(path="a", to="b"),
    ]
    place.write({"a": "mine\nend\n"})
    with Client(place.socket) as client:
        for session in (None, "a name"):
            client.read("a", session=session)
        with AsyncClientRunner(place) as other:
            other.read("a")
            place.kill()
            place.write({"a": "theirs\nend\n"})
            place.start().close()
            for edit in edits:
                for session in (None, "a name"):
                    with pytest.raises(EditdError) as raised:
                        client.apply([edit], session=session)
                    assert raised.value.name == "stale", edit
                assert other.refused(edit) == "stale"
        assert client.read("a").content == "theirs\nend\n"
        client.apply([add("a", "now")])
        assert client.read("a").content == "theirs\nnow\nend\n"


class AsyncClientRunner:
    """An asynchronous client, a step at a time."""

    def __init__(self, place: Workplace) -> None:
        self._loop = asyncio.new_event_loop()
        self._client = AsyncClient(place.socket)

    def __enter__(self) -> AsyncClientRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.run_until_complete(self._client.close())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    def read(self, path: str) -> str:
        return self._loop.run_until_complete(self._client.read(path)).content

    def refused(self, edit: messages.AnyEdit) -> str:
        try:
            self._loop.run_until_complete(self._client.apply([edit]))
        except EditdError as refusal:
            return refusal.name
        return ""


def test_a_session_is_attached_again_and_its_end_is_told(place: Workplace, tmp_path: Path) -> None:
    place.start().close()
    with Client(place.socket) as client, Client(place.socket) as other:
        client.hello("ann")
        opened = client.session_open("s")
        client.apply([write("a", "1\n")])
        place.kill()
        place.start().close()
        made = client.apply([write("b", "1\n")]).transaction
        assert made is not None
        assert (made.session, made.actor) == ("s", "ann")
        with cutter(tmp_path / "c", place.socket) as wire, Client(str(tmp_path / "c")) as cut:
            cut.hello("bob", opened.session, opened.token)
            other.session_close("s", force=True)
            wire.cut = MOMENTS[0]
            with pytest.raises(EditdError) as raised:
                cut.read("a")
            assert raised.value.name == "unknown_session"
            cut.session_open("t")
            made = cut.apply([write("b", "2\n")]).transaction
            assert made is not None
            assert made.session == "t"


def test_events_go_on_after_a_restart_and_end_with_a_stop(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.start().close()
    with Client(place.socket) as client, Client(place.socket) as author:
        events, transactions = client.subscribe(), client.events(events=["transaction"])
        author.apply([write("a", "1\n")])
        place.stop()
        place.start().close()
        author.apply([write("a", "2\n")])
        heard = [next(events) for _ in range(4)]
        assert [one.event for one in heard] == ["transaction", "shutdown", "resync", "transaction"]
        assert dict(heard[2].data) == {"from": 1, "head": 1, "reason": "reconnected"}
        assert [
            one.transaction.seq for one in (next(transactions), next(transactions)) if one.transaction
        ] == [
            1,
            2,
        ]
        monkeypatch.setattr("editd_client.connect.RECONNECT_SECONDS_MAX", 0.1)
        place.stop()
        assert [one.event for one in events] == ["shutdown"]
        assert list(transactions) == []
        with pytest.raises(Unreachable, match="No daemon answers"):
            author.status()


def test_a_client_that_started_the_daemon_starts_it_again(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in place.environment.items():
        monkeypatch.setenv(name, value)
    with Client.connect(str(place.root)) as client:
        try:
            first = client.status().pid
            client.apply([write("a", "1\n")])
            os.kill(first, signal.SIGKILL)
            wait_until(lambda: not os.path.exists(f"/proc/{first}/status"), "the daemon is gone")
            made = client.lease_list()  # nothing had been sent: the daemon was found gone before
            assert made.leases == []
            assert client.status().pid != first
            assert client.read("a").content == "1\n"
        finally:
            client.shutdown()


@pytest.mark.parametrize(
    ("edits", "word"),
    [
        ([write("large", "A" * 70_000_000)], "The message is longer than 67108864 bytes. Send"),
        ([write("many", "A" * 40)] * 400_000, "over a limit"),  # under 64 MiB, which the daemon alone refuses
    ],
)
def test_what_is_more_than_the_daemon_takes_is_refused_as_too_large(
    served: Workplace, edits: list[messages.AnyEdit], word: str
) -> None:
    async def later() -> None:
        async with AsyncClient(served.socket) as client:
            with pytest.raises(EditdError, match=word) as raised:
                await client.apply(edits)
            assert raised.value.name == "too_large"
            await client.status()
            assert client.generation <= 2

    with Client(served.socket) as client:
        with pytest.raises(EditdError, match=word) as raised:
            client.apply(edits)
        assert raised.value.name == "too_large"
        client.status()
        assert client.generation <= 2
    asyncio.run(later())


def test_where_nobody_knows_which_of_several_calls_was_refused_all_of_them_are_told(
    served: Workplace,
) -> None:
    async def run() -> None:
        async with AsyncClient(served.socket) as holder, AsyncClient(served.socket) as client:
            await holder.session_open("holder")
            await holder.lease_acquire(["told"], 60)
            await client.session_open("waiter")
            waiting = asyncio.create_task(client.lease_acquire(["told"], 60, wait=60))
            while not (await holder.lease_list()).waiting:
                pass
            calls = waiting, client.apply([write("many", "A" * 40)] * 400_000)
            async with asyncio.timeout(20):
                ends = await asyncio.gather(*calls, return_exceptions=True)
            assert [type(end) for end in ends] == [Unreachable, Unreachable]
            assert all("over a limit" in str(end) for end in ends)
            await client.status()

    asyncio.run(run())
