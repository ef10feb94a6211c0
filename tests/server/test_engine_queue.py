"""server.engine_queue: who shares a turn, and so a sync. The engine is one that only counts."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any, cast

import pytest

from editd.engine.commands import Apply, NeedsDelay, NeedsHooks
from editd.errors import Broken, InUse
from editd.server.engine_queue import (
    HEAVY_BYTES,
    LARGE_BYTES,
    LARGE_SLICE_SECONDS,
    PATIENCE_SECONDS,
    TURN_REQUESTS_MAX,
    Activity,
    EngineQueue,
)
from editd.values.transaction import Authorship, Outcome
from editd.wire.messages import Empty

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from editd.engine.commands import Result, Write
    from editd.engine.engine import Engine
    from editd.errors import Refused
    from editd.server.connection import MethodCall
    from editd.wire.messages import Message


class Counting:
    """As much of an engine as a turn needs; `queue` has how many requests came together."""

    broken: Refused | None = None

    def __init__(self) -> None:
        self.queue: list[int] = []
        self.recorder = self

    def carry_out(self, requests: Sequence[Write]) -> list[Result]:
        self.queue.append(len(requests))
        return [Outcome(()) for _ in requests]

    def weight(self, _request: Write) -> int:
        return 0

    def clean_up(self) -> None:
        """Nothing is left to clean up."""


class Asked:
    """A request's answer."""

    def __init__(self) -> None:
        self.answers: list[Message] = []

    def reply(self, result: Message) -> None:
        self.answers.append(result)

    def refuse(self, refusal: Refused) -> None:
        pytest.fail(refusal.text())

    def fail(self) -> None:
        pytest.fail("a fault of ours")


def submit(queue: EngineQueue, asked: Asked | None = None) -> Asked:
    asked = asked or Asked()
    queue.submit(Apply((), Authorship("a"), "r"), lambda _: Empty()).call = cast("MethodCall", asked)
    return asked


def rounds(check: Callable[[EngineQueue, Counting], Any]) -> None:
    """Run `check`, which is async, in a loop of its own."""

    async def run() -> None:
        engine = Counting()
        await check(
            EngineQueue(cast("Engine", engine), cast("Any", None), cast("Any", None), cast("Any", None)),
            engine,
        )

    asyncio.run(run())


class Faulty(Counting):
    """An engine with a fault of its own."""

    def carry_out(self, requests: Sequence[Write]) -> list[Result]:
        raise ZeroDivisionError


class Refusal(Asked):
    """A request that is refused."""

    def refuse(self, refusal: Refused) -> None:
        self.refusal = refusal


def test_an_engine_that_fails_is_broken_and_each_request_of_its_turn_is_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def check() -> None:
        engine = Faulty()
        queue = EngineQueue(cast("Engine", engine), cast("Any", None), cast("Any", None), cast("Any", None))
        requests = [Refusal(), Refusal()]
        for request in requests:
            submit(queue, request)
        await asyncio.sleep(0)
        assert isinstance(engine.recorder.broken, Broken)
        assert [request.refusal for request in requests] == [engine.recorder.broken, engine.recorder.broken]

    asyncio.run(check())
    assert "the engine failed" in caplog.text


def test_what_no_client_notices_is_done_when_all_of_the_turn_are_answered() -> None:
    order: list[str] = []

    class Cleaning(Counting):
        def clean_up(self) -> None:
            order.append("clean")

    class Noting(Asked):
        def reply(self, result: Message) -> None:
            order.append("reply")

    async def check() -> None:
        queue = EngineQueue(
            cast("Engine", Cleaning()), cast("Any", None), cast("Any", None), cast("Any", None)
        )
        for _ in range(2):
            submit(queue, Noting())
        await asyncio.sleep(0)

    asyncio.run(check())
    assert order == ["reply", "reply", "clean"]


def test_the_time_that_hooks_take_is_no_part_of_a_requests_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    results: list[Result] = [NeedsHooks(cast("Any", None)), NeedsDelay(InUse("a"), 0.0), Outcome(())]

    class Delaying(Counting):
        def carry_out(self, requests: Sequence[Write]) -> list[Result]:
            return [results.pop(0) for _ in requests]

    async def check() -> None:
        loop = asyncio.get_running_loop()
        now, spent = loop.time, [0.0]
        monkeypatch.setattr(loop, "time", lambda: now() + spent[0])

        async def run_hooks(_job: object) -> Any:
            spent[0] += 2 * PATIENCE_SECONDS

        queue = EngineQueue(cast("Engine", Delaying()), cast("Any", None), run_hooks, cast("Any", None))
        request = Refusal()
        submit(queue, request)
        while queue:  # noqa: ASYNC110  # the queue tells nobody that it is empty
            await asyncio.sleep(0)
        assert not hasattr(request, "refusal")
        assert request.answers == [Empty()]

    asyncio.run(check())


