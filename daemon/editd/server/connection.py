"""One connected client: the bytes between its socket and `wire.connection`, and the pace of both.

    it sends faster than it is answered   reading pauses at `requests_waiting_max`
    it does not read its answers          reading pauses, then the connection is cut off
    it sends an invalid request           it gets an error; if the stream cannot go on, it is closed
    it has no permission to connect       it is closed before a byte is read
    it is one too many                    it gets the error `overloaded`, and is closed

Other clients are served in between, however much one client sends, because a turn takes a limited number
of its requests. Holds no policy and knows no method: requests go to `on_request`, and each is answered
once by `reply` or `refuse`.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import logging
import weakref
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, cast

from msgspec import Struct, field

from editd.engine.commands import Reader, reader_of
from editd.errors import IoError, Refused
from editd.server import convert
from editd.server.large_messages import LargeMessages
from editd.system.peer import Peer, has_hung_up, may_connect, peer_of
from editd.system.process import process_at
from editd.wire import messages
from editd.wire.codec import is_large_answer
from editd.wire.connection import BadRequest, Connection, LargeMessage, Request
from editd.wire.errors import error
from editd.wire.limits import KIB, LIMITS, WireLimits

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator

    from editd.system.process import Process
    from editd.wire.errors import Id
    from editd.wire.messages import Error, Message


log = logging.getLogger(__name__)

Arguments = ParamSpec("Arguments")

OVERLOADED_SECONDS = 1.0  # for a client above the limit to send a first byte, which shows the encoding
LARGE_BYTES = 64 * KIB  # of a request: above this, it counts towards `requests_bytes_max`
TURN_SECONDS = 0.02  # of reading one client's requests; then it is the others' turn
ALONE_SECONDS = 0.05  # without bytes from another client, before a client counts as the only active one
CLOSE_SECONDS = 5.0  # for a client to read its last answers


class Connections:
    """All connected clients. The listening socket calls `connect` for each new one.

    `on_request` gets every request, on the loop's thread. `on_end` gets every client that has disconnected,
    and `on_reading_again` every client that reads its answers again.
    """

    def __init__(
        self,
        on_request: Callable[[SocketConnection, Request], None],
        on_end: Callable[[SocketConnection], None],
        on_reading_again: Callable[[SocketConnection], None] = lambda _client: None,
        *,
        may_speak: Callable[[Peer], bool] = may_connect,
        limits: WireLimits = LIMITS,
    ) -> None:
        self.on_request = on_request
        self.on_end = on_end
        self.on_reading_again = on_reading_again
        self.may_speak = may_speak
        self.limits = limits
        self.on_alone: list[Callable[[], None]] = []  # called when the only active client has been read
        self._newest: SocketConnection | None = None  # the last client that sent something
        self._alone_since = 0.0  # the loop's time since when it has been the only one
        self.large = LargeMessages()
        self._connected: set[SocketConnection] = set()
        self._turned_away: set[SocketConnection] = set()
        self._are_gone = asyncio.Event()
        self._kept = 0  # bytes of incomplete messages, of all clients
        self._held = 0  # bytes of large requests that are not answered yet

    def connect(self) -> SocketConnection:
        return SocketConnection(self)

    def connect_reviewer(self) -> SocketConnection:
        """Take a connection on the reviewers' own socket."""
        connection = SocketConnection(self)
        connection.is_reviewers = True
        return connection

    def __len__(self) -> int:
        return len(self._connected)

    def __iter__(self) -> Iterator[SocketConnection]:
        return iter(tuple(self._connected))

    async def finish(self) -> None:
        """Close every connection; return when all answers are sent, or unread for CLOSE_SECONDS."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self.large.finish()
        for client in self:
            client.close()
        if self._connected:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS + TURN_SECONDS):
                    await self._are_gone.wait()

    def enter(self, client: SocketConnection) -> bool:
        """Add `client` if there is room; return whether there was."""
        has_room = len(self._connected) < self.limits.connections_max
        (self._connected if has_room else self._turned_away).add(client)
        self._are_gone.clear()
        return has_room

    def leave(self, client: SocketConnection) -> None:
        self._turned_away.discard(client)
        if client is self._newest:
            self._newest = None
        if client in self._connected:
            self._connected.remove(client)
            self.on_end(client)
        if not self._connected:
            self._are_gone.set()

    def note_read(self, client: SocketConnection, now: float) -> None:
        """Note that `client` was read, and call `on_alone` if it is the only active one."""
        if client is not self._newest:
            self._newest, self._alone_since = client, now
        elif now - self._alone_since > ALONE_SECONDS:
            for listener in self.on_alone:
                listener()

    def make_room(self, client: SocketConnection) -> None:
        """Count the incomplete messages of `client`; if all have too many bytes, end the largest sender."""
        self._kept += client.count_kept()
        if self._kept > self.limits.incoming_bytes_max:
            self._kept = sum(one.kept + one.count_kept() for one in (*self._connected, *self._turned_away))
        if self._kept > self.limits.incoming_bytes_max:
            most = max((*self._connected, *self._turned_away), key=lambda one: one.kept)
            most.send_away("All clients together have sent too many bytes of incomplete messages.")

    def hold(self, request: Request | LargeMessage, size: int) -> Callable[[], object] | None:
        """Count a large request for as long as it exists; the returned function ends that at once.

        Returns None if there are too many bytes of them.
        """
        if self._held + size > self.limits.requests_bytes_max:
            return None
        self._held += size
        return weakref.finalize(request, self._let_go, size)

    def _let_go(self, size: int) -> None:
        self._held -= size

    def release_kept(self, size: int) -> None:
        self._kept -= size

    @property
    def is_overloaded(self) -> bool:
        """Whether more clients are being refused than may connect: further ones get no error."""
        return len(self._turned_away) > self.limits.connections_max


class ReadState(enum.Enum):
    """The state of a client's requests between its turns."""

    DRY = enum.auto()  # every complete request was taken
    TAKING = enum.auto()  # in the middle of a turn
    HELD = enum.auto()  # there may be more to take, and reading is paused


