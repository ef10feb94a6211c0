"""The client for asyncio: the methods of `Client` under the same names, as coroutines.

Any number of calls may run at once on the one connection. A cancelled call breaks nothing: its late
answer is ignored, but the daemon may still carry it out. For one event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, cast

import msgspec

from editd.advice import Advice, command_term
from editd.wire import messages
from editd.wire.connection import ClientConnection, Failure, ServerEvent
from editd.wire.errors import Malformed
from editd_client import requests
from editd_client.changesets import AsyncChangeset, ChangesetDraft
from editd_client.client import RECEIVE_BYTES, SILENCE_SECONDS_MAX, ClientBase
from editd_client.connect import RECONNECT_RETRY_SECONDS, RECONNECT_SECONDS_MAX, Endpoint
from editd_client.errors import EditdError, Unreachable

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from editd.wire.connection import Reply
    from editd_client.prepared_call import PreparedCall
    from editd_client.session_state import CallOutcome, ClientSubscription, Happening, SessionState

Given = ParamSpec("Given")
Result = TypeVar("Result")


class AsyncClient(ClientBase):
    """A client of the daemon at a socket's path, or on a connected socket.

    It connects with the first call, or at the beginning of an `async with` block. Each method raises
    EditdError for a refusal. It raises Unreachable if the daemon goes away or is silent for too long, and
    none comes back: the hint then names the unknown effect. With `reconnect=False`, and for a connected
    socket, a request is sent only once, and the client ends with its connection.
    """

    def __init__(self, at: str | socket.socket | Endpoint, *, reconnect: bool = True) -> None:
        super().__init__(at, reconnect=reconnect)
        self._given = None if isinstance(at, Endpoint | str) else at
        self._link: _Link | None = None
        self._linking: asyncio.Task[_Link] | None = None

    async def close(self) -> None:
        """Close the client for good. Running calls raise Unreachable. Closing twice is no error."""
        self._is_closed = True
        if self._linking is not None:
            self._linking.cancel()
            await asyncio.wait([self._linking])
        if self._given is not None:
            self._given.close()
        if self._link is not None:
            self._link.end(None)
            await self._link.closed.wait()
            self._link = None

    async def __aenter__(self) -> Self:
        try:
            await self._reach(None)
        except OSError as error:
            raise Unreachable(f"The daemon went away: {error}.") from error
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def subscribe(
        self,
        *,
        events: Sequence[messages.EventKind] | None = None,
        paths: Sequence[str] | None = None,
        since: int | None = None,
        brief: bool = False,
    ) -> AsyncEvents:
        """Subscribe to events, on this connection; `since` begins after that transaction.

        With `brief`, transactions have no files, as in `log`.

        Up to ten thousand unread events are kept. Beyond that, a `resync` replaces the rest, as when the
        daemon leaves some out.
        """
        iterator = self.events(events=events, paths=paths, since=since, brief=brief)
        await iterator.begin()
        return iterator

    def events(
        self,
        *,
        events: Sequence[messages.EventKind] | None = None,
        paths: Sequence[str] | None = None,
        since: int | None = None,
        brief: bool = False,
    ) -> AsyncEvents:
        """Return the iterator of `subscribe` at once. It subscribes when it is first awaited."""
        asked = requests.subscribe(events=events, paths=paths, since=since, brief=brief)
        return AsyncEvents(self, self._state.subscription(asked))

    # ── Transactions ──────────────────────────────────────────────────────────────────────────

    def transaction(
        self,
        message: str | None = None,
        *,
        session: str | None = None,
        actor: str | None = None,
        on_stale: messages.OnStale | None = None,
        request_id: str | None = None,
        propose: bool | None = None,
    ) -> AsyncChangeset:
        """Return an `async with` block that collects edits and makes them one transaction at its end.

        An exception in the block aborts it. A refusal at its end (such as `stale`) is raised there.
        With `propose` it becomes a proposal: a draft if the session collects its edits in one (`submit`).
        """
        opening = messages.Begin(
            session=session, actor=actor, message=message, on_stale=on_stale,
            propose=msgspec.UNSET if propose is None else propose,
        )  # fmt: skip
        return AsyncChangeset(self.ask, ChangesetDraft(opening, request_id, lambda: self.generation))

    # ── Requests and connections ──────────────────────────────────────────────────────────────

    async def ask(self, asked: PreparedCall[Result]) -> Result:
        """Send a request of `editd_client.requests`, and return its result. Retry it if that is safe."""
        asked = self._state.prepare(asked)
        clock = asyncio.get_running_loop().time
        until = clock() + RECONNECT_SECONDS_MAX
        sends = 0
        while True:
            is_sent = False
            try:
                link = await self._reach(asked.params)
                is_sent, sends = True, sends + 1
                return await link.exchange(asked)
            except OSError as error:
                await asyncio.sleep(0 if is_sent else RECONNECT_RETRY_SECONDS)
                is_hopeless = self._is_closed or clock() > until
                if is_hopeless or (is_sent and not self._state.may_repeat(asked, sends)):
                    raise self._state.unreachable(asked, error) from error
            except EditdError as refusal:
                if refusal.name != "shutting_down" or not self._state.is_lasting or clock() > until:
                    raise
                # It was not carried out, and the next daemon will do it.
                if self._link is not None:
                    self._link.end(None)
                await asyncio.sleep(RECONNECT_RETRY_SECONDS)

    async def listen(self, subscription: ClientSubscription) -> None:
        """Connect if needed and renew `subscription`. Raises Unreachable."""
        if not self._state.is_lasting and self._link is not None and self._link.is_over:
            raise Unreachable("The daemon went away during a subscription.")
        if self._state.has_ended and not await self._is_back():
            self._state.forget_subscription(subscription)
            return
        with contextlib.suppress(OSError):  # lost again: the caller finds no number
            await self._reach(None)

    async def end(self, subscription: ClientSubscription) -> None:
        """End the subscription."""
        number = subscription.number
        self._state.forget_subscription(subscription)
        if number is not None and self._link is not None and not self._link.is_over:
            await self.ask(requests.unsubscribe(number))

    def subscribing(self, subscription: ClientSubscription) -> PreparedCall[messages.SubscribeResult]:
        """Return the request that makes the subscription."""
        return self._state.subscribing(subscription)

    @property
    def is_lasting(self) -> bool:
        """Whether the client reconnects after a lost connection."""
        return self._state.is_lasting

    async def _reach(self, first: messages.Params | None) -> _Link:
        """Return a connection for the request `first`. Concurrent callers share one attempt."""
        if self._is_closed:
            raise Unreachable("This client is closed.")
        if self._link is not None and not self._link.is_over:
            return self._link
        if self._link is not None and not self._state.is_lasting:
            raise Unreachable("The connection is gone, and this client does not connect again.")
        if self._linking is None:
            self._linking = asyncio.create_task(self._establish(first))
            self._linking.add_done_callback(self._has_linked)
        try:
            return await asyncio.shield(self._linking)
        except asyncio.CancelledError:
            if self._is_closed:
                raise Unreachable("This client is closed.") from None
            raise

    def _has_linked(self, linking: asyncio.Task[_Link]) -> None:
        self._linking = None
        _retrieve(linking)

    async def _establish(self, first: messages.Params | None) -> _Link:
        """Connect, and restore the session and the subscriptions. Raises OSError if that fails, too."""
        stream = await self._open_socket()
        stream.setblocking(False)
        loop = asyncio.get_running_loop()
        _, link = await loop.create_unix_connection(lambda: _Link(self._state), sock=stream)
        is_to_greet = self._state.needs_hello
        self._state.on_connect()
        try:
            if is_to_greet:
                await link.exchange(self._state.hello(first))
            for subscription in self._state.pending_subscriptions():
                try:
                    await link.exchange(self._state.subscribing(subscription))
                except EditdError as refusal:
                    self._state.not_subscribed(subscription, refusal)
        except BaseException:
            link.end(None)
            raise
        self._link = link
        return link

    async def _open_socket(self) -> socket.socket:
        if self._address is None:
            assert self._given is not None, "a client has an endpoint or a socket"
            opened, self._given = self._given, None
            return opened
        is_first = self._state.generation == 0
        if self._address.workspace is None and not is_first:
            stream = await self._again_if_there(self._address)
            if stream is not None:
                return stream
        return await _in_thread(self._address.connect)

    async def _is_back(self) -> bool:
        """Whether a restarted daemon answers, now or within ten seconds."""
        stream = None if self._address is None else await self._again_if_there(self._address)
        if stream is not None:
            stream.close()
        return stream is not None

    async def _again_if_there(self, address: Endpoint) -> socket.socket | None:
        """Do as `Endpoint.reconnect_if_running`, as long as this client is open."""
        loop = asyncio.get_running_loop()
        until = loop.time() + RECONNECT_SECONDS_MAX
        while not self._is_closed:
            stream = await _in_thread(address.connect_if_running)
            if stream is not None or loop.time() > until:
                return stream
            await asyncio.sleep(RECONNECT_RETRY_SECONDS)
        return None


class _Link(asyncio.Protocol):
    """One connection: sends requests as they come, and gives each answer to its caller."""

    def __init__(self, state: SessionState) -> None:
        self.is_over = False
        self.closed = asyncio.Event()
        self._state = state
        self._wire = ClientConnection()
        self._waiting: dict[Any, tuple[PreparedCall[Any], asyncio.Future[CallOutcome[Any]]]] = {}
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._transport: asyncio.Transport | None = None

    async def exchange(self, asked: PreparedCall[Result]) -> Result:
        """Send one request and wait for its answer. Raises OSError if the connection is lost."""
        await self._may_write.wait()
        if self.is_over or self._transport is None:
            raise ConnectionResetError(0, "it closed the connection")
        method = asked.params.method
        silence = None if asked.extra is None else SILENCE_SECONDS_MAX + asked.extra
        answer: asyncio.Future[CallOutcome[Result]] = asyncio.get_running_loop().create_future()
        try:
            ident, request = self._wire.request(method, asked.params)
            self._state.check_size(request)
            self._waiting[ident] = asked, answer
            self._transport.write(request)
            async with asyncio.timeout(silence):
                outcome = await answer
            return outcome.get()
        except TimeoutError:
            raise Unreachable(
                f"The daemon has not answered `{method}` for {silence:.0f} s.",
                hint="It may or may not have been carried out.",
            ) from None
        except (Malformed, msgspec.ValidationError, UnicodeEncodeError) as error:
            raise Unreachable(
                f"The daemon's answer to `{method}` is not understood: {error}.",
                hint=Advice(
                    "Another version of the daemon may be running: ", command_term("stop"), " ends it."
                ),
            ) from error

    def end(self, why: Exception | None) -> None:
        """Close the connection, and raise `why` in the waiting calls."""
        if self.is_over:
            return
        self.is_over = True
        self._may_write.set()
        self._state.on_disconnect()
        waiting, self._waiting = self._waiting, {}
        for _, answer in waiting.values():
            if not answer.done():
                answer.set_exception(why or ConnectionResetError(0, "it closed the connection"))
        if self._transport is not None:
            self._transport.abort()

    # ── asyncio.Protocol ──

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self.is_over:
            return
        try:
            for frame in self._wire.receive(data):
                if isinstance(frame, ServerEvent):
                    self._state.on_frame(frame)
                else:
                    self._deliver(frame)
        except Malformed as error:
            self.end(error)

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._receive_the_rest()
        self.end(exc)
        self.closed.set()

    def _receive_the_rest(self) -> None:
        """Read the daemon's last messages: a failed write comes before they are read."""
        if self.is_over or self._transport is None:
            return
        descriptor = self._transport.get_extra_info("socket").fileno()
        with contextlib.suppress(OSError):
            while data := os.read(descriptor, RECEIVE_BYTES):
                self.data_received(data)

    def _handle_refusal(self, frame: Failure) -> None:
        """End the connection, since the daemon refuses more. With several requests, blame none of them."""
        if len(self._waiting) != 1:
            self.end(Unreachable(f"The daemon did not understand this client: {frame.error.message}"))
            return
        [(asked, answer)] = self._waiting.values()
        outcome = self._state.outcome(asked, frame)
        if not answer.done():
            answer.set_result(outcome)
        self.end(None)

    def _deliver(self, frame: Reply | Failure) -> None:
        """Give an answer to its caller, and apply its effects on the session state in any case."""
        if frame.id is None:
            assert isinstance(frame, Failure), "only an error has no id"
            self._handle_refusal(frame)
            return
        asked, answer = self._waiting.pop(frame.id, (None, None))
        if asked is not None and answer is not None:
            outcome = self._state.outcome(asked, frame)
            if not answer.done():
                answer.set_result(outcome)


