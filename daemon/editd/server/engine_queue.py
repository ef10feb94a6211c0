"""The engine's queue: all requests that came in since the last turn go to the engine together.

The requests of a turn share one sync (group commit), without a timer and without a lock. If the last turn
had several requests, the next begins when a round of the loop has brought no more. Eight clients, each
waiting for its answer, then share one sync instead of two. A single client waits for no extra round.

A turn of much content runs in a thread, because hashing, writing and syncing release Python's lock, so that
the loop goes on answering. A small turn is faster on the loop's own thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from editd.engine.commands import Apply, NeedsDelay, NeedsHooks, NeedsRegex, Outcome, Result, Write
from editd.errors import Broken, Overloaded, Refused
from editd.server.async_timeout import Activity

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from editd.edits.regex import Search
    from editd.engine.engine import Engine
    from editd.engine.hooks import HookJob
    from editd.server.dispatch import MethodCall
    from editd.server.hook_runner import HookRunner
    from editd.server.regex_pool import RegexPool
    from editd.wire.messages import Message

log = logging.getLogger(__name__)

TURN_REQUESTS_MAX = 256  # more wait for the next turn, so that queries are answered in between
HEAVY_BYTES = 512 * 1024  # of content in a turn: above this, it would block other clients for over 10 ms
SEARCHES_MAX = 10_000  # for one request; a file that keeps changing would need searches without end
HOOKINGS_MAX = 20  # of one request; files that keep changing would need the hooks again each time
PATIENCE_SECONDS = 2.0  # for a file that another program has open for writing, or for packing to catch up

Done = TypeVar("Done")


class QueuedRequest(Struct):
    request: Write
    call: MethodCall
    render: Callable[[Outcome], Message]
    until: float  # the loop's time
    hookings: int = 0  # how often its hooks have run


class EngineQueue:
    """The queue of writes, and the gate to the engine: during a heavy turn in a thread, nobody may call it.

    All other callers use `when_idle` or await `idle`. Only `status` reads numbers that are safe at any time.
    """

    def __init__(
        self, engine: Engine, searcher: RegexPool, hooker: HookRunner, activity: Activity | None = None
    ) -> None:
        """Calls `activity.note` after each turn, and after each work in a thread."""
        self.activity = activity or Activity()
        self._engine = engine
        self._searcher = searcher
        self._hooker = hooker
        self._searching: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[QueuedRequest] = deque()
        self._postponed = 0
        self._is_called = False
        self._is_in_company = False  # the last turn had more than one request
        self._counted = 0  # requests that waited when the round of the loop began
        self._is_away = False  # the engine works in a thread
        self._deferred: deque[Callable[[], None]] = deque()

    def __len__(self) -> int:
        """Return the number of requests that are not answered yet."""
        return len(self._waiting) + self._postponed + len(self._deferred) + self._is_away

    def submit(self, request: Write, call: MethodCall, render: Callable[[Outcome], Message]) -> None:
        """Carry out `request` in the next turn; `call` gets the rendered outcome."""
        self._enqueue(QueuedRequest(request, call, render, self._loop.time() + PATIENCE_SECONDS))

    def when_idle(self, call: Callable[[], None]) -> None:
        """Make the call now, or when the engine is back from its thread."""
        if self._is_away:
            self._deferred.append(call)
        else:
            call()

    async def idle(self) -> None:
        """Wait until the engine is free; it stays free until the caller awaits again."""
        while self._is_away:
            arrived = asyncio.Event()
            self._deferred.append(arrived.set)
            await arrived.wait()

    async def run_in_thread(self, work: Callable[[], Done]) -> Done:
        """Run long work on the engine in a thread.

        A cancelled caller stops waiting; the engine stays busy until the thread has finished.
        """
        await self.idle()
        return await asyncio.shield(self._send_away(work))

    def _enqueue(self, waiting: QueuedRequest) -> None:
        self._waiting.append(waiting)
        self._call()

    def _call(self) -> None:
        if self._waiting and not self._is_called and not self._is_away:
            self._is_called = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        if not self._is_away and self._is_gathering():
            self._loop.call_soon(self._turn)
            return
        self._is_called, self._counted = False, 0
        if self._is_away:
            return
        self._is_in_company = len(self._waiting) > 1
        taken = [self._waiting.popleft() for _ in range(min(len(self._waiting), TURN_REQUESTS_MAX))]
        requests = [waiting.request for waiting in taken]
        if sum(self._engine.weight(request) for request in requests) < HEAVY_BYTES:
            self._answer(taken, self._carried_out(requests))
        else:
            future = self._send_away(lambda: self._carried_out(requests))
            future.add_done_callback(lambda done: self._answer(taken, done.result()))

    def _is_gathering(self) -> bool:
        """Whether the last round of the loop brought more requests, so that the next may, too."""
        before, self._counted = self._counted, len(self._waiting)
        return self._is_in_company and before < self._counted < TURN_REQUESTS_MAX

    def _carried_out(self, requests: list[Write]) -> list[Result]:
        try:
            return self._engine.run_batch(requests)
        except Exception:  # our bug: the state in memory cannot be trusted any more
            log.exception("the engine failed")
            fault = Broken("The engine failed.", hint="See the daemon's log, and restart the daemon.")
            self._engine.broken = fault
            return [fault for _ in requests]

    def _tell(self, waiting: QueuedRequest, result: Outcome | Refused) -> None:
        try:
            if isinstance(result, Refused):
                waiting.call.refuse(result)
            else:
                waiting.call.reply(waiting.render(result))
        except Exception:  # our bug, which must not keep the others from their answers
            log.exception("a request could not be answered")
            waiting.call.fail()

    def _answer(self, taken: list[QueuedRequest], results: list[Result]) -> None:
        for waiting, result in zip(taken, results, strict=True):
            if isinstance(result, NeedsRegex):
                self._search(waiting, result.search)
            elif isinstance(result, NeedsHooks):
                self._hook(waiting, result.trial)
            elif not isinstance(result, NeedsDelay):
                self._tell(waiting, result)
            elif self._loop.time() > waiting.until:
                self._tell(waiting, result.reason)
            else:
                self._postponed += 1
                self._loop.call_later(result.seconds, self._again, waiting)
        self.when_idle(self._engine.flush_index)
        self._call()
        self.activity.note()

    def _search(self, waiting: QueuedRequest, search: Search) -> None:
        """Run the search, then queue the request again with its result; others go on meanwhile."""
        request = waiting.request
        assert isinstance(request, Apply), "only an apply has searches"
        if len(request.found) > SEARCHES_MAX:
            self._tell(waiting, _too_many(request))
            return

        async def find() -> None:
            found = await self._searcher.find(search)
            waiting.request = replace(request, found={**request.found, search: found})
            self._again(waiting)

        self._put_aside(waiting, find())

    def _hook(self, waiting: QueuedRequest, trial: HookJob) -> None:
        """Run the hooks, then queue the request again with their result; others go on meanwhile."""
        request = waiting.request
        assert isinstance(request, Apply), "only an apply has hooks"
        waiting.hookings += 1
        if waiting.hookings > HOOKINGS_MAX:
            self._tell(waiting, _never_still(trial))
            return

        async def run() -> None:
            result = await self._hooker.run(trial)
            waiting.request = replace(request, hooked=(trial, result))
            waiting.until = self._loop.time() + PATIENCE_SECONDS
            self._again(waiting)

        self._put_aside(waiting, run())

    def _put_aside(self, waiting: QueuedRequest, work: Coroutine[Any, Any, None]) -> None:
        async def finish() -> None:
            try:
                await work
            except Exception:  # our bug
                log.exception("the search or the hooks of a request failed")
                self._postponed -= 1
                waiting.call.fail()

        self._postponed += 1
        task = self._loop.create_task(finish())
        self._searching.add(task)
        task.add_done_callback(self._searching.discard)

    def _again(self, waiting: QueuedRequest) -> None:
        self._postponed -= 1
        self._enqueue(waiting)

    def _send_away(self, work: Callable[[], Done]) -> asyncio.Future[Done]:
        assert not self._is_away, "the engine is entered by one at a time"
        self._is_away = True
        future = self._loop.run_in_executor(None, work)
        future.add_done_callback(self._come_back)
        return future

    def _come_back(self, _done: asyncio.Future[Done]) -> None:
        self._is_away = False
        while self._deferred and not self._is_away:
            try:
                self._deferred.popleft()()
            except Exception:  # our bug, which must not keep the others waiting
                log.exception("a call that waited for the engine failed")
        self._call()
        self.activity.note()


def _too_many(request: Apply) -> Refused:
    return Overloaded(
        f"This request needs more than {SEARCHES_MAX} searches with regular expressions.",
        hint="Send fewer edits at once, or wait until no other program writes to these files.",
        data={"searches": len(request.found)},
    )


def _never_still(trial: HookJob) -> Refused:
    return Overloaded(
        f"The files changed while the hooks ran, {HOOKINGS_MAX} times in a row.",
        hint="Retry when nobody else edits these files.",
        data={"files": [file.path.text for file in trial.files]},
    )
