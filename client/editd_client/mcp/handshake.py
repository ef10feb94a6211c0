"""The connection of one client: reads each message, and answers all that needs no SDK.

    initialize, server/discover, ping, and each list    answered here
    a call of a tool                                    answered by `calls`
    any other request, and all that come after it       given to `server`

The import of the SDK takes most of a second. An agent asks for the tools as soon as the server runs, and
Codex gives its model the tools that come in time. The first message for `server` starts it in a thread, which
gets the handshake first. Its answer to that is dropped. Calls that run meanwhile end as they would have.
An answer here is the SDK's, to the byte of its JSON values: a message of any other form is left to the SDK.

Standard output belongs to the protocol: file descriptor 1 is standard error while a client is served.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import threading
from typing import TYPE_CHECKING, Any

from editd import __version__
from editd.wire.codec import decode_json, is_id
from editd.wire.errors import Malformed
from editd_client.errors import EditdError
from editd_client.mcp.calls import ClientTraits, DirectCalls
from editd_client.mcp.resources import PROMPTS, RESOURCES, TEMPLATES
from editd_client.mcp.tools import listing, offered_tools

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from editd_client.mcp import Options
    from editd_client.mcp.client_sessions import ClientSessions

NAME = "editd"
INSTRUCTIONS = (
    "Edit files of this workspace through editd: several agents may edit at once, no change is overwritten "
    "unseen, and each edit can be undone alone. A refused call has changed nothing, and names the next step."
)
CAPABILITIES = {
    "prompts": {"listChanged": False},
    "resources": {"subscribe": False, "listChanged": False},
    "tools": {"listChanged": False},
}
HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN_VERSION = "2026-07-28"
META = "io.modelcontextprotocol"
PARSE_ERROR, INVALID_REQUEST = -32700, -32600
LINE_NESTING_MAX = 100  # of the parameters; the SDK reads 200 levels in all
CANCELLED = "notifications/cancelled"
REPLAY_ID, ROOTS_ID = "editd-handshake", "editd-roots"


class Wire:
    """The standard streams of this process, taken for the protocol alone."""

    def __init__(self) -> None:
        self._input = os.fdopen(_take_over(0, os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)), "rb")
        self._output = os.fdopen(_take_over(1, os.dup(2)), "wb")
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()  # for the SDK
        self._writing = threading.Lock()  # calls and the SDK are in threads
        self._is_replayed = False

    def read(self) -> bytes:
        """Return the next line with a message, or nothing at the end. Answer each line that has none.

        The SDK never answers these lines, and their sender would wait for ever.
        """
        while line := self._input.readline():
            error = _error_in(line)
            if error is None:
                return line
            self.send(error)
        return b""

    def send(self, message: Mapping[str, Any]) -> None:
        text = json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=False, separators=(",", ":"))
        with self._writing:
            self._output.write(text.encode("utf-8") + b"\n")
            self._output.flush()

    def replay(self, lines: list[bytes], *, is_handshake: bool) -> None:
        """Let the SDK read these lines first; with a handshake, drop its answer to that."""
        self._is_replayed = is_handshake
        for line in lines:
            self.feed(line)

    def feed(self, line: bytes) -> None:
        """Let the SDK read a line. An empty one is the end."""
        self._lines.put(line)

    # The methods of a text file that the SDK calls.

    def readline(self) -> str:
        return self._lines.get().decode("utf-8")

    def write(self, text: str) -> int:
        if self._is_replayed and json.loads(text).get("id") == REPLAY_ID:
            self._is_replayed = False
        else:
            with self._writing:
                self._output.write(text.encode("utf-8"))
        return len(text)

    def flush(self) -> None:
        with self._writing:
            self._output.flush()


def _take_over(descriptor: int, replacement: int) -> int:
    """Return a duplicate of a standard stream, which is the replacement from now on."""
    own = os.dup(descriptor)  # Above 2: `editctl` opens closed standard streams at its start.
    os.dup2(replacement, descriptor)
    os.close(replacement)
    return own


class Handshake:
    """The requests of one client. `start_sdk` starts the SDK's server in a thread, and returns that."""

    def __init__(
        self,
        options: Options,
        sessions: ClientSessions,
        wire: Wire,
        start_sdk: Callable[[dict[int | str, str]], threading.Thread],
    ) -> None:
        self._options = options
        self._sessions = sessions
        self._wire = wire
        self._start_sdk = start_sdk
        self._calls = DirectCalls(options, sessions, wire.send, self._give)
        self._sdk: threading.Thread | None = None
        self._giving = threading.Lock()
        self._replay: list[bytes] = []
        self._client = ClientTraits("")
        self._has_roots = self._is_announced = False

    def serve(self) -> None:
        """Serve the client until it closes standard input."""
        while line := self._wire.read():
            message = json.loads(line)
            is_cancelled = message.get("method") == CANCELLED and self._is_cancelled(message)
            if not is_cancelled and (self._sdk is not None or not self._is_answered(message, line)):
                self._give(line)
        self._calls.end()
        with self._giving:
            self._wire.feed(b"")
            sdk = self._sdk
        if sdk is not None:
            sdk.join()

    def _give(self, line: bytes) -> None:
        """Give a message to the SDK, and start it if it does not run. For any thread."""
        with self._giving:
            if self._sdk is None:
                self._sdk = self._start_sdk(self._calls.request_ids)
                self._wire.replay(self._replay, is_handshake=bool(self._replay))
            self._wire.feed(line)

    def _is_cancelled(self, message: dict[str, Any]) -> bool:
        """Cancel a call that runs here; return whether it does."""
        params = message.get("params")
        return isinstance(params, dict) and self._calls.cancel(params.get("requestId"))

    def _is_answered(self, message: dict[str, Any], line: bytes) -> bool:
        method, number, params = message.get("method"), message.get("id"), message.get("params", {})
        if "method" not in message and number == ROOTS_ID:
            self._note_roots(message.get("result"))
            return True
        if not isinstance(method, str) or not isinstance(params, dict):
            return False
        if "id" not in message:
            if method == "notifications/initialized" and self._replay:
                self._replay[1:] = [line]
            return True  # None of the others has an effect before the first call.
        if not isinstance(number, str | int) or isinstance(number, bool):
            return False
        if method == "tools/call":
            return self._is_called(number, params, line)
        result = self._result(method, params)
        if result is None:
            return False
        self._wire.send({"id": number, "result": result})
        if method == "initialize":
            replayed = {"jsonrpc": "2.0", "id": REPLAY_ID, "method": method, "params": params}
            self._replay = [json.dumps(replayed).encode() + b"\n"]
        elif method == "tools/list":
            self._announce()
        return True

    def _is_called(self, number: int | str, params: dict[str, Any], line: bytes) -> bool:
        """Start a call of a tool, if the handshake and the roots of the client are known."""
        meta = params.get("_meta", {})
        if not isinstance(meta, dict):
            return False
        client = self._client
        if any(name.startswith(META) for name in meta):
            modern = None if self._replay else _modern_client(meta)
            if modern is None:
                return False
            client = modern
            self._sessions.introduce(client.name)
        elif not self._replay:
            return False
        if self._sessions.needs_roots and self._has_roots:
            return False
        return self._calls.start(number, params, line, client)

    def _result(self, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
        """Return the result of a request, or None if only the SDK can give it."""
        meta = params.get("_meta", {})
        if not isinstance(meta, dict) or params.get("cursor") is not None:
            return None
        if any(name.startswith(META) for name in meta):
            return None if self._replay else self._modern_result(method, meta)
        if method == "initialize":
            return None if self._replay else self._initialize(params)
        return self._list_result(method) if self._replay else None

    def _initialize(self, params: dict[str, Any]) -> dict[str, Any] | None:
        version, client = params.get("protocolVersion"), _client_name(params.get("clientInfo"))
        abilities = params.get("capabilities")
        if not isinstance(version, str) or client is None or not isinstance(abilities, dict):
            return None
        self._has_roots = isinstance(abilities.get("roots"), dict)
        self._client = ClientTraits(client, _may_ask(abilities), _opens_pages(abilities))
        self._sessions.introduce(client)
        return {
            "protocolVersion": version if version in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1],
            "capabilities": CAPABILITIES,
            "serverInfo": {"name": NAME, "version": __version__},
            "instructions": INSTRUCTIONS,
        }

    def _modern_result(self, method: str, meta: dict[str, Any]) -> dict[str, Any] | None:
        """Return the result for a client that introduces itself with each request."""
        client = _modern_client(meta)
        if client is None:
            return None
        if method == "server/discover":
            result: dict[str, Any] | None = {
                "supportedVersions": [MODERN_VERSION],
                "capabilities": CAPABILITIES,
                "instructions": INSTRUCTIONS,
            }
        else:
            self._client = client
            result = self._list_result(method) if method != "ping" else None  # which the modern era has not
        if result is None:
            return None
        self._sessions.introduce(client.name)
        return {**result, "cacheScope": "private", "ttlMs": 0, **(client.stamp or {})}

    def _list_result(self, method: str) -> dict[str, Any] | None:
        match method:
            case "ping":
                return {}
            case "tools/list":
                tools = offered_tools(self._options, may_ask=self._client.may_ask)
                return {"tools": [listing(tool) for tool in tools]}
            case "resources/list":
                return {"resources": RESOURCES}
            case "resources/templates/list":
                return {"resourceTemplates": TEMPLATES}
            case "prompts/list":
                return {"prompts": PROMPTS}
            case _:
                return None

    # ── The workspace ─────────────────────────────────────────────────────────────────────────────

    def _announce(self) -> None:
        """Let commands in the agent's shell act in the session; ask the client for its roots before."""
        if not self._sessions.needs_roots or not self._has_roots:
            self._choose([])
        elif not self._is_announced:
            self._wire.send({"id": ROOTS_ID, "method": "roots/list"})
        self._is_announced = True

    def _note_roots(self, result: object) -> None:
        roots = result.get("roots") if isinstance(result, dict) else None
        entries = [root for root in roots if isinstance(root, dict)] if isinstance(roots, list) else []
        self._choose([str(root.get("uri", "")) for root in entries])

    def _choose(self, roots: list[str]) -> None:
        with contextlib.suppress(EditdError):  # Each call will report the error.
            self._sessions.choose(roots)
            self._sessions.announce()


