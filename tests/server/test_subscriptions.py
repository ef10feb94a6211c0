"""server.subscriptions: who hears of what, in which order, and what becomes of those who do not listen."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import socket
import statistics
import subprocess
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgpack
import pytest

from editd.server.connection import Connections
from editd.server.connection import SocketConnection as Connected
from editd.server.subscriptions import (
    CATCH_UP_TRANSACTIONS,
    EventFormat,
    OutgoingEvent,
    Subscription,
    SubscriptionState,
)
from editd.values.glob import parse_all
from editd.values.path import WorkspacePath
from editd.wire.connection import Connection
from editd.wire.limits import LIMITS
from editd_client.errors import EditdError
from support.crash_checks import in_company
from support.workplace import Workplace, replace, workplace, write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd_client.client import Client

SECONDS = 20.0


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workplace]:
    with workplace(tmp_path_factory.mktemp("subscriptions") / "place") as made:
        made.start().close()
        yield made


@pytest.fixture
def client(shared: Workplace) -> Iterator[Client]:
    with shared.client() as made:
        made.hello("writer")
        yield made


class Ear:
    """A subscriber of the test's own making, which reads when it is told to."""

    def __init__(self, place: Workplace, encoding: str = "line") -> None:
        self.encoding = encoding
        self.stream = socket.socket(socket.AF_UNIX)
        self.stream.connect(place.socket)  # without a time limit: with one, a full backlog is an error
        self.stream.settimeout(SECONDS)
        self._unpacker = msgpack.Unpacker(strict_map_key=False, max_buffer_size=1 << 30)
        self._buffer = b""
        self.received_bytes = 0

    def __enter__(self) -> Ear:
        return self

    def __exit__(self, *_: object) -> None:
        self.stream.close()

    def ask(self, method: str, **params: Any) -> Any:
        """The result of a request; nothing else may have come before it."""
        self.send(method, params)
        answer = self.next()
        if self.encoding == "msgpack":
            assert answer[:3] == [1, 1, None], answer
            return answer[3]
        return answer["result"]

    def send(self, method: str, params: dict[str, Any]) -> None:
        if self.encoding == "msgpack":
            self.stream.sendall(msgpack.packb([0, 1, method, [params]]) or b"")
            return
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
        framed = self.encoding == "header"
        self.stream.sendall(b"Content-Length: %d\r\n\r\n%b" % (len(body), body) if framed else body + b"\n")

    def next(self) -> Any:
        """The next message, whatever it is."""
        while (message := self._whole()) is None:
            received = self.stream.recv(1 << 16)
            if not received:
                raise EOFError
            self.received_bytes += len(received)
            if self.encoding == "msgpack":
                self._unpacker.feed(received)
            else:
                self._buffer += received
        return message

    def _whole(self) -> Any:
        if self.encoding == "msgpack":
            return next(self._unpacker, None)
        if self.encoding == "line":
            line, end, rest = self._buffer.partition(b"\n")
            self._buffer = rest if end else self._buffer
            return json.loads(line) if end else None
        header, end, rest = self._buffer.partition(b"\r\n\r\n")
        length = int(header.removeprefix(b"Content-Length: ")) if end else 0
        if not end or len(rest) < length:
            return None
        self._buffer = rest[length:]
        return json.loads(rest[:length])

    def event(self) -> dict[str, Any]:
        """The next notification's map."""
        message = self.next()
        if self.encoding == "msgpack":
            kind, method, [params] = message
            assert (kind, method) == (2, "event")
        else:
            assert message["method"] == "event"
            assert "id" not in message
            params = message["params"]
        assert isinstance(params, dict)
        return params

    def seqs_through(self, last: int) -> list[int]:
        """The seqs of the transactions that come, up to and with `last`."""
        seqs: list[int] = []
        while not seqs or seqs[-1] < last:
            told = self.event()
            assert told["event"] == "transaction", told
            seqs.append(told["transaction"]["seq"])
        return seqs

    def is_silent(self, method: str = "status") -> bool:
        """Whether nothing but the answer to another request comes."""
        self.send(method, {})
        answer = self.next()
        return "result" in answer if isinstance(answer, dict) else answer[0] == 1


def made_by(client: Client, path: str, content: str = "x\n", **more: Any) -> int:
    transaction = client.apply([write(path, content)], **more).transaction
    assert transaction is not None
    return transaction.seq


