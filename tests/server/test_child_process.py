"""server.child_process: processes that answer framed requests."""

from __future__ import annotations

import asyncio
import logging
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from editd.server import child_process
from editd.server.child_process import ChildProcess, RequestProcess
from support.crash_checks import wait_until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from editd.system import frames

ECHO = """
import sys
from editd.system import frames
while (frame := frames.read_frame(sys.stdin.buffer)) is not None:
    frames.write_frame(sys.stdout.buffer, {"heard": frame})
"""


class Owner:
    """Whoever has a child: what it heard of it."""

    def __init__(self, program: str, *, nice: int = 0) -> None:
        self.frames: asyncio.Queue[frames.Frame] = asyncio.Queue()
        self.death: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        argv = [sys.executable, "-c", program]
        self.child = ChildProcess(
            argv, on_frame=self.frames.put_nowait, on_death=self.death.set_result, nice=nice
        )


def children() -> set[str]:
    """Return the processes that this one has started and not collected yet."""
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(20):
            await test()

    asyncio.run(limited())


def test_what_is_sent_is_answered_in_order_however_large() -> None:
    async def test() -> None:
        owner = Owner(ECHO)
        await owner.child.start()
        frames: list[Any] = [{"n": 1}, {"path": "\udcff", "content": b"\xff" * 3_000_000}, {}]
        for frame in frames:
            owner.child.send(frame)
        assert [await owner.frames.get() for _ in frames] == [{"heard": frame} for frame in frames]
        for frame in frames:
            await owner.child.send_in_parts(frame)
        assert [await owner.frames.get() for _ in frames] == [{"heard": frame} for frame in frames]
        await owner.child.close()
        assert not owner.death.done()
        with pytest.raises(ProcessLookupError):
            os.kill(owner.child.pid, 0)

    run(test)


def test_a_death_is_told_with_its_status_after_the_last_frame_and_sending_then_does_nothing() -> None:
    async def test() -> None:
        owner = Owner(ECHO + "\nimport os; os._exit(7)")
        await owner.child.start()
        owner.child.send({"last": True})
        await owner.frames.get()
        os.kill(owner.child.pid, signal.SIGKILL)
        assert await owner.death == -signal.SIGKILL
        owner.child.send({"too": "late"})
        await owner.child.close()

        leaving = Owner(
            "import sys; from editd.system import frames;"
            "frames.write_frame(sys.stdout.buffer, {}); sys.exit(7)"
        )
        await leaving.child.start()
        assert await leaving.death == 7
        assert leaving.frames.get_nowait() == {}

    run(test)


def test_the_death_of_a_child_that_does_not_read_wakes_its_sender() -> None:
    async def test() -> None:
        owner = Owner("import time; time.sleep(60)")
        await owner.child.start()
        sending = asyncio.create_task(owner.child.send_in_parts({"content": b"x" * 30_000_000}))
        await asyncio.sleep(0)
        assert not sending.done()
        owner.child.kill()
        await sending
        await owner.death

    run(test)


def test_a_child_that_does_not_end_is_killed_and_what_it_left_behind_holds_nobody_up() -> None:
    async def test() -> None:
        for stubborn in (
            "import time; time.sleep(60)",
            "import subprocess; subprocess.Popen(['sleep', '3'])",
        ):
            owner = Owner(stubborn)
            await owner.child.start()
            await owner.child.close(0.1)
            assert not owner.death.done()

    run(test)


def test_one_that_is_killed_ends_whatever_it_does_and_its_death_is_told() -> None:
    async def test() -> None:
        owner = Owner("import time; time.sleep(60)")
        owner.child.kill()  # before its start: nothing to kill
        await owner.child.start()
        owner.child.kill()
        assert await owner.death == -signal.SIGKILL
        owner.child.kill()

    run(test)