class AsyncEvents:
    """The events of one subscription: an asynchronous iterator that ends with the daemon, or at `close`.

    On a client that reconnects, it continues with the next daemon, without a gap and without a
    duplicate. It ends if there is none within ten seconds of the `shutdown`. Raises Unreachable if the
    daemon goes away without a `shutdown`, and none comes back. Read by one task at a time.
    """

    def __init__(self, client: AsyncClient, subscription: ClientSubscription) -> None:
        self._client = client
        self._subscription = subscription
        self._news = asyncio.Event()
        self._beginning: asyncio.Future[messages.SubscribeResult] | None = None
        subscription.on_news = self._news.set

    @property
    def subscription(self) -> int | None:
        """The subscription's number on the present connection, or None without one."""
        return self._subscription.number

    @property
    def head(self) -> int:
        """The newest transaction at the beginning of the subscription."""
        return self._subscription.head

    async def begin(self) -> None:
        """Subscribe, if not yet subscribed; called by `subscribe`."""
        if self._subscription.has_begun:
            return
        if self._beginning is None or self._beginning.done():
            asking = self._client.ask(self._client.subscribing(self._subscription))
            self._beginning = asyncio.ensure_future(asking)
            self._beginning.add_done_callback(_retrieve)
        await asyncio.shield(self._beginning)  # a cancelled wait does not cancel the request

    async def wait(self, seconds: float | None = None) -> Happening | None:
        """Return the next event, or None if none comes within `seconds` (None: wait for ever)."""
        try:
            async with asyncio.timeout(seconds):
                return await self._next()
        except TimeoutError:
            return None

    async def close(self) -> None:
        """End the subscription. Closing twice is no error."""
        if self._beginning is not None:
            await asyncio.wait([self._beginning])
        if not self._subscription.is_over:
            await self._client.end(self._subscription)
            self._news.set()

    async def _next(self) -> Happening | None:
        await self.begin()
        while not self._subscription.is_over:
            self._news.clear()
            happening = self._subscription.next()
            if happening is not None:
                is_last = happening.event == "shutdown" and not self._client.is_lasting
                self._subscription.is_over = is_last
                return happening
            if self._subscription.number is None:
                await self._client.listen(self._subscription)
            else:
                await self._news.wait()
        return None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Happening:
        happening = await self._next()
        if happening is None:
            raise StopAsyncIteration
        return happening

    async def __aenter__(self) -> Self:
        await self.begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        if kind is None:  # after an exception, connection and subscription may be gone
            await self.close()


async def _in_thread(find: Callable[[], Result]) -> Result:
    """Return the result of `find`; close the socket if the caller was cancelled meanwhile."""
    finding = asyncio.ensure_future(asyncio.to_thread(find))
    try:
        return await asyncio.shield(finding)
    except asyncio.CancelledError:
        finding.add_done_callback(_close)
        raise


def _close(connecting: asyncio.Future[Any]) -> None:
    if not connecting.cancelled() and connecting.exception() is None and connecting.result() is not None:
        connecting.result().close()


def _retrieve(done: asyncio.Future[Any]) -> None:
    """Retrieve the exception, so that asyncio does not log it as never retrieved."""
    if not done.cancelled():
        done.exception()
