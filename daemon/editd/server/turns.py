"""Turns: all that has come in during one turn of the loop goes to the engine together.

So whatever waits shares one sync (group commit), without a timer and without a lock.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from editd.engine.requests import Outcome, Postponed, Write
from editd.errors import Broken, Refused

if TYPE_CHECKING:
    from editd.engine.engine import Engine

log = logging.getLogger(__name__)

TURN_REQUESTS_MAX = 256  # more wait for the next turn, so that what only asks is answered in between
PATIENCE_SECONDS = 2.0  # for a file that somebody has open for writing, or for packing to catch up

Answer = Callable[[Outcome | Refused], None]


@dataclass(slots=True)
class Waiting:
    request: Write
    answer: Answer
    until: float  # the loop's time


class Turns:
    def __init__(self, engine: Engine, after: Callable[[], None]) -> None:
        """`after` is called when a turn's answers are out."""
        self._engine = engine
        self._after = after
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Waiting] = deque()
        self._postponed = 0
        self._is_called = False

    def __len__(self) -> int:
        """How many requests are not answered yet."""
        return len(self._waiting) + self._postponed

    def submit(self, request: Write, answer: Answer) -> None:
        """Have `request` carried out in the next turn; `answer` is called once."""
        self._enqueue(Waiting(request, answer, self._loop.time() + PATIENCE_SECONDS))

    def _enqueue(self, waiting: Waiting) -> None:
        self._waiting.append(waiting)
        if not self._is_called:
            self._is_called = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._is_called = False
        taken = [self._waiting.popleft() for _ in range(min(len(self._waiting), TURN_REQUESTS_MAX))]
        try:
            results = self._engine.turn([waiting.request for waiting in taken])
        except Exception:  # a fault of ours: what is in memory cannot be trusted any more
            log.exception("the engine failed")
            fault = Broken("The engine failed; its log tells where.", hint="Restart the daemon: it recovers.")
            self._engine.broken = fault
            results = [fault for _ in taken]
        for waiting, result in zip(taken, results, strict=True):
            if not isinstance(result, Postponed):
                waiting.answer(result)
            elif self._loop.time() > waiting.until:
                waiting.answer(result.reason)
            else:
                self._postponed += 1
                self._loop.call_later(result.seconds, self._again, waiting)
        self._after()
        if self._waiting and not self._is_called:
            self._is_called = True
            self._loop.call_soon(self._turn)

    def _again(self, waiting: Waiting) -> None:
        self._postponed -= 1
        self._enqueue(waiting)
