"""The engine's queue, and the only gate to the engine: one caller at a time is in it.

`submit` is for requests that change the workspace. All that came in since the last turn go to the engine
together. `run` and `run_in_thread` are for any other work with the engine, `when_idle` for work of timers.

The requests of a turn share one sync (group commit), without a timer and without a lock. If the last turn
had several requests, the next begins when a round of the loop has brought no more. Eight clients, each
waiting for its answer, then share one sync instead of two. A single client waits for no round at all: its
turn begins as soon as its requests are read (`begin`).

A turn of much content runs in the engine's thread, because hashing, writing and syncing release Python's
lock, so that the loop goes on answering. A small turn is faster on the loop's own thread. A large request is
prepared in slices, and others use the engine in between.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import sys
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from operator import attrgetter
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from editd.edits.comparison import TURN, TURN_COST_MAX, ComparisonTurn, NeedsComparison, NeedsThread
from editd.engine.commands import (
    Apply,
    Land,
    NeedsComparing,
    NeedsDelay,
    NeedsHooks,
    NeedsRegex,
    Result,
    Write,
)
from editd.errors import Broken, Overloaded, Refused, ShuttingDown
from editd.server.connection import PendingAnswer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence

    from editd.edits.comparison import Comparison
    from editd.edits.search import Match, Search
    from editd.engine.engine import Engine
    from editd.engine.hooks import HookJob, HookResult
    from editd.values.transaction import Outcome
    from editd.wire.messages import Message

log = logging.getLogger(__name__)

TURN_REQUESTS_MAX = 256  # more wait for the next turn, so that queries are answered in between
HEAVY_BYTES = 512 * 1024  # of content in a turn: above this, it would block other clients for over 10 ms
SEARCHES_MAX = 10_000  # for one request; a file that keeps changing would need searches without end
COMPARISONS_MAX = 10_000  # likewise
HOOKINGS_MAX = 20  # of one request; files that keep changing would need the hooks again each time
PATIENCE_SECONDS = 2.0  # for a file that another program has open for writing, or for packing to catch up

LARGE_BYTES = 2 * 1024 * 1024  # of a request: above this, it is planned and staged in slices
LARGE_SLICE_SECONDS = 0.01  # of the engine's time; then others are served
REST_SECONDS_MAX = 1.0  # between two looks whether the loop has ended, while a large request waits
SLICE_SECONDS = 0.02  # of the engine's time in one go; then others are served

Done = TypeVar("Done")
Compared = dict["Comparison", Any]


Need = NeedsRegex | NeedsHooks | NeedsComparing


_REQUEST = attrgetter("request")


class QueuedRequest(PendingAnswer):
    request: Write
    render: Callable[[Outcome], Message]
    until: float  # the loop's time
    hookings: int = 0  # how often its hooks have run
    done: asyncio.Future[Outcome] | None = None  # gets the result in place of the client
    compared: Compared | None = None  # the results of comparisons that it has needed


class EngineQueue:
    """The queue of writes, and the gate to the engine. Work that has to wait for it gets it in its order.

    Only numbers and `Recorder.broken` may be read without it, as `status` does.
    """

    def __init__(
        self,
        engine: Engine,
        search: Callable[[Search], Awaitable[tuple[Match, ...] | Refused]],
        run_hooks: Callable[[HookJob], Awaitable[HookResult | Refused]],
        compare: Callable[[Comparison], Awaitable[Any]],
        activity: Activity | None = None,
    ) -> None:
        """`search`, `run_hooks` and `compare` do the work that a request needs from other processes.

        Calls `activity.note` after each turn, and after each work in a thread.
        """
        self.activity = activity or Activity()
        # Held from the first look of an inspection until it is recorded. Otherwise another inspection may see
        # that a file is as recorded, before this one records what the file held a moment earlier.
        self.inspecting = asyncio.Lock()
        self._engine = engine
        self._search = search
        self._run_hooks = run_hooks
        self._compare = compare
        self.comparing = TURN.get() or ComparisonTurn()  # of the loop's thread
        TURN.set(self.comparing)
        self._aside: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[QueuedRequest] = deque()
        self._postponed = 0
        self._called: asyncio.Handle | None = None  # the next turn
        self._is_in_company = False  # the last turn had more than one request
        self._counted = 0  # requests that waited when the round of the loop began
        self._thread = ThreadPoolExecutor(2, "engine")  # the second one while the first waits in `yield_turn`
        self.is_away = False  # the engine works in its thread, so that `run` would wait
        self.long_works = 0  # done in that thread: they may leave much memory free
        self._is_sliced = False  # a large request is under way, in slices
        self._is_resting = False  # between two of its slices
        self._held: deque[QueuedRequest] = deque()  # large requests that wait for the one under way
        self._deferred: deque[Callable[[], None]] = deque()

    def __len__(self) -> int:
        """Return the number of requests that are not answered yet."""
        waiting = len(self._waiting) + len(self._held) + self._postponed + len(self._deferred)
        return waiting + self.is_away + self._is_resting

    def submit(self, request: Write, render: Callable[[Outcome], Message]) -> QueuedRequest:
        """Carry out `request` in the next turn, and answer with the rendered outcome."""
        queued = QueuedRequest(request, render, self._loop.time() + PATIENCE_SECONDS)
        self._enqueue(queued)
        return queued

    async def result_of(self, request: Write) -> Outcome:
        """Carry out `request` in the next turn; return its outcome. Raises Refused."""
        done: asyncio.Future[Outcome] = self._loop.create_future()
        self._enqueue(QueuedRequest(request, _no_message, self._loop.time() + PATIENCE_SECONDS, done=done))
        return await done

    def begin(self) -> None:
        """Begin the next turn at once, because no other client sends requests that could join it."""
        if self._called is not None:
            self._called.cancel()
            self._turn()

    def when_idle(self, call: Callable[[], None]) -> None:
        """Make the call now, or when the engine is free. For callers that cannot wait."""
        if self.is_away:
            self._deferred.append(call)
        else:
            call()

    async def run(self, work: Callable[[], Done]) -> Done:
        """Do short work with the engine on the loop's thread, when the engine is free; return its result.

        All of one step is in one `work`: afterwards the engine may be busy again.
        """
        try:
            return await self._with_comparisons(lambda compared: self._run(work, compared))
        except NeedsThread:
            return await self.run_in_thread(work)

    async def again(self, work: Callable[[], Done], need: NeedsComparison | NeedsThread) -> Done:
        """Do work again that has raised `need`: after the comparison, or in the engine's thread."""
        if isinstance(need, NeedsThread):
            return await self.run_in_thread(work)
        compared = {need.comparison: await self._compare(need.comparison)}
        try:
            return await self._with_comparisons(lambda compared: self._run(work, compared), compared)
        except NeedsThread:
            return await self.run_in_thread(work)

    def now_or_again(self, work: Callable[[], Done]) -> Done | Coroutine[Any, Any, Done]:
        """Do short work with the engine at once, which is free, or begin it and finish it as `again`."""
        self.comparing.begin()
        try:
            return work()
        except (NeedsComparison, NeedsThread) as need:
            return self.again(work, need)

    async def _with_comparisons(
        self, attempt: Callable[[Compared], Awaitable[Done]], compared: Compared | None = None
    ) -> Done:
        """Do work until it needs no more comparison that another process must compute."""
        compared = {} if compared is None else compared
        try:
            while True:
                try:
                    return await attempt(compared)
                except NeedsComparison as need:
                    comparison = need.comparison
                if len(compared) > COMPARISONS_MAX:
                    raise _too_much_comparing()
                compared[comparison] = await self._compare(comparison)
        finally:
            if self.comparing.results is compared:
                self.comparing.begin()  # large texts are not kept

    async def _run(self, work: Callable[[], Done], compared: Compared) -> Done:
        if not self.is_away:
            self.comparing.begin(compared)
            return work()
        done: asyncio.Future[Done] = self._loop.create_future()

        def settle() -> None:
            if done.cancelled():
                return
            self.comparing.begin(compared)
            try:
                done.set_result(work())
            except Exception as error:  # noqa: BLE001  # the caller's
                done.set_exception(error)

        self._deferred.append(settle)
        return await done

    async def run_in_slices(self, steps: Iterator[Callable[[], object] | None]) -> None:
        """Take the steps of long work on the loop's thread, some at a time, and serve others in between.

        A step that yields a function has it called in the engine's thread.
        """

        def take_some() -> Callable[[], object] | None:
            until = self._loop.time() + SLICE_SECONDS
            for heavy in steps:
                if heavy is not None or self._loop.time() > until:
                    return heavy or _nothing
            return None

        while (heavy := await self.run(take_some)) is not None:
            if heavy is not _nothing:
                await self.run_in_thread(heavy)
            await asyncio.sleep(0)

    async def run_in_thread(self, work: Callable[[], Done]) -> Done:
        """Do long work with the engine in its thread, when the engine is free; return its result.

        A cancelled caller stops waiting; the engine stays busy until the thread has finished.
        """
        return await self._with_comparisons(lambda compared: self._run_in_thread(work, compared))

    async def _run_in_thread(self, work: Callable[[], Done], compared: Compared) -> Done:
        future = await self._run(lambda: self._send_away(work, compared), compared)
        return await asyncio.shield(future)

    def _enqueue(self, waiting: QueuedRequest) -> None:
        self._waiting.append(waiting)
        self._call()

    def _call(self) -> None:
        if self._waiting and self._called is None and not self.is_away:
            self._called = self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        if not self.is_away and self._is_gathering():
            self._called = self._loop.call_soon(self._turn)
            return
        self._called, self._counted = None, 0
        if self.is_away:
            return
        self._is_in_company = len(self._waiting) > 1
        taken, weight, is_large = self._take()
        requests = list(map(_REQUEST, taken))
        if not taken:
            return
        compared: Compared = {}
        for waiting in taken:
            if waiting.compared is not None:
                compared |= waiting.compared
        if weight < HEAVY_BYTES:
            turn = self.comparing
            turn.results, turn.left, turn.is_movable = compared, TURN_COST_MAX, False
            self._answer(taken, self._carried_out(requests), compared)
        elif not is_large:
            future = self._send_away(lambda: self._carried_out(requests), compared)
            future.add_done_callback(lambda done: self._answer_after(taken, done.result(), compared))
        else:
            self._is_sliced = True
            future = self._send_away(lambda: self._carried_out_in_slices(requests[0]), compared)
            future.add_done_callback(lambda done: self._answer_large(taken, done.result(), compared))

    def _take(self) -> tuple[list[QueuedRequest], int, bool]:
        """Take the requests of the next turn; return them with their weight, and whether it is a large one.

        A large request is alone, and waits until the one before it is done.
        """
        taken, total = list[QueuedRequest](), 0
        while self._waiting and len(taken) < TURN_REQUESTS_MAX:
            weight = self._engine.weight(self._waiting[0].request)
            is_large = weight >= LARGE_BYTES
            if is_large and self._is_sliced:
                self._held.append(self._waiting.popleft())
                continue
            if is_large and taken:
                break
            taken.append(self._waiting.popleft())
            total += weight
            if is_large:
                return taken, total, True
        return taken, total, False

    def _answer_large(self, taken: list[QueuedRequest], results: list[Result], compared: Compared) -> None:
        self._is_sliced = False
        while self._held:
            held = self._held.popleft()
            held.until = self._loop.time() + PATIENCE_SECONDS
            self._waiting.append(held)
        self._answer_after(taken, results, compared)

    def _answer_after(self, taken: list[QueuedRequest], results: list[Result], compared: Compared) -> None:
        """Answer requests that the engine's thread has carried out."""
        self.comparing.begin(compared)
        self._answer(taken, results, compared)

    def _carried_out_in_slices(self, request: Write) -> list[Result]:
        """Carry out a large request in the engine's thread, and let others in after each slice of it.

        A slice goes on while nobody waits: the loop's thread takes in requests meanwhile.
        """
        until = monotonic() + LARGE_SLICE_SECONDS

        def yield_turn() -> None:
            nonlocal until
            if monotonic() > until and (self._waiting or self._deferred):
                self._rest()
                until = monotonic() + LARGE_SLICE_SECONDS

        return self._guarded(lambda: self._engine.run_large(request, yield_turn), 1)

    def _rest(self) -> None:
        """Leave the engine to waiting requests, and wait until it is free again. In its thread."""
        free = threading.Event()
        self._loop.call_soon_threadsafe(self._let_others_in, free)
        while not free.wait(REST_SECONDS_MAX):
            if self._loop.is_closed():
                raise ShuttingDown(
                    "The daemon is ending.", hint="Connect again and retry: nothing was changed."
                )

    def _let_others_in(self, free: threading.Event) -> None:
        self._is_resting = True
        self._come_back(None)
        self._loop.call_soon(self._end_rest, free)  # a round later: requests that have arrived are read in it

    def _end_rest(self, free: threading.Event) -> None:
        if self._called is not None and not self.is_away:
            self._is_in_company = False  # the turn does not wait for more requests
            self.begin()
        self.when_idle(partial(self._go_on, free))

    def _go_on(self, free: threading.Event) -> None:
        self.is_away, self._is_resting = True, False
        free.set()

    def _is_gathering(self) -> bool:
        """Whether the last round of the loop brought more requests, so that the next may, too."""
        before, self._counted = self._counted, len(self._waiting)
        return self._is_in_company and before < self._counted < TURN_REQUESTS_MAX

    def _carried_out(self, requests: list[Write]) -> list[Result]:
        return self._guarded(partial(self._engine.carry_out, requests), len(requests))

    def _guarded(self, work: Callable[[], list[Result]], number: int) -> list[Result]:
        try:
            return work()
        except Exception:  # our bug: the state in memory cannot be trusted any more
            log.exception("the engine failed")
            fault = Broken("The engine failed.", hint="See the daemon's log, and restart the daemon.")
            self._engine.recorder.broken = fault
            return [fault] * number

    def _tell(self, waiting: QueuedRequest, result: Outcome | Refused) -> None:
        if waiting.done is not None:
            _settle(waiting.done, result)
            return
        try:
            if isinstance(result, Refused):
                waiting.call.refuse(result)
            else:
                waiting.call.reply(waiting.render(result))
        except (NeedsComparison, NeedsThread) as need:
            assert not isinstance(result, Refused)
            self._start(self._tell_compared(waiting, result, need))
        except Exception:  # our bug, which must not keep the others from their answers
            log.exception("a request could not be answered")
            waiting.call.fail()

    async def _tell_compared(
        self, waiting: QueuedRequest, outcome: Outcome, need: NeedsComparison | NeedsThread
    ) -> None:
        """Answer with an outcome whose diff another process computes."""
        try:
            waiting.call.reply(await self.again(partial(waiting.render, outcome), need))
        except Refused as refusal:
            waiting.call.refuse(refusal)
        except Exception:  # our bug
            log.exception("a request could not be answered")
            waiting.call.fail()

    def _answer(self, taken: list[QueuedRequest], results: list[Result], compared: Compared) -> None:
        for waiting, result in zip(taken, results, strict=True):
            if isinstance(result, Need):
                waiting.compared = compared or None
                self._put_aside(waiting, result)
            elif not isinstance(result, NeedsDelay):
                self._tell(waiting, result)
            elif self._loop.time() > waiting.until:
                self._tell(waiting, result.reason)
            else:
                self._postponed += 1
                self._loop.call_later(result.seconds, self._again, waiting)
        self.when_idle(self._engine.recorder.clean_up)
        self._call()
        self.activity.note()

    def _put_aside(self, waiting: QueuedRequest, need: Need) -> None:
        self._postponed += 1
        self._start(self._fulfil(waiting, need))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._aside.add(task)
        task.add_done_callback(self._aside.discard)

    async def _fulfil(self, waiting: QueuedRequest, need: Need) -> None:
        """Get what a request needs, then queue it again with that; others go on meanwhile."""
        request = waiting.request
        try:
            if isinstance(need, NeedsRegex):
                assert isinstance(request, Apply), "only an apply has searches"
                if len(request.found) > SEARCHES_MAX:
                    raise _too_many(request)
                found = await self._search(need.search)
                waiting.request = replace(request, found={**request.found, need.search: found})
            elif isinstance(need, NeedsComparing):
                known = waiting.compared or {}
                if len(known) > COMPARISONS_MAX:
                    raise _too_much_comparing()
                waiting.compared = known | {need.comparison: await self._compare(need.comparison)}
                waiting.until = self._loop.time() + PATIENCE_SECONDS
            else:
                waiting.hookings += 1
                if waiting.hookings > HOOKINGS_MAX:
                    raise _never_still(need.job)
                assert isinstance(request, Apply | Land), "nothing else has hooks"
                waiting.request = replace(request, hooked=(need.job, await self._run_hooks(need.job)))
                waiting.until = self._loop.time() + PATIENCE_SECONDS
        except Refused as refusal:
            self._postponed -= 1
            self._tell(waiting, refusal)
        except Exception:  # our bug
            self._postponed -= 1
            log.exception("the search, the comparison or the hooks of a request failed")
            if waiting.done is None:
                waiting.call.fail()
            else:
                _settle(waiting.done, Refused("editd failed on this request. See the daemon's log."))
        else:
            self._again(waiting)

    def _again(self, waiting: QueuedRequest) -> None:
        self._postponed -= 1
        self._enqueue(waiting)

    def _send_away(self, work: Callable[[], Done], compared: Compared | None = None) -> asyncio.Future[Done]:
        assert not self.is_away, "the engine is entered by one at a time"
        self.is_away = True
        context = contextvars.copy_context()
        # In the thread, others are served between two comparisons, so that only each of them has a limit.
        context.run(TURN.set, ComparisonTurn({} if compared is None else compared, sys.maxsize))
        future = self._loop.run_in_executor(self._thread, context.run, work)
        future.add_done_callback(self._come_back)
        return future

    def _come_back(self, done: asyncio.Future[Done] | None) -> None:
        self.is_away = False
        self.long_works += done is not None
        while self._deferred and not self.is_away:
            try:
                self._deferred.popleft()()
            except Exception:  # our bug, which must not keep the others waiting
                log.exception("a call that waited for the engine failed")
        self._call()
        self.activity.note()