def test_who_is_alone_does_not_wait_for_others() -> None:
    async def check(queue: EngineQueue, engine: Counting) -> None:
        for _ in range(3):
            asked = submit(queue)
            await asyncio.sleep(0)
            assert len(asked.answers) == 1
        assert engine.queue == [1, 1, 1]

    rounds(check)


def test_a_turn_that_is_begun_at_once_takes_all_that_wait_and_comes_once() -> None:
    async def check(queue: EngineQueue, engine: Counting) -> None:
        queue.begin()
        asked = [submit(queue), submit(queue)]
        queue.begin()
        assert engine.queue == [2]
        assert all(len(one.answers) == 1 for one in asked)
        for _ in range(3):
            await asyncio.sleep(0)
        assert engine.queue == [2]
        submit(queue)  # after a turn of several, the first round only gathers
        queue.begin()
        assert engine.queue == [2]
        await asyncio.sleep(0)
        assert engine.queue == [2, 1]

    rounds(check)


def test_after_a_turn_of_several_the_next_begins_when_a_round_brings_no_more() -> None:
    async def check(queue: EngineQueue, engine: Counting) -> None:
        submit(queue)
        submit(queue)
        await asyncio.sleep(0)
        assert engine.queue == [2]
        waiting: list[Asked] = []
        for _ in range(6):
            waiting.append(submit(queue))
            await asyncio.sleep(0)
            assert not any(asked.answers for asked in waiting)
        await asyncio.sleep(0)
        assert engine.queue == [2, 6]
        assert all(len(asked.answers) == 1 for asked in waiting)

    rounds(check)


def test_a_flood_is_not_waited_for() -> None:
    async def check(queue: EngineQueue, engine: Counting) -> None:
        for _ in range(TURN_REQUESTS_MAX + 40):
            submit(queue)
        for _ in range(3):
            await asyncio.sleep(0)
        assert engine.queue == [TURN_REQUESTS_MAX, 40]

    rounds(check)


def test_those_who_wait_for_the_engine_have_it_one_after_another() -> None:
    async def check(queue: EngineQueue, _engine: Counting) -> None:
        inside: list[int] = []
        counts: list[int] = []

        def work() -> None:
            inside.append(1)
            time.sleep(0.01)
            counts.append(len(inside))
            inside.pop()

        async def look() -> None:
            await queue.run(lambda: counts.append(len(inside)))

        await asyncio.gather(
            *(queue.run_in_thread(work) for _ in range(3)), look(), queue.run_in_thread(work), look()
        )
        assert sorted(counts) == [0, 0, 1, 1, 1, 1]

    rounds(check)


def test_activity_is_noted_in_any_thread_and_wakes_the_loop_only_from_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def check() -> None:
        activity, loop, woken = Activity(), asyncio.get_running_loop(), list[int]()
        wake = loop.call_soon_threadsafe

        def note_wake(*arguments: Any) -> Any:
            woken.append(threading.get_ident())
            return wake(*arguments)

        async with asyncio.timeout(10):
            event = activity.next()
            monkeypatch.setattr(loop, "call_soon_threadsafe", note_wake)
            activity.note()
            await event.wait()
            assert woken == []
            event = activity.next()
            thread = threading.Thread(target=activity.note)
            thread.start()
            await event.wait()
            assert woken == [thread.ident]
        monkeypatch.undo()

    asyncio.run(check())


