"""One client's stream, without its socket: bytes in, typed requests out, and answers as bytes.

The first byte that a client sends decides the encoding, and is answered in kind:

    0x94 0x93 0xdc   MessagePack-RPC
    C                JSON-RPC 2.0 after `Content-Length` headers
    {                JSON-RPC 2.0, one message a line

A request is typed and checked before it leaves here. No input from a client raises: an invalid request comes
out as BadRequest, with the answer to it, and a stream that cannot go on is `closed`. The limits are
`wire.codec`. The owner decides how fast requests are taken out (`feed`, then `take`).

Never touches a socket, and knows the meaning of no method.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from editd.wire.codec import (
    COMMON_BYTES_MAX,
    convert,
    decode_common,
    decode_json_in_parts,
    params_of,
    plain,
)
from editd.wire.envelope import (
    BadCall,
    Envelope,
    Frames,
    HeaderFrames,
    JsonRpc,
    LineFrames,
    MessagePackFrames,
    MessagePackRpc,
    Response,
    RpcCall,
)
from editd.wire.errors import Id, Malformed
from editd.wire.limits import ANSWER_BYTES_MAX
from editd.wire.messages import Error, Params

if TYPE_CHECKING:
    from collections.abc import Callable

# ── The daemon's half ──────────────────────────────────────────────────────────────────────────


class Request(Struct, frozen=True, weakref=True):
    """A method's typed parameters. `id` is None for a notification, which gets no answer."""

    id: Id | None
    params: Params


class BadRequest(Struct, frozen=True):
    """An invalid request. Send `answer` as it is; after a `fatal` one the stream is closed."""

    error: Error
    answer: bytes
    fatal: bool


class LargeMessage(Struct, frozen=True, weakref=True):
    """A message that takes long to decode, in any thread. `Connection.enter` takes the result of `parse`."""

    envelope: Envelope
    value: Any

    def parse(self) -> ParsedMessage:
        """Decode the message, and check its types."""
        if not isinstance(self.value, bytearray):
            return _parse(self.envelope, self.value)
        try:
            value = decode_json_in_parts(self.value)
        except Malformed as malformed:
            return BadCall(malformed.to, malformed)
        return _parse(self.envelope, value, is_plain=True)


Incoming = Request | BadRequest | LargeMessage
ParsedMessage = tuple[Id | None, Params] | BadCall | None
"""The id and the parameters of a request, or its error; None if it needs neither an action nor an answer."""