def _settle(done: asyncio.Future[Outcome], result: Outcome | Refused) -> None:
    if done.cancelled():
        return
    if isinstance(result, Refused):
        done.set_exception(result)
    else:
        done.set_result(result)


def _no_message(_outcome: Outcome) -> Message:
    raise AssertionError("the outcome goes to a future")


def _nothing() -> None:
    """Do nothing: the slice has ended without heavy work."""


def _too_many(request: Apply) -> Refused:
    return Overloaded(
        f"This request needs more than {SEARCHES_MAX} searches with regular expressions.",
        hint="Send fewer edits at once, or wait until no other program writes to these files.",
        data={"searches": len(request.found)},
    )


def _too_much_comparing() -> Refused:
    return Overloaded(
        f"This request needs more than {COMPARISONS_MAX} comparisons of texts.",
        hint="Ask for fewer files at once.",
        data={"comparisons": COMPARISONS_MAX},
    )


def _never_still(trial: HookJob) -> Refused:
    return Overloaded(
        f"The files changed while the hooks ran, {HOOKINGS_MAX} times in a row.",
        hint="Retry when no other program edits these files.",
        data={"files": [file.path.text for file in trial.files]},
    )


class Activity:
    """A wake-up call for background tasks that have nothing to do until the next activity.

    No timer wakes an idle daemon. Each background task checks for work left, and if there is none,
    registers a call with `once` that the next `note` makes.
    """

    def __init__(self) -> None:
        self._calls: list[Callable[[], None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0  # the loop's

    def once(self, call: Callable[[], None]) -> None:
        """Call `call` in the loop's thread at the next activity, once."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._calls.append(call)

    def note(self) -> None:
        """Report activity: a request, a transaction, a client that leaves. Safe in any thread."""
        if self._calls and self._loop is not None:
            calls, self._calls = self._calls, []
            with contextlib.suppress(RuntimeError):  # the loop has ended
                if threading.get_ident() == self._thread:
                    self._loop.call_soon(_call_each, calls)  # without a byte that wakes the loop
                else:
                    self._loop.call_soon_threadsafe(_call_each, calls)

    def next(self) -> Alarm:
        """Return an event that the next activity sets."""
        event = Alarm()
        self.once(event.set)
        return event


def _call_each(calls: list[Callable[[], None]]) -> None:
    for call in calls:
        call()


# Waiting for events, with a timeout.


async def first_of(events: Sequence[asyncio.Event], seconds: float | None) -> None:
    """Wait until one of the events is set, or for `seconds`."""
    tasks = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


class Alarm(asyncio.Event):
    """An event for `wait_event`, which needs no time-out of its task: that costs several times as much."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: set[asyncio.Future[None]] = set()  # of the waits under way

    def set(self) -> None:
        super().set()
        for end in self.ends:
            _end(end)


async def wait_event(event: Alarm, seconds: float) -> bool:
    """Wait up to `seconds` for `event`; return whether it was set.

    `asyncio.wait_for` of Python 3.11 loses a cancellation that comes in the same turn of the loop as the
    awaited result (https://github.com/python/cpython/issues/86296). The task then goes on, and the
    canceller waits for its end for ever.
    """
    if event.is_set():
        return True
    loop = asyncio.get_running_loop()
    end: asyncio.Future[None] = loop.create_future()
    timer = loop.call_later(seconds, _end, end)
    event.ends.add(end)
    try:
        await end
    finally:
        timer.cancel()
        event.ends.discard(end)
    return event.is_set()


def _end(wait: asyncio.Future[None]) -> None:
    if not wait.done():
        wait.set_result(None)
