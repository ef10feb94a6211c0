"""A client of one daemon: one method for each of the protocol, with its name and typed results.

Synchronous, one request at a time, over one connection after the other. If the daemon goes away, the
next call connects again, and starts a daemon if `Client.connect` was allowed to. A request is retried
if a second time has no second effect: for that, every request that changes something has a
`request_id`.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from typing import TYPE_CHECKING, ParamSpec, Self, TypeVar

import msgspec

from editd.advice import Advice, command_term
from editd.wire import messages
from editd.wire.connection import ClientConnection, Failure, Reply, ServerEvent
from editd.wire.errors import Malformed
from editd_client import requests
from editd_client.changesets import Changeset, ChangesetDraft
from editd_client.connect import RECONNECT_RETRY_SECONDS, RECONNECT_SECONDS_MAX, Endpoint, covering
from editd_client.errors import EditdError, Unreachable
from editd_client.locate import find_workspace
from editd_client.session_state import CallOutcome, Events, SessionState

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from editd_client.prepared_call import PreparedCall
    from editd_client.session_state import ClientSubscription

SILENCE_SECONDS_MAX = 120.0  # far longer than any answer that does not wait on purpose
RECEIVE_BYTES = 1 << 18

Given = ParamSpec("Given")
Result = TypeVar("Result")


class ClientBase(requests.RequestMethods):
    """The endpoint and the state of a client, of either kind."""

    def __init__(self, at: str | socket.socket | Endpoint, *, reconnect: bool) -> None:
        self._address = at if isinstance(at, Endpoint) else Endpoint(at) if isinstance(at, str) else None
        named = None if self._address is None else self._address.named
        self._state = SessionState(is_lasting=reconnect and self._address is not None, named=named)
        self._is_closed = False

    @classmethod
    def connect(
        cls,
        workspace: str | None = None,
        start: bool = True,
        on_wait: Callable[[], None] | None = None,
        *,
        reconnect: bool = True,
        as_owner: bool = False,
    ) -> Self:
        """Return a client of the workspace from `find_workspace`. With `start`, start its daemon if needed.

        With `as_owner`, it uses the reviewers' own socket, if the daemon has one.

        Raises EditdError for a folder that editd refuses to own, and (`path_outside`) if EDITD_SOCKET leads
        to the daemon of another workspace than the named one. Raises Unreachable if no daemon answers.
        `on_wait` is called if the start takes over a second. An AsyncClient connects with its first call,
        which then raises these, and calls `on_wait` in a thread.
        """
        located = find_workspace(workspace)
        if start:
            located = covering(located, workspace or os.environ.get("EDITD_WORKSPACE"), on_wait=on_wait)
        return cls(Endpoint.of(located, start=start, on_wait=on_wait, as_owner=as_owner), reconnect=reconnect)

    @property
    def generation(self) -> int:
        """Number of connections so far: changesets and brackets end with their connection."""
        return self._state.generation


class Client(ClientBase):
    """A connection to a daemon: by the path of its socket, or on a connected socket.

    Each method raises EditdError for a refusal. It raises Unreachable if the daemon goes away or is
    silent for too long, and none comes back: the hint then names the unknown effect. With
    `reconnect=False`, and for a connected socket, a request is sent only once, and the client ends with
    its connection. For one thread at a time, and for the process that made it; otherwise RuntimeError.
    """

    def __init__(self, at: str | socket.socket | Endpoint, *, reconnect: bool = True) -> None:
        super().__init__(at, reconnect=reconnect)
        self._wire = ClientConnection()
        self._process = os.getpid()
        self._use = threading.Lock()
        stream: socket.socket = self._address.connect() if self._address is not None else at  # type: ignore[assignment]
        self._stream: socket.socket | None = stream
        if not self._state.needs_hello:
            self._state.on_connect()
            return
        try:
            self._begin(stream, None)
        except OSError as error:
            self._drop()
            raise Unreachable(f"The daemon went away: {error}.") from error

    def close(self) -> None:
        """Close the client for good. Closing twice is no error."""
        self._is_closed = True
        self._drop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()

    def subscribe(
        self,
        *,
        events: Sequence[messages.EventKind] | None = None,
        paths: Sequence[str] | None = None,
        since: int | None = None,
        brief: bool = False,
    ) -> Events:
        """Subscribe to events, on this connection; `since` begins after that transaction.

        With `brief`, transactions have no files, as in `log`.

        Requests can be made in between. Up to ten thousand unread events are kept. Beyond that, a `resync`
        replaces the rest, as when the daemon leaves some out.
        """
        subscription = self._state.subscription(
            requests.subscribe(events=events, paths=paths, since=since, brief=brief)
        )
        self.ask(self._state.subscribing(subscription))
        return Events(subscription, self._listen, self._unsubscribe, is_lasting=self._state.is_lasting)

    events = subscribe

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
    ) -> Changeset:
        """Return a `with` block that collects edits and makes them one transaction at its end.

        An exception in the block aborts it. A refusal at its end (such as `stale`) is raised there.
        With `propose` it becomes a proposal: a draft if the session collects its edits in one (`submit`).
        """
        opening = messages.Begin(
            session=session, actor=actor, message=message, on_stale=on_stale,
            propose=msgspec.UNSET if propose is None else propose,
        )  # fmt: skip
        return Changeset(self.ask, ChangesetDraft(opening, request_id, lambda: self.generation))

    # ── Requests and connections ──────────────────────────────────────────────────────────────

    def ask(self, asked: PreparedCall[Result]) -> Result:
        """Send a request of `editd_client.requests`, and return its result. Retry it if that is safe."""
        with self._alone():
            return self._ask(asked)

    def _move_to(self, stream: socket.socket) -> None:
        """Go on with this connected socket, in the same session. Raises Unreachable, EditdError."""
        with self._alone():
            self._drop()
            try:
                self._begin(stream, None)
            except OSError as error:
                raise Unreachable(f"The daemon went away: {error}.") from error

    def _ask(self, asked: PreparedCall[Result]) -> Result:
        asked = self._state.prepare(asked)
        until = time.monotonic() + RECONNECT_SECONDS_MAX
        sends = 0
        while True:
            is_sent = False
            try:
                self._reach(asked.params)
                is_sent, sends = True, sends + 1
                return self._exchange(asked)
            except TimeoutError:
                raise  # from a signal handler: a silent daemon raises Unreachable
            except OSError as error:
                self._drop()
                time.sleep(0 if is_sent else RECONNECT_RETRY_SECONDS)
                is_hopeless = time.monotonic() > until
                if is_hopeless or (is_sent and not self._state.may_repeat(asked, sends)):
                    raise self._state.unreachable(asked, error) from error
            except EditdError as refusal:
                if refusal.name != "shutting_down" or not self._state.is_lasting:
                    raise
                if time.monotonic() > until:
                    raise
                self._drop()  # it was not carried out, and the next daemon will do it
                time.sleep(RECONNECT_RETRY_SECONDS)

    def _reach(self, first: messages.Params | None) -> None:
        """Connect if needed, for the request `first`."""
        if self._is_closed:
            raise Unreachable("This client is closed.")
        if self._stream is not None and (not self._state.is_lasting or self._is_there()):
            return
        self._drop()
        if not self._state.is_lasting or self._address is None:
            raise Unreachable("The connection is gone, and this client does not connect again.")
        self._begin(self._address.reconnect(), first)

    def _begin(self, stream: socket.socket, first: messages.Params | None) -> None:
        """Restore the session and the subscriptions on a new connection. Raises OSError if it is lost."""
        self._stream, self._wire = stream, ClientConnection()
        self._state.on_connect()
        try:
            self._exchange(self._state.hello(first))
        except EditdError as refusal:
            if refusal.name == "path_outside":  # do not contact another workspace's daemon again
                self._drop()
            raise
        for subscription in self._state.pending_subscriptions():
            try:
                self._exchange(self._state.subscribing(subscription))
            except EditdError as refusal:
                self._state.not_subscribed(subscription, refusal)

    def _is_there(self) -> bool:
        """Whether the daemon is still connected. Keeps the events that it has sent."""
        assert self._stream is not None, "there is a connection"
        self._stream.setblocking(False)
        try:
            while True:
                self._keep(self._wire.receive(self._receive()))
        except BlockingIOError:
            return True
        except (OSError, Malformed):
            return False

    def _exchange(self, asked: PreparedCall[Result]) -> Result:
        """Send one request and wait for its answer. Raises OSError if the connection is lost."""
        assert self._stream is not None, "there is a connection"
        method = asked.params.method
        silence = None if asked.extra is None else SILENCE_SECONDS_MAX + asked.extra
        ident, request = self._wire.request(method, asked.params)
        self._state.check_size(request)
        outcome: CallOutcome[Result] | None = None
        since = time.monotonic()
        try:
            self._stream.settimeout(silence)
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self._stream.sendall(request)  # a daemon that closes in the middle has sent its reason
            while outcome is None:
                since = time.monotonic()
                for frame in self._wire.receive(self._receive()):
                    if isinstance(frame, ServerEvent):
                        self._state.on_frame(frame)
                    elif frame.id == ident or (isinstance(frame, Failure) and frame.id is None):
                        outcome = self._state.outcome(asked, frame)
            return outcome.get()
        except EditdError:
            raise  # an answer like any other
        except (Malformed, msgspec.ValidationError, UnicodeEncodeError) as error:
            self._drop()
            raise Unreachable(
                f"The daemon's answer to `{method}` is not understood: {error}.",
                hint=Advice(
                    "Another version of the daemon may be running: ", command_term("stop"), " ends it."
                ),
            ) from error
        except BaseException as error:
            self._drop()  # half a request was sent, or the answer is still due, also after Ctrl-C
            if not isinstance(error, TimeoutError) or not _has_passed(silence, since):
                raise
            raise Unreachable(
                f"The daemon has not answered `{method}` for {silence:.0f} s.",
                hint="It may or may not have been carried out.",
            ) from None

    def _alone(self) -> threading.Lock:
        """Return the lock of the connection. Raises RuntimeError in another thread or process."""
        if os.getpid() != self._process:
            raise RuntimeError("This client belongs to the parent process. Make one after the fork.")
        if self._use.locked():
            raise RuntimeError("Another thread uses this client. Make one for each thread.")
        return self._use

    def _listen(self, seconds: float | None) -> None:
        """Wait up to `seconds` for an event. Raises Unreachable if none can come any more."""
        with self._alone():
            self._hear(seconds)

    def _hear(self, seconds: float | None) -> None:
        since = time.monotonic()
        try:
            if self._stream is None or self._is_closed:
                if self._state.has_ended and not self._is_closed:
                    self._begin_again_if_there()
                else:
                    self._reach(None)
                return  # the event may have come with the answer to `subscribe`
            since = time.monotonic()
            self._stream.settimeout(seconds)
            self._keep(self._wire.receive(self._receive()))
        except TimeoutError:
            if not _has_passed(seconds, since):
                raise
        except (Malformed, OSError) as error:
            self._drop()
            if not self._state.is_lasting:
                raise Unreachable(f"The daemon went away during a subscription: {error}.") from error

    def _begin_again_if_there(self) -> None:
        """Reconnect if another program restarts the daemon. Do not start it: it was stopped on purpose."""
        stream = None if self._address is None else self._address.reconnect_if_running()
        if stream is not None:
            self._begin(stream, None)
            return
        for subscription in tuple(self._state.subscriptions):
            self._state.forget_subscription(subscription)

    def _unsubscribe(self, subscription: ClientSubscription) -> None:
        number = subscription.number
        self._state.forget_subscription(subscription)
        if number is not None and (not self._state.is_lasting or self._is_there()):
            self.ask(requests.unsubscribe(number))

    def _keep(self, frame: Sequence[Reply | Failure | ServerEvent]) -> None:
        for one in frame:
            if isinstance(one, ServerEvent):
                self._state.on_frame(one)

    def _receive(self) -> bytes:
        assert self._stream is not None, "there is a connection"
        received = self._stream.recv(RECEIVE_BYTES)
        if not received:
            raise ConnectionResetError(0, "it closed the connection")
        return received

    def _drop(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None
            self._state.on_disconnect()


def _has_passed(seconds: float | None, since: float) -> bool:
    """Whether a socket's timeout has passed; otherwise a TimeoutError comes from a signal handler."""
    return seconds is not None and time.monotonic() >= since + seconds
