"""What outlives a connection: who this client is, what it listens to, and what it has read.

    first connection   a request goes out with a `request_id`, where a second time would be another deed
    it is lost         every subscription is without a number, and each changeset is gone
    the next one       is greeted: the session is attached again, what was read is told, and each subscription
                       goes on after the last transaction that it heard

Both faces of the client hold one of these. Never touches a socket, and knows no time.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import msgspec
from msgspec import Struct

from editd.wire import messages
from editd.wire.codec import convert
from editd.wire.connection import Failure
from editd.wire.limits import LIMITS
from editd_client import requests
from editd_client.author import current_actor
from editd_client.daemon_identity import elsewhere, is_elsewhere
from editd_client.errors import EditdError, Unreachable, refusal
from editd_client.events import ClientSubscription
from editd_client.requests import Identified, Request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from editd.wire.connection import Reply, ServerEvent
    from editd_client.locate import Workspace

Result = TypeVar("Result")

Signed = (
    messages.Apply | messages.Begin | messages.Undo | messages.Redo | messages.Rollback | messages.Restore
)  # requests that name an actor
SEEN_MAX = 50_000  # files of which it is remembered what was read, as in the daemon
SENDS_MAX = 5  # of one request: a daemon that dies of it is not made to die for ever


class CallOutcome(Struct, Generic[Result], frozen=True):
    """The one result that came of a request, or why there is none."""

    result: Sequence[Result] = ()
    error: EditdError | msgspec.ValidationError | UnicodeEncodeError | None = None

    def get(self) -> Result:
        """The result; raises EditdError where it was refused, ValidationError for what is none."""
        if self.error is not None:
            raise self.error
        return self.result[0]


class SessionState:
    """`generation` counts the connections: what belongs to one of them is gone with it."""

    def __init__(self, *, is_lasting: bool, named: Workspace | None = None) -> None:
        """`is_lasting`: it goes on after its connection, so its requests must bear being repeated.

        `named` is the workspace whose daemon each connection has to lead to, where that is in doubt.
        """
        self.is_lasting = is_lasting
        self.named = named
        self.generation = 0
        self.has_ended = False  # the daemon said that it ends
        self.subscriptions: list[ClientSubscription] = []
        self._hello: messages.Hello | None = None
        self._is_signed = False  # the connection or its session has said who acts
        self._message_bytes_max = LIMITS.message_bytes_max  # unless the daemon says otherwise
        self._seen: OrderedDict[tuple[str | None, str], str | None] = OrderedDict()

    # ── requests ──

    def prepared(self, asked: Request[Result]) -> Request[Result]:
        """The request as it goes out: signed, and safe to repeat if it changes something."""
        params = asked.params
        if isinstance(params, Signed) and params.actor is None and not self._is_signed:
            params = msgspec.structs.replace(params, actor=current_actor())
            asked = Request(params, asked.read, asked.extra)
        if not self.is_lasting or not isinstance(params, Identified) or params.request_id is not None:
            return asked
        if not isinstance(params, messages.Commit) and params.dry_run:
            return asked
        named = msgspec.structs.replace(params, request_id=os.urandom(16).hex())
        return Request(named, asked.read, asked.extra)

    def may_repeat(self, asked: Request[Any], sends: int) -> bool:
        """Whether a request that was sent so often, and not answered, is to be sent again."""
        return self.is_lasting and sends < SENDS_MAX and requests.may_repeat(asked.params)

    def check_size(self, request: bytes) -> None:
        """Raises EditdError (`too_large`) for what the daemon would not take: it hangs up on who sends it."""
        if len(request) > self._message_bytes_max:
            raise refusal(
                "too_large",
                f"A message is at most {self._message_bytes_max} bytes long.",
                hint="Send the edits in several requests.",
            )

    def outcome(self, asked: Request[Result], answer: Reply | Failure) -> CallOutcome[Result]:
        """What came of a request, and what follows from it here, in the order in which answers come."""
        if isinstance(answer, Failure):
            error = answer.error
            return CallOutcome(error=EditdError.of(error.code, error.name, error.message, error.data))
        try:
            result = asked.read(answer.result)
        except (msgspec.ValidationError, UnicodeEncodeError, EditdError) as fault:
            return CallOutcome(error=fault)
        self._remember(asked.params, result)
        return CallOutcome([result])

    # ── connections ──

    def on_disconnect(self) -> None:
        """The connection is gone."""
        for subscription in self.subscriptions:
            subscription.number = None
            subscription.on_news()

    def on_connect(self) -> None:
        """There is a new connection."""
        self.generation += 1
        self.has_ended = False

    @property
    def needs_hello(self) -> bool:
        """Whether a new connection is greeted: the first one only where it may lead elsewhere."""
        return self.generation > 0 or self.named is not None

    def hello(self, first: messages.Params | None) -> Request[messages.HelloResult]:
        """What a new connection is to hear before the request that it is made for.

        Where it is that of a daemon that is dying, this is lost, and not the request. Where it is that of
        another workspace's daemon than the one named, the answer is a refusal (`path_outside`).
        """
        hello = self._hello
        if isinstance(first, messages.Hello | messages.SessionOpen) and hello is not None:
            # That says who we are: the session that we had may be over.
            hello = msgspec.structs.replace(hello, session=None, token=None)
        said = msgspec.structs.replace(hello or messages.Hello(), seen=self._sightings())
        return Request(said, self._greeted)

    def _greeted(self, plain: Any) -> messages.HelloResult:
        result = convert(plain, messages.HelloResult)
        if self.named is not None and is_elsewhere(result.workspace.root, self.named):
            raise elsewhere(self.named, result.workspace.root)
        return result

    def pending_subscriptions(self) -> list[ClientSubscription]:
        """The subscriptions that this connection does not know."""
        return [
            one for one in self.subscriptions if one.number is None and not one.is_over and one.error is None
        ]

    def unreachable(self, asked: Request[Any], error: Exception) -> Unreachable:
        """What is raised where the connection was lost before the answer, and what is not known then."""
        params = asked.params
        text = f"The daemon went away during `{params.method}`: {_reason(error)}."
        unknown = requests.UNKNOWN.get(type(params))
        if unknown is None and isinstance(params, Identified) and not requests.may_repeat(params):
            unknown = "whether it was carried out: `log` tells"
        return Unreachable(text, hint="" if unknown is None else f"It is not known {unknown}.")

    # ── events ──

    def on_frame(self, event: ServerEvent) -> None:
        """Keep an event for the subscription that it is for."""
        params = cast("dict[str, Any]", event.params)
        self.has_ended = self.has_ended or params["event"] == "shutdown"
        for subscription in self.subscriptions:
            if subscription.number == params["subscription"]:
                subscription.take(params)

    def subscription(self, asked: Request[messages.SubscribeResult]) -> ClientSubscription:
        """One that is not asked for yet."""
        assert isinstance(asked.params, messages.Subscribe), "a subscription is asked for by that"
        return ClientSubscription(asked.params)

    def subscribing(self, subscription: ClientSubscription) -> Request[messages.SubscribeResult]:
        """Ask for it, for the first time or again; the events after the answer are its own."""

        def begin(plain: Any) -> messages.SubscribeResult:
            result = convert(plain, messages.SubscribeResult)
            subscription.begin(result.subscription, result.head)
            if subscription not in self.subscriptions:
                self.subscriptions.append(subscription)
            return result

        return Request(subscription.asked, begin)

    def not_subscribed(self, subscription: ClientSubscription, refusal: EditdError) -> None:
        """It cannot go on, which its reader is told; a daemon that is ending says so to everybody."""
        if refusal.name == "shutting_down":
            self.has_ended = True
            raise ConnectionResetError(0, "it is ending") from refusal
        subscription.error = refusal
        subscription.on_news()

    def unsubscribed(self, subscription: ClientSubscription) -> None:
        """Nobody listens there any more."""
        subscription.is_over = True
        if subscription in self.subscriptions:
            self.subscriptions.remove(subscription)

    # ── what is remembered ──

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
        """What the daemon may have forgotten. A session that was opened it remembers by itself."""
        opened = None if self._hello is None or self._hello.token is None else self._hello.session
        return [
            messages.ReadVersion(path=path, version=version, session=session)
            for (session, path), version in self._seen.items()
            if session is None or session != opened
        ]


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
