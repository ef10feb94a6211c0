"""The two RPC conventions: the envelope of a request, and the envelope of an answer.

    MessagePack-RPC   [0, id, method, [params]]   [1, id, error, result]   [2, method, [params]]
    JSON-RPC 2.0      {"jsonrpc": "2.0", "id", "method", "params"}, {…, "result"} or {…, "error"}

Params are one map in both. Knows the form of a message, not the meaning of any method.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeGuard

from msgspec import Struct

from editd.wire.codec import encode_json, encode_msgpack, text_of
from editd.wire.errors import Malformed, shown

if TYPE_CHECKING:
    from editd.wire.messages import Error

Id = int | str


class RpcCall(Struct, frozen=True):
    """A method call; `id` is None for a notification, which gets no answer."""

    id: Id | None
    method: str
    params: Any


class Response(Struct, frozen=True):
    """An incoming answer: to a client, or from a client that got no request."""

    id: Any
    error: Any
    result: Any


class BadCall(Exception):
    """An invalid call, perhaps with an id to answer to."""

    def __init__(self, to: Id | None, malformed: Malformed) -> None:
        super().__init__(str(malformed))
        self.to = to
        self.malformed = malformed


class Envelope(Protocol):
    """One convention."""

    from_json: bool

    @abstractmethod
    def open(self, value: Any) -> RpcCall | Response:
        """Return the call or response in `value`; raises BadCall if it is neither."""

    @abstractmethod
    def result(self, to: Id, result: Any) -> bytes: ...

    @abstractmethod
    def error(self, to: Id | None, error: Error) -> bytes: ...

    @abstractmethod
    def call(self, call_id: Id | None, method: str, params: Any) -> bytes: ...

    @abstractmethod
    def notice(self, method: str, arguments: list[Any]) -> bytes:
        """Return a notification by position, as a bare Neovim channel takes it."""


class MessagePackRpc(Envelope):
    """MessagePack-RPC. `errors_as_text` is for a bare Neovim channel, which shows no other form of error."""

    from_json = False
    errors_as_text = False

    def open(self, value: Any) -> RpcCall | Response:
        match value if isinstance(value, list) else None:
            case [0, call_id, method, *rest] if len(rest) <= 1:
                return _call(_checked_id(call_id), method, _only_map(call_id, rest))
            case [2, method, *rest] if len(rest) <= 1:
                return _call(None, method, _only_map(None, rest))
            case [1, call_id, error, result]:
                return Response(call_id, error, result)
            case _:
                raise _invalid(None, "A MessagePack-RPC request is [0, id, method, [params]].")

    def result(self, to: Id, result: Any) -> bytes:
        return encode_msgpack([1, to, None, result])

    def error(self, to: Id | None, error: Error) -> bytes:
        return encode_msgpack([1, to, [0, _as_text(error)] if self.errors_as_text else error, None])

    def call(self, call_id: Id | None, method: str, params: Any) -> bytes:
        return encode_msgpack([2, method, [params]] if call_id is None else [0, call_id, method, [params]])

    def notice(self, method: str, arguments: list[Any]) -> bytes:
        return encode_msgpack([2, method, arguments])


class JsonRpc(Envelope):
    """JSON-RPC. `framed` is "header" for a length before each message, "line" for one message a line."""

    from_json = True

    def __init__(self, framed: Literal["line", "header"]) -> None:
        self.framed = framed

    def open(self, value: Any) -> RpcCall | Response:
        if isinstance(value, list):
            raise _invalid(None, "A batch is not accepted: send one request after the other.")
        if not isinstance(value, dict):
            raise _invalid(None, "A JSON-RPC request is an object.")
        if "method" not in value and ("result" in value or "error" in value):
            return Response(value.get("id"), value.get("error"), value.get("result"))
        call_id = _checked_id(value["id"]) if "id" in value else None
        # The method would run without the parameters of a misspelt `params`.
        if unknown := value.keys() - _MEMBERS:
            raise _invalid(call_id, f"A JSON-RPC request has no member {shown(min(unknown))!r}.")
        if value.get("jsonrpc", "2.0") != "2.0":
            raise _invalid(call_id, 'This is JSON-RPC: "jsonrpc" is "2.0", or left out.')
        if "method" not in value:
            raise _invalid(call_id, 'A JSON-RPC request has a "method".')
        params = value.get("params")
        return _call(call_id, value["method"], {} if params is None else params)

    def result(self, to: Id, result: Any) -> bytes:
        return self._frame({"jsonrpc": "2.0", "id": to, "result": result})

    def error(self, to: Id | None, error: Error) -> bytes:
        details = {"name": error.name, "data": error.data}
        wrapped = {"code": error.code, "message": error.message, "data": details}
        return self._frame({"jsonrpc": "2.0", "id": to, "error": wrapped})

    def call(self, call_id: Id | None, method: str, params: Any) -> bytes:
        identity = {} if call_id is None else {"id": call_id}
        return self._frame({"jsonrpc": "2.0", **identity, "method": method, "params": params})

    def notice(self, method: str, arguments: list[Any]) -> bytes:
        return self._frame({"jsonrpc": "2.0", "method": method, "params": arguments})

    def _frame(self, message: dict[str, Any]) -> bytes:
        body = encode_json(message)
        return body + b"\n" if self.framed == "line" else b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


_MEMBERS = {"jsonrpc", "id", "method", "params"}


def _call(call_id: Id | None, method: Any, params: Any) -> RpcCall:
    name = text_of(method) if isinstance(method, bytes) else method
    if not isinstance(name, str):
        raise _invalid(call_id, "A method is named by a string.")
    if not isinstance(params, dict):
        raise _invalid(call_id, f"The parameters of {shown(name)} are one map.")
    return RpcCall(call_id, name, params)


def _only_map(call_id: Any, rest: list[Any]) -> Any:
    """Return the map in `[params]`; Neovim has but one empty table, so an empty array is an empty map."""
    match rest:
        case [] | [[]] | [[[]]]:
            return {}
        case [[only]]:
            return only
        case _:
            raise _invalid(
                call_id if _is_id(call_id) else None, "The parameters are one map in an array: [params]."
            )


def _checked_id(value: Any) -> Id:
    if isinstance(value, int | str) and not isinstance(value, bool):
        return value
    raise _invalid(None, "An id is an integer or a string.")


def _is_id(value: Any) -> TypeGuard[Id]:
    return isinstance(value, int | str) and not isinstance(value, bool)


def _invalid(call_id: Id | None, message: str) -> BadCall:
    return BadCall(call_id, Malformed("invalid_request", message))


def _as_text(error: Error) -> str:
    """Return `name: message`, and on its next line the data as JSON."""
    return f"{error.name}: {error.message}\n{encode_json(error.data).decode('utf-8')}"