@pytest.mark.parametrize("encoding", ["msgpack", "header", "line"])
def test_a_transaction_is_told_as_the_log_has_it_in_each_encoding(
    shared: Workplace, client: Client, encoding: str
) -> None:
    with Ear(shared, encoding) as ear:
        subscribed = ear.ask("subscribe")
        assert subscribed == {"subscription": 1, "head": client.status().head}
        seq = made_by(client, f"told-{encoding}", message="why", session="s")
        told = ear.event()
    logged = client.log(limit=1).transactions[0]
    assert (told["subscription"], told["event"], told["transaction"]["seq"]) == (1, "transaction", seq)
    assert told["transaction"] == json.loads(_json(logged))


def _json(message: Any) -> bytes:
    import msgspec

    return msgspec.json.encode(message)


def test_two_subscribers_hear_the_same_and_who_made_it_hears_it_too(
    shared: Workplace, client: Client
) -> None:
    with Ear(shared) as one, Ear(shared, "msgpack") as other:
        head = one.ask("subscribe")["head"]
        other.ask("subscribe")
        mine = shared.client()
        with mine:
            for number in range(20):
                made_by(mine, "both", f"{number}\n")
        expected = list(range(head + 1, head + 21))
        assert one.seqs_through(head + 20) == expected
        assert other.seqs_through(head + 20) == expected
        one.send("apply", {"edits": [{"op": "write", "path": "own", "content": "own\n"}]})
        both = [one.next(), one.next()]
    assert sorted("result" if "result" in said else said["method"] for said in both) == ["event", "result"]


def test_what_was_written_from_outside_is_told_once_it_is_recorded(shared: Workplace, client: Client) -> None:
    with Ear(shared) as ear:
        ear.ask("subscribe")
        shared.write({"outside": "by hand\n"})
        client.settle()
        told = ear.event()["transaction"]
    assert (told["kind"], [file["path"] for file in told["files"]]) == ("outside", ["outside"])


def test_only_the_paths_that_a_glob_matches_are_told_moves_by_either_name(
    shared: Workplace, client: Client
) -> None:
    with Ear(shared) as ear:
        ear.ask("subscribe", paths=["src/**", "*.md"])
        made_by(client, "other/a.py")
        wanted = [made_by(client, "src/deep/a.py"), made_by(client, "README.md")]
        made_by(client, "docs/README.md")
        moved = client.apply([_move("src/deep/a.py", "other/b.py")]).transaction
        assert moved is not None
        assert ear.seqs_through(moved.seq) == [*wanted, moved.seq]


def test_since_goes_past_many_transactions_that_no_glob_matches(shared: Workplace, client: Client) -> None:
    since = client.status().head
    for number in range(CATCH_UP_TRANSACTIONS + 1):
        made_by(client, f"unmatched/{number}")
    last = made_by(client, "matched/before")
    with Ear(shared) as ear:
        ear.ask("subscribe", since=since, paths=["matched/*"])
        assert ear.seqs_through(last) == [last]
        newer = made_by(client, "matched/after")
        assert ear.seqs_through(newer) == [newer]


def _move(path: str, to: str) -> Any:
    from editd.wire.messages import Move

    return Move(path=path, to=to)


def test_only_the_events_that_are_asked_for_are_told(shared: Workplace, client: Client) -> None:
    with Ear(shared) as ear:
        ear.ask("subscribe", events=["lease", "shutdown"])
        made_by(client, "not-told")
        assert ear.is_silent()


def test_an_unsubscribed_connection_hears_no_more_and_the_other_subscription_goes_on(
    shared: Workplace, client: Client
) -> None:
    with Ear(shared) as ear:
        first, second = (ear.ask("subscribe")["subscription"] for _ in range(2))
        assert ear.ask("unsubscribe", subscription=first) == {}
        made_by(client, "half")
        assert ear.event()["subscription"] == second
        assert ear.is_silent()


