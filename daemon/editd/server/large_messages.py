"""Large messages: their decoding and encoding leaves the event loop for a thread, one message at a time.

A request of a million values takes a second, and the answer to a `read` of 60 MB half of one. Other clients
are served meanwhile. One thread at a time does such work, because each more would delay the loop.

Knows no connection and no method.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

Done = TypeVar("Done")


class LargeMessages:
    """The work on large messages. Tasks run until `finish`."""

    def __init__(self) -> None:
        self._line = asyncio.Lock()  # it is fair: first come, first served
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, work: Callable[[], Done]) -> Done:
        """Do work in a thread, after the messages that came before."""
        async with self._line:
            return await asyncio.to_thread(work)

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin a task, which `finish` waits for."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def finish(self) -> None:
        """Return when all tasks have ended."""
        while self._tasks:
            await asyncio.wait(tuple(self._tasks))
