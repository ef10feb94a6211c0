"""Events: the daemon's messages to a client that has subscribed, one after another.

A `ClientSubscription` queues the events and knows the last transaction received; `Events` reads them.
Every queue is bounded: beyond `WAITING_MAX` unread events the rest is dropped, and one `resync`
replaces it, as in the daemon.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Any, Self, cast

import msgspec
from msgspec import Struct

from editd.wire.codec import convert
from editd.wire.messages import EventKind, Transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from editd.wire import messages
    from editd_client.errors import EditdError

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
    def asked(self) -> messages.Subscribe:
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
        given = data.pop("transaction", None)
        transaction = None if given is None else convert(given, Transaction)
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