def test_since_tells_what_came_before_and_goes_on_without_a_gap_while_others_edit(
    shared: Workplace, client: Client
) -> None:
    since = client.status().head
    for number in range(200):
        made_by(client, f"since/{number}")
    until = since + 200 + 4 * 100

    def edit(name: int) -> None:
        with shared.client() as mine:
            for number in range(100):
                made_by(mine, f"since/{name}-{number}")

    threads = [threading.Thread(target=edit, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    heard = []
    with contextlib.ExitStack() as stack:
        ears = []
        for number in range(5):
            ear = stack.enter_context(Ear(shared, "line" if number % 2 else "msgpack"))
            ear.ask("subscribe", since=since + number)
            ears.append(ear)
            time.sleep(0.02)
        heard = [ear.seqs_through(until) for ear in ears]
        for thread in threads:
            thread.join()
    assert heard == [list(range(since + number + 1, until + 1)) for number in range(5)]


@pytest.mark.parametrize(
    ("params", "name"),
    [
        ({"since": -1}, "invalid_params"),
        ({"since": 1_000_000}, "unknown_transaction"),
        ({"events": ["everything"]}, "invalid_params"),
        ({"paths": ["../out"]}, "invalid_params"),
        ({"notify": {"prefix": []}}, "invalid_params"),
    ],
)
def test_a_subscription_that_makes_no_sense_is_refused(
    shared: Workplace, params: dict[str, Any], name: str
) -> None:
    with Ear(shared) as ear:
        ear.send("subscribe", params)
        assert ear.next()["error"]["data"]["name"] == name


@pytest.mark.parametrize("notify", [{"method": "m", "prefix": ["x" * 65_536]}, {"method": "m" * 65_536}])
def test_what_goes_out_with_every_event_is_short(
    shared: Workplace, client: Client, notify: dict[str, Any]
) -> None:
    with Ear(shared) as ear:
        ear.send("subscribe", {"notify": notify})
        error = ear.next()["error"]
        assert error["data"]["name"] == "too_large"
        assert f"at most {LIMITS.notify_bytes_max} bytes" in error["message"]
        ear.ask("subscribe", notify={"method": "m", "prefix": ["x" * 65_000, 1]})
        ear.ask("subscribe", notify={"method": "m", "prefix": [{"base64": "6Q=="}, True]})
        made_by(client, f"prefixed-{len(notify)}")
        assert ear.next()["params"][:2] == ["x" * 65_000, 1]
        assert ear.next()["params"][:2] == [{"base64": "6Q=="}, True]


def test_a_connection_has_so_many_subscriptions_and_no_more(shared: Workplace) -> None:
    with Ear(shared) as ear:
        for _ in range(LIMITS.subscriptions_max):
            ear.ask("subscribe", events=["shutdown"])
        ear.send("subscribe", {})
        assert ear.next()["error"]["data"]["name"] == "overloaded"
        ear.send("unsubscribe", {"subscription": 999})
        assert ear.next()["error"]["data"]["name"] == "invalid_params"


def test_a_neovim_channel_is_called_by_the_method_and_arguments_of_its_own(
    shared: Workplace, client: Client
) -> None:
    code = "require('mine').on_event(...)"
    with Ear(shared, "msgpack") as ear, Ear(shared, "line") as other:
        ear.ask("subscribe", notify={"method": "nvim_exec_lua", "prefix": [code]})
        other.ask("subscribe", notify={"method": "on_event"})
        seq = made_by(client, "vim")
        kind, method, arguments = ear.next()
        assert (kind, method, arguments[0], len(arguments)) == (2, "nvim_exec_lua", code, 2)
        [event] = arguments[1]
        assert (event["event"], event["transaction"]["seq"]) == ("transaction", seq)
        by_position = other.next()
        assert by_position["method"] == "on_event"
        assert by_position["params"][0][0]["transaction"]["seq"] == seq


def test_who_does_not_read_is_told_once_that_it_missed_something_and_then_goes_on(
    shared: Workplace, client: Client
) -> None:
    message = "m" * 100_000
    with Ear(shared) as slow, Ear(shared, "msgpack") as quick:
        head = slow.ask("subscribe")["head"]
        quick.ask("subscribe")
        for number in range(120):
            made_by(client, "slow", f"{number}\n", message=message)
            assert quick.event()["transaction"]["seq"] == head + number + 1
        client.session_open("newcomer")  # an event that is no transaction comes last
        told: list[dict[str, Any]] = []
        resyncs: list[dict[str, Any]] = []
        while not resyncs:
            event = slow.event()
            (told if event["event"] == "transaction" else resyncs).append(event)
        last = made_by(client, "slow", "again\n")
        assert slow.seqs_through(last) == [last]
        unread = slow.received_bytes
    seqs = [event["transaction"]["seq"] for event in told]
    assert seqs == list(range(head + 1, head + 1 + len(seqs)))
    [resync] = resyncs
    assert resync == {
        "subscription": 1, "event": "resync", "from": seqs[-1], "head": head + 120, "reason": "behind",
    }  # fmt: skip
    assert unread < LIMITS.outgoing_bytes_pause + 1_500_000  # beside it: one event, and the kernel's buffers
    missed = client.log(limit=200, after=resync["from"], before=resync["head"] + 1).transactions
    assert len(missed) == 120 - len(seqs)


def test_who_reads_slowly_since_long_ago_misses_nothing_and_fills_no_memory(place: Workplace) -> None:
    with place.start() as client, contextlib.ExitStack() as stack:
        for number in range(150):
            made_by(client, "long-ago", f"{number}\n", message="m" * 100_000)
        before = daemon_kib(place)
        ears = [stack.enter_context(Ear(place)) for _ in range(6)]
        for ear in ears:
            ear.ask("subscribe", since=0)
        for number in range(150, 160):
            made_by(client, "long-ago", f"{number}\n")
        assert daemon_kib(place) - before < 30_000  # and not 6 * 15 MB
        assert [ear.seqs_through(160) for ear in ears] == [list(range(1, 161))] * 6


def daemon_kib(place: Workplace) -> int:
    """How much of the machine's memory the daemon has."""
    assert place.process is not None
    status = Path(f"/proc/{place.process.pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")))


