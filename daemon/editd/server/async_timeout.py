"""Waiting without a timer of one's own: for an event, or until anything happens at all."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Activity:
    """The sign that something has happened, for those that have nothing to do until then.

    A daemon to which nothing happens is not woken by any timer: each task of the background looks whether
    something is left to do, and if not, asks to be called by the next `note`.
    """

    def __init__(self) -> None:
        self._calls: list[Callable[[], None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    def once(self, call: Callable[[], None]) -> None:
        """Have `call` called in the loop's thread when something happens, once."""
        self._loop = asyncio.get_running_loop()
        self._calls.append(call)

    def note(self) -> None:
        """Say that something happens: a request, a transaction, a client that leaves. In any thread."""
        if self._calls and self._loop is not None:
            calls, self._calls = self._calls, []
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(_call_each, calls)

    async def wait(self) -> None:
        """Return when something happens."""
        event = asyncio.Event()
        self.once(event.set)
        await event.wait()


def _call_each(calls: list[Callable[[], None]]) -> None:
    for call in calls:
        call()


async def first_of(events: Sequence[asyncio.Event], seconds: float | None) -> None:
    """Return when one of the events is set, or after so long."""
    tasks = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


async def wait_event(event: asyncio.Event, seconds: float) -> bool:
    """Return when it is set, or after so long: whether it is set.

    `asyncio.wait_for` of Python 3.11 loses a cancellation that comes in the same turn of the loop as what
    is waited for (https://github.com/python/cpython/issues/86296): the task goes on, and whoever cancelled
    it waits for its end for ever.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()
