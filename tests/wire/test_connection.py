"""wire.connection: bytes in, typed requests out, and answers as bytes."""

from __future__ import annotations

import base64
import itertools
import json
import random
from typing import TYPE_CHECKING, Any

import msgpack
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from editd.wire import messages
from editd.wire.connection import (
    BadRequest,
    ClientConnection,
    Connection,
    Failure,
    Reply,
    Request,
    ServerEvent,
)
from editd.wire.errors import Malformed, error
from support.request_grammar import Grammar, encoded, mangled
from support.seeds import drawn

if TYPE_CHECKING:
    from collections.abc import Callable

STALE = error("stale", "It has changed.", {"path": "a\udcff"})


def as_msgpack(call_id: Any, method: str, params: Any) -> bytes:
    return msgspec.msgpack.encode([0, call_id, method, [params]])


def as_line(call_id: Any, method: str, params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": call_id, "method": method, "params": params}).encode() + b"\n"


def as_headed(call_id: Any, method: str, params: Any) -> bytes:
    body = as_line(call_id, method, params)
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


ENCODINGS = [as_msgpack, as_line, as_headed]
in_every_encoding = pytest.mark.parametrize("encode", ENCODINGS)


@in_every_encoding
def test_a_request_comes_out_typed_and_its_answer_goes_out_in_kind(encode: Callable[..., bytes]) -> None:
    connection = Connection()
    [request] = connection.receive(encode(7, "read", {"path": "a"}))
    assert request == Request(7, messages.Read(path="a"))
    answer = connection.reply(7, messages.SettleResult(head=3))
    expected = {
        as_msgpack: msgspec.msgpack.encode([1, 7, None, {"head": 3}]),
        as_line: b'{"jsonrpc":"2.0","id":7,"result":{"head":3}}\n',
        as_headed: b'Content-Length: 44\r\n\r\n{"jsonrpc":"2.0","id":7,"result":{"head":3}}',
    }
    assert answer == expected[encode]


@in_every_encoding
def test_waiting_counts_what_is_taken_and_not_answered(encode: Callable[..., bytes]) -> None:
    connection = Connection()
    connection.feed(encode(1, "status", {}) + encode(2, "status", {}) + encode(3, "oops", {}))
    assert connection.waiting == 0
    assert connection.take() == Request(1, messages.Status())
    assert connection.take() == Request(2, messages.Status())
    assert connection.waiting == 2
    assert isinstance(connection.take(), BadRequest)
    assert connection.take() is None
    assert connection.waiting == 2
    assert [connection.is_waiting_for(call_id) for call_id in (1, 2, 3, None)] == [True, True, False, False]
    connection.reply(2, messages.Empty())
    connection.refuse(1, STALE)
    assert connection.waiting == 0


@in_every_encoding
def test_an_id_that_is_still_waiting_is_refused_and_can_be_used_again_after_the_answer(
    encode: Callable[..., bytes],
) -> None:
    connection = Connection()
    first, second = connection.receive(encode(1, "status", {}) * 2)
    assert isinstance(first, Request)
    assert isinstance(second, BadRequest)
    assert second.error.name == "invalid_request"
    connection.reply(1, messages.Empty())
    [third] = connection.receive(encode(1, "status", {}))
    assert isinstance(third, Request)


def test_a_notification_comes_out_and_is_not_answered() -> None:
    connection = Connection()
    [request] = connection.receive(b'{"jsonrpc": "2.0", "method": "shutdown"}\n')
    assert request == Request(None, messages.Shutdown())
    assert connection.waiting == 1
    assert connection.reply(None, messages.Empty()) == b""
    assert connection.waiting == 0


@pytest.mark.parametrize(
    "stream",
    [
        b'{"method": "undoo"}\n{"method": "undo", "params": {"x": 1}}\n',
        msgspec.msgpack.encode([2, "undoo", []]) + msgspec.msgpack.encode([2, "undo", [{"x": 1}]]),
        b'{"id": 7, "result": {}}\n',
    ],
)
def test_a_notification_that_fits_no_method_and_a_response_are_passed_over(stream: bytes) -> None:
    assert Connection().receive(stream) == []


@in_every_encoding
def test_a_request_that_fits_no_method_is_answered_and_the_next_is_read(encode: Callable[..., bytes]) -> None:
    connection = Connection()
    stream = encode(1, "undo", {"dry_runn": True}) + encode(2, "lock", {}) + encode(3, "status", {})
    params, method, good = connection.receive(stream)
    assert isinstance(params, BadRequest)
    assert (params.error.name, params.fatal) == ("invalid_params", False)
    assert "dry_runn" in params.error.message
    assert isinstance(method, BadRequest)
    assert (method.error.name, method.fatal) == ("method_not_found", False)
    assert good == Request(3, messages.Status())
    assert not connection.closed


@pytest.mark.parametrize("first", [b"GET / HTTP/1.1\r\n", b"[", b"\x00", b"\x95", b"\xff", b"0"])
def test_a_first_byte_of_no_encoding_is_told_which_there_are(first: bytes) -> None:
    connection = Connection()
    [bad] = connection.receive(first)
    assert isinstance(bad, BadRequest)
    assert bad.fatal
    assert connection.closed
    answer = json.loads(bad.answer)
    assert answer["id"] is None
    assert answer["error"]["data"]["name"] == "parse_error"
    assert "Content-Length" in answer["error"]["message"]
    assert connection.receive(as_line(1, "status", {})) == []


def test_of_a_stream_that_cannot_be_read_any_more_nothing_is_kept() -> None:
    connection = Connection()
    (bad,) = connection.receive(b"Content-Length: many\r\n\r\n" + b"x" * 1000)
    assert isinstance(bad, BadRequest)
    assert bad.fatal
    assert connection.kept == 0


def test_of_messages_that_were_taken_nothing_is_kept() -> None:
    connection = Connection()
    for number in range(3):
        assert len(connection.receive(as_msgpack(number, "status", {}))) == 1
        assert connection.kept == 0


def test_empty_space_before_the_first_brace_is_passed_over() -> None:
    connection = Connection()
    assert connection.receive(b" \r\n") == []
    assert connection.receive(b"\t\n" + as_line(1, "status", {})) == [Request(1, messages.Status())]


def test_the_last_line_needs_no_line_end() -> None:
    connection = Connection()
    assert connection.receive(b'{"id": 1, "method": "status"}') == []
    connection.feed_end()
    assert connection.take() == Request(1, messages.Status())


@pytest.mark.parametrize("content", ["é\n", "caf\udce9\x00", "\r\n"])
@in_every_encoding
def test_content_of_any_bytes_comes_in_and_goes_out(encode: Callable[..., bytes], content: str) -> None:
    raw = content.encode("utf-8", "surrogateescape")
    on_the_wire = raw if encode is as_msgpack else {"base64": base64.b64encode(raw).decode()}
    connection = Connection()
    edit = {"op": "write", "path": "a", "content": on_the_wire}
    [request] = connection.receive(encode(1, "apply", {"edits": [edit]}))
    assert isinstance(request, Request)
    assert request.params == messages.Apply(edits=[messages.Write(path="a", content=content)])


def test_errors_go_out_as_text_to_whom_asked_for_it() -> None:
    connection = Connection()
    connection.receive(as_msgpack(1, "hello", {"errors": "text"}))
    connection.errors_as_text = True
    assert connection.errors_as_text
    _, _, said, _ = msgpack.unpackb(connection.refuse(1, STALE))
    assert said[0] == 0
    assert said[1].startswith("stale: It has changed.\n{")
    speaking_json = Connection()
    speaking_json.receive(as_line(1, "hello", {"errors": "text"}))
    speaking_json.errors_as_text = True
    assert not speaking_json.errors_as_text
    assert json.loads(speaking_json.refuse(1, STALE))["error"]["code"] == 1


# ── Both ends joined ───────────────────────────────────────────────────────────────────────────


def test_what_the_client_asks_the_daemon_hears_and_the_answers_come_back() -> None:
    client, daemon = ClientConnection(), Connection()
    params = messages.Apply(edits=[messages.Symlink(path="a\udcff", target="b", base=None)], message="why")
    first, asked = client.request("apply", params)
    second, asked_too = client.request("status", messages.Status())
    assert daemon.receive(asked + asked_too) == [Request(first, params), Request(second, messages.Status())]
    said = (
        daemon.refuse(second, STALE)
        + daemon.notify("event", {"path": "a\udcff"})
        + daemon.reply(first, messages.BeginResult(changeset="c"))
    )
    assert client.receive(said) == [
        Failure(second, STALE),
        ServerEvent("event", {"path": "a\udcff"}),
        Reply(first, {"changeset": "c"}),
    ]


def test_a_refusal_without_an_id_reaches_the_client() -> None:
    daemon = Connection()
    [bad] = daemon.receive(b"\x94\xc1")
    assert isinstance(bad, BadRequest)
    [failure] = ClientConnection().receive(bad.answer)
    assert isinstance(failure, Failure)
    assert (failure.id, failure.error.name) == (None, "parse_error")


@pytest.mark.parametrize(
    "said",
    [
        b"\xc1",
        b"HTTP/1.1 400",
        msgspec.msgpack.encode([1, 1, {"code": 1}, None]),
        msgspec.msgpack.encode([1, 1, "no", None]),
    ],
)
def test_a_daemon_that_speaks_something_else_is_found_out(said: bytes) -> None:
    with pytest.raises(Malformed):
        ClientConnection().receive(said)


# ── Anything at all ────────────────────────────────────────────────────────────────────────────

REQUESTS: list[tuple[str, Any]] = [
    ("hello", {"client": {"name": "n", "deep": [{"er": None}]}, "errors": "map"}),
    ("apply", {"edits": [{"op": "write", "path": "a", "content": "b" * 300, "base": None}], "diff": True}),
    ("apply", {"edits": [{"op": "text", "path": "a", "base": "0" * 40, "edits": []}]}),
    ("undo", {"tx": 7}),
    ("undo", {"tx": "abc"}),
    ("nothing", {}),
    ("read", {"pth": "a"}),
]


def conversation(encode: Callable[..., bytes]) -> bytes:
    return b"".join(encode(number, *request) for number, request in enumerate(REQUESTS))


@in_every_encoding
@given(data=st.data())
def test_any_split_of_a_conversation_gives_the_same_requests(
    encode: Callable[..., bytes], data: st.DataObject
) -> None:
    stream = conversation(encode)
    expected = Connection().receive(stream)
    assert len(expected) == len(REQUESTS)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(stream)))) | {0, len(stream)})
    connection = Connection()
    pieces = [stream[start:end] for start, end in itertools.pairwise(cuts)]
    assert [incoming for piece in pieces for incoming in connection.receive(piece)] == expected


