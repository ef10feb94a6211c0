"""The state that outlives a connection: the identity, the subscriptions and the versions read.

    first connection   requests are sent, with a `request_id` if a second time had a second effect
    lost               every subscription loses its number, and the changesets are gone
    next connection    `hello` attaches the session again and sends the versions read; each subscription
                       continues after the last transaction that it received

Both clients have one. Never touches a socket, and reads no clock but for the timeout of `Events`.
"""

from __future__ import annotations

import os
import time
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, cast

import msgspec
from msgspec import Struct

from editd.wire import messages
from editd.wire.codec import convert
from editd.wire.connection import Failure
from editd.wire.limits import LIMITS
from editd.wire.messages import EventKind, Transaction
from editd_client.errors import EditdError, Unreachable, refusal
from editd_client.locate import current_actor
from editd_client.prepared_call import UNKNOWN, Identified, PreparedCall, may_repeat

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

    from editd.wire.connection import Reply, ServerEvent
    from editd_client.locate import Workspace

WAITING_MAX = 10_000  # unread events of one subscription, some 20 MB


class Happening(Struct, frozen=True):
    """One event, with its `transaction` if it has one, and the other data of the daemon."""

    event: EventKind
    transaction: Transaction | None
    data: Mapping[str, Any]


class ClientSubscription:
    """A subscription of the client. `number` is its number on the present connection, or None.

    `heard` is the newest transaction that was received, or skipped with a `resync`.
    """

    def __init__(self, asked: messages.Subscribe) -> None:
        self.number: int | None = None
        self.head = 0  # the newest transaction at its beginning
        self.heard: int | None = asked.since
        self.is_over = False
        self.error: EditdError | None = None  # the refusal that ended it
        self.on_news: Callable[[], None] = _nothing
        self._asked = asked
        self.has_begun = False
        self._waiting: deque[Happening] = deque()
        self._left_out_after: int | None = None

    @property
    def subscribe_params(self) -> messages.Subscribe:
        """The parameters of `subscribe` that continue after the last connection."""
        if not self.has_begun:
            return self._asked
        since = self.heard if self._wants("transaction") else None
        return msgspec.structs.replace(self._asked, since=since)

    def begin(self, number: int, head: int) -> None:
        """Begin on a connection with this number, when `head` was the newest transaction."""
        is_first, self.has_begun = not self.has_begun, True
        self.number = number
        if is_first:
            self.head = head
        if self.heard is None or not self._wants("transaction"):
            self.heard = head
        if not is_first and (self._wants("lease") or self._wants("session")):
            # All transactions of the meantime are sent, but not its other events.
            self._put(self._resync(self._at, self._at, "reconnected"))

    def take(self, params: Mapping[str, Any]) -> None:
        """Queue an event from the daemon; skip a transaction that was received already."""
        data = {key: value for key, value in params.items() if key not in ("subscription", "event")}
        plain = data.pop("transaction", None)
        transaction = None if plain is None else convert(plain, Transaction)
        happening = Happening(cast("EventKind", params["event"]), transaction, data)
        before = self._at
        if transaction is not None:
            if transaction.seq <= before:
                return
            self.heard = transaction.seq
        elif happening.event == "resync":
            self.heard = max(before, int(data["head"]))
        self._keep(happening, before)

    def next(self) -> Happening | None:
        """Return the next event, or None. Raises EditdError if the daemon refused to continue."""
        if not self._waiting and self._left_out_after is not None:
            self._catch_up()
        if self._waiting:
            return self._waiting.popleft()
        if self.error is not None:
            self.is_over = True
            raise self.error
        return None

    def _keep(self, happening: Happening, before: int) -> None:
        if happening.event == "shutdown" and self._left_out_after is not None:
            self._catch_up()
        elif self._left_out_after is not None or len(self._waiting) >= WAITING_MAX:
            self._left_out_after = before if self._left_out_after is None else self._left_out_after
            return
        self._put(happening)

    def _catch_up(self) -> None:
        assert self._left_out_after is not None, "no event was dropped"
        left_out_after, self._left_out_after = self._left_out_after, None
        self._put(self._resync(left_out_after, self._at, "behind"))

    def _put(self, happening: Happening) -> None:
        self._waiting.append(happening)
        self.on_news()

    def _resync(self, after: int, head: int, reason: str) -> Happening:
        return Happening("resync", None, {"from": after, "head": head, "reason": reason})

    @property
    def _at(self) -> int:
        return 0 if self.heard is None else self.heard

    def _wants(self, event: EventKind) -> bool:
        return self._asked.events is None or event in self._asked.events