class SocketConnection(asyncio.Protocol):
    """One connection. Its `connection` is the protocol state. `hello` sets the form of errors there."""

    def __init__(self, clients: Connections) -> None:
        self.connection = Connection()
        self.peer: Peer | None = None
        self.peer_process: Process | None = None  # as it was when it connected, if the system shows it
        self.is_reviewers = False  # it came in on the reviewers' own socket
        self._clients = clients
        self._limits = clients.limits
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._is_welcome = False
        self._does_not_read = False
        self._has_ended = False  # it sends no more, but may still read
        self._pace = ReadState.DRY
        self._is_decoding = False  # a large message, in a thread: the messages behind it wait
        self._next_turn: asyncio.Handle | None = None
        self._hang_up: asyncio.TimerHandle | None = None
        self.kept = 0  # bytes of its incomplete messages, as last counted
        self._held = 0  # bytes of its large requests that are not answered yet
        self._let_go: dict[int, tuple[int, Callable[[], object]]] = {}  # by the request's id()

    # ── Calls by the dispatcher ────────────────────────────────────────────────────────────────

    def reply(self, request: Request, result: Message) -> None:
        """Answer `request`. A notification, or a client that has disconnected, gets no answer.

        A large answer is sent later: it is encoded in a thread.
        """
        if request.id is not None and is_large_answer(result):
            self._clients.large.start(self._reply_large(request, request.id, result))
            return
        if self._let_go:
            self._answered(request)
        self._answer(self.connection.reply(request.id, result))

    async def _reply_large(self, request: Request, call_id: Id, result: Message) -> None:
        try:
            answer = await self._clients.large.run(lambda: self.connection.encode(call_id, result))
        except Exception:  # our bug
            log.exception("the answer to a request of %s cannot be encoded", self.peer)
            self.fail(request)
            return
        self._answered(request)
        self.connection.leave(call_id)
        self._answer(answer)

    def refuse(self, request: Request, refusal: Error) -> None:
        """Answer `request` with an error, as `reply` answers with a result."""
        self._answered(request)
        self._answer(self.connection.refuse(request.id, refusal))

    def fail(self, request: Request) -> None:
        """Answer `request` with an internal error; the log has the details."""
        if self.connection.is_waiting_for(request.id):
            self.refuse(
                request, error("internal_error", "editd failed on this request. See the daemon's log.")
            )
        else:
            self.close()

    def notify(self, method: str, params: Any) -> None:
        """Send a notification."""
        self._send(self.connection.notify(method, params))

    def send(self, data: bytes) -> None:
        """Send a notification that is already encoded."""
        self._send(data)

    @property
    def is_reading(self) -> bool:
        """Whether no more than `outgoing_bytes_pause` of its answers are unread."""
        return not self._does_not_read

    @property
    def is_gone(self) -> bool:
        """Whether it can receive no more answers; its requests are still carried out."""
        transport = self._transport
        return transport is None or transport.is_closing() or has_hung_up(transport.get_extra_info("socket"))

    def close(self) -> None:
        """Close the connection when all answers are sent, or unread for CLOSE_SECONDS."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.close()
            self._hang_up_within(CLOSE_SECONDS)

    def count_kept(self) -> int:
        """Count the bytes of its incomplete messages again, and return the increase."""
        before, self.kept = self.kept, self.connection.kept
        return self.kept - before

    def send_away(self, why: str) -> None:
        """Send the error `overloaded`, and close the connection."""
        log.warning("closed a connection of %s, which kept %s bytes waiting", self.peer, self.kept)
        self._clients.release_kept(self.kept)
        self.kept = 0
        self._send(self.connection.end(error("overloaded", f"{why} Send less at a time, and try again.")))
        self.close()

    def _hang_up_within(self, seconds: float) -> None:
        """Abort after `seconds`, however much is unread. A closed transport must not be aborted again."""
        assert self._transport is not None
        if self._hang_up is not None:
            self._hang_up.cancel()
        self._hang_up = self._loop.call_later(seconds, self._transport.abort)

    # ── Calls by asyncio ───────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        try:
            self.peer = peer_of(transport.get_extra_info("socket"))
        except OSError:
            self.peer = None
        if self.peer is None or not self._clients.may_speak(self.peer):
            log.warning("dropped a connection: %s has no permission to connect", self.peer)
            self._transport.abort()
            return
        self.peer_process = process_at(self.peer.pid)
        self._transport.set_write_buffer_limits(high=self._limits.outgoing_bytes_pause)
        self._is_welcome = self._clients.enter(self)
        if not self._is_welcome:
            patience = 0.0 if self._clients.is_overloaded else OVERLOADED_SECONDS
            self._hang_up_within(patience)

    def data_received(self, data: bytes) -> None:
        self.connection.feed(data)
        if self._next_turn is None:
            self._take_turn()
        if self.connection.kept != self.kept:
            self._clients.make_room(self)
        self._clients.note_read(self, self._loop.time())

    def eof_received(self) -> bool:
        """Note that it sends no more, as `socat` with a pipe does. Its requests are answered first."""
        self._has_ended = True
        self.connection.feed_end()
        if self._next_turn is None:
            self._take_turn()
        return True

    def pause_writing(self) -> None:
        self._does_not_read = True

    def resume_writing(self) -> None:
        self._does_not_read = False
        self._clients.on_reading_again(self)
        self._go_on()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._next_turn is not None:
            self._next_turn.cancel()
        if self._hang_up is not None:
            self._hang_up.cancel()
        self._clients.release_kept(self.kept)
        self.kept = 0
        self._clients.leave(self)

    # ── The pace ───────────────────────────────────────────────────────────────────────────────

    def _take_turn(self) -> None:
        """Take complete requests, but no more than one turn's share; then pause, or read on."""
        assert self._transport is not None
        self._next_turn = None
        self._pace = ReadState.TAKING
        until = self._loop.time() + TURN_SECONDS
        for _ in range(self._limits.requests_waiting_max):
            if self._transport.is_closing():
                return
            if self._is_full or self._loop.time() > until:
                break
            before = self.connection.kept
            incoming = self.connection.take()
            if incoming is None:
                self._taken_all()
                return
            size = before - self.connection.kept
            if isinstance(incoming, LargeMessage):
                self._is_decoding = True
                self._clients.large.start(self._decode(incoming, size))
                break
            self._deliver(incoming, size)
        self._pace = ReadState.HELD
        self._transport.pause_reading()
        self._go_on()

    def _taken_all(self) -> None:
        assert self._transport is not None
        self._pace = ReadState.DRY
        if not self._has_ended:
            self._transport.resume_reading()
        elif self.connection.waiting == 0:
            self.close()

    async def _decode(self, message: LargeMessage, size: int) -> None:
        """Deliver a large message that a thread has decoded. Other messages of the client wait for it."""
        let_go = self._clients.hold(message, size)
        if let_go is None:
            self.send_away("The requests under way have as many bytes as the daemon takes at once.")
            return
        try:
            parsed = await self._clients.large.run(message.parse)
        finally:
            let_go()
        self._is_decoding = False
        if self._transport is None or self._transport.is_closing():
            return
        incoming = self.connection.enter(parsed)
        if incoming is not None:
            self._deliver(incoming, size)
        if self._pace is ReadState.HELD:
            self._go_on()

    def _deliver(self, incoming: Request | BadRequest, size: int) -> None:
        """Handle one incoming message of `size` bytes."""
        if isinstance(incoming, BadRequest):
            self._send(incoming.answer)
            if incoming.fatal:
                log.info("closed a connection of %s: %s", self.peer, incoming.error.message)
                self.close()
        elif self._is_welcome and size <= LARGE_BYTES:
            self._request(incoming)
        elif self._is_welcome:
            self._request_large(incoming, size)
        else:
            full = f"{self._limits.connections_max} clients are connected, and there is no room for more."
            self.refuse(incoming, error("overloaded", f"{full} Try again later."))
            self.close()

    def _request_large(self, request: Request, size: int) -> None:
        """Do as `_request`, if there is room for the request."""
        let_go = self._clients.hold(request, size)
        if let_go is None:
            full = "The requests under way have as many bytes as the daemon takes at once."
            self.refuse(request, error("overloaded", f"{full} Try again."))
            return
        self._let_go[id(request)] = (size, let_go)
        self._held += size
        self._request(request)

    def _request(self, request: Request) -> None:
        try:
            self._clients.on_request(self, request)
        except Exception:  # our bug
            log.exception("a request of %s failed", self.peer)
            self.fail(request)

    def _answered(self, request: Request) -> None:
        size, let_go = self._let_go.pop(id(request), (0, None))
        if let_go is not None:
            self._held -= size
            let_go()

    def _answer(self, answer: bytes) -> None:
        self._send(answer)
        if self._pace is ReadState.HELD:
            self._go_on()
        elif self._pace is ReadState.DRY and self._has_ended and self.connection.waiting == 0:
            self.close()

    def _send(self, data: bytes) -> None:
        if not data or self._transport is None or self._transport.is_closing():
            return
        if self._transport.get_write_buffer_size() > self._limits.outgoing_bytes_max:
            log.warning("cut off %s: it does not read its answers", self.peer)
            self._transport.abort()
            return
        self._transport.write(data)

    @property
    def _is_full(self) -> bool:
        is_ahead = self.connection.waiting >= self._limits.requests_waiting_max
        is_held = self._is_decoding or self._held > self._limits.message_bytes_max
        return self._does_not_read or is_ahead or is_held

    def _go_on(self) -> None:
        """Take the next turn after the other clients' turns, if there is room for more requests."""
        if self._pace is ReadState.HELD and self._next_turn is None and not self._is_full:
            self._next_turn = self._loop.call_soon(self._take_turn)


