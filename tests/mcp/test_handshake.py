"""The start of `editctl mcp`: answered at once, without the SDK, and as the SDK would."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from support.raw_client import hello, raw_client

if TYPE_CHECKING:
    from collections.abc import Sequence

    from support.workplace import Workplace

LISTS = ("tools/list", "resources/list", "resources/templates/list", "prompts/list")
START_SECONDS_MAX = 10.0  # 0.1 on an idle machine: `python tests/bench/mcp_start.py` measures it


def envelope() -> dict[str, Any]:
    """What each request of the modern era has in `_meta`."""
    return {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "modern", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }


def without_the_sdk(place: Workplace) -> str:
    """A folder for PYTHONPATH in which the SDK is found, but cannot be imported."""
    folder = place.folder / "broken"
    for name in ("mcp", "mcp_types"):
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "__init__.py").write_text("raise ImportError('it was imported')\n")
    return str(folder)


def test_a_client_that_only_asks_what_there_is_needs_no_sdk_and_no_daemon(shared: Workplace) -> None:
    words = ["--dialect", "claude", "--dialect", "roo", "--workspace", str(shared.root)]
    with raw_client(shared, *words, is_forked=False, PYTHONPATH=without_the_sdk(shared)) as client:
        began = time.monotonic()
        assert client.ask(1, "initialize", **hello())["result"]["serverInfo"]["name"] == "editd"
        client.send({"method": "notifications/initialized"})
        names = [tool["name"] for tool in client.ask("two", "tools/list")["result"]["tools"]]
        assert time.monotonic() - began < START_SECONDS_MAX
        assert {"apply_edits", "str_replace_based_edit_tool", "search_and_replace"} < set(names)
        assert client.ask(3, "ping") == {"result": {}}
        assert client.end() == b""
    with raw_client(shared, is_forked=False, PYTHONPATH=without_the_sdk(shared)) as client:
        client.send({"id": 1, "method": "tools/call", "params": {"name": "log"}})
        assert client.process.wait(30) == 3, "and says why on standard error"


@pytest.mark.parametrize("version", ["2024-11-05", "2025-11-25", "1999-01-01"])
def test_the_answers_are_those_of_the_sdk(shared: Workplace, version: str) -> None:
    asked: Sequence[tuple[str, dict[str, Any]]] = (
        ("initialize", hello(version=version, roots={})),
        ("ping", {}),
        *((method, {}) for method in LISTS),
        *((method, {"_meta": {"progressToken": 1}, "cursor": None}) for method in LISTS),
    )
    words = ("--dialect", "cline", "--workspace", str(shared.root))
    with raw_client(shared, *words) as quick, raw_client(shared, *words) as whole:
        assert "error" in whole.ask(0, "of/the/sdk"), "from here on the SDK has the connection"
        for number, (method, params) in enumerate(asked, 1):
            assert quick.ask(number, method, **params) == whole.ask(number, method, **params), method
        assert quick.end() == whole.end() == b""


def test_the_answers_of_the_modern_era_are_those_of_the_sdk(shared: Workplace) -> None:
    with raw_client(shared) as quick, raw_client(shared) as whole:
        assert "error" in whole.ask(0, "of/the/sdk", _meta=envelope())
        for number, method in enumerate(("server/discover", *LISTS), 1):
            answers = [client.ask(number, method, _meta=envelope()) for client in (quick, whole)]
            assert answers[0] == answers[1], method
            assert "result" in answers[0]
        call = {"name": "log", "arguments": {}, "_meta": envelope()}
        assert quick.ask(9, "tools/call", **call)["result"]["isError"] is False
        assert quick.end() == whole.end() == b""


CALLS: Sequence[dict[str, Any]] = (
    {"name": "read_file", "arguments": {"path": "a.txt"}},
    {"name": "read_file", "arguments": {"path": "missing.txt"}},
    {"name": "read_file", "arguments": {"path": 7}},
    {"name": "read_file", "arguments": {"unknown": 7}},
    {"name": "unknown", "arguments": {}},
    {"name": "log"},
    {"name": "log", "arguments": {}, "_meta": {"progressToken": 3}},
    {"name": "status", "arguments": {}, "_meta": {"sessionId": "one"}},
    {"name": "apply_edits", "arguments": {"edits": [], "dry_run": True}},
    {"name": "undo", "arguments": {"transaction": 99_999}},
)


@pytest.mark.parametrize("abilities", [{}, {"elicitation": {}}])
@pytest.mark.parametrize("is_modern", [False, True])
def test_the_answers_to_calls_are_those_of_the_sdk(
    shared: Workplace, abilities: dict[str, Any], *, is_modern: bool
) -> None:
    shared.write({"a.txt": "one\n"})
    meta = envelope() if is_modern else {}
    if is_modern:
        meta["io.modelcontextprotocol/clientCapabilities"] = abilities
    words = ("--workspace", str(shared.root), "--session", "calls")
    broken = without_the_sdk(shared)
    with raw_client(shared, *words, is_forked=False, PYTHONPATH=broken) as quick, raw_client(shared) as whole:
        for client in (quick, whole):
            if not is_modern:
                introduction = hello("both") | {"capabilities": abilities}
                assert "result" in client.ask(1, "initialize", **introduction)
        assert "error" in whole.ask(0, "of/the/sdk", **({"_meta": meta} if is_modern else {}))
        for number, call in enumerate(CALLS, 2):
            params = call | ({"_meta": call.get("_meta", {}) | meta} if is_modern else {})
            answers = [client.ask(number, "tools/call", **params) for client in (quick, whole)]
            assert answers[0] == answers[1], call
            assert "result" in answers[0]
        assert quick.end() == whole.end() == b""


def test_a_cancelled_call_gets_no_answer_and_needs_no_sdk(shared: Workplace) -> None:
    with shared.client() as holder:
        holder.session_open("holder")
        lease = holder.lease_acquire(["held/**"], 60).lease
        wait = {"action": "acquire", "paths": ["held/**"], "wait": 30}
        with raw_client(shared, is_forked=False, PYTHONPATH=without_the_sdk(shared)) as client:
            client.ask(1, "initialize", **hello())
            call = {"name": "lease", "arguments": wait, "_meta": {"progressToken": "t"}}
            client.send({"id": 2, "method": "tools/call", "params": call})
            progress = client.receive()
            assert progress["method"] == "notifications/progress"
            assert progress["params"]["progressToken"] == "t"
            client.send({"method": "notifications/cancelled", "params": {"requestId": 2}})
            client.send({"id": 4, "method": "ping"})
            while (message := client.receive()).get("method") == "notifications/progress":
                pass  # sent before the cancellation
            assert message == {"id": 4, "result": {}}
            client.send({"id": 5, "method": "tools/call", "params": {"name": "lease", "arguments": wait}})
            client.send({"id": 6, "method": "ping"})
            assert client.receive() == {"id": 6, "result": {}}
            assert client.process.stdin is not None
            client.process.stdin.close()
            closed = {"code": -32000, "message": "Connection closed"}
            assert client.receive() == {"id": 5, "error": closed}, "as the SDK answers it"
            assert client.process.wait(30) == 0
        holder.lease_release(lease)


def test_what_is_not_in_order_is_refused_as_ever_and_the_connection_goes_on(shared: Workplace) -> None:
    with raw_client(shared) as client:
        assert client.ask(1, "tools/list")["error"]["code"] == -32602, "before initialize"
        assert client.ask(2, "initialize", protocolVersion="2025-06-18")["error"]["code"] == -32602
        assert "result" in client.ask(3, "initialize", **hello())
        assert client.ask(4, "tools/list", cursor=7)["error"]["code"] == -32602
        assert "result" in client.ask(5, "tools/list")
        assert client.end() == b""


def test_the_handshake_is_answered_once_though_the_sdk_hears_of_it_again(shared: Workplace) -> None:
    with raw_client(shared) as client:
        client.send(
            {"id": 1, "method": "initialize", "params": hello("once")},
            {"method": "notifications/initialized"},
            {"id": 2, "method": "tools/list"},
            {"id": 3, "method": "tools/call", "params": {"name": "log", "arguments": {}}},
        )
        assert [client.receive()["id"] for _ in range(3)] == [1, 2, 3]
        assert client.ask(4, "initialize", **hello("twice"))["result"]["protocolVersion"] == "2025-06-18"
        assert client.end() == b""


def test_the_roots_of_a_client_count_though_it_sends_them_before_any_call(shared: Workplace) -> None:
    with raw_client(shared, folder=shared.folder / "home", EDITD_WORKSPACE="") as client:
        client.ask(1, "initialize", **hello("rooted", roots={"listChanged": True}))
        client.send({"method": "notifications/initialized"}, {"id": 2, "method": "tools/list"})
        assert client.receive()["id"] == 2
        asked = client.receive()
        assert asked["method"] == "roots/list"
        client.send({"id": asked["id"], "result": {"roots": [{"uri": shared.root.as_uri()}]}})
        call = {"name": "read_file", "arguments": {"path": "none.txt"}}
        result = client.ask(3, "tools/call", **call)["result"]
        assert result["structuredContent"]["error"] == "file_missing", "and not that a home folder is refused"
        assert client.end() == b""


def test_roots_that_come_too_late_are_asked_for_again_by_the_first_call(shared: Workplace) -> None:
    with raw_client(shared, folder=shared.folder / "home", EDITD_WORKSPACE="") as client:
        client.ask(1, "initialize", **hello("late", roots={}))
        client.send({"method": "notifications/initialized"}, {"id": 2, "method": "tools/list"})
        assert client.receive()["id"] == 2
        first = client.receive()
        call = {"name": "read_file", "arguments": {"path": "none.txt"}}
        client.send({"id": 3, "method": "tools/call", "params": call})
        second = client.receive()
        assert [first["method"], second["method"]] == ["roots/list", "roots/list"]
        for asked in (first, second):
            client.send({"id": asked["id"], "result": {"roots": [{"uri": shared.root.as_uri()}]}})
        assert client.receive()["result"]["structuredContent"]["error"] == "file_missing"
        assert client.end() == b""


CALL = '"method":"tools/call","params":{"name":"write_file","arguments":{"path":"half.txt","content":"%s"}}'
REFUSED = {
    "half": (('{"jsonrpc":"2.0","id":5,' + CALL % "\\ud83d" + "}").encode(), 5, -32700),
    "latin": (('{"jsonrpc":"2.0","id":5,' + CALL % "caf\xe9" + "}").encode("latin-1"), 5, -32700),
    "deep": (
        b'{"jsonrpc":"2.0","id":5,"method":"tools/call","params":' + b'{"a":' * 150 + b"1" + b"}" * 151,
        5,
        -32600,
    ),
    "deeper": (
        b'{"jsonrpc":"2.0","id":5,"method":"tools/call","params":' + b'{"a":' * 300 + b"1" + b"}" * 301,
        5,
        -32600,
    ),
    "cut": (b'{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{', 5, -32700),
    "list": (b'{"jsonrpc":"2.0","id":5,"method":"tools/call","params":[]}', 5, -32600),
    "number": (b'{"jsonrpc":"2.0","id":5,"method":5}', 5, -32600),
    "id": (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', None, -32600),
    "batch": (b'[{"jsonrpc":"2.0","id":5,"method":"ping"}]', None, -32600),
}


@pytest.mark.parametrize("is_sdk", [False, True], ids=["handshake", "sdk"])
def test_a_line_that_is_no_message_is_answered(shared: Workplace, *, is_sdk: bool) -> None:
    with raw_client(shared, "--workspace", str(shared.root)) as client:
        client.ask(1, "initialize", **hello())
        if is_sdk:
            assert "error" in client.ask(0, "of/the/sdk")
        for line, number, code in REFUSED.values():
            client.send_line(line)
            answer = client.receive()
            assert (answer["id"], answer["error"]["code"]) == (number, code), line
        assert client.ask(6, "ping") == {"result": {}}
        assert client.end() == b""
    assert not (shared.root / "half.txt").exists()
