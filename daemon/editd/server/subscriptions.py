"""Subscriptions: the subscribers to events, and the progress of each.

    LIVE          each event goes out as it happens, after it is in the files and in the history
    CATCHING_UP   transactions after `since` are read from the index, as fast as the connection reads them
    BEHIND        the connection does not read: nothing is kept for it, and it gets a `resync` once it reads

    from          to            when
    CATCHING_UP   LIVE          it has had all that is in the index
    LIVE          BEHIND        there is an event to send, and too much is unread (`outgoing_bytes_pause`)
    BEHIND        LIVE          it reads again: one `resync` in place of all that it missed

Events go out in rounds, a few subscribers in each turn of the loop. So an edit does not wait until all
subscribers have the previous one. A turn compares a limited number of paths with globs: a subscriber with
many globs takes several turns. Each event is encoded once for each form in use.

Never waits for a subscriber, and keeps no event for one beyond its round.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import deque
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from editd.advice import Advice, step_term
from editd.errors import InvalidParams, Overloaded, Refused, TooLarge, UnknownTransaction
from editd.server import convert
from editd.wire import messages
from editd.wire.codec import encode_msgpack
from editd.wire.limits import LIMITS

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Sequence

    from editd.server.connection import ClientState, SocketConnection
    from editd.server.engine_queue import EngineQueue
    from editd.store.history import History
    from editd.values.glob import GlobSet
    from editd.values.path import WorkspacePath
    from editd.values.transaction import Transaction
    from editd.wire.connection import Connection

log = logging.getLogger(__name__)

ROUND_SUBSCRIBERS = 16  # served in one turn of the loop: some 0.2 ms, most of it the kernel's
ROUND_COMPARISONS = 800  # of paths with globs in one turn of the loop, some 2 ms; a subscriber counts as 50
PIECE_BYTES = 64 * 1024  # sent in one go, before the next check whether they are read
CATCH_UP_TRANSACTIONS = 64  # read from the index in one turn of the loop, some 2 ms


class SubscriptionState(Enum):
    LIVE = auto()
    CATCHING_UP = auto()
    BEHIND = auto()


class EventFormat(Struct, frozen=True):
    """The form of a subscriber's events: `event` with a map, or its own method by position."""

    method: str = "event"
    prefix: tuple[Any, ...] | None = None
    is_brief: bool = False  # transactions without their files

    def encode(self, connection: Connection, event: dict[str, Any]) -> bytes:
        if self.is_brief and "transaction" in event:
            event = {**event, "transaction": _brief(event["transaction"])}
        if self.prefix is None:
            return connection.notify(self.method, event)
        return connection.notice(self.method, [*self.prefix, [event]])


Alike = tuple[str, int, bytes]
"""The properties that make the bytes of an event equal for two subscribers: encoding, number and form."""


class OutgoingEvent(Struct):
    """One event to send; `seq` is a transaction's."""

    event: str
    body: dict[str, Any]
    paths: Sequence[WorkspacePath] = ()
    seq: int | None = None
    encoded: dict[Alike, bytes] = field(default_factory=dict[Alike, bytes])

    def bytes_for(self, subscription: Subscription) -> bytes:
        """Return the event as this subscriber reads it, encoded once for all that are alike."""
        data = self.encoded.get(subscription.alike)
        if data is None:
            said = {"subscription": subscription.number, "event": self.event, **self.body}
            data = subscription.form.encode(subscription.listener.connection, said)
            self.encoded[subscription.alike] = data
        return data