# A call of a method: its client, and the way to answer it.
#
# A handler takes the parameters and the state of the client. It returns the result, an awaitable of the
# result, or a `PendingAnswer`. `Calls` answers each call with the result of its handler or with its refusal.


class ClientState(Struct):
    """The state of one connection."""

    number: int
    listener: SocketConnection
    name: str = ""
    session: str | None = None
    line: tuple[Process, ...] | None = None  # its process and those above; None before the first look
    is_started_here: bool | None = None  # the daemon is among them
    open_methods: set[type[messages.Params]] = field(
        default_factory=set
    )  # which the gate need not check again
    is_gone: bool = False  # disconnected: its queued requests must begin nothing more

    def session_of(self, named: str | None) -> str | None:
        """Return the session of a request: the named session, otherwise the connection's, or None."""
        return named if named is not None else self.session

    def reader(self, session: str | None) -> Reader:
        """Return the name that has the reads and edits: the session, or the connection if None."""
        return f"connection {self.number}" if session is None else reader_of(session)


class MethodCall(Struct, frozen=True):
    """A request under way; exactly one of the methods answers it, if the client is still connected."""

    client: SocketConnection
    request: Request
    on_refusal: Callable[[Refused], None]

    def reply(self, result: messages.Message) -> None:
        self.client.reply(self.request, result)

    def refuse(self, refusal: Refused) -> None:
        self.client.refuse(self.request, convert.error(refusal))
        self.on_refusal(refusal)

    def fail(self) -> None:
        """Answer with an internal error; the log has the details."""
        self.client.fail(self.request)


