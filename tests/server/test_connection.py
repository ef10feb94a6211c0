"""server.connection: clients on a real socket."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import random
import socket
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest

from editd.server.connection import ALONE_SECONDS, Connections, SocketConnection
from editd.server.ownership import bind, serve
from editd.system.peer import Peer
from editd.wire import messages
from editd.wire.connection import ClientConnection, Failure, Reply, Request
from editd.wire.errors import error
from editd.wire.limits import KIB, LIMITS, MIB

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from pathlib import Path


def answer_at_once(client: SocketConnection, request: Request) -> None:
    """What a dispatcher does with a request that needs no waiting; `read` answers with much."""
    match request.params:
        case messages.Read(path=path):
            client.reply(request, messages.BeginResult(changeset="x" * int(path)))
        case messages.Settle():
            client.refuse(request, error("timeout", "It took too long."))
        case _:
            client.reply(request, messages.Empty())


class Daemon:
    """A real server on a real socket in a folder of its own."""

    def __init__(self, path: str, clients: Connections, ended: list[SocketConnection]) -> None:
        self.path = path
        self.clients = clients
        self.ended = ended

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_unix_connection(self.path, limit=LIMITS.message_bytes_max)


@contextlib.asynccontextmanager
async def daemon(
    folder: Path, on_request: Callable[[SocketConnection, Request], None] = answer_at_once, **options: Any
) -> AsyncIterator[Daemon]:
    ended: list[SocketConnection] = []
    clients = Connections(on_request, ended.append, **options)
    path = str(folder / "run" / "s")
    server = await serve(bind(path), clients.connect)
    try:
        async with asyncio.timeout(20):
            yield Daemon(path, clients, ended)
    finally:
        await clients.finish()
        server.close()
        await asyncio.sleep(0)


def runs(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """The test on a loop of its own."""

    @functools.wraps(test)
    def run(**arguments: Any) -> None:
        asyncio.run(test(**arguments))

    return run


def line(call_id: int, method: str, **params: Any) -> bytes:
    return json.dumps({"id": call_id, "method": method, "params": params}).encode() + b"\n"


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110  # what is waited for is seen from outside, and sets no event
        await asyncio.sleep(0.001)


@runs
async def test_a_request_that_comes_byte_by_byte_is_answered(tmp_path: Path) -> None:
    async with daemon(tmp_path) as running:
        reader, writer = await running.connect()
        for byte in line(1, "status"):
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)
        assert json.loads(await reader.readline()) == {"jsonrpc": "2.0", "id": 1, "result": {}}
        writer.close()
        await until(lambda: len(running.ended) == 1)
        assert len(running.clients) == 0


@runs
async def test_two_clients_speak_each_its_own_encoding(tmp_path: Path) -> None:
    async with daemon(tmp_path) as running:
        lines, line_writer = await running.connect()
        packed, packed_writer = await running.connect()
        wire = ClientConnection()
        first, asked = wire.request("status", messages.Status())
        second, asked_too = wire.request("settle", messages.Settle())
        packed_writer.write(asked + asked_too)
        line_writer.write(line(7, "status"))
        assert json.loads(await lines.readline())["id"] == 7
        answers: list[Any] = []
        while len(answers) < 2:
            answers += wire.receive(await packed.read(65536))
        assert answers == [Reply(first, {}), Failure(second, error("timeout", "It took too long."))]
        for client in running.clients:
            client.notify("event", {"seq": 1})
        assert json.loads(await lines.readline())["params"] == {"seq": 1}


@runs
async def test_who_has_said_all_is_answered_before_the_connection_is_closed(tmp_path: Path) -> None:
    waiting: list[tuple[SocketConnection, Request]] = []
    async with daemon(tmp_path, lambda client, request: waiting.append((client, request))) as running:
        reader, writer = await running.connect()
        writer.write(line(1, "status") + line(2, "status").rstrip())
        writer.write_eof()
        await until(lambda: len(waiting) == 2)
        for client, request in waiting:
            client.reply(request, messages.Empty())
        answers = (await reader.read()).splitlines()
        assert [json.loads(answer)["id"] for answer in answers] == [1, 2]


@runs
async def test_a_stream_that_cannot_go_on_is_answered_and_closed(tmp_path: Path) -> None:
    async with daemon(tmp_path) as running:
        for said in (b"GET / HTTP/1.1\r\n\r\n", b"\x94\xdd\xff\xff\xff\xff", b"Content-Length: x\r\n\r\n"):
            reader, writer = await running.connect()
            writer.write(said + b"x" * 1000)
            answer = await reader.read()
            assert b"parse_error" in answer or b"too_large" in answer


@runs
async def test_a_message_over_the_limit_is_refused_while_others_are_served(tmp_path: Path) -> None:
    async with daemon(tmp_path) as running:
        huge, huge_writer = await running.connect()
        other, other_writer = await running.connect()
        sent = 0
        huge_writer.write(b'{"')
        with contextlib.suppress(ConnectionError):
            while sent < LIMITS.message_bytes_max + 4 * MIB:
                huge_writer.write(b"x" * MIB)
                await huge_writer.drain()
                sent += MIB
                other_writer.write(line(sent, "status"))
                assert json.loads(await other.readline())["id"] == sent
        with contextlib.suppress(ConnectionError):
            assert b"too_large" in await huge.readline()
        await until(lambda: len(running.clients) == 1)


@runs
async def test_a_client_that_waits_for_too_much_is_not_read_from_until_it_is_answered(tmp_path: Path) -> None:
    limits = msgspec.structs.replace(LIMITS, requests_waiting_max=5)
    waiting: list[tuple[SocketConnection, Request]] = []

    def hold(client: SocketConnection, request: Request) -> None:
        waiting.append((client, request))

    async with daemon(tmp_path, hold, limits=limits) as running:
        reader, writer = await running.connect()
        writer.write(b"".join(line(number, "status") for number in range(100)))
        answered = 0
        while answered < 100:
            expected = min(5, 100 - answered)
            await until(lambda expected=expected: len(waiting) == expected)  # type: ignore[misc]
            await asyncio.sleep(0.001)
            assert len(waiting) <= 5
            client, request = waiting.pop(0)
            client.reply(request, messages.Empty())
            assert json.loads(await reader.readline())["id"] == answered
            answered += 1


@runs
async def test_a_client_whose_large_requests_wait_is_not_read_from_until_one_is_answered(
    tmp_path: Path,
) -> None:
    limits = msgspec.structs.replace(LIMITS, message_bytes_max=MIB)
    waiting: list[tuple[SocketConnection, Request]] = []
    async with daemon(
        tmp_path, lambda client, request: waiting.append((client, request)), limits=limits
    ) as running:
        reader, writer = await running.connect()
        padding = b" " * (MIB // 4)
        for number in range(10):
            writer.write(line(number, "status").rstrip() + padding + b"\n")
        for answered in range(10):
            expected = min(4, 10 - answered)
            await until(lambda expected=expected: len(waiting) == expected)  # type: ignore[misc]
            await asyncio.sleep(0.001)
            assert len(waiting) <= 4
            client, request = waiting.pop(0)
            client.reply(request, messages.Empty())
            assert json.loads(await reader.readline())["id"] == answered


@runs
async def test_large_requests_of_all_clients_are_refused_while_too_many_bytes_of_them_wait(
    tmp_path: Path,
) -> None:
    limits = msgspec.structs.replace(LIMITS, requests_bytes_max=MIB)
    waiting: list[tuple[SocketConnection, Request]] = []
    large = line(1, "status").rstrip() + b" " * (MIB // 2 - KIB) + b"\n"
    async with daemon(
        tmp_path, lambda client, request: waiting.append((client, request)), limits=limits
    ) as running:
        for _ in range(2):
            _, writer = await running.connect()
            writer.write(large)
        await until(lambda: len(waiting) == 2)
        reader, writer = await running.connect()
        writer.write(large)
        assert b"overloaded" in await reader.readline()
        client, request = waiting.pop()
        client.reply(request, messages.Empty())
        writer.write(large)
        await until(lambda: len(waiting) == 2)


@runs
async def test_a_client_that_does_not_read_is_not_read_from_and_another_is_served(tmp_path: Path) -> None:
    served: list[SocketConnection] = []

    def count(client: SocketConnection, request: Request) -> None:
        served.append(client)
        answer_at_once(client, request)

    async with daemon(tmp_path, count) as running:
        slow, slow_writer = await running.connect()
        cast("asyncio.Transport", slow_writer.transport).pause_reading()
        slow_writer.write(b"".join(line(number, "read", path="100000") for number in range(1000)))
        other, other_writer = await running.connect()
        for number in range(50):
            other_writer.write(line(number, "status"))
            assert json.loads(await other.readline())["id"] == number
        [of_the_slow] = {client for client in served if client.connection.waiting == 0} - {served[-1]}
        assert served.count(of_the_slow) < 100
        cast("asyncio.Transport", slow_writer.transport).resume_reading()
        for number in range(1000):
            assert json.loads(await slow.readline())["id"] == number


@runs
async def test_a_client_that_never_reads_is_cut_off(tmp_path: Path) -> None:
    limits = msgspec.structs.replace(LIMITS, outgoing_bytes_max=4 * MIB)
    async with daemon(tmp_path, limits=limits) as running:
        with socket.socket(socket.AF_UNIX) as deaf:
            deaf.connect(running.path)
            await until(lambda: len(running.clients) == 1)
            [client] = running.clients
            deaf.send(line(1, "hello"))
            told = 0
            while len(running.clients) == 1:
                client.notify("event", {"text": "x" * MIB})
                told += 1
                await asyncio.sleep(0)
            assert 4 <= told <= 8


@runs
async def test_a_flood_of_requests_answered_at_once_lets_others_have_their_turn(tmp_path: Path) -> None:
    between: list[SocketConnection] = []

    def note(client: SocketConnection, request: Request) -> None:
        between.append(client)
        answer_at_once(client, request)

    async with daemon(tmp_path, note) as running:
        flood, flood_writer = await running.connect()
        quiet, quiet_writer = await running.connect()
        flood_writer.write(b"".join(line(number, "status") for number in range(3000)))
        quiet_writer.write(line(1, "status"))
        await quiet.readline()
        for _ in range(3000):
            await flood.readline()
        quiet_one = next(client for client in set(between) if between.count(client) == 1)
        assert between.index(quiet_one) < 2000


@runs
async def test_one_client_too_many_is_told_so_and_there_is_room_again_when_one_leaves(tmp_path: Path) -> None:
    limits = msgspec.structs.replace(LIMITS, connections_max=2)
    async with daemon(tmp_path, limits=limits) as running:
        first, second, third = [await running.connect() for _ in range(3)]
        wire = ClientConnection()
        number, asked = wire.request("status", messages.Status())
        third[1].write(asked)
        [failure] = wire.receive(await third[0].read())
        assert isinstance(failure, Failure)
        assert (failure.id, failure.error.name) == (number, "overloaded")
        first[1].close()
        await until(lambda: len(running.clients) == 1)
        fourth = await running.connect()
        fourth[1].write(line(1, "status"))
        assert json.loads(await fourth[0].readline())["result"] == {}
        second[1].write(line(1, "status"))
        assert json.loads(await second[0].readline())["result"] == {}


@runs
async def test_a_flood_of_clients_too_many_is_dropped_at_once(tmp_path: Path) -> None:
    limits = msgspec.structs.replace(LIMITS, connections_max=1)
    async with daemon(tmp_path, limits=limits) as running:
        welcome, waiting, dropped = [await running.connect() for _ in range(3)]
        assert await dropped[0].read() == b""
        assert not waiting[0].at_eof()
        welcome[1].write(line(1, "status"))
        assert json.loads(await welcome[0].readline())["result"] == {}


@runs
async def test_a_peer_that_may_not_speak_is_dropped_before_a_byte_is_read(tmp_path: Path) -> None:
    heard: list[Request] = []
    async with daemon(
        tmp_path, lambda _, request: heard.append(request), may_speak=lambda _: False
    ) as running:
        reader, writer = await running.connect()
        with contextlib.suppress(ConnectionError):
            writer.write(line(1, "shutdown"))
            assert await reader.read() == b""
        assert heard == []
        assert running.ended == []


@runs
async def test_an_answer_to_a_client_that_is_gone_is_no_fault(tmp_path: Path) -> None:
    waiting: list[tuple[SocketConnection, Request]] = []
    async with daemon(tmp_path, lambda client, request: waiting.append((client, request))) as running:
        _, writer = await running.connect()
        writer.write(line(1, "status") + line(2, "status"))
        await until(lambda: len(waiting) == 2)
        writer.transport.abort()
        for client, request in waiting:
            client.reply(request, messages.Empty())
        await until(lambda: len(running.ended) == 1)
        waiting[0][0].notify("event", {})


@runs
async def test_a_fault_of_ours_is_told_to_who_asked_and_hurts_nobody_else(tmp_path: Path) -> None:
    def fail(client: SocketConnection, request: Request) -> None:
        if isinstance(request.params, messages.Undo):
            raise ZeroDivisionError
        answer_at_once(client, request)

    async with daemon(tmp_path, fail) as running:
        reader, writer = await running.connect()
        writer.write(line(1, "undo") + line(2, "status"))
        assert json.loads(await reader.readline())["error"]["data"]["name"] == "internal_error"
        assert json.loads(await reader.readline())["id"] == 2
        writer.write(b'{"method": "undo"}\n')
        assert await reader.read() == b""
        other, other_writer = await running.connect()
        other_writer.write(line(1, "status"))
        assert json.loads(await other.readline())["id"] == 1


@runs
async def test_random_and_nearly_valid_bytes_never_stop_the_daemon(tmp_path: Path) -> None:
    chance = random.Random(1)
    wire = ClientConnection()
    _, valid = wire.request("apply", messages.Apply(edits=[messages.Delete(path="a")]))
    faults: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
    async with daemon(tmp_path) as running:
        for _ in range(200):
            raw = bytearray(
                chance.choice([valid, line(1, "undo", tx=7), b"Content-Length: 9\r\n\r\n{}{}{}{}{"])
            )
            for _ in range(chance.randint(0, 5)):
                raw[chance.randrange(len(raw))] = chance.randrange(256)
            reader, writer = await running.connect()
            writer.write(bytes(raw) if chance.random() < 0.7 else chance.randbytes(300))
            writer.write_eof()
            await reader.read()
        reader, writer = await running.connect()
        writer.write(line(1, "status"))
        assert json.loads(await reader.readline())["result"] == {}
    assert faults == []


@runs
async def test_the_peer_of_a_client_is_known(tmp_path: Path) -> None:
    async with daemon(tmp_path) as running:
        _, writer = await running.connect()
        await until(lambda: len(running.clients) == 1)
        [client] = running.clients
        assert client.peer == Peer(os.getpid(), os.geteuid(), os.getegid())
        writer.close()


@pytest.mark.parametrize("count", [0, 1, LIMITS.requests_waiting_max, LIMITS.requests_waiting_max + 1, 1000])
@runs
async def test_however_many_requests_come_at_once_each_is_answered(tmp_path: Path, count: int) -> None:
    async with daemon(tmp_path) as running:
        reader, writer = await running.connect()
        writer.write(b"".join(line(number, "status") for number in range(count)))
        writer.write_eof()
        answers = (await reader.read()).splitlines()
        assert [json.loads(answer)["id"] for answer in answers] == list(range(count))


@runs
async def test_a_client_is_alone_when_no_other_has_sent_anything_for_a_while(tmp_path: Path) -> None:
    alone: list[int] = []
    calls = 0

    async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal calls
        calls += 1
        writer.write(line(calls, "status"))
        await reader.readline()

    async with daemon(tmp_path) as running:
        running.clients.on_alone.append(lambda: alone.append(calls))
        first, second = await running.connect(), await running.connect()
        await ask(*first)
        assert alone == []  # nobody knows yet whether another comes
        await asyncio.sleep(2 * ALONE_SECONDS)
        await ask(*first)
        assert alone == [2]
        for _ in range(3):
            await ask(*second)
            await ask(*first)
        assert alone == [2]
        await asyncio.sleep(2 * ALONE_SECONDS)
        await ask(*first)
        assert alone == [2, calls]
        for _, writer in (first, second):
            writer.close()
