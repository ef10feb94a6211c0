"""wire.envelope, its frames: where one message ends and the next begins."""

from __future__ import annotations

import itertools
import tracemalloc
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from editd.wire.envelope import Frames, HeaderFrames, LineFrames, MessagePackFrames
from editd.wire.errors import Malformed
from editd.wire.limits import KIB, LIMITS, MIB

if TYPE_CHECKING:
    from collections.abc import Callable


def headed(body: bytes) -> bytes:
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


STREAMS: dict[str, tuple[Callable[[], Frames], bytes, list[Any]]] = {
    "messagepack": (
        MessagePackFrames,
        msgspec.msgpack.encode([0, 1, "a", [{}]])
        + msgspec.msgpack.encode([2, "x" * 300, []])
        + msgspec.msgpack.encode(None),
        [[0, 1, "a", [{}]], [2, "x" * 300, []], None],
    ),
    "lines": (
        LineFrames,
        b'{"id": 1}\n\r\n  \n{"id": 2, "a": "\xc3\xa9"}\r\n[]\n',
        [{"id": 1}, {"id": 2, "a": "é"}, []],
    ),
    "headers": (
        HeaderFrames,
        headed(b'{"id": 1}')
        + b"content-length:2\r\nContent-Type: application/vscode-jsonrpc; charset=utf-8\r\n\r\n{}\n"
        + b"Content-Length: 4\n\nnull",
        [{"id": 1}, {}, None],
    ),
}


@pytest.mark.parametrize("name", STREAMS)
@given(data=st.data())
def test_any_split_of_a_stream_gives_the_same_messages(name: str, data: st.DataObject) -> None:
    make, stream, expected = STREAMS[name]
    cuts = sorted(data.draw(st.sets(st.integers(0, len(stream)))) | {0, len(stream)})
    frames = make()
    values = []
    for start, end in itertools.pairwise(cuts):
        frames.feed(stream[start:end])
        values += list(frames)
    assert values == expected


@pytest.mark.parametrize("make", [LineFrames, HeaderFrames], ids=lambda make: make.__name__)
def test_json_that_cannot_be_read_spoils_one_message_and_no_more(make: Callable[[], Frames]) -> None:
    frames = make()
    for body in (b"{nonsense}", b'{"id": 1}'):
        frames.feed(body + b"\n" if make is LineFrames else headed(body))
    with pytest.raises(Malformed) as refusal:
        next(frames)
    assert not refusal.value.fatal
    assert list(frames) == [{"id": 1}]


LIMIT = LIMITS.message_bytes_max