class Connection:
    """The daemon's end. `waiting` is the number of requests taken and not answered yet."""

    def __init__(self) -> None:
        self.waiting = 0
        self.closed = False
        self.kept = 0
        """The number of bytes that were fed and are not part of a taken message."""
        self._ids: set[Id] = set()
        self._frames: Frames | None = None
        self._decoded: tuple[Id, Params] | None = None  # a request ahead of those in `_frames`
        self._decoded_bytes = 0
        self._envelope: Envelope = JsonRpc("line")  # also for errors to clients with an unknown encoding

    @property
    def errors_as_text(self) -> bool:
        """Whether errors go out as `[0, text]`; `hello` asks for it, and JSON has no such form."""
        return isinstance(self._envelope, MessagePackRpc) and self._envelope.errors_as_text

    @errors_as_text.setter
    def errors_as_text(self, wanted: bool) -> None:
        if isinstance(self._envelope, MessagePackRpc):
            self._envelope.errors_as_text = wanted

    def receive(self, data: bytes) -> list[Request | BadRequest]:
        """Return all messages that `data` completes: `feed`, then `take` until there is no more."""
        self.feed(data)
        return list(iter(self._take_decoded, None))

    def _take_decoded(self) -> Request | BadRequest | None:
        while isinstance(incoming := self.take(), LargeMessage):
            entered = self.enter(incoming.parse())
            if entered is not None:
                return entered
        return incoming

    def feed(self, data: bytes) -> None:
        """Keep incoming bytes until they are taken."""
        if self._frames is None:
            data = data.lstrip(b" \t\r\n")
            if not data or self.closed:
                return
            frames, self._envelope = _FIRST_BYTES.get(data[0], _unknown)()
            self._frames = frames
        if (
            not self.kept
            and data.startswith(b"\x94")
            and len(data) <= COMMON_BYTES_MAX
            and isinstance(self._frames, MessagePackFrames)
        ):
            self._decoded = decode_common(data)
            if self._decoded is not None:
                self.kept = self._decoded_bytes = len(data)
                return
        self._frames.feed(data)
        self.kept = self._decoded_bytes + self._frames.kept

    def feed_end(self) -> None:
        """Note the end of the client's stream: a last line needs no line end."""
        if isinstance(self._frames, LineFrames):
            self._frames.feed(b"\n")
            self.kept = self._frames.kept

    def take(self) -> Incoming | None:
        """Return the next complete message, or None if there is none."""
        if self._decoded is not None and self._frames is not None:
            (call_id, params), self._decoded, self._decoded_bytes = self._decoded, None, 0
            self.kept = self._frames.kept
            return self._enter(call_id, params)
        while self.kept and not self.closed and (frames := self._frames) is not None:
            try:
                value = next(frames)
            except StopIteration:
                self.kept = frames.kept
                return None
            except Malformed as malformed:
                self.kept = frames.kept
                return self._bad(malformed.to, malformed)
            self.kept = frames.kept
            if frames.is_large:
                return LargeMessage(self._envelope, value)
            if (incoming := self.enter(_parse(self._envelope, value))) is not None:
                return incoming
        return None

    def enter(self, parsed: ParsedMessage) -> Request | BadRequest | None:
        """Return the request, which waits for its answer from now on, or the answer to an invalid one."""
        if parsed is None:
            return None
        if isinstance(parsed, BadCall):
            return self._bad(parsed.to, parsed.malformed)
        return self._enter(*parsed)

    def is_waiting_for(self, call_id: Id | None) -> bool:
        """Whether a request with this id was taken and not answered; never true for a notification."""
        return call_id in self._ids

    def reply(self, to: Id | None, result: Any) -> bytes:
        """Return the bytes that answer a request with its result; none for a notification."""
        self.leave(to)
        return b"" if to is None else self.encode(to, result)

    def encode(self, to: Id, result: Any) -> bytes:
        """Return the bytes of a result, in any thread. The request counts as waiting until `leave`."""
        return self._envelope.result(to, result)

    def refuse(self, to: Id | None, error: Error) -> bytes:
        """Return the bytes that answer a request with an error; none for a notification."""
        self.leave(to)
        return b"" if to is None else self._envelope.error(to, error)

    def end(self, error: Error) -> bytes:
        """Read no more of the stream, drop its buffer, and return the bytes of the error."""
        self.closed, self._frames, self._decoded, self._decoded_bytes, self.kept = True, None, None, 0, 0
        return self._envelope.error(None, error)

    def notify(self, method: str, params: Any) -> bytes:
        """Return the bytes of a notification to the client."""
        return self._envelope.call(None, method, params)

    def notice(self, method: str, arguments: list[Any]) -> bytes:
        """Return the bytes of a notification by position."""
        return self._envelope.notice(method, arguments)

    @property
    def encoding(self) -> str:
        """The client's encoding: bytes encoded for one client are good for all with the same."""
        if isinstance(self._envelope, JsonRpc):
            return f"json-{self._envelope.framed}"
        return "msgpack"

    def _enter(self, call_id: Id | None, params: Params) -> Request | BadRequest:
        if call_id in self._ids:
            repeated = "A request with this id is still waiting for its answer. Use each id once."
            return self._bad(call_id, Malformed("invalid_request", repeated))
        if call_id is not None:
            self._ids.add(call_id)
        self.waiting += 1
        return Request(call_id, params)

    def leave(self, to: Id | None) -> None:
        """Note that a request has its answer."""
        assert to is None or to in self._ids, "an answer without a request"
        if to is not None:
            self._ids.remove(to)
        self.waiting -= 1

    def _bad(self, to: Id | None, malformed: Malformed) -> BadRequest:
        if malformed.fatal:
            self.closed = True
            self._frames, self.kept = None, 0  # with its buffer
        return BadRequest(malformed.error, self._envelope.error(to, malformed.error), malformed.fatal)