class PendingAnswer(Struct, kw_only=True):
    """The answer of a handler that has returned without its result."""

    call: MethodCall = cast("MethodCall", None)  # gets the result; set by `Calls` at once


Answer: TypeAlias = "messages.Message | PendingAnswer | Awaitable[Answer]"


class Calls:
    """All calls under way, and other tasks that a client has caused. No handler's exception gets further."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        """Return the number of tasks."""
        return len(self._tasks)

    def carry_out(
        self,
        call: MethodCall,
        work: Callable[Arguments, Answer],
        *args: Arguments.args,
        **named: Arguments.kwargs,
    ) -> None:
        """Answer `call` with the result of `work` for these arguments, now or later."""
        try:
            self._answer(work(*args, **named), call)
        except Exception as error:  # noqa: BLE001  # `_fail` logs it
            _fail(error, call)

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Start work that no request waits for."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _answer(self, answer: Answer, call: MethodCall) -> None:
        if isinstance(answer, PendingAnswer):
            answer.call = call
        elif isinstance(answer, messages.Message):
            call.reply(answer)
        else:
            self.start(self._answer_later(answer, call))

    async def _answer_later(self, work: Awaitable[Answer], call: MethodCall) -> None:
        try:
            self._answer(await work, call)
        except OSError as error:  # no descriptor or no memory for a child process
            _fail(IoError(error, "A process for this request could not be started"), call)
        except Exception as error:  # noqa: BLE001  # `_fail` logs it
            _fail(error, call)


def _fail(error: Exception, call: MethodCall) -> None:
    """Answer with the refusal, or with an internal error for any other exception."""
    if isinstance(error, Refused):
        call.refuse(error)
        error.forget_stack()  # it may be kept, and raised again
    else:  # our bug
        log.error("a request failed", exc_info=error)
        call.fail()
