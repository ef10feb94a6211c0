"""The warm process that runs regular expressions or comparisons, one at a time, each within its time limit.

Jobs wait in a queue, and the limit runs from when a job is sent. As a rule the process stops a job by
itself (`engine.regex_worker`). If it does not, as in libgit2, it is killed, the caller is answered at once,
and another is started meanwhile. None of this holds up the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from editd.edits.comparison import decode_result
from editd.engine.regex_worker import (
    COMPARISON_BYTES_MAX,
    comparison_out_of_time,
    comparison_request,
    comparison_result,
    comparison_too_large,
    matches_of,
    request_of,
)
from editd.engine.search_refusals import out_of_time, too_large
from editd.engine.text_search import SECONDS
from editd.errors import InvalidRegex, Overloaded, Refused, ShuttingDown
from editd.server.child_process import PYTHON, ChildProcess, IdleTimer

if TYPE_CHECKING:
    from editd.edits.comparison import Comparison
    from editd.edits.search import Match, Search
    from editd.system.frames import Frame

log = logging.getLogger(__name__)

GRACE_SECONDS = 0.05  # for the process to report that it has stopped
START_SECONDS = 30.0  # it takes a tenth of a second, but many on a machine that is out of memory
CLOSE_SECONDS = 1.0


class _SearchJob(Struct):
    """A search, and the matches so far."""

    search: Search
    seconds: float
    matches: list[Match] = field(default_factory=list)

    def request(self) -> Frame:
        self.matches = []  # of a process that has died
        return request_of(self.search, self.seconds)

    def take(self, answer: Frame) -> None:
        """Take one frame of the answer. Raises the process's refusal."""
        self.matches += matches_of(answer)

    @property
    def result(self) -> tuple[Match, ...]:
        return tuple(self.matches)

    def late(self) -> Refused:
        return out_of_time(self.search, self.seconds)

    def unsendable(self, error: ValueError) -> Refused:
        return too_large(f"a message that cannot be sent: {error}")

    def died(self) -> Refused:
        return InvalidRegex(
            "The process for regular expressions died on this one.",
            hint="Nothing was changed. Make the expression simpler, or replace plain text.",
            data={"position": None, "pattern": self.search.pattern[:500]},
        )


class _ComparisonJob(Struct):
    """A comparison, and its result."""

    comparison: Comparison
    seconds: float
    result: Any = None

    def request(self) -> Frame:
        return comparison_request(self.comparison, self.seconds)

    def take(self, answer: Frame) -> None:
        """Take one frame of the answer. Raises the process's refusal."""
        if "done" not in answer:
            self.result = decode_result(self.comparison, comparison_result(answer))

    def late(self) -> Refused:
        return comparison_out_of_time(self.seconds)

    def unsendable(self, error: ValueError) -> Refused:
        return comparison_too_large(f"a message that cannot be sent: {error}")

    def died(self) -> Refused:
        return comparison_too_large("more memory than its process may have")


_Job = _SearchJob | _ComparisonJob


