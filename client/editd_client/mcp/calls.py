"""The calls of tools, answered without the SDK, each in a thread with its own connection.

A call that is to ask the client's user goes to `server` with the id of its request to the daemon. There it
finds its own proposal again, because the same id changes nothing twice. A refusal has changed nothing.
"""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from editd.wire.codec import plain
from editd.wire.errors import Malformed
from editd_client.errors import EditdError, Unreachable, refusal
from editd_client.mcp import conversion
from editd_client.mcp.client_sessions import session_id_in
from editd_client.mcp.connection_pool import CallStream
from editd_client.mcp.tools import ToolCall, offered_tools, tool_named

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from editd_client.client import Client
    from editd_client.mcp import Options
    from editd_client.mcp.client_sessions import ClientSessions
    from editd_client.mcp.connection_pool import ConnectionPool
    from editd_client.mcp.conversion import ToolResult

PROGRESS_SECONDS = 1.0
CALLS_MAX = 128  # at once, each with a thread and a connection: half of a daemon's limit
PARAMETERS = {"name", "arguments", "_meta"}
GEMINI = "gemini-cli-mcp-client"
ENDED = -32603  # JSON-RPC's internal error
CLOSED = -32000  # the SDK's


class ClientTraits(Struct, frozen=True):
    """The facts about a client that its calls depend on."""

    name: str
    may_ask: bool = False  # its user, by a form
    opens_pages: bool = False
    stamp: Mapping[str, Any] | None = None  # the further members of each result, in the modern era


class DirectCall(Struct):
    """A call that runs."""

    number: int | str
    line: bytes  # the message itself
    name: str
    arguments: dict[str, Any]
    meta: dict[str, Any]
    client: ClientTraits
    request_id: str
    stream: CallStream


class DirectCalls:
    """The calls of one client. `send` writes a message; `hand_over` gives a message to the SDK."""

    def __init__(
        self,
        options: Options,
        sessions: ClientSessions,
        send: Callable[[Mapping[str, Any]], None],
        hand_over: Callable[[bytes], None],
    ) -> None:
        self._options, self._sessions, self._send, self._hand_over = options, sessions, send, hand_over
        self._running: dict[int | str, DirectCall] = {}
        self._lock = threading.Lock()
        self._room = threading.BoundedSemaphore(CALLS_MAX)
        self.request_ids: dict[int | str, str] = {}  # of the calls that the SDK answers in the end

    def start(self, number: int | str, params: dict[str, Any], line: bytes, client: ClientTraits) -> bool:
        """Start a call in a thread; return whether it is one for this class."""
        name, arguments, meta = params.get("name"), params.get("arguments"), params.get("_meta", {})
        token = meta.get("progressToken") if isinstance(meta, dict) else None
        is_plain = (
            isinstance(name, str)
            and (arguments is None or isinstance(arguments, dict))
            and isinstance(meta, dict)
            and params.keys() <= PARAMETERS
            and ("progressToken" not in meta or _is_token(token))
        )
        if not is_plain or number in self._running:
            return False
        call = DirectCall(
            number, line, str(name), arguments or {}, meta, client, str(uuid.uuid4()), CallStream()
        )
        with self._lock:
            self._running[number] = call
        threading.Thread(target=self._answer, args=(call,), daemon=True).start()
        return True

    def cancel(self, number: object) -> bool:
        """End a running call without an answer; return whether there is one."""
        with self._lock:
            call = self._running.pop(number, None) if isinstance(number, int | str) else None
        if call is not None:
            call.stream.cut()
        return call is not None

    def end(self) -> None:
        """End all running calls, as the SDK does when its input ends."""
        for number in list(self._running):
            if self.cancel(number):
                with contextlib.suppress(OSError):  # the client reads no more
                    self._send({"id": number, "error": {"code": CLOSED, "message": "Connection closed"}})

    def _answer(self, call: DirectCall) -> None:
        """Carry out a call in this thread, and answer it unless it was cancelled."""
        is_over = threading.Event()
        with self._room:
            if "progressToken" in call.meta:
                threading.Thread(target=self._tell_progress, args=(call, is_over), daemon=True).start()
            try:
                result = self._result(call)
            except Exception as error:  # noqa: BLE001  # the client would wait for ever
                failure = {"code": ENDED, "message": f"{type(error).__name__}: {error}"}
                answer: dict[str, Any] | None = {"id": call.number, "error": failure}
            else:
                answer = None if result is None else {"id": call.number, "result": result}
            finally:
                is_over.set()
        with self._lock:
            if self._running.pop(call.number, None) is not call:
                return
        if answer is not None:
            self._send(answer)
        else:
            self.request_ids[call.number] = call.request_id
            self._hand_over(call.line)

    def _result(self, call: DirectCall) -> dict[str, Any] | None:
        """Return the result of a call, or None if the client's user is to be asked."""
        try:
            found = self._carried_out(call)
        except EditdError as error:
            found = conversion.refusal_result(error)
        except Unreachable as error:
            found = conversion.unreachable(error)
        except Malformed as error:
            found = conversion.refusal_result(refusal(error.error.name, error.error.message))
        if found is None:
            return None
        has_data = found.data is not None and not (found.is_refusal and call.client.name == GEMINI)
        return {
            "content": [{"type": "text", "text": text} for text in found.texts],
            **({"structuredContent": found.data} if has_data else {}),
            "isError": found.is_refusal,
            **(call.client.stamp or {}),
        }

    def _carried_out(self, call: DirectCall) -> ToolResult | None:
        tools = {tool.name: tool for tool in offered_tools(self._options, may_ask=call.client.may_ask)}
        tool = tool_named(call.name, tools)
        arguments: dict[str, Any] = tool.arguments(plain(call.arguments, from_json=True))
        self._sessions.choose([])
        can_ask = call.client.may_ask or call.client.opens_pages
        is_first = bool(can_ask and self._options.wait and not tool.is_read_only)
        wait = 0.0 if is_first else self._options.wait

        def run(client: Client, pool: ConnectionPool) -> ToolResult:
            # A retry begins with the original arguments.
            return tool.run(
                ToolCall(
                    dict(arguments), client, pool.session, pool.workspace.root, call.request_id,
                    self._options.may_undo_others, wait, tree=pool.workspace.tree,
                )
            )  # fmt: skip

        try:
            pool = self._sessions.pool(session_id_in(call.meta))
            found = pool.ask(lambda client: run(client, pool), call.stream)
        except EditdError as error:
            found = conversion.refusal_result(error)
        if is_first and found.data.get("state") == "open":
            return None
        has_question = tool.is_own and not arguments.get("dry_run") and call.client.may_ask
        return None if has_question and conversion.question(found) is not None else found

    def _tell_progress(self, call: DirectCall, is_over: threading.Event) -> None:
        """Report once a second that the call still runs."""
        began = time.monotonic()
        while not is_over.wait(PROGRESS_SECONDS):
            passed = time.monotonic() - began
            with contextlib.suppress(OSError):
                self._send(
                    {
                        "method": "notifications/progress",
                        "params": {
                            "progressToken": call.meta["progressToken"], "progress": passed,
                            "message": f"{call.name}: {passed:.0f} s",
                        },
                    }
                )  # fmt: skip


def _is_token(token: object) -> bool:
    """Return whether MCP allows this value as the token of a progress."""
    return isinstance(token, int | str) and not isinstance(token, bool)