def _parse(envelope: Envelope, value: Any, *, is_plain: bool = False) -> ParsedMessage:
    """Check a decoded message. The parameters are texts already if it `is_plain`."""
    try:
        call = envelope.open(value)
    except BadCall as bad:
        return bad
    if isinstance(call, Response):
        return None  # The daemon sends no requests to its clients.
    try:
        params = call.params if is_plain else plain(call.params, from_json=envelope.from_json)
        return call.id, params_of(call.method, params)
    except Malformed as malformed:
        return None if call.id is None else BadCall(call.id, malformed)


def _msgpack() -> tuple[Frames, Envelope]:
    return MessagePackFrames(), MessagePackRpc()


def _headers() -> tuple[Frames, Envelope]:
    return HeaderFrames(), JsonRpc("header")


def _lines() -> tuple[Frames, Envelope]:
    return LineFrames(), JsonRpc("line")


def _unknown() -> tuple[Frames, Envelope]:
    return UnknownFrames(), JsonRpc("line")


_FIRST_BYTES: dict[int, Callable[[], tuple[Frames, Envelope]]] = {
    0x94: _msgpack,
    0x93: _msgpack,
    0xDC: _msgpack,
    ord("C"): _headers,
    ord("{"): _lines,
}


class UnknownFrames(Frames):
    """The stream of a client that speaks none of the encodings."""

    def feed(self, data: bytes) -> None:
        """Drop the data, which cannot be read."""
        self.kept = len(data)

    def __init__(self) -> None:
        self.kept = 0

    def __next__(self) -> Any:
        raise Malformed(
            "parse_error",
            "The first byte is of no known encoding. Send MessagePack-RPC, or JSON-RPC one"
            " object a line, or JSON-RPC with Content-Length headers.",
            fatal=True,
        )


# ── The client's half ──────────────────────────────────────────────────────────────────────────


class Reply(Struct, frozen=True):
    """The result of request `id`, as plain values: `convert` makes it a message."""

    id: Id | None
    result: Any


class Failure(Struct, frozen=True):
    """The daemon's error for request `id`; None if it could not read the id."""

    id: Id | None
    error: Error


class ServerEvent(Struct, frozen=True):
    """A notification from the daemon."""

    method: str
    params: Any


class ClientConnection:
    """A client's end, in MessagePack-RPC."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._frames = MessagePackFrames(ANSWER_BYTES_MAX, length_max=ANSWER_BYTES_MAX)
        self._envelope = MessagePackRpc()

    def request(self, method: str, params: Params) -> tuple[int, bytes]:
        """Return a new id, and the bytes of a request with it."""
        number = next(self._numbers)
        return number, self._envelope.call(number, method, params)

    def receive(self, data: bytes) -> list[Reply | Failure | ServerEvent]:
        """Return all messages that `data` completes. Raises Malformed if it is not of this protocol."""
        self._frames.feed(data)
        return [self._answer(value) for value in self._frames]

    def _answer(self, value: Any) -> Reply | Failure | ServerEvent:
        try:
            message = self._envelope.open(value)
        except BadCall as bad:
            raise bad.malformed from None
        match message:
            case RpcCall():
                return ServerEvent(message.method, plain(message.params, from_json=False))
            case Response(error=None):
                return Reply(message.id, plain(message.result, from_json=False))
            case _:
                return Failure(message.id, _error(message.error))


def _error(value: Any) -> Error:
    try:
        return convert(plain(value, from_json=False), Error)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        raise Malformed("parse_error", f"The daemon sent an error in no known form: {error}.") from None