class RegexPool:
    """The jobs of any number of callers, in a process that the first of them starts."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self.seconds = seconds
        self._line = asyncio.Lock()  # it is fair: first come, first served
        self._launch: asyncio.Task[_RegexProcess | None] | None = None
        self._closing = False
        self._idle = IdleTimer(self._end_idle)

    async def find(self, search: Search) -> tuple[Match, ...] | Refused:
        """Return the matches, or a refusal: InvalidRegex, Timeout, TooLarge, Overloaded …"""
        job = _SearchJob(search, self.seconds)
        return await self._in_line(job) or job.result

    async def compare(self, comparison: Comparison) -> Any:
        """Return the result of a comparison, or a refusal: Timeout, TooLarge, Overloaded …"""
        if comparison.bytes > COMPARISON_BYTES_MAX:
            return comparison_too_large(f"more than {COMPARISON_BYTES_MAX >> 20} MiB of text")
        job = _ComparisonJob(comparison, self.seconds)
        refusal = await self._in_line(job)
        return job.result if refusal is None else refusal

    async def _in_line(self, job: _Job) -> Refused | None:
        """Carry out a job in its turn. Return its refusal, or None if it has a result."""
        async with self._line:
            self._idle.stop()
            try:
                return await self._finish(job)
            finally:
                if not self._closing:
                    self._idle.restart()

    async def _finish(self, job: _Job) -> Refused | None:
        if self._closing:
            return ShuttingDown("The daemon is shutting down.", hint="Nothing was changed.")
        try:
            return await self._answered(job)
        except _Died:
            if self._closing:
                return job.died()
            log.warning("retrying a job: the process may have been dead before it")
        try:
            return await self._answered(job)
        except _Died:
            return job.died()

    async def _answered(self, job: _Job) -> Refused | None:
        """Run the job in a warm process; raises _Died."""
        process = await self._warm()
        if process is None:
            return Overloaded(
                "The process for regular expressions and comparisons does not start.",
                hint="Retry. See the daemon's log for the reason.",
            )
        try:
            return await self._answer(process, job)
        finally:
            if (process.is_busy or process.is_dead) and not self._closing:
                process.kill()  # Its late answer would be taken for another job's.
                self._launch = asyncio.create_task(_launched())

    async def close(self) -> None:
        """End the process, with any job in it."""
        self._closing = True
        self._idle.stop()
        await self._end_process()

    async def _end_idle(self) -> None:
        async with self._line:  # no job is under way
            await self._end_process()

    async def _end_process(self) -> None:
        if self._launch is not None:
            launch, self._launch = self._launch, None
            process = await launch
            if process is not None:
                await process.close()

    async def _warm(self) -> _RegexProcess | None:
        """Return the process, started again if it is dead; None if it does not start."""
        return await asyncio.shield(self._start())

    def _start(self) -> asyncio.Task[_RegexProcess | None]:
        known = self._launch.result() if self._launch is not None and self._launch.done() else None
        if self._launch is None or (self._launch.done() and (known is None or known.is_dead)):
            self._launch = asyncio.create_task(_launched())
        return self._launch

    async def _answer(self, process: _RegexProcess, job: _Job) -> Refused | None:
        try:
            async with asyncio.timeout(job.seconds + GRACE_SECONDS):
                await process.run(job)
        except TimeoutError:
            return job.late()
        except Refused as refusal:
            return refusal
        return None


class _Died(Exception):
    """The process ended in the middle of a job, or before it was warm."""


async def _launched() -> _RegexProcess | None:
    process = _RegexProcess()
    try:
        async with asyncio.timeout(START_SECONDS):
            await process.start()
    except (OSError, _Died) as error:  # TimeoutError is an OSError
        log.error("the process for regular expressions does not start: %r", error)
        process.kill()
        return None
    return process


class _RegexProcess:
    """One process, from its start to its death."""

    def __init__(self) -> None:
        self._child = ChildProcess(
            [*PYTHON, "editd.engine.regex_worker"], on_frame=self._on_frame, on_death=self._died
        )  # fmt: skip
        self._warm: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._answer: asyncio.Future[None] | None = None
        self._job: _Job | None = None
        self.is_busy = False  # a job was sent, and has no final answer yet
        self.is_dead = False

    async def start(self) -> None:
        """Return when it is warm. Raises OSError, or _Died if it dies before."""
        await self._child.start()
        await self._warm

    async def run(self, job: _Job) -> None:
        """Have a job done, which gets the result. Raises the process's refusal, or _Died."""
        self.is_busy = True
        self._job = job
        self._answer = asyncio.get_running_loop().create_future()
        try:
            await self._child.send_in_parts(job.request())
        except ValueError as error:  # UnicodeEncodeError is one
            self.is_busy = False
            raise job.unsendable(error) from None
        except asyncio.CancelledError:
            self._answer.cancel()
            raise
        if self.is_dead:
            self._fail()
        await self._answer

    def kill(self) -> None:
        self._child.kill()

    async def close(self) -> None:
        """End it, at once if it is in a job."""
        self.is_dead = True
        if self.is_busy:
            self._fail()
            self.kill()
        await self._child.close(CLOSE_SECONDS)

    def _on_frame(self, frame: Frame) -> None:
        if "ready" in frame:
            if not self._warm.done():
                self._warm.set_result(None)
            return
        if self._job is None:
            return
        try:
            self._job.take(frame)
        except Refused as refusal:
            self._settle(refusal)
        else:
            if "done" in frame:
                self._settle(None)

    def _settle(self, failure: Exception | None) -> None:
        self.is_busy = False
        if self._answer is None or self._answer.done():
            return
        if failure is None:
            self._answer.set_result(None)
        else:
            self._answer.set_exception(failure)

    def _died(self, status: int) -> None:
        self.is_dead = True
        if self.is_busy:
            log.error("the process for regular expressions ended with status %s", status)
        self._fail()

    def _fail(self) -> None:
        if not self._warm.done():
            self._warm.set_exception(_Died())
        self._settle(_Died())
