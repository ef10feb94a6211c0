"""wire.envelope: what surrounds a request, and what an answer is wrapped in."""

from __future__ import annotations

import json
from typing import Any

import msgpack
import pytest

from editd.wire.envelope import BadCall, JsonRpc, MessagePackRpc, Response, RpcCall
from editd.wire.errors import error

MSGPACK = MessagePackRpc()
JSON = JsonRpc("line")
STALE = error("stale", "It has changed.", {"path": "a"})


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([0, 7, "status", [{"a": 1}]], RpcCall(7, "status", {"a": 1})),
        ([0, 7, b"status", [{}]], RpcCall(7, "status", {})),
        ([0, "seven", "status", []], RpcCall("seven", "status", {})),
        ([0, 7, "status"], RpcCall(7, "status", {})),
        ([0, 7, "status", [[]]], RpcCall(7, "status", {})),
        ([2, "status", [{"a": 1}]], RpcCall(None, "status", {"a": 1})),
        ([2, "status"], RpcCall(None, "status", {})),
        ([1, 7, None, {"a": 1}], Response(7, None, {"a": 1})),
    ],
)
def test_messagepack_rpc_is_read(value: Any, expected: RpcCall | Response) -> None:
    assert MSGPACK.open(value) == expected


@pytest.mark.parametrize(
    ("value", "to"),
    [
        (None, None),
        (7, None),
        ({}, None),
        ([], None),
        ([3, 7, "status", []], None),
        ([0, 7], 7),
        ([0, 7, "status", [], []], 7),
        ([0, None, "status", []], None),
        ([0, True, "status", []], None),
        ([0, 1.5, "status", []], None),
        ([0, 7, None, []], 7),
        ([0, 7, "status", {}], 7),
        ([0, 7, "status", [1]], 7),
        ([0, 7, "status", [{}, {}]], 7),
        ([0, 7, "status", None], 7),
        (msgpack.ExtType(2, b"status"), None),
    ],
)
def test_what_is_no_messagepack_rpc_is_refused_to_whom_it_may_concern(value: Any, to: int | None) -> None:
    with pytest.raises(BadCall) as refusal:
        MSGPACK.open(value)
    assert refusal.value.to == to
    assert refusal.value.malformed.error.name == "invalid_request"
    assert not refusal.value.malformed.fatal


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"jsonrpc": "2.0", "id": 7, "method": "status", "params": {"a": 1}}, RpcCall(7, "status", {"a": 1})),
        ({"jsonrpc": "2.0", "id": "7", "method": "status"}, RpcCall("7", "status", {})),
        ({"jsonrpc": "2.0", "id": 7, "method": "status", "params": None}, RpcCall(7, "status", {})),
        ({"id": 7, "method": "status"}, RpcCall(7, "status", {})),
        ({"jsonrpc": "2.0", "method": "status"}, RpcCall(None, "status", {})),
        ({"jsonrpc": "2.0", "id": 7, "result": 1}, Response(7, None, 1)),
        ({"jsonrpc": "2.0", "id": 7, "error": {}}, Response(7, {}, None)),
    ],
)
def test_json_rpc_is_read(value: Any, expected: RpcCall | Response) -> None:
    assert JSON.open(value) == expected


@pytest.mark.parametrize(
    ("value", "to", "says"),
    [
        (None, None, "object"),
        ("status", None, "object"),
        ([{"id": 7, "method": "status"}], None, "batch"),
        ({}, None, "method"),
        ({"id": 7}, 7, "method"),
        ({"id": None, "method": "status"}, None, "id"),
        ({"id": True, "method": "status"}, None, "id"),
        ({"id": [7], "method": "status"}, None, "id"),
        ({"id": 7, "method": 7}, 7, "string"),
        ({"id": 7, "method": "undo", "params": []}, 7, "one map"),
        ({"id": 7, "method": "undo", "parms": {"dry_run": True}}, 7, "'parms'"),
        ({"jsonrpc": "1.0", "id": 7, "method": "status"}, 7, "2.0"),
    ],
)
def test_what_is_no_json_rpc_is_refused_to_whom_it_may_concern(value: Any, to: int | None, says: str) -> None:
    with pytest.raises(BadCall, match=says) as refusal:
        JSON.open(value)
    assert refusal.value.to == to
    assert refusal.value.malformed.error.name == "invalid_request"


def test_answers_have_the_form_of_their_convention() -> None:
    assert msgpack.unpackb(MSGPACK.result(7, {"a": 1})) == [1, 7, None, {"a": 1}]
    assert msgpack.unpackb(MSGPACK.error(7, STALE)) == [
        1, 7, {"code": 1, "name": "stale", "message": "It has changed.", "data": {"path": "a"}}, None,
    ]  # fmt: skip
    assert msgpack.unpackb(MSGPACK.call(None, "event", {})) == [2, "event", [{}]]
    assert msgpack.unpackb(MSGPACK.call(7, "status", {})) == [0, 7, "status", [{}]]
    assert json.loads(JSON.result("7", {"a": 1})) == {"jsonrpc": "2.0", "id": "7", "result": {"a": 1}}
    assert json.loads(JSON.error(None, STALE)) == {
        "jsonrpc": "2.0",
        "id": None,
        "error": {"code": 1, "message": "It has changed.", "data": {"name": "stale", "data": {"path": "a"}}},
    }
    assert json.loads(JSON.call(None, "event", {})) == {"jsonrpc": "2.0", "method": "event", "params": {}}


def test_an_error_as_text_is_what_a_bare_neovim_channel_can_show() -> None:
    speaking = MessagePackRpc()
    speaking.errors_as_text = True
    text = 'stale: It has changed.\n{"path":"a"}'
    assert msgpack.unpackb(speaking.error(7, STALE)) == [1, 7, [0, text], None]
    assert not MSGPACK.errors_as_text


def test_json_goes_out_on_one_line_or_after_its_length() -> None:
    line = JSON.result(7, {"text": "a\nb"})
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    header, _, body = JsonRpc("header").result(7, "é").partition(b"\r\n\r\n")
    assert header == b"Content-Length: %d" % len(body)
