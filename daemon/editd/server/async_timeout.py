"""Waiting in the event loop without polling: for an event with a timeout, or for any activity at all."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Activity:
    """A wake-up call for background tasks that have nothing to do until the next activity.

    No timer wakes an idle daemon. Each background task checks for work left, and if there is none,
    registers a call with `once` that the next `note` makes.
    """

    def __init__(self) -> None:
        self._calls: list[Callable[[], None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    def once(self, call: Callable[[], None]) -> None:
        """Call `call` in the loop's thread at the next activity, once."""
        self._loop = asyncio.get_running_loop()
        self._calls.append(call)

    def note(self) -> None:
        """Report activity: a request, a transaction, a client that leaves. Safe in any thread."""
        if self._calls and self._loop is not None:
            calls, self._calls = self._calls, []
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(_call_each, calls)

    def next(self) -> asyncio.Event:
        """Return an event that the next activity sets."""
        event = asyncio.Event()
        self.once(event.set)
        return event


def _call_each(calls: list[Callable[[], None]]) -> None:
    for call in calls:
        call()


async def first_of(events: Sequence[asyncio.Event], seconds: float | None) -> None:
    """Wait until one of the events is set, or for `seconds`."""
    tasks = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


async def wait_event(event: asyncio.Event, seconds: float) -> bool:
    """Wait up to `seconds` for `event`; return whether it was set.

    `asyncio.wait_for` of Python 3.11 loses a cancellation that comes in the same turn of the loop as the
    awaited result (https://github.com/python/cpython/issues/86296). The task then goes on, and the
    canceller waits for its end for ever.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()
