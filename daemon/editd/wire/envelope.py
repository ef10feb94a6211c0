"""The two RPC conventions: the envelope of a request, and the envelope of an answer.

    MessagePack-RPC   [0, id, method, [params]]   [1, id, error, result]   [2, method, [params]]
    JSON-RPC 2.0      {"jsonrpc": "2.0", "id", "method", "params"}, {…, "result"} or {…, "error"}

Params are one map in both. Knows the form of a message, not the meaning of any method.

Frames find the end of each message, in each of the three encodings. They are fed bytes as they come, in any
pieces, and iterate over the values of the complete messages. They can be fed and iterated again after they
have run dry. An incomplete message is kept, up to the limits. Input over a limit, or unreadable input, raises
Malformed; after a fatal one there is no next message.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgpack
from msgspec import Struct

from editd.wire.codec import decode_json, encode_json, encode_msgpack, is_id, is_large_json, too_many_values
from editd.wire.errors import Id, Malformed, shorten
from editd.wire.limits import KIB, LARGE_VALUES, LIMITS, MIB
from editd.wire.raw_text import text_of

if TYPE_CHECKING:
    from editd.wire.messages import Error


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
            case [0, call_id, *_]:
                raise _invalid(call_id if is_id(call_id) else None, _REQUEST_FORM)
            case _:
                raise _invalid(None, _REQUEST_FORM)

    def result(self, to: Id, result: Any) -> bytes:
        return encode_msgpack([1, to, None, result])

    def error(self, to: Id | None, error: Error) -> bytes:
        return encode_msgpack([1, to, [0, _as_text(error)] if self.errors_as_text else error, None])

    def call(self, call_id: Id | None, method: str, params: Any) -> bytes:
        return encode_msgpack([2, method, [params]] if call_id is None else [0, call_id, method, [params]])

    def notice(self, method: str, arguments: list[Any]) -> bytes:
        return encode_msgpack([2, method, arguments])


_REQUEST_FORM = "A MessagePack-RPC request is [0, id, method, [params]]."


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
            raise _invalid(call_id, f"A JSON-RPC request has no member {shorten(min(unknown))!r}.")
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
        raise _invalid(call_id, f"The parameters of {shorten(name)} are one map.")
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
                call_id if is_id(call_id) else None, "The parameters are one map in an array: [params]."
            )


def _checked_id(value: Any) -> Id:
    if is_id(value):
        return value
    raise _invalid(None, "An id is an integer or a string.")


def _invalid(call_id: Id | None, message: str) -> BadCall:
    return BadCall(call_id, Malformed("invalid_request", message))


def _as_text(error: Error) -> str:
    """Return `name: message`, and on its next line the data as JSON."""
    return f"{error.name}: {error.message}\n{encode_json(error.data).decode('utf-8')}"


# ── Frames ────────────────────────────────────────────────────────────────────────────────────


class Frames(Iterator[Any], Protocol):
    """The complete messages of one stream, as plain values with `bytes` in them."""

    kept: int
    """The number of bytes that were fed and are not part of a taken message."""

    is_large: bool = False
    """Whether the last message is large. Large JSON is a bytearray that is not decoded."""

    @abstractmethod
    def feed(self, data: bytes) -> None:
        """Add incoming bytes."""


class MessagePackFrames(Frames):
    """MessagePack values one after the other, with nothing in between."""

    def __init__(
        self, message_bytes_max: int = LIMITS.message_bytes_max, length_max: int | None = None
    ) -> None:
        self._message_bytes_max = message_bytes_max
        self._values_left = LIMITS.values_max
        is_daemons = length_max is None
        self.kept = 0
        self._fed = 0
        self._begun = 0  # the offset of the incomplete message in the whole stream
        self._overfull = False
        # The buffer has room for the rest of the last feed, beside a message of full length.
        self._unpacker = msgpack.Unpacker(
            raw=False,
            unicode_errors="surrogateescape",
            strict_map_key=is_daemons,  # numbers as keys can be chosen so that they all collide
            list_hook=self._count if is_daemons else None,
            object_hook=self._count if is_daemons else None,
            max_buffer_size=message_bytes_max + MIB,
            max_str_len=message_bytes_max,
            max_bin_len=message_bytes_max,
            max_ext_len=KIB,  # the protocol has no extension types: enough to read one and refuse it
            max_array_len=LIMITS.array_length_max if length_max is None else length_max,
            max_map_len=LIMITS.map_length_max if length_max is None else length_max,
        )

    def _count(self, made: Any) -> Any:
        """Count each new array and map: a million empty ones are small on the wire, and large in memory."""
        self._values_left -= 1 + len(made)
        if self._values_left < 0:
            raise too_many_values(fatal=True)
        return made

    def feed(self, data: bytes) -> None:
        try:
            self._unpacker.feed(data)
        except msgpack.BufferFull:
            self._overfull = True
        self._fed += len(data)
        self.kept = self._fed - self._begun

    def __next__(self) -> Any:
        try:
            value = self._unpacker.unpack()
        except msgpack.OutOfData:
            if self._overfull or self.kept > self._message_bytes_max:
                raise _too_large(self._message_bytes_max) from None
            raise StopIteration from None
        except (msgpack.FormatError, TypeError):  # TypeError: a map's key is a map or an array
            raise _unreadable("The bytes are not MessagePack.") from None
        except msgpack.StackError:
            raise _unreadable("The message is nested too deep.") from None
        except ValueError as error:  # an announced length over its limit
            if "map key" in str(error):
                raise _unreadable("The keys of a map are strings.") from None
            raise Malformed("too_large", f"The message is over a limit: {error}.", fatal=True) from None
        self._begun = self._unpacker.tell()
        self.kept = self._fed - self._begun
        self.is_large = self._values_left < LIMITS.values_max - LARGE_VALUES
        self._values_left = LIMITS.values_max
        return value


class LineFrames(Frames):
    """JSON, one message a line; empty lines are skipped."""

    def __init__(self) -> None:
        self.kept = 0
        self._buffer = bytearray()
        self._searched = 0

    def feed(self, data: bytes) -> None:
        self._buffer += data
        self.kept = len(self._buffer)

    def __next__(self) -> Any:
        while (end := self._buffer.find(b"\n", self._searched)) >= 0:
            if end > LIMITS.message_bytes_max:
                raise _too_large(LIMITS.message_bytes_max)
            line, self._buffer = _split(self._buffer, end, end + 1)
            self._searched = 0
            self.kept = len(self._buffer)
            if line and not line.isspace():
                self.is_large = is_large_json(line)
                return line if self.is_large else decode_json(line)
        self._searched = len(self._buffer)
        if self._searched > LIMITS.message_bytes_max:
            raise _too_large(LIMITS.message_bytes_max)
        raise StopIteration


class HeaderFrames(Frames):
    """JSON after a header with its length, as in LSP: `Content-Length: 52`, an empty line."""

    def __init__(self) -> None:
        self.kept = 0
        self._buffer = bytearray()
        self._body_bytes: int | None = None

    def feed(self, data: bytes) -> None:
        self._buffer += data
        self.kept = len(self._buffer)

    def __next__(self) -> Any:
        if self._body_bytes is None:
            self._body_bytes = self._take_header()
        length = self._body_bytes
        if length is None or len(self._buffer) < length:
            raise StopIteration
        body, self._buffer = _split(self._buffer, length, length)
        self._body_bytes, self.kept = None, len(self._buffer)
        self.is_large = is_large_json(body)
        return body if self.is_large else decode_json(body)

    def _take_header(self) -> int | None:
        """Return the length in the header, or None while it is incomplete."""
        if self._buffer[:1].isspace():  # a line end after a body sent by hand
            self._buffer = self._buffer.lstrip()
            self.kept = len(self._buffer)
        end = _HEADER_END.search(self._buffer, 0, LIMITS.header_bytes_max)
        if end is None:
            if len(self._buffer) >= LIMITS.header_bytes_max:
                raise _unreadable(f"A header is at most {LIMITS.header_bytes_max} bytes long.")
            return None
        header = bytes(self._buffer[: end.start()])
        del self._buffer[: end.end()]
        self.kept = len(self._buffer)
        return _content_length(header)


def _split(buffer: bytearray, end: int, next_begin: int) -> tuple[bytearray, bytearray]:
    """Return a message and the bytes behind it. The longer of both is not copied."""
    if end <= len(buffer) // 2:
        message = buffer[:end]
        del buffer[:next_begin]
        return message, buffer
    rest = buffer[next_begin:]
    del buffer[end:]
    return buffer, rest


# LSP ends lines with CRLF. A LF written by hand is accepted too, because otherwise it would wait for ever.
_HEADER_END = re.compile(rb"\r?\n\r?\n")


def _content_length(header: bytes) -> int:
    lengths = set()
    for line in header.splitlines():
        name, colon, value = line.partition(b":")
        if not colon:
            raise _unreadable("A header line has no colon. Write `Content-Length: N`, then an empty line.")
        if name.strip().lower() == b"content-length":
            lengths.add(value.strip())
    if len(lengths) != 1 or not (digits := lengths.pop()).isdigit():
        raise _unreadable("The header must have one Content-Length, in digits.")
    length = int(digits)
    if length > LIMITS.message_bytes_max:
        raise _too_large(LIMITS.message_bytes_max)
    return length


def _too_large(limit: int) -> Malformed:
    return Malformed(
        "too_large",
        f"A message is at most {limit} bytes long. Send the edits in several requests.",
        fatal=True,
    )


def _unreadable(reason: str) -> Malformed:
    return Malformed("parse_error", reason, fatal=True)
