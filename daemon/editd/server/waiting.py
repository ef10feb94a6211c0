"""Waiting for an event for so long, in a task that may be cancelled meanwhile."""

from __future__ import annotations

import asyncio
import contextlib


async def happens(event: asyncio.Event, seconds: float) -> bool:
    """Return when it is set, or after so long: whether it is set.

    `asyncio.wait_for` of Python 3.11 loses a cancellation that comes in the same turn of the loop as what
    is waited for (https://github.com/python/cpython/issues/86296): the task goes on, and whoever cancelled
    it waits for its end for ever.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()