def test_the_last_that_is_told_is_that_the_daemon_ends(place: Workplace) -> None:
    client = place.start()
    with Ear(place) as ear, Ear(place, "msgpack") as other, client:
        ear.ask("subscribe")
        other.ask("subscribe", events=["shutdown"])
        seq = made_by(client, "last")
        client.shutdown()
        assert [ear.event().get("event"), ear.event().get("event")] == ["transaction", "shutdown"]
        assert other.event() == {"subscription": 1, "event": "shutdown"}
        with pytest.raises(EOFError):
            ear.next()
    assert place.process is not None
    place.process.wait(SECONDS)
    assert seq == 1


def test_what_is_not_utf8_is_told_as_bytes(shared: Workplace, client: Client) -> None:
    with Ear(shared, "msgpack") as ear, Ear(shared) as other:
        ear.ask("subscribe")
        other.ask("subscribe")
        made_by(client, "caf\udce9")
        assert ear.event()["transaction"]["files"][0]["path"] == b"caf\xe9"
        assert other.event()["transaction"]["files"][0]["path"] == {"base64": "Y2Fm6Q=="}


def test_an_edit_that_is_refused_or_changes_nothing_is_not_told(shared: Workplace, client: Client) -> None:
    made_by(client, "same", "same\n")
    with Ear(shared) as ear:
        ear.ask("subscribe", events=["transaction"])
        client.apply([write("same", "same\n")])
        with pytest.raises(EditdError):
            client.apply([replace("same", "other", "text")])
        assert ear.is_silent()


NEOVIM = """
local heard = {}
function _G.on_editd(event) table.insert(heard, event) end
local editd = vim.fn.sockconnect('pipe', vim.env.EDITD_SOCKET, { rpc = true })
local notify = { method = 'nvim_exec_lua', prefix = { '_G.on_editd(...)' } }
vim.rpcrequest(editd, 'subscribe', { since = 0, notify = notify })
vim.rpcrequest(editd, 'apply', { actor = 'nvim', edits = { { op = 'write', path = 'b', content = 'b' } } })
vim.wait(20000, function() return #heard == 2 end)
vim.fn.writefile({ vim.fn.json_encode(heard) }, vim.env.HEARD)
vim.cmd('qa!')
"""


@pytest.mark.skipif(shutil.which("nvim") is None, reason="Neovim is not installed")
def test_a_real_neovim_is_told_through_its_own_channel(place: Workplace) -> None:
    script, heard = place.folder / "watch.lua", place.folder / "heard.json"
    script.write_text(NEOVIM)
    with place.start() as client:
        made_by(client, "a")
        environment = {**place.environment, "EDITD_SOCKET": place.socket, "HEARD": str(heard)}
        argv = ["nvim", "--headless", "-u", "NONE", "-i", "NONE", "-n", "-S", str(script)]
        subprocess.run(argv, env=environment, stdin=subprocess.DEVNULL, timeout=40, check=True)
    told = json.loads(heard.read_text())
    assert [(one["event"], one["transaction"]["files"][0]["path"]) for one in told] == [
        ("transaction", "a"), ("transaction", "b"),
    ]  # fmt: skip


