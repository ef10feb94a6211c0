"""server.large_messages: the decoding and encoding of large messages leaves the event loop."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import TYPE_CHECKING, Any

import pytest

from editd.server.connection import Connections, SocketConnection
from editd.server.large_messages import LargeMessages
from editd.server.ownership import bind, serve
from editd.wire import messages
from editd.wire.codec import ANSWER_BYTES, encode_msgpack, is_large_answer
from editd.wire.limits import LARGE_VALUES, LIMITS

if TYPE_CHECKING:
    from pathlib import Path

    from editd.wire.connection import Request


def test_an_answer_is_large_by_its_texts_or_by_its_values() -> None:
    assert not is_large_answer(messages.Empty())
    assert not is_large_answer(messages.BeginResult(changeset="x" * (ANSWER_BYTES - 100)))
    assert is_large_answer(messages.BeginResult(changeset="x" * (ANSWER_BYTES + 1)))
    files = [messages.SeenFile(path=f"f{number}") for number in range(5000)]
    assert not is_large_answer(messages.Seen(files=files[:100]))
    assert is_large_answer(messages.Seen(files=files))


def test_one_message_at_a_time_is_worked_on_in_a_thread() -> None:
    async def both() -> list[tuple[str, bool]]:
        large, steps, is_first_done = LargeMessages(), [], threading.Event()

        def first() -> None:
            assert not is_first_done.wait(0)
            steps.append(("first", threading.current_thread() is threading.main_thread()))
            is_first_done.set()

        def second() -> None:
            assert is_first_done.is_set()
            steps.append(("second", threading.current_thread() is threading.main_thread()))

        async def work() -> None:
            await asyncio.gather(large.run(first), large.run(second))

        large.start(work())
        await large.finish()
        return steps

    assert asyncio.run(both()) == [("first", False), ("second", False)]


def line(number: int, method: str, **params: Any) -> bytes:
    return json.dumps({"id": number, "method": method, "params": params}).encode() + b"\n"


def packed(number: int, method: str, **params: Any) -> bytes:
    return encode_msgpack([0, number, method, [params]])


PATHS = [f"f{number}" for number in range(LARGE_VALUES + 1)]


async def answered(folder: Path, data: bytes, number: int) -> tuple[list[str], bytes]:
    """Send `data`. Return the methods in the order of their arrival, and the answers of `number` lines."""
    methods: list[str] = []

    def on_request(client: SocketConnection, request: Request) -> None:
        methods.append(request.params.method)
        is_stat = isinstance(request.params, messages.Stat)
        text = "x" * (2 * ANSWER_BYTES) if is_stat else "small"
        client.reply(request, messages.BeginResult(changeset=text))

    clients = Connections(on_request, lambda _client: None)
    path = str(folder / "run" / "s")
    server = await serve(bind(path), clients.connect)
    reader, writer = await asyncio.open_unix_connection(path, limit=LIMITS.message_bytes_max)
    writer.write(data)
    writer.write_eof()
    answers = await reader.read()
    while not answers.count(b"\n") >= number and (more := await reader.read()):
        answers += more
    writer.close()
    server.close()
    await clients.finish()
    return methods, answers


def test_requests_behind_a_large_one_keep_their_order_and_the_end_waits_for_all_answers(
    tmp_path: Path,
) -> None:
    data = line(1, "dialects") + line(2, "stat", paths=PATHS) + line(3, "dialects")
    methods, answers = asyncio.run(answered(tmp_path, data, 3))
    assert methods == ["dialects", "stat", "dialects"]
    results = {
        answer["id"]: len(answer["result"]["changeset"]) for answer in map(json.loads, answers.splitlines())
    }
    assert results == {1: 5, 2: 2 * ANSWER_BYTES, 3: 5}


def test_a_large_messagepack_request_is_taken_too(tmp_path: Path) -> None:
    data = packed(1, "stat", paths=PATHS) + packed(2, "dialects")
    methods, answers = asyncio.run(answered(tmp_path, data, 0))
    assert methods == ["stat", "dialects"]
    assert len(answers) > 2 * ANSWER_BYTES


@pytest.mark.parametrize("pack", [line, packed])
def test_a_large_message_that_is_no_request_is_answered_with_its_error(tmp_path: Path, pack: Any) -> None:
    methods, answers = asyncio.run(answered(tmp_path, pack(1, "status", paths=PATHS), 0))
    assert methods == []
    assert b"unknown field" in answers


def test_requests_beyond_the_room_for_all_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Connections, "hold", lambda *_: None)
    methods, answers = asyncio.run(answered(tmp_path, line(1, "stat", paths=PATHS), 0))
    assert methods == []
    assert b"overloaded" in answers
