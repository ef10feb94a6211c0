"""An event loop on a fake clock: a scheduler runs one callback at a time, and may kill it between any two.

No socket, no thread and no timer is real. Work for an executor runs on the loop, some time later.
"""

from __future__ import annotations

import asyncio
import heapq
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from simulation.world import FakeClock

WORK_SECONDS_MAX = 0.1  # until the work for an executor is done


class SimulatedLoop(asyncio.BaseEventLoop):
    """The loop of one process. It runs only in `step`."""

    def __init__(self, clock: FakeClock, chance: Random, is_dead: Callable[[], bool]) -> None:
        super().__init__()
        self._clock, self._chance, self._is_dead = clock, chance, is_dead
        self.failures: list[BaseException] = []  # that no code of the product has handled, or of a rule
        self.away = 0  # works that the engine's thread has
        self.set_exception_handler(self._keep_failure)
        self._ready: Any  # of the base class
        self._scheduled: Any

    def time(self) -> float:
        return self._clock.monotonic()

    def _keep_failure(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        failure = context.get("exception")
        if failure is not None and not self._is_dead():
            self.failures.append(failure)

    def next_at(self) -> float | None:
        """Return the time of the next callback: now, or a later one; None without any."""
        if self._ready:
            return self.time()
        while self._scheduled and self._scheduled[0].cancelled():
            heapq.heappop(self._scheduled)
        return self._scheduled[0].when() if self._scheduled else None

    def step(self) -> None:
        """Run the next callback that is due, if there is one."""
        while self._scheduled and self._scheduled[0].when() <= self.time():
            handle = heapq.heappop(self._scheduled)
            handle._scheduled = False
            self._ready.append(handle)
        if self._ready:
            handle = self._ready.popleft()
            if not handle.cancelled():
                self.call_within(handle._run)

    def call_within(self, call: Callable[[], Any]) -> Any:
        """Make a call that finds this loop running."""
        outer = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            return call()
        finally:
            asyncio._set_running_loop(outer)

    def run_in_executor(  # type: ignore[override]  # of any function
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        future = self.create_future()
        is_away = executor is not None
        self.away += is_away

        def work() -> None:
            self.away -= is_away
            if future.cancelled():
                return
            try:
                future.set_result(func(*args))
            except Exception as error:  # noqa: BLE001  # the caller's
                future.set_exception(error)

        self.call_later(self._chance.random() * WORK_SECONDS_MAX, work)
        return future

    def kill(self) -> None:
        """End with the process: nothing of it runs any more, but for the `finally` of what is under way."""
        for task in asyncio.all_tasks(self):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            coroutine = task.get_coro()
            if coroutine is not None:
                try:
                    self.call_within(coroutine.close)
                except BaseException:  # noqa: BLE001  # of a call of the dead process
                    continue
        self.close()

    def _write_to_self(self) -> None:
        """Do nothing: no other thread waits."""

    def _process_events(self, event_list: Any) -> None:
        raise AssertionError("no file is watched")