def spoilt(stream: bytes, chance: random.Random) -> bytes:
    """`stream` with a few bytes changed, dropped, repeated or put in."""
    raw = bytearray(stream)
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(len(raw))
        match chance.randrange(4):
            case 0:
                raw[at] = chance.randrange(256)
            case 1:
                del raw[at : at + chance.randint(1, 20)]
            case 2:
                raw[at:at] = raw[at : at + chance.randint(1, 20)]
            case _:
                raw[at:at] = chance.randbytes(chance.randint(1, 5))
    return bytes(raw)


def test_a_request_that_comes_whole_is_the_same_as_one_that_comes_in_pieces(is_long: bool) -> None:
    """The commonest requests are decoded in another way if they come whole."""
    for seed in range(20) if is_long else drawn(20, 4):
        check_whole_and_pieces(random.Random(seed))


def check_whole_and_pieces(chance: random.Random) -> None:
    """Check that two connections give the same for 300 requests, whole and byte by byte."""
    grammar = Grammar(chance, {("serena", "replace_content"): {}}, methods=["apply", "undo", "read"])
    whole, pieces = Connection(), Connection()
    for number in range(300):
        method, params = grammar.request()
        sent = encoded("msgpack", number, method, params)
        if chance.random() < 0.2:
            sent = mangled(sent, chance) or sent
        mine, other = whole.receive(sent), [pieces.receive(sent[at : at + 1]) for at in range(len(sent))]
        assert mine == [incoming for received in other for incoming in received], sent
        assert (whole.kept, whole.waiting, whole.closed) == (pieces.kept, pieces.waiting, pieces.closed)
        if whole.closed:
            whole, pieces = Connection(), Connection()