def _error_in(line: bytes) -> dict[str, Any] | None:
    """Return the answer to a line that is no message of JSON-RPC, or None if it is one."""
    try:
        message = decode_json(line)
    except Malformed as malformed:
        return _error(malformed.to, PARSE_ERROR, malformed.error.message)
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        return _error(None, INVALID_REQUEST, 'A message is one object with "jsonrpc": "2.0".')
    if "method" not in message and ("result" in message or "error" in message):
        return None
    number, params = message.get("id"), message.get("params")
    if "id" in message and not is_id(number):
        return _error(None, INVALID_REQUEST, "An id is an integer or a string.")
    if not isinstance(message.get("method"), str):
        return _error(number, INVALID_REQUEST, "A method is named by a string.")
    if params is not None and not isinstance(params, dict):
        return _error(number, INVALID_REQUEST, "The parameters are one object.")
    if _is_deeper(params, LINE_NESTING_MAX):
        return _error(
            number, INVALID_REQUEST, f"The parameters are nested more than {LINE_NESTING_MAX} deep."
        )
    return None


def _is_deeper(value: object, levels: int) -> bool:
    """Return whether arrays and objects are nested deeper than some levels: the SDK drops such a line."""
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return bool(items) and (levels == 0 or any(_is_deeper(item, levels - 1) for item in items))