class Slicing(Counting):
    """An engine whose large request lasts until `slices` are over, and notes who is in it."""

    def __init__(self, slices: int) -> None:
        super().__init__()
        self.slices = slices
        self.log: list[str] = []
        self.is_inside = False

    def weight(self, request: Write) -> int:
        return {"large": LARGE_BYTES, "heavy": HEAVY_BYTES}.get(request.authorship.actor, 0)

    def carry_out(self, requests: Sequence[Write]) -> list[Result]:
        assert not self.is_inside, "two are in the engine"
        self.is_inside = True
        self.log += [request.authorship.actor for request in requests]
        self.is_inside = False
        return [Outcome(()) for _ in requests]

    def run_large(self, _request: Write, yield_turn: Callable[[], None]) -> list[Result]:
        for _ in range(self.slices):
            assert not self.is_inside, "two are in the engine"
            self.is_inside = True
            self.log.append("slice")
            time.sleep(2 * LARGE_SLICE_SECONDS)  # the slice is over
            self.is_inside = False
            yield_turn()
        self.log.append("large")
        return [Outcome(())]


async def answered(*requests: Asked) -> None:
    while not all(request.answers for request in requests):  # noqa: ASYNC110  # rounds of the loop count
        await asyncio.sleep(0)


def sliced(check: Callable[[EngineQueue, Slicing], Any], slices: int = 4) -> Slicing:
    engine = Slicing(slices)

    async def run() -> None:
        queue = EngineQueue(cast("Engine", engine), cast("Any", None), cast("Any", None), cast("Any", None))
        await check(queue, engine)
        assert len(queue) == 0

    asyncio.run(asyncio.wait_for(run(), 30))
    return engine


def submit_as(queue: EngineQueue, actor: str) -> Asked:
    asked = Asked()
    queue.submit(Apply((), Authorship(actor), "r"), lambda _: Empty()).call = cast("MethodCall", asked)
    return asked


def test_others_are_served_after_each_slice_of_a_large_request() -> None:
    async def check(queue: EngineQueue, engine: Slicing) -> None:
        large = submit_as(queue, "large")
        for number in range(3):
            small = submit_as(queue, f"small {number}")
            await answered(small)
            assert len(queue) == 1
        await answered(large)

    log = sliced(check).log
    assert log[-1] == "large"
    assert [name for name in log if name.startswith("small")] == ["small 0", "small 1", "small 2"]
    assert log.index("small 0") < 3


def test_a_request_in_the_turn_of_a_large_one_is_served_after_its_first_slice() -> None:
    async def check(queue: EngineQueue, engine: Slicing) -> None:
        requests = [submit_as(queue, actor) for actor in ("large", "small", "smaller")]
        await answered(*requests)

    assert sliced(check).log == ["slice", "small", "smaller", "slice", "slice", "slice", "large"]


def test_a_heavy_request_and_other_work_get_in_between_two_slices_too() -> None:
    async def check(queue: EngineQueue, engine: Slicing) -> None:
        large, heavy = submit_as(queue, "large"), submit_as(queue, "heavy")
        await asyncio.sleep(0)
        await queue.run(lambda: engine.log.append("work"))
        await queue.run_in_thread(lambda: engine.log.append("work in a thread"))
        await answered(heavy)
        assert not large.answers
        await answered(large)

    assert set(sliced(check, slices=12).log) == {"slice", "heavy", "work", "work in a thread", "large"}


def test_long_work_counts_when_it_ends_so_that_its_memory_is_given_back_after_it() -> None:
    async def check(queue: EngineQueue, engine: Slicing) -> None:
        large = submit_as(queue, "large")
        await answered(submit_as(queue, "small"))
        assert not large.answers
        assert queue.long_works == 0
        await answered(large)
        assert queue.long_works == 1

    sliced(check, slices=3)


def test_a_large_request_goes_on_while_nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    rests: list[None] = []

    async def check(queue: EngineQueue, engine: Slicing) -> None:
        monkeypatch.setattr(queue, "_rest", lambda: rests.append(None))
        await answered(submit_as(queue, "large"))

    sliced(check)
    assert rests == []


def test_a_second_large_request_waits_for_the_first_and_others_do_not() -> None:
    async def check(queue: EngineQueue, engine: Slicing) -> None:
        first, second, small = (submit_as(queue, actor) for actor in ("large", "large", "small"))
        await answered(small)
        assert not first.answers
        assert len(queue) == 2
        await answered(first)
        assert not second.answers
        await answered(second)

    assert sliced(check, slices=2).log == ["slice", "small", "slice", "large", "slice", "slice", "large"]


def test_a_turn_of_many_requests_that_are_large_together_answers_each() -> None:
    async def check(queue: EngineQueue, engine: Slicing) -> None:
        await answered(*[submit_as(queue, "heavy") for _ in range(8)])

    assert sliced(check).log == ["heavy"] * 8
