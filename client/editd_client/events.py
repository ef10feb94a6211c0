"""Events: what a daemon tells a client that has subscribed, one after another.

An `Inbox` holds what has come and nobody has taken; an `Events` takes what is for its subscription.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self, cast

import msgspec

from editd.wire.messages import EventKind, Transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType


@dataclass(frozen=True, slots=True)
class Happening:
    """One event: a `transaction` where it is about one, and whatever else the daemon says of it."""

    event: EventKind
    transaction: Transaction | None
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Inbox:
    """What has come, by subscription. Nothing is kept for one that is over."""

    waiting: dict[int, deque[Happening]] = field(default_factory=dict[int, "deque[Happening]"])

    def take(self, params: dict[str, Any]) -> None:
        """Keep an event as the daemon has sent it."""
        data = {key: value for key, value in params.items() if key not in ("subscription", "event")}
        given = data.pop("transaction", None)
        transaction = None if given is None else msgspec.convert(given, Transaction)
        happening = Happening(cast("EventKind", params["event"]), transaction, data)
        self.waiting.setdefault(cast("int", params["subscription"]), deque()).append(happening)


class Events:
    """What one subscription hears: an iterator that ends when the daemon does, or after `close`.

    `head` is the newest transaction at its beginning. Raises Unreachable where the daemon goes away
    without a word.
    """

    def __init__(
        self,
        subscription: int,
        head: int,
        inbox: Inbox,
        hear: Callable[[float | None], None],
        unsubscribe: Callable[[int], None],
    ) -> None:
        """`hear` waits for something to come, so many seconds at most."""
        self.subscription = subscription
        self.head = head
        self._inbox = inbox
        self._hear = hear
        self._unsubscribe = unsubscribe
        self._is_over = False

    def wait(self, seconds: float | None = None) -> Happening | None:
        """The next event, waited for so long at most (None: for ever); None where none has come."""
        until = None if seconds is None else time.monotonic() + seconds
        while not self._is_over:
            waiting = self._inbox.waiting.get(self.subscription)
            if waiting:
                happening = waiting.popleft()
                self._is_over = happening.event == "shutdown"
                return happening
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                return None
            self._hear(left)
        return None

    def close(self) -> None:
        """Hear no more; closing twice is no error."""
        if not self._is_over:
            self._is_over = True
            self._unsubscribe(self.subscription)
        self._inbox.waiting.pop(self.subscription, None)

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
        if kind is None:  # else the connection may be gone, and the subscription with it
            self.close()