def _error(to: object, code: int, message: str) -> dict[str, Any]:
    return {"id": to, "error": {"code": code, "message": message}}


def _client_name(info: object) -> str | None:
    """Return the name of a program that tells its name and its version, otherwise None."""
    if not isinstance(info, dict) or not isinstance(info.get("version"), str):
        return None
    name = info.get("name")
    return name if isinstance(name, str) else None


def _modern_client(meta: Mapping[str, Any]) -> ClientTraits | None:
    """Return the client that introduces itself in the `_meta` of a request; None for another form."""
    name, abilities = _client_name(meta.get(f"{META}/clientInfo")), meta.get(f"{META}/clientCapabilities")
    is_modern = meta.get(f"{META}/protocolVersion") == MODERN_VERSION
    if not is_modern or name is None or not isinstance(abilities, dict):
        return None
    stamp = {f"{META}/serverInfo": {"name": NAME, "version": __version__}}
    return ClientTraits(
        name, _may_ask(abilities), _opens_pages(abilities), {"resultType": "complete", "_meta": stamp}
    )


def _opens_pages(abilities: Mapping[str, Any]) -> bool:
    """Return whether the client can open an address for its user."""
    asking = abilities.get("elicitation")
    return isinstance(asking, dict) and asking.get("url") is not None


def _may_ask(abilities: Mapping[str, Any]) -> bool:
    """Return what `server.may_ask` returns for these capabilities."""
    asking = abilities.get("elicitation")
    return isinstance(asking, dict) and (asking.get("form") is not None or asking.get("url") is None)