def test_a_child_that_sends_no_frames_is_killed(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        owner = Owner("print('Traceback or some such', flush=True); input()")
        await owner.child.start()
        assert await owner.death == -signal.SIGKILL

    run(test)
    assert "over the limit" in caplog.text


def test_a_child_that_sends_no_frames_before_it_is_known_to_run_is_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test() -> None:
        loop = asyncio.get_running_loop()
        start = loop.subprocess_exec

        async def slowly(*given: Any, **more: Any) -> Any:
            started = await start(*given, **more)
            await asyncio.sleep(0.5)  # as on a machine with much else to do
            return started

        monkeypatch.setattr(loop, "subprocess_exec", slowly)
        owner = Owner("print('Traceback or some such', flush=True); input()")
        await owner.child.start()
        assert await owner.death == -signal.SIGKILL

    run(test)


def test_what_it_complains_of_goes_to_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        owner = Owner("import os; os.write(2, b'o'); os.write(2, b'h\\nno\\nn'); os.write(2, b'ever')")
        await owner.child.start()
        assert await owner.death == 0

    with caplog.at_level(logging.WARNING):
        run(test)
    assert [record.getMessage().rpartition(": ")[2] for record in caplog.records] == ["oh", "no", "never"]


def test_it_is_as_nice_as_it_should_be_and_has_a_session_of_its_own() -> None:
    async def test() -> None:
        owner = Owner(ECHO, nice=7)
        await owner.child.start()
        assert os.getpriority(os.PRIO_PROCESS, owner.child.pid) == 7
        assert os.getsid(owner.child.pid) == owner.child.pid
        await owner.child.close()

    run(test)


def test_a_program_that_is_not_there_is_an_error_at_the_start() -> None:
    async def test() -> None:
        child = ChildProcess(["/nowhere/at/all"], on_frame=print, on_death=print)
        with pytest.raises(FileNotFoundError):
            await child.start()
        await child.close()

    run(test)


def test_it_ends_when_the_daemon_is_killed() -> None:
    program = f"""
import asyncio, sys
from editd.server.child_process import ChildProcess, RequestProcess
async def main():
    child = ChildProcess([sys.executable, "-c", {ECHO!r}], on_frame=print, on_death=print)
    await child.start()
    print(child.pid, flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as daemon:
        assert daemon.stdout is not None
        pid = int(daemon.stdout.readline())
        child = os.pidfd_open(pid)
        daemon.kill()
    ended = select.poll()  # not select(2), which takes no descriptor beyond 1023
    ended.register(child, select.POLLIN)
    assert ended.poll(10_000)
    os.close(child)


def test_a_process_for_requests_is_started_again_after_its_death() -> None:
    async def test() -> None:
        process = RequestProcess([sys.executable, "-c", ECHO])
        assert await process.ask({"n": 1}) == {"heard": {"n": 1}}
        process.kill()
        assert await process.ask({"n": 2}) is None
        assert await process.ask({"n": 3}) == {"heard": {"n": 3}}
        await process.close()

    run(test)


def test_a_request_under_way_gets_no_answer_when_its_process_is_closed() -> None:
    async def test() -> None:
        process = RequestProcess([sys.executable, "-c", "import sys; sys.stdin.buffer.read()"])
        for closed_early in (True, False):
            asked = asyncio.create_task(process.ask({"n": 1}))
            await asyncio.sleep(0 if closed_early else 0.2)
            await process.close()
            assert await asked is None

    run(test)


def test_a_process_without_a_request_ends_and_the_next_request_starts_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(child_process, "IDLE_SECONDS", 0.2)

    async def test() -> None:
        others = children()
        process = RequestProcess([sys.executable, "-c", ECHO])
        assert await process.ask({"n": 1}) == {"heard": {"n": 1}}
        await asyncio.sleep(0.1)
        assert await process.ask({"n": 2}) == {"heard": {"n": 2}}
        assert len(children() - others) == 1
        await asyncio.to_thread(wait_until, lambda: children() == others, "it does not end")
        assert await process.ask({"n": 3}) == {"heard": {"n": 3}}
        await process.close()

    run(test)