class Events:
    """The events of one subscription: an iterator that ends with the daemon, or at `close`.

    `head` is the newest transaction at its beginning. On a client that reconnects, it continues with the
    next daemon, without a gap and without a duplicate. It ends if there is none within ten seconds of the
    `shutdown`. Raises Unreachable if the daemon goes away without a `shutdown`, and none comes back.
    """

    def __init__(
        self,
        subscription: ClientSubscription,
        hear: Callable[[float | None], None],
        unsubscribe: Callable[[ClientSubscription], None],
        *,
        is_lasting: bool,
    ) -> None:
        """Make the iterator. `hear` waits up to a number of seconds for an event."""
        self._subscription = subscription
        self._hear = hear
        self._unsubscribe = unsubscribe
        self._is_lasting = is_lasting

    @property
    def subscription(self) -> int | None:
        """The subscription's number on the present connection, or None without one."""
        return self._subscription.number

    @property
    def head(self) -> int:
        """The newest transaction at the beginning of the subscription."""
        return self._subscription.head

    def wait(self, seconds: float | None = None) -> Happening | None:
        """Return the next event, or None if none comes within `seconds` (None: wait for ever)."""
        until = None if seconds is None else time.monotonic() + seconds
        while not self._subscription.is_over:
            happening = self._subscription.next()
            if happening is not None:
                self._subscription.is_over = happening.event == "shutdown" and not self._is_lasting
                return happening
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                return None
            self._hear(left)
        return None

    def close(self) -> None:
        """End the subscription. Closing twice is no error."""
        if not self._subscription.is_over:
            self._unsubscribe(self._subscription)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Happening:
        happening = self.wait()
        if happening is None:
            raise StopIteration
        return happening

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        if kind is None:  # after an exception, connection and subscription may be gone
            self.close()


def _nothing() -> None:
    """Do nothing: no reader waits for events."""


Result = TypeVar("Result")

Signed = (
    messages.Apply | messages.Begin | messages.Undo | messages.Redo | messages.Rollback | messages.Restore
)  # requests that name an actor
SEEN_MAX = 20_000  # files with a remembered version, as in the daemon
SENDS_MAX = 5  # of one request: it may be the cause of the daemon's crash


class CallOutcome(Struct, Generic[Result], frozen=True):
    """The result of a request, or its error."""

    result: Sequence[Result] = ()
    error: EditdError | msgspec.ValidationError | UnicodeEncodeError | None = None

    def get(self) -> Result:
        """Return the result. Raises EditdError for a refusal, ValidationError for a malformed answer."""
        if self.error is not None:
            raise self.error
        return self.result[0]


