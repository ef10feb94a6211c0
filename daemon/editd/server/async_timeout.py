"""Waiting in the event loop for events, with a timeout."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


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
