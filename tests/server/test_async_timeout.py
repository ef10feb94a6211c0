"""server.engine_queue: who waits for an event is ended by a cancellation, whenever it comes."""

from __future__ import annotations

import asyncio

import pytest

from editd.server.engine_queue import Alarm, wait_event


@pytest.mark.parametrize("turns", range(6))
def test_a_cancellation_in_the_moment_of_the_event_is_not_lost(turns: int) -> None:
    async def run() -> None:
        event = Alarm()

        async def wait_for_ever() -> None:
            while True:
                await wait_event(event, 60)
                event.clear()

        task = asyncio.create_task(wait_for_ever())
        await asyncio.sleep(0.01)
        event.set()
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        _, pending = await asyncio.wait([task], timeout=1)
        assert not pending, "it waits on"

    asyncio.run(run())


def test_it_tells_whether_the_event_has_happened() -> None:
    async def run() -> tuple[bool, bool]:
        event = Alarm()
        before = await wait_event(event, 0.01)
        asyncio.get_running_loop().call_later(0.01, event.set)
        return before, await wait_event(event, 60)

    assert asyncio.run(run()) == (False, True)