class Subscription(Struct, eq=False):
    """The subscription of one connection. `cursor` is the newest transaction that it got or skipped."""

    number: int
    listener: SocketConnection
    events: frozenset[str] | None
    globs: GlobSet | None
    form: EventFormat
    cursor: int
    state: SubscriptionState
    is_over: bool = False
    has_missed: bool = False
    is_comparing: bool = False  # in several turns, the paths of earlier transactions
    alike: Alike = ("", 0, b"")

    def __post_init__(self) -> None:
        form = hashlib.sha256(repr(self.form).encode("utf-8", "surrogateescape")).digest()
        self.alike = (self.listener.connection.encoding, self.number, form)

    def take(self, told: Iterable[OutgoingEvent], newest: int) -> Iterator[int]:
        """Send the wanted events; `newest` is the newest transaction.

        Yield the number of comparisons in each slice. The state may change between two slices.
        """
        if not self._takes_events():
            return
        wanted = yield from self.choose(told)
        if not self._takes_events():
            return
        if not self._say([one for one in wanted if self._is_news(one)]):
            self.has_missed = True
            if self.state is SubscriptionState.LIVE:
                self.state = SubscriptionState.BEHIND
        elif self.state is SubscriptionState.LIVE:
            self.cursor = max(self.cursor, newest)

    def read_on(self, told: Sequence[OutgoingEvent], wanted: Iterable[OutgoingEvent]) -> bool:
        """Send the wanted events of those read from the index; return whether all were sent.

        Advance the cursor over all of them.
        """
        if not self._say(wanted):
            return False
        self.cursor = max([self.cursor, *(one.seq for one in told if one.seq is not None)])
        return True

    def _say(self, wanted: Iterable[OutgoingEvent]) -> bool:
        """Send all events, piece by piece; return False if the connection stops reading before the end."""
        for piece in _pieces(wanted, self):
            if not self.listener.is_reading:
                return False
            self.listener.send(b"".join([one.bytes_for(self) for one in piece]))
            self.cursor = max([self.cursor, *(one.seq for one in piece if one.seq is not None)])
        return True

    def go_live(self) -> None:
        """Become live: it has all transactions, but may have missed other events meanwhile."""
        self.state = SubscriptionState.LIVE
        if self.has_missed:
            self.resync(self.cursor)

    def resync(self, newest: int) -> None:
        """Send one event in place of all that it has missed."""
        head = max(self.cursor, newest)
        missed = OutgoingEvent("resync", {"from": self.cursor, "head": head, "reason": "behind"})
        self.state, self.cursor, self.has_missed = SubscriptionState.LIVE, head, False
        self.listener.send(missed.bytes_for(self))

    def _takes_events(self) -> bool:
        return not self.is_over and self.state is not SubscriptionState.BEHIND

    def _is_news(self, told: OutgoingEvent) -> bool:
        """Return whether no catching up sends the event, or has sent it."""
        return told.seq is None or (
            self.state is not SubscriptionState.CATCHING_UP and told.seq > self.cursor
        )

    def choose(self, told: Iterable[OutgoingEvent]) -> Generator[int, None, list[OutgoingEvent]]:
        """Return the events that the subscriber wants. Yield the number of comparisons in each slice."""
        wanted: list[OutgoingEvent] = []
        for one in told:
            if self.events is not None and one.event not in self.events:
                continue
            is_wanted = self.globs is None or (one.seq is None and not one.paths)
            if not is_wanted and self.globs is not None:
                for path in one.paths:
                    yield self.globs.comparisons
                    if self.globs.has(path):
                        is_wanted = True
                        break
            if is_wanted:
                wanted.append(one)
        return wanted