def test_a_whole_request_waits_its_turn_before_those_that_come_after_it() -> None:
    first = as_msgpack(1, "apply", {"edits": [{"op": "write", "path": "a", "content": ""}]})
    second = as_msgpack(2, "read", {"path": "a"})
    connection = Connection()
    connection.feed(first)
    connection.feed(second[:5])
    assert connection.kept == len(first) + 5
    connection.feed(second[5:])
    requests = [connection.take(), connection.take(), connection.take()]
    assert [request.id for request in requests if isinstance(request, Request)] == [1, 2]
    assert connection.kept == 0


@in_every_encoding
def test_nearly_valid_bytes_give_requests_or_refusals_and_nothing_else(encode: Callable[..., bytes]) -> None:
    chance = random.Random(2)
    stream = conversation(encode)
    for _ in range(2_000):
        check_that_nothing_raises(spoilt(stream, chance))


@given(
    st.binary(max_size=200),
    st.sampled_from([b"", b"\x94", b"\x93", b"\xdc", b"C", b"{", b"Content-Length: "]),
)
def test_random_bytes_give_requests_or_refusals_and_nothing_else(tail: bytes, first: bytes) -> None:
    check_that_nothing_raises(first + tail)


def check_that_nothing_raises(stream: bytes) -> None:
    connection = Connection()
    incoming = connection.receive(stream)
    connection.feed_end()
    incoming += connection.receive(b"")
    for one in incoming:
        match one:
            case Request():
                assert isinstance(one.params, messages.Params)
                connection.reply(one.id, messages.Empty())
            case BadRequest():
                assert one.answer
                assert one.error.message
    assert connection.waiting == 0
    assert connection.closed == any(isinstance(one, BadRequest) and one.fatal for one in incoming)


