"""The warm process that runs regular expressions, one at a time, each within its time limit.

Searches wait in a queue, and the limit runs from when a search is sent. As a rule the process stops a search
by itself (`engine.regex_worker`). If it does not, it is killed, the caller is answered at once, and another
is started meanwhile. None of this holds up the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from editd.engine.regex_worker import SECONDS, matches_of, out_of_time, request_of, too_large
from editd.errors import InvalidRegex, Overloaded, Refused, ShuttingDown
from editd.server.child_process import PYTHON, ChildProcess, IdleTimer

if TYPE_CHECKING:
    from editd.edits.search import Match, Search
    from editd.system.frames import Frame

log = logging.getLogger(__name__)

GRACE_SECONDS = 0.05  # within which the process reports that it has stopped by itself
START_SECONDS = 30.0  # it takes a tenth of a second, but many on a machine that is out of memory
CLOSE_SECONDS = 1.0


class RegexPool:
    """The searches of any number of callers, in a process that the first of them starts."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self.seconds = seconds
        self._line = asyncio.Lock()  # it is fair: first come, first served
        self._launch: asyncio.Task[_Process | None] | None = None
        self._closing = False
        self._idle = IdleTimer(self._end_idle)

    async def find(self, search: Search) -> tuple[Match, ...] | Refused:
        """Return the matches, or a refusal: InvalidRegex, Timeout, TooLarge, Overloaded …"""
        async with self._line:
            self._idle.stop()
            try:
                return await self._found(search)
            finally:
                if not self._closing:
                    self._idle.restart()

    async def _found(self, search: Search) -> tuple[Match, ...] | Refused:
        if self._closing:
            return ShuttingDown("The daemon is shutting down.", hint="Nothing was changed.")
        try:
            return await self._answered(search)
        except _Died as died:
            if self._closing:
                return died
            log.warning("retrying a search: the process may have been dead before it")
        try:
            return await self._answered(search)
        except _Died as died:
            return died

    async def _answered(self, search: Search) -> tuple[Match, ...] | Refused:
        """Run the search in a warm process; raises _Died."""
        process = await self._warm()
        if process is None:
            return Overloaded(
                "The process for regular expressions does not start.",
                hint="Retry. See the daemon's log for the reason.",
            )
        try:
            return await self._answer(process, search)
        finally:
            if (process.is_busy or process.is_dead) and not self._closing:
                process.kill()  # Its late answer would be taken for that of another search.
                self._launch = asyncio.create_task(_launched())

    async def close(self) -> None:
        """End the process, with any search in it."""
        self._closing = True
        self._idle.stop()
        await self._end_process()

    async def _end_idle(self) -> None:
        async with self._line:  # no search is under way
            await self._end_process()

    async def _end_process(self) -> None:
        if self._launch is not None:
            launch, self._launch = self._launch, None
            process = await launch
            if process is not None:
                await process.close()

    async def _warm(self) -> _Process | None:
        """Return the process, started again if it is dead; None if it does not start."""
        return await asyncio.shield(self._start())

    def _start(self) -> asyncio.Task[_Process | None]:
        known = self._launch.result() if self._launch is not None and self._launch.done() else None
        if self._launch is None or (self._launch.done() and (known is None or known.is_dead)):
            self._launch = asyncio.create_task(_launched())
        return self._launch

    async def _answer(self, process: _Process, search: Search) -> tuple[Match, ...] | Refused:
        try:
            async with asyncio.timeout(self.seconds + GRACE_SECONDS):
                return await process.find(search, self.seconds)
        except TimeoutError:
            return out_of_time(search.pattern, self.seconds)
        except _Died:
            raise
        except Refused as refusal:
            return refusal


class _Died(InvalidRegex):
    """The process ended in the middle of a search."""


async def _launched() -> _Process | None:
    process = _Process()
    try:
        async with asyncio.timeout(START_SECONDS):
            await process.start()
    except (OSError, Refused) as error:  # TimeoutError is an OSError
        log.error("the process for regular expressions does not start: %r", error)
        process.kill()
        return None
    return process


class _Process:
    """One process, from its start to its death."""

    def __init__(self) -> None:
        self._child = ChildProcess(
            [*PYTHON, "editd.engine.regex_worker"], on_frame=self._heard, on_death=self._died
        )  # fmt: skip
        self._warm: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._answer: asyncio.Future[tuple[Match, ...]] | None = None
        self._matches: list[Match] = []
        self._pattern = ""
        self.is_busy = False  # a search was sent, and has no final answer yet
        self.is_dead = False

    async def start(self) -> None:
        """Return when it is warm. Raises OSError, or Refused if it dies before."""
        await self._child.start()
        await self._warm

    async def find(self, search: Search, seconds: float) -> tuple[Match, ...]:
        """Return the matches. Raises the process's refusal, or InvalidRegex if it dies."""
        try:
            self._child.send(request_of(search, seconds))
        except ValueError as error:  # UnicodeEncodeError is one
            raise too_large(f"a message that cannot be sent: {error}") from None
        self.is_busy = True
        self._pattern, self._matches = search.pattern, []
        self._answer = asyncio.get_running_loop().create_future()
        if self.is_dead:
            self._fail()
        return await self._answer

    def kill(self) -> None:
        self._child.kill()

    async def close(self) -> None:
        """End it, at once if it is in a search."""
        self.is_dead = True
        if self.is_busy:
            self._fail()
            self.kill()
        await self._child.close(CLOSE_SECONDS)

    def _heard(self, frame: Frame) -> None:
        if "ready" in frame:
            if not self._warm.done():
                self._warm.set_result(None)
            return
        try:
            self._matches += matches_of(frame)
        except Refused as refusal:
            self._settle(refusal)
        else:
            if "done" in frame:
                self._settle(None)

    def _settle(self, refusal: Refused | None) -> None:
        self.is_busy = False
        if self._answer is None or self._answer.done():
            return
        if refusal is None:
            self._answer.set_result(tuple(self._matches))
        else:
            self._answer.set_exception(refusal)

    def _died(self, status: int) -> None:
        self.is_dead = True
        if self.is_busy:
            log.error("the process for regular expressions ended with status %s", status)
        self._fail()

    def _fail(self) -> None:
        died = _Died(
            "The process for regular expressions died on this one.",
            hint="Nothing was changed. Make the expression simpler, or replace plain text.",
            data={"position": None, "pattern": self._pattern[:500]},
        )
        if not self._warm.done():
            self._warm.set_exception(died)
        self._settle(died)
