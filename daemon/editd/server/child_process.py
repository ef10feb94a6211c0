"""A child process that answers framed requests (`system.frames`) over its standard input and output.

Exec'ed, never forked: a forked child would keep the daemon's flock. It runs in a session of its own,
so that an interrupt at the terminal reaches the daemon alone, and it ends when its input closes, be
that by `close` or by the daemon's death. What it writes to its standard error goes to the log.

Whether a child that died is started again is its owner's decision.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
from typing import TYPE_CHECKING, cast

from editd.system import frames

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

log = logging.getLogger(__name__)

PYTHON = (sys.executable, "-P", "-m")  # -P: nothing is imported from the current folder, be it a workspace
CLOSE_SECONDS = 5.0  # a pack that is being written takes less; what is cut off is done again
LINE_BYTES_MAX = 64 * 1024  # of a child's complaints; a longer one is logged in pieces
_INPUT, _OUTPUT = 0, 1


class ChildProcess:
    """One process. `on_frame` gets each frame it sends; `on_death` its exit status, if nobody closed it."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        on_frame: Callable[[frames.Frame], None],
        on_death: Callable[[int], None],
        nice: int = 0,
    ) -> None:
        self._argv = argv
        self._nice = nice
        self._on_frame = on_frame
        self._on_death = on_death
        self._transport: asyncio.SubprocessTransport | None = None
        self._ended: asyncio.Future[None] | None = None
        self._closing = False

    async def start(self) -> None:
        """Start it; raises OSError where that fails. A Child is started once."""
        loop = asyncio.get_running_loop()
        self._ended = loop.create_future()
        await loop.subprocess_exec(lambda: _Pipes(self), *self._argv, start_new_session=True)
        if self._nice:
            _be_nice(self.pid, self._nice)

    @property
    def pid(self) -> int:
        assert self._transport is not None, "not started"
        return self._transport.get_pid()

    def send(self, frame: frames.Frame) -> None:
        """Send one frame. To a child that has ended it is not sent: `on_death` tells its owner."""
        assert self._transport is not None, "not started"
        stream = cast("asyncio.WriteTransport | None", self._transport.get_pipe_transport(_INPUT))
        if stream is not None and not stream.is_closing():
            stream.write(frames.pack(frame))

    async def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Close its input, give it `seconds` to end, then kill it. Returns when it is gone.

        From here on nothing more is heard of it, neither frames nor its death.
        """
        if self._transport is None or self._ended is None:
            return
        self._closing = True
        stream = self._transport.get_pipe_transport(_INPUT)
        if stream is not None:
            stream.close()
        try:
            async with asyncio.timeout(seconds):
                await asyncio.shield(self._ended)
        except TimeoutError:
            log.warning("%s did not end within %s s and is killed", self._name, seconds)
            self._transport.close()  # which kills, and hangs up on what it has left behind, too
            await self._ended

    def kill(self) -> None:
        """End it at once; `on_death` tells when it is gone."""
        if self._transport is not None:
            with contextlib.suppress(ProcessLookupError):
                self._transport.kill()

    @property
    def _name(self) -> str:
        return " ".join(self._argv[2:4])

    def _heard(self, frame: frames.Frame) -> None:
        if not self._closing:
            self._on_frame(frame)

    def _garbled(self, reason: ValueError) -> None:
        log.error("%s is killed: it sent %s", self._name, reason)
        self.kill()

    def _complained(self, line: bytes) -> None:
        log.warning("%s: %s", self._name, line.decode("utf-8", "backslashreplace"))

    def _gone(self) -> None:
        assert self._transport is not None
        assert self._ended is not None
        status = self._transport.get_returncode()
        self._transport.close()
        self._ended.set_result(None)
        if not self._closing:
            self._on_death(-1 if status is None else status)


@contextlib.asynccontextmanager
async def answering(
    argv: Sequence[str], request: frames.Frame, *, nice: int = 0
) -> AsyncIterator[tuple[ChildProcess, asyncio.Future[frames.Frame | None]]]:
    """A process for one request, and what it will answer: None where it died first. At the end it is closed.

    Raises OSError where it cannot be started.
    """
    answer: asyncio.Future[frames.Frame | None] = asyncio.get_running_loop().create_future()

    def heard(said: frames.Frame | None) -> None:
        if not answer.done():
            answer.set_result(said)

    child = ChildProcess(argv, nice=nice, on_frame=heard, on_death=lambda _: heard(None))
    await child.start()
    try:
        child.send(request)
        yield child, answer
    finally:
        await child.close()


class _Pipes(asyncio.SubprocessProtocol):
    """What comes out of the child, put together to frames and lines."""

    def __init__(self, child: ChildProcess) -> None:
        self._child = child
        self._buffer = bytearray()
        self._complaint = b""  # a line that has no end yet

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It runs. What it sends may be here before `subprocess_exec` returns, and be a reason to kill it."""
        self._child._transport = cast("asyncio.SubprocessTransport", transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd != _OUTPUT:
            self._complain(self._complaint + data)
            return
        self._buffer += data
        try:
            while (frame := self._next()) is not None:
                self._child._heard(frame)
        except ValueError as error:
            self._buffer.clear()
            self._child._garbled(error)

    def connection_lost(self, exc: Exception | None) -> None:
        """The process has ended and all that it wrote has been read."""
        if self._complaint:
            self._child._complained(self._complaint)
        self._child._gone()

    def _complain(self, said: bytes) -> None:
        *lines, self._complaint = said.split(b"\n")
        if len(self._complaint) > LINE_BYTES_MAX:
            lines, self._complaint = [*lines, self._complaint], b""
        for line in lines:
            self._child._complained(line)

    def _next(self) -> frames.Frame | None:
        if len(self._buffer) < frames.HEADER_BYTES:
            return None
        end = frames.HEADER_BYTES + frames.body_bytes(bytes(self._buffer[: frames.HEADER_BYTES]))
        if len(self._buffer) < end:
            return None
        body = bytes(self._buffer[frames.HEADER_BYTES : end])
        del self._buffer[:end]
        return frames.unpack(body)


def _be_nice(pid: int, nice: int) -> None:
    """From out here, for code that runs between fork and exec could block on a lock of the parent."""
    try:
        os.setpriority(os.PRIO_PROCESS, pid, nice)
    except (ProcessLookupError, PermissionError) as error:
        log.debug("no nice for %s: %s", pid, error)