def test_an_event_is_encoded_once_for_all_who_speak_alike() -> None:
    def subscription(first: bytes, number: int, form: EventFormat) -> Subscription:
        client = Connected(Connections(lambda *_: None, lambda _: None))
        client.connection.feed(first)
        return Subscription(number, client, None, None, form, 0, SubscriptionState.LIVE)

    async def encode() -> None:
        told = OutgoingEvent("lease", {"what": "granted"})
        one, other = (told.bytes_for(subscription(b"{", 1, EventFormat())) for _ in range(2))
        assert one is other
        for first, number, form in (
            (b"\x94", 1, EventFormat()),
            (b"Content-Length: ", 1, EventFormat()),
            (b"{", 2, EventFormat()),
            (b"{", 1, EventFormat("mine", ("a",))),
        ):
            assert told.bytes_for(subscription(first, number, form)) != one

    asyncio.run(encode())


def test_two_hundred_subscribers_hardly_slow_an_edit_down(place: Workplace) -> None:
    def milliseconds(client: Client, path: str) -> float:
        taken = []
        for number in range(60):
            began = time.perf_counter()
            made_by(client, path, f"{number}\n")
            taken.append(1000 * (time.perf_counter() - began))
        return statistics.median(taken)

    with place.start() as client, contextlib.ExitStack() as stack:
        milliseconds(client, "warm")
        alone = milliseconds(client, "alone")
        ears = [stack.enter_context(Ear(place)) for _ in range(200)]
        for ear in ears:
            ear.ask("subscribe")
        before = client.status().head
        together = milliseconds(client, "together")
        for ear in ears:
            assert ear.seqs_through(before + 60) == list(range(before + 1, before + 61))
    assert together < 3 * alone + in_company(5), (alone, together)


def test_sessions_and_leases_are_told_and_writes_to_leased_files_by_path(shared: Workplace) -> None:
    with Ear(shared) as all_of_it, Ear(shared, "msgpack") as elsewhere, Ear(shared) as holder:
        all_of_it.ask("subscribe", events=["session", "lease"], paths=["leased/**"])
        elsewhere.ask("subscribe", events=["session", "lease"], paths=["elsewhere/**"])
        holder.ask("session.open", name="holder")
        lease = holder.ask("lease.acquire", session="holder", paths=["leased/**"], ttl=60)
        shared.write({"leased/a": "by somebody else\n"})
        holder.ask("settle")
        holder.ask("lease.release", lease=lease["lease"])
        holder.ask("session.close", session="holder")
        told = [all_of_it.event() for _ in range(5)]
        without = [elsewhere.event() for _ in range(4)]
    expected = [
        ("session", "opened"), ("lease", "granted"), ("lease", "violated"), ("lease", "released"),
        ("session", "closed"),
    ]  # fmt: skip
    assert [(one["event"], one["what"]) for one in told] == expected
    assert (told[2]["files"], told[2]["session"], told[2]["token"]) == (
        ["leased/a"],
        "holder",
        lease["token"],
    )
    expected.remove(("lease", "violated"))
    assert [(one["event"], one["what"]) for one in without] == expected


def test_edits_so_large_that_they_go_to_a_thread_are_told_in_their_order_too(shared: Workplace) -> None:
    def edit(name: str, bytes_each: int, count: int) -> None:
        with shared.client() as mine:
            for number in range(count):
                made_by(mine, f"large/{name}", f"{number}\n".ljust(bytes_each, "x"))

    with Ear(shared) as ear, Ear(shared, "msgpack") as other:
        head = ear.ask("subscribe")["head"]
        other.ask("subscribe", since=head)
        threads = [
            threading.Thread(target=edit, args=arguments)
            for arguments in (("a", 900_000, 10), ("b", 900_000, 10), ("c", 10, 60), ("d", 10, 60))
        ]
        for thread in threads:
            thread.start()
        heard = [one.seqs_through(head + 140) for one in (ear, other)]
        for thread in threads:
            thread.join()
    assert heard == [list(range(head + 1, head + 141))] * 2


class _Reader:
    """A connection that speaks JSON lines and keeps what it was sent."""

    def __init__(self) -> None:
        self.connection = Connection()
        self.connection.feed(b"{")
        self.is_reading = True
        self.is_gone = False
        self.sent = b""

    def send(self, data: bytes) -> None:
        self.sent += data