class Subscriptions:
    """All subscriptions of all connections, by the connection's number and then by their own."""

    def __init__(self, history: History, queue: EngineQueue) -> None:
        self._history = history
        self._queue = queue
        self._loop = asyncio.get_running_loop()
        self.by_client: dict[int, dict[int, Subscription]] = {}  # empty without subscribers
        self._waiting: deque[Transaction | OutgoingEvent] = deque()
        self._is_called = False
        self._round: Iterator[int] = iter(())
        self._told: list[OutgoingEvent] = []
        self._newest = 0  # transaction of any round

    # ── events ──

    def recorded(self, transaction: Transaction) -> None:
        """Announce a transaction that is in the history and in the files. May be called from any thread."""
        self._say(transaction)

    def tell(self, event: str, body: dict[str, Any], paths: Sequence[WorkspacePath] = ()) -> None:
        """Send an event to all its subscribers; `paths`, if given, are matched with their globs."""
        self._say(OutgoingEvent(event, body, tuple(paths)))

    def finish(self) -> None:
        """Send all waiting events, and then that the daemon ends."""
        self.tell("shutdown", {})
        while self._waiting or self._told:
            self._tell_some(None)
        self.by_client.clear()

    def _say(self, what: Transaction | OutgoingEvent) -> None:
        if not self.by_client:
            return
        self._waiting.append(what)
        if not self._is_called:
            self._is_called = True
            self._loop.call_soon_threadsafe(self._go_on)

    def _go_on(self) -> None:
        self._tell_some(ROUND_COMPARISONS)
        self._is_called = False  # first: the engine's thread may have more to say at any moment
        if self._waiting or self._told:
            self._is_called = True
            self._loop.call_soon(self._go_on)

    def _tell_some(self, comparisons: int | None) -> None:
        """Continue the round, or begin the next one with all events since; None for a whole round."""
        if not self._told:
            self._begin_round()
        if _advance(self._round, comparisons):
            self._told = []

    def _begin_round(self) -> None:
        waiting = [self._waiting.popleft() for _ in range(len(self._waiting))]
        everybody = list(self._everybody())
        if everybody:
            self._told = [_told(what) for what in waiting]
        self._newest = max((int(what.seq) for what in waiting if what.seq is not None), default=self._newest)
        self._round = _served(everybody, self._told, self._newest)

    def _everybody(self) -> Iterator[Subscription]:
        for theirs in self.by_client.values():
            yield from theirs.values()

    # ── subscribers ──

    def leave(self, caller: ClientState) -> None:
        """Drop the subscriptions of a closed connection."""
        for subscription in self.by_client.pop(caller.number, {}).values():
            subscription.is_over = True

    def __len__(self) -> int:
        return sum(len(theirs) for theirs in self.by_client.values())

    def subscribe(self, params: messages.Subscribe, caller: ClientState) -> messages.SubscribeResult:
        theirs = self.by_client.get(caller.number, {})
        if len(theirs) >= LIMITS.subscriptions_max:
            raise Overloaded(
                f"A connection has at most {LIMITS.subscriptions_max} subscriptions.",
                hint=Advice(step_term("other_filters")),
            )
        texts = [glob.text for other in theirs.values() for glob in other.globs or ()]
        convert.globs([*texts, *(params.paths or ())], "The subscriptions of a connection together")
        subscription = self._made(params, max(theirs, default=0) + 1, caller.listener)
        self.by_client.setdefault(caller.number, {})[subscription.number] = subscription
        if subscription.state is SubscriptionState.CATCHING_UP:
            self._loop.call_soon(self._catch_up_soon, subscription)
        return messages.SubscribeResult(subscription=subscription.number, head=self._history.head)

    def _made(self, params: messages.Subscribe, number: int, listener: SocketConnection) -> Subscription:
        head = int(self._history.head)
        since = head if params.since is None else params.since
        if since < 0:
            raise InvalidParams("`since` is a transaction's number, 0 or more.")
        if since < self._history.floor.seq:
            self._history.find(since)  # raises the refusal for a compacted transaction
        if since > head:
            raise UnknownTransaction(
                f"There is no transaction {since}; the newest is {head}.",
                hint="Another history may have replaced this one: read the files again.",
                data={"tx": since, "head": head},
            )
        return Subscription(
            number,
            listener,
            None if params.events is None else frozenset(params.events),
            None if params.paths is None else convert.globs(params.paths, "A subscription"),
            EventFormat(is_brief=params.brief)
            if params.notify is None
            else _form_of(params.notify, is_brief=params.brief),
            since,
            SubscriptionState.LIVE if since == head else SubscriptionState.CATCHING_UP,
        )

    def unsubscribe(self, params: messages.Unsubscribe, caller: ClientState) -> messages.Empty:
        theirs = self.by_client.get(caller.number, {})
        subscription = theirs.pop(params.subscription, None)
        if subscription is None:
            raise InvalidParams(
                f"This connection has no subscription {params.subscription}.",
                hint=Advice(step_term("subscription")),
            )
        subscription.is_over = True
        return messages.Empty()

    # ── subscribers that lag ──

    def reads_again(self, caller: ClientState) -> None:
        """Send what a connection has missed, because it reads its answers again."""
        for subscription in self.by_client.get(caller.number, {}).values():
            if subscription.state is SubscriptionState.BEHIND:
                subscription.resync(self._newest)
            elif subscription.state is SubscriptionState.CATCHING_UP:
                self._catch_up_soon(subscription)

    def _catch_up_soon(self, subscription: Subscription) -> None:
        self._queue.when_idle(lambda: self._catch_up(subscription))

    def _catch_up(self, subscription: Subscription) -> None:
        """Read on in the index while the connection reads. The caller has the engine."""
        if subscription.is_over or subscription.state is not SubscriptionState.CATCHING_UP:
            return
        if not subscription.listener.is_reading or subscription.is_comparing:
            return  # `reads_again` or the comparison comes back to it
        try:
            found = self._history.index.following(subscription.cursor, CATCH_UP_TRANSACTIONS)
        except Refused as refusal:
            log.error("earlier transactions could not be sent to a subscriber: %s", refusal.text())
            subscription.resync(self._newest)
            return
        if not found:
            subscription.go_live()
            return
        told = [_told(transaction) for transaction in found]
        subscription.is_comparing = True
        self._compare_some(subscription, self._read_on(subscription, told))

    def _compare_some(self, subscription: Subscription, work: Iterator[int]) -> None:
        """Compare some of the paths with the globs in this turn of the loop, and go on in the next one."""
        if subscription.is_over:
            return
        if not _advance(work, ROUND_COMPARISONS):
            self._loop.call_soon(self._compare_some, subscription, work)

    def _read_on(self, subscription: Subscription, told: Sequence[OutgoingEvent]) -> Iterator[int]:
        wanted = yield from subscription.choose(told)
        subscription.is_comparing = False
        if not subscription.listener.is_reading:
            return  # `_reads_again` comes back to it
        if not subscription.read_on(told, wanted):
            return
        self._loop.call_soon(self._catch_up_soon, subscription)