class SessionState:
    """The state of one client. `generation` counts its connections, because some names end with one."""

    def __init__(self, *, is_lasting: bool, named: Workspace | None = None) -> None:
        """Make the state. With `is_lasting`, it outlives connections, so requests must be repeatable.

        `named` is the workspace that the daemon of each connection must serve, if that is in doubt.
        """
        self.is_lasting = is_lasting
        self.named = named
        self.generation = 0
        self.has_ended = False  # the daemon has announced its end
        self.subscriptions: list[ClientSubscription] = []
        self._hello: messages.Hello | None = None
        self._is_signed = False  # the connection or its session has an actor
        self._message_bytes_max = LIMITS.message_bytes_max  # the default; the daemon may send another limit
        self._seen: OrderedDict[tuple[str | None, str], str | None] = OrderedDict()

    # ── Requests ──

    def prepare(self, asked: PreparedCall[Result]) -> PreparedCall[Result]:
        """Return the request ready to send: with its actor, and repeatable if it changes something."""
        params = asked.params
        if isinstance(params, Signed) and params.actor is None and not self._is_signed:
            params = msgspec.structs.replace(params, actor=current_actor())
            asked = PreparedCall(params, asked.read, asked.extra)
        if not self.is_lasting or not isinstance(params, Identified) or params.request_id is not None:
            return asked
        if getattr(params, "dry_run", False):
            return asked
        named = msgspec.structs.replace(params, request_id=os.urandom(16).hex())
        return PreparedCall(named, asked.read, asked.extra)

    def may_repeat(self, asked: PreparedCall[Any], sends: int) -> bool:
        """Whether to send a request again that was sent `sends` times without an answer."""
        return self.is_lasting and sends < SENDS_MAX and may_repeat(asked.params)

    def check_size(self, request: bytes) -> None:
        """Raise EditdError (`too_large`) for a message that would make the daemon close the connection."""
        if len(request) > self._message_bytes_max:
            raise refusal(
                "too_large",
                f"The message is longer than {self._message_bytes_max} bytes.",
                hint="Send the edits in several requests.",
            )

    def outcome(self, asked: PreparedCall[Result], answer: Reply | Failure) -> CallOutcome[Result]:
        """Return the outcome of a request, and apply its effects to this state, in the order of answers."""
        if isinstance(answer, Failure):
            error = answer.error
            return CallOutcome(error=EditdError.of(error.code, error.name, error.message, error.data))
        try:
            result = asked.read(answer.result)
        except (msgspec.ValidationError, UnicodeEncodeError, EditdError) as fault:
            return CallOutcome(error=fault)
        self._remember(asked.params, result)
        return CallOutcome([result])

    # ── Connections ──

    def on_disconnect(self) -> None:
        """Note the end of the connection."""
        for subscription in self.subscriptions:
            subscription.number = None
            subscription.on_news()

    def on_connect(self) -> None:
        """Note a new connection."""
        self.generation += 1
        self.has_ended = False

    @property
    def needs_hello(self) -> bool:
        """Whether a new connection needs a hello; the first one only if it may lead elsewhere."""
        return self.generation > 0 or self.named is not None

    def hello(self, first: messages.Params | None) -> PreparedCall[messages.HelloResult]:
        """Return the hello of a new connection, sent before the request `first`.

        If the daemon is dying, this is lost rather than the request. If the daemon serves another
        workspace than the named one, the answer is a refusal (`path_outside`).
        """
        hello = self._hello
        if isinstance(first, messages.Hello | messages.SessionOpen) and hello is not None:
            # That request introduces the client itself: the session of before may be over.
            hello = msgspec.structs.replace(hello, session=None, token=None)
        params = msgspec.structs.replace(hello or messages.Hello(), seen=self._sightings())
        return PreparedCall(params, self._greet)

    def _greet(self, plain: Any) -> messages.HelloResult:
        result = convert(plain, messages.HelloResult)
        if self.named is not None and is_elsewhere(result.workspace.root, self.named):
            raise elsewhere(self.named, result.workspace.root)
        return result

    def pending_subscriptions(self) -> list[ClientSubscription]:
        """The subscriptions that this connection does not have yet."""
        return [
            one for one in self.subscriptions if one.number is None and not one.is_over and one.error is None
        ]

    def unreachable(self, asked: PreparedCall[Any], error: Exception) -> Unreachable:
        """Return the error for a connection lost before the answer, with the unknown effect in its hint."""
        params = asked.params
        text = f"The daemon went away during `{params.method}`: {_reason(error)}."
        unknown = UNKNOWN.get(type(params))
        if unknown is None and isinstance(params, Identified) and not may_repeat(params):
            unknown = "whether it was carried out: `log` shows it"
        return Unreachable(text, hint="" if unknown is None else f"It is not known {unknown}.")

    # ── Events ──

    def on_frame(self, event: ServerEvent) -> None:
        """Queue an event for its subscription."""
        params = cast("dict[str, Any]", event.params)
        self.has_ended = self.has_ended or params["event"] == "shutdown"
        for subscription in self.subscriptions:
            if subscription.number == params["subscription"]:
                subscription.take(params)

    def subscription(self, asked: PreparedCall[messages.SubscribeResult]) -> ClientSubscription:
        """Return a new subscription, not requested yet."""
        assert isinstance(asked.params, messages.Subscribe), "the request is a subscribe"
        return ClientSubscription(asked.params)

    def subscribing(self, subscription: ClientSubscription) -> PreparedCall[messages.SubscribeResult]:
        """Return the request for it, first or again; the events after the answer belong to it."""

        def begin(plain: Any) -> messages.SubscribeResult:
            result = convert(plain, messages.SubscribeResult)
            subscription.begin(result.subscription, result.head)
            if subscription not in self.subscriptions:
                self.subscriptions.append(subscription)
            return result

        return PreparedCall(subscription.subscribe_params, begin)

    def not_subscribed(self, subscription: ClientSubscription, refusal: EditdError) -> None:
        """End a subscription that was refused, and wake its reader. A daemon that is exiting refuses all."""
        if refusal.name == "shutting_down":
            self.has_ended = True
            raise ConnectionResetError(0, "it is exiting") from refusal
        subscription.error = refusal
        subscription.on_news()

    def forget_subscription(self, subscription: ClientSubscription) -> None:
        """Forget a subscription without a reader."""
        subscription.is_over = True
        if subscription in self.subscriptions:
            self.subscriptions.remove(subscription)

    # ── Versions read ──

    def _remember(self, params: messages.Params, result: Any) -> None:
        match params:
            case messages.Hello():
                self._message_bytes_max = result.limits.get("message_bytes_max", LIMITS.message_bytes_max)
                self._hello = msgspec.structs.replace(params, seen=[])
                self._is_signed = params.client is not None
            case messages.SessionOpen():
                self._is_signed = self._is_signed or params.actor is not None
                name = messages.Hello() if self._hello is None else self._hello
                self._hello = msgspec.structs.replace(name, session=result.session, token=result.token)
            case messages.SessionClose() if self._hello is not None and params.session in (
                None, self._hello.session
            ):  # fmt: skip
                self._hello = msgspec.structs.replace(self._hello, session=None, token=None)
            case messages.Read(at=None, changeset=None):
                self._see(params.session, result.path, result.version)
            case messages.Apply(dry_run=False) | messages.Restore(dry_run=False):
                self._see_all(params.session, result)
            case messages.Undo(dry_run=False) | messages.Rollback(dry_run=False):
                self._see_all(None, result)
            case messages.Redo(dry_run=False) | messages.Commit():
                self._see_all(getattr(params, "session", None), result)
            case _:
                return

    def _see_all(self, session: str | None, result: messages.ApplyResult) -> None:
        for file in result.files:
            if isinstance(file.from_, str):
                self._see(session, file.from_, None)
            self._see(session, file.path, file.version)

    def _see(self, session: str | None, path: str, version: str | None) -> None:
        if not self.is_lasting:
            return
        own = session if session is not None else None if self._hello is None else self._hello.session
        self._seen[own, path] = version
        self._seen.move_to_end((own, path))
        if len(self._seen) > SEEN_MAX:
            self._seen.popitem(last=False)

    def _sightings(self) -> list[messages.ReadVersion]:
        """Return the versions that the daemon may have forgotten; it keeps an open session's."""
        opened = None if self._hello is None or self._hello.token is None else self._hello.session
        return [
            messages.ReadVersion(path=path, version=version, session=session)
            for (session, path), version in self._seen.items()
            if session is None or session != opened
        ]


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


# EDITD_SOCKET may have been set for another workspace than the answering daemon's.


def is_elsewhere(root: str, workspace: Workspace) -> bool:
    """Whether a daemon's folder is not this workspace's.

    A folder that does not exist on this machine belongs to a daemon in a container with a shared socket.
    """
    return os.path.isdir(root) and not os.path.samefile(root, workspace.root)


def root_elsewhere(ask: Callable[[PreparedCall[str]], str], workspace: Workspace) -> str | None:
    """Return the folder of the daemon that `ask` reaches, if EDITD_SOCKET leads to another workspace."""
    if not os.environ.get("EDITD_SOCKET"):
        return None
    root: str = ask(PreparedCall(messages.Status(), lambda status: status["root"]))
    return root if is_elsewhere(root, workspace) else None


def elsewhere(workspace: Workspace, root: str) -> EditdError:
    """Return the refusal (`path_outside`) to use the daemon of the folder `root` for this workspace."""
    return refusal(
        "path_outside",
        f"The daemon at {workspace.socket_path} serves {root}, not {workspace.root}.",
        hint="Unset EDITD_SOCKET, or name that workspace: --workspace DIR.",
    )