def test_an_error_of_the_daemon_with_a_key_that_is_not_text_is_malformed() -> None:
    answer = msgpack.packb([1, 2, {"na\udcffe": "stale"}, None], unicode_errors="surrogateescape")
    assert answer is not None
    with pytest.raises(Malformed, match="an error in no known form"):
        ClientConnection().receive(answer)


HALF = b'{"jsonrpc":"2.0","id":7,"method":"apply","params":{"edits":[{"content":"\\ud83d"}]}}'


@pytest.mark.parametrize(
    "body",
    [
        HALF,
        b'{"method":"read","params":{"path":"\\udc00"},"id":7}',
        b'{"id":7,"method":"read","params":{"path":"caf\xe9"}}',
        b'{"method":"read","params":{"x":NaN},"id":7}',
        b'{"method":"read","params":{"path":"a\x01b"},"id":7}',
        b'{"jsonrpc": "2.0", "method": "read", "id": 7, "params": {"path": "a",}}',
        b'{"id":7,"method":"read","params":{"x":' + b"[" * 2000 + b"]" * 2000 + b"}}",
        b'{"id":7,"method":"read","params":{"x":[' + b"0," * 1_000_001 + b"0]}}",
    ],
    ids=["half", "half-before", "latin", "nan", "control", "comma", "deep", "many"],
)
@pytest.mark.parametrize("is_headed", [False, True])
def test_a_request_that_the_parser_refuses_is_answered_with_its_id(body: bytes, is_headed: bool) -> None:
    connection = Connection()
    stream = b"Content-Length: %d\r\n\r\n%b" % (len(body), body) if is_headed else body + b"\n"
    [bad] = connection.receive(stream)
    assert isinstance(bad, BadRequest)
    assert not bad.fatal
    assert json.loads(bad.answer.split(b"\r\n\r\n")[-1])["id"] == 7
    [good] = connection.receive(as_headed(8, "status", {}) if is_headed else as_line(8, "status", {}))
    assert isinstance(good, Request)


@pytest.mark.parametrize(
    "body",
    [
        b'{"method":"read","params":{"id":7,"path":"a",}}',
        b'{"method":"read","params":{"x":"\\ud83d","id":7}}',
        b'{"id":"\\ud83d","method":"read"}',
        b'{"id":true,"method":"read","params":{"x":"\\ud83d"}}',
        b'{"id":1.5,"method":"read","params":{"x":"\\ud83d"}}',
    ],
)
def test_an_id_that_may_be_another_is_never_taken_for_that_of_a_request(body: bytes) -> None:
    [bad] = Connection().receive(body + b"\n")
    assert isinstance(bad, BadRequest)
    assert json.loads(bad.answer)["id"] is None