def _served(everybody: Iterable[Subscription], told: Sequence[OutgoingEvent], newest: int) -> Iterator[int]:
    """Send the events to all subscribers. Yield the number of comparisons in each slice."""
    for subscription in everybody:
        yield ROUND_COMPARISONS // ROUND_SUBSCRIBERS
        yield from subscription.take(told, newest)


def _advance(work: Iterator[int], comparisons: int | None) -> bool:
    """Do so much of the work, or all for None. Return whether it is at its end."""
    left = comparisons
    for count in work:
        if left is not None:
            left -= count
            if left < 0:
                return False
    return True


def _brief(transaction: messages.Transaction) -> messages.BriefTransaction:
    files = transaction.files
    return convert.brief_transaction(transaction, len(files), files[0].path if files else None)


def _form_of(notify: messages.Notify, *, is_brief: bool) -> EventFormat:
    size = len(encode_msgpack(notify))
    if size > LIMITS.notify_bytes_max:
        raise TooLarge(
            f"A subscription's `notify` is at most {LIMITS.notify_bytes_max} bytes long, this one {size}.",
            hint=Advice(step_term("short_prefix")),
            data={"size": size, "limit": LIMITS.notify_bytes_max},
        )
    return EventFormat(notify.method, tuple(notify.prefix), is_brief)


def _pieces(wanted: Iterable[OutgoingEvent], subscription: Subscription) -> Iterator[list[OutgoingEvent]]:
    """Yield the events in pieces of about `PIECE_BYTES`, so that one write sends many small ones."""
    piece: list[OutgoingEvent] = []
    size = 0
    for one in wanted:
        piece.append(one)
        size += len(one.bytes_for(subscription))
        if size >= PIECE_BYTES:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece


def _told(what: Transaction | OutgoingEvent) -> OutgoingEvent:
    if isinstance(what, OutgoingEvent):
        return what
    paths = dict.fromkeys(touch.path for touch in what.touches)
    paths.update(dict.fromkeys(touch.source for touch in what.touches if touch.source is not None))
    body = {"transaction": convert.transaction_result(what)}
    return OutgoingEvent("transaction", body, tuple(paths), int(what.seq))