@pytest.mark.parametrize("has_missed", [False, True])
def test_a_subscriber_that_missed_events_while_catching_up_gets_a_resync(has_missed: bool) -> None:
    reader = _Reader()
    subscription = Subscription(
        1,
        cast("Connected", reader),
        None,
        None,
        EventFormat(),
        3,
        SubscriptionState.CATCHING_UP,
        has_missed=has_missed,
    )
    subscription.go_live()
    assert (b"resync" in reader.sent) == has_missed


@pytest.mark.parametrize(
    ("state", "heard"), [(SubscriptionState.LIVE, [8]), (SubscriptionState.CATCHING_UP, [])]
)
def test_a_transaction_that_a_subscriber_has_read_from_the_index_is_not_sent_again(
    state: SubscriptionState, heard: list[int]
) -> None:
    """It went live amid a round that began while it was catching up."""
    reader = _Reader()
    subscription = Subscription(1, cast("Connected", reader), None, None, EventFormat(), 7, state)
    assert (
        list(subscription.take([OutgoingEvent("transaction", {"seq": seq}, seq=seq) for seq in (6, 7, 8)], 8))
        == []
    )
    assert [json.loads(line)["params"]["seq"] for line in reader.sent.splitlines()] == heard


def test_behind_an_event_that_is_not_asked_for_the_others_of_its_round_are_sent() -> None:
    reader = _Reader()
    wanted = frozenset({"transaction"})
    subscription = Subscription(
        1, cast("Connected", reader), wanted, None, EventFormat(), 0, SubscriptionState.LIVE
    )
    round_ = [OutgoingEvent("lease", {}), OutgoingEvent("transaction", {"seq": 1}, seq=1)]
    assert list(subscription.take(round_, 1)) == []
    assert [json.loads(line)["params"]["seq"] for line in reader.sent.splitlines()] == [1]


def test_paths_are_compared_with_globs_in_slices_and_literal_ones_at_once() -> None:
    """The attack: 60 globs of each of 32 subscriptions were compared in one turn of the loop."""
    reader = _Reader()
    globs = parse_all(
        [*(f"**/*a{number}" for number in range(20)), *(f"b/{number}" for number in range(900))], "It"
    )
    subscription = Subscription(
        1, cast("Connected", reader), None, globs, EventFormat(), 0, SubscriptionState.LIVE
    )
    paths = [WorkspacePath(f"c/{number}") for number in range(50)]
    event = OutgoingEvent("transaction", {"seq": 1}, paths, 1)
    assert list(subscription.take([event], 1)) == [21] * 50
    assert (reader.sent, subscription.cursor) == (b"", 1)
    event = OutgoingEvent("transaction", {"seq": 2}, [*paths, WorkspacePath("b/7/below")], 2)
    assert sum(subscription.take([event], 2)) == 21 * 51
    assert b'"seq":2' in reader.sent


def test_a_subscription_that_ends_or_lags_between_two_slices_gets_nothing() -> None:
    for is_over, state in ((True, SubscriptionState.LIVE), (False, SubscriptionState.BEHIND)):
        reader = _Reader()
        globs = parse_all(["a*"], "It")
        subscription = Subscription(
            1, cast("Connected", reader), None, globs, EventFormat(), 0, SubscriptionState.LIVE
        )
        work = subscription.take([OutgoingEvent("transaction", {"seq": 1}, [WorkspacePath("ab")], 1)], 1)
        next(work)
        subscription.is_over, subscription.state = is_over, state
        assert list(work) == []
        assert reader.sent == b""


def test_the_globs_of_all_subscriptions_of_a_connection_are_limited_together(shared: Workplace) -> None:
    with Ear(shared) as ear:
        for number in range(4):
            ear.ask("subscribe", paths=["**/" + "*a" * 100 + f"{number}/{place}" for place in range(18)])
        ear.send("subscribe", {"paths": ["**/" + "*a" * 100 + f"/{place}" for place in range(18)]})
        refusal = ear.next()["error"]
        assert refusal["data"]["name"] == "invalid_params"
        assert "of a connection together" in refusal["message"]
        ear.ask("unsubscribe", subscription=1)
        ear.ask("subscribe", paths=["**/" + "*a" * 100 + f"/{place}" for place in range(18)])
        ear.ask("subscribe")