FATAL: dict[str, tuple[Callable[[], Frames], bytes, str]] = {
    "an array of four thousand million": (MessagePackFrames, b"\xdd\xff\xff\xff\xff", "too_large"),
    "a map of four thousand million": (MessagePackFrames, b"\xdf\xff\xff\xff\xff", "too_large"),
    "a byte that MessagePack never has": (MessagePackFrames, b"\x94\xc1", "parse_error"),
    "a map with an array for a key": (MessagePackFrames, b"\x81\x90\xc0", "parse_error"),
    "arrays in arrays without end": (MessagePackFrames, b"\x91" * 5000, "parse_error"),
    "a header line without a colon": (HeaderFrames, b"Content-Length 5\r\n\r\n", "parse_error"),
    "a header without a length": (HeaderFrames, b"Content-Type: x\r\n\r\n", "parse_error"),
    "a length that is no number": (HeaderFrames, b"Content-Length: -1\r\n\r\n", "parse_error"),
    "two lengths": (HeaderFrames, b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n", "parse_error"),
    "a header without end": (HeaderFrames, b"Content-Length: 1\r\n" + b"C: x\r\n" * KIB, "parse_error"),
    "a length over the limit": (HeaderFrames, b"Content-Length: %d\r\n\r\n" % (LIMIT + 1), "too_large"),
    "a length of a thousand digits": (
        HeaderFrames,
        b"Content-Length: " + b"9" * 1000 + b"\r\n\r\n",
        "too_large",
    ),
}


@pytest.mark.parametrize("name", FATAL)
def test_a_stream_that_cannot_go_on_says_why_and_costs_nothing(name: str) -> None:
    make, stream, expected = FATAL[name]
    frames = make()
    tracemalloc.start()
    frames.feed(stream)
    with pytest.raises(Malformed) as refusal:
        list(frames)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert refusal.value.error.name == expected
    assert refusal.value.fatal
    assert peak < 2 * MIB


@pytest.mark.parametrize("first_byte", [0xC6, 0xC9, 0xDB])
def test_a_text_of_two_gibibytes_that_is_only_announced_costs_nothing(first_byte: int) -> None:
    frames = MessagePackFrames()
    tracemalloc.start()
    frames.feed(bytes([0x94, first_byte]) + b"\x7f\xff\xff\xff\x05")
    assert list(frames) == []
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2 * MIB


@pytest.mark.parametrize(
    ("make", "begin", "piece"),
    [
        (MessagePackFrames, b"\x94\xdb" + (LIMIT + 100).to_bytes(4, "big"), b"x" * MIB),
        (MessagePackFrames, b"\xdc\x03\xe8", b"\xdb\x00\x0f\xff\xfb" + b"x" * (MIB - 5)),
        (LineFrames, b"{", b"x" * MIB),
    ],
    ids=["one string", "many strings", "line"],
)
def test_a_message_that_grows_over_the_limit_is_given_up_there(
    make: Callable[[], Frames], begin: bytes, piece: bytes
) -> None:
    frames = make()
    frames.feed(begin)
    fed = 0
    with pytest.raises(Malformed) as refusal:  # noqa: PT012  # which piece is one too many is the point
        while fed <= LIMIT + 4 * MIB:
            frames.feed(piece)
            fed += len(piece)
            assert list(frames) == []
    assert refusal.value.error.name == "too_large"
    assert fed <= LIMIT + 2 * MIB


def test_a_message_of_the_full_length_is_read() -> None:
    content = b"x" * (LIMIT - 5)
    frames = MessagePackFrames()
    stream = msgspec.msgpack.encode(content)
    values = []
    for start in range(0, len(stream), MIB):
        frames.feed(stream[start : start + MIB])
        values += list(frames)
    assert values == [content]


@pytest.mark.parametrize(
    "make", [MessagePackFrames, LineFrames, HeaderFrames], ids=lambda make: make.__name__
)
@given(pieces=st.lists(st.binary(), max_size=5))
def test_random_bytes_give_values_or_malformed_and_nothing_else(
    make: Callable[[], Frames], pieces: list[bytes]
) -> None:
    frames = make()
    for piece in pieces:
        frames.feed(piece)
        try:
            list(frames)
        except Malformed as malformed:
            if malformed.fatal:
                return


def test_a_connection_may_send_more_values_in_all_its_messages_than_in_one() -> None:
    frames = MessagePackFrames()
    values = 100_000
    message = msgspec.msgpack.encode([0] * values)
    for _ in range(2 * LIMITS.values_max // values):
        frames.feed(message)
        assert len(next(frames)) == values


def test_what_arrays_hold_counts_as_values_too() -> None:
    array = msgspec.msgpack.encode([0] * LIMITS.array_length_max)
    arrays = LIMITS.values_max // LIMITS.array_length_max + 1
    frames = MessagePackFrames()
    frames.feed(bytes([0x90 + arrays]) + array * arrays)
    with pytest.raises(Malformed) as refused:
        next(frames)
    assert refused.value.fatal


def test_a_line_over_the_limit_is_refused_though_its_end_comes_with_it() -> None:
    frames = LineFrames()
    frames.feed(b'"' + b"x" * LIMITS.message_bytes_max + b'"\n')
    with pytest.raises(Malformed):
        next(frames)
