"""A child process that answers framed requests (`system.frames`) over its standard input and output.

Exec'ed, never forked, because a forked child would keep the daemon's flock. It runs in its own session,
so that an interrupt at the terminal reaches the daemon alone. It ends when its input closes: by `close`, or
by the daemon's death. Its standard error goes to the log.

The owner of a child decides whether to start it again after its death.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from editd.system import frames

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

log = logging.getLogger(__name__)

PYTHON = (sys.executable, "-P", "-m")  # -P: import nothing from the current folder, which may be a workspace
IDLE_SECONDS = 30.0  # without work, after which a process that another request would use is ended
CLOSE_SECONDS = 5.0  # writing a pack takes less; interrupted work is done again
LINE_BYTES_MAX = 64 * 1024  # of a child's standard error; a longer line is logged in pieces
NO_VARIABLES: Mapping[str, str] = MappingProxyType({})
_INPUT, _OUTPUT = 0, 1


class ChildProcess:
    """One process. `on_frame` gets each frame, `on_death` the exit status unless `close` ended it."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        on_frame: Callable[[frames.Frame], None],
        on_death: Callable[[int], None],
        nice: int = 0,
        variables: Mapping[str, str] = NO_VARIABLES,
    ) -> None:
        self._argv = argv
        self._nice = nice
        self._variables = variables
        self._on_frame = on_frame
        self._on_death = on_death
        self._transport: asyncio.SubprocessTransport | None = None
        self._ended: asyncio.Future[None] | None = None
        self._closing = False
        self._has_room = asyncio.Event()  # in the buffer of its input
        self._has_room.set()

    async def start(self) -> None:
        """Start it, once. Raises OSError if that fails."""
        loop = asyncio.get_running_loop()
        self._ended = loop.create_future()
        await loop.subprocess_exec(
            lambda: _Pipes(self), *self._argv, start_new_session=True, env={**os.environ, **self._variables}
        )
        if self._nice:
            _be_nice(self.pid, self._nice)

    @property
    def pid(self) -> int:
        assert self._transport is not None, "not started"
        return self._transport.get_pid()

    def send(self, frame: frames.Frame) -> None:
        """Send one frame. A child that has ended gets nothing: its owner learns of that by `on_death`."""
        assert self._transport is not None, "not started"
        stream = cast("asyncio.WriteTransport | None", self._transport.get_pipe_transport(_INPUT))
        if stream is not None and not stream.is_closing():
            stream.write(frames.pack_frame(frame))

    async def send_in_parts(self, frame: frames.Frame) -> None:
        """Send a frame as `send` does, each part after the child has read the one before.

        If the caller is cancelled, the child cannot read another frame, and the caller kills it.
        """
        assert self._transport is not None, "not started"
        stream = cast("asyncio.WriteTransport | None", self._transport.get_pipe_transport(_INPUT))
        for part in frames.frame_parts(frame):
            await self._has_room.wait()
            if stream is None or stream.is_closing():
                return
            stream.write(part)

    async def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Close its input, wait `seconds` for its end, then kill it. Returns when it has ended.

        A stopped child goes on, because only it can end the processes that it has started.
        From here on, neither `on_frame` nor `on_death` is called.
        """
        if self._transport is None or self._ended is None:
            return
        self._closing = True
        stream = self._transport.get_pipe_transport(_INPUT)
        if stream is not None:
            stream.close()
        with contextlib.suppress(ProcessLookupError):
            self._transport.send_signal(signal.SIGCONT)
        try:
            async with asyncio.timeout(seconds):
                await asyncio.shield(self._ended)
        except TimeoutError:
            log.warning("%s did not end within %s s and is killed", self._name, seconds)
            self._transport.close()  # kills it, and closes the pipes that its own children still hold
            await self._ended

    def kill(self) -> None:
        """Kill it at once; `on_death` follows when it has ended."""
        if self._transport is not None:
            with contextlib.suppress(ProcessLookupError):
                self._transport.kill()

    @property
    def _name(self) -> str:
        return " ".join(self._argv[2:4])

    def _heard(self, frame: frames.Frame) -> None:
        if not self._closing:
            self._on_frame(frame)

    def _on_garbage(self, reason: ValueError) -> None:
        log.error("%s is killed: it sent %s", self._name, reason)
        self.kill()

    def _on_complaint(self, line: bytes) -> None:
        log.warning("%s: %s", self._name, line.decode("utf-8", "backslashreplace"))

    def _on_end(self) -> None:
        assert self._transport is not None
        assert self._ended is not None
        status = self._transport.get_returncode()
        self._transport.close()
        self._ended.set_result(None)
        if not self._closing:
            self._on_death(-1 if status is None else status)


class IdleTimer:
    """Runs `end` once nothing has been done for IDLE_SECONDS."""

    def __init__(self, end: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._end = end
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None  # of the last end: the loop has only a weak reference

    def restart(self) -> None:
        """Begin to wait: the work is done."""
        self.stop()
        self._timer = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._fire)

    def stop(self) -> None:
        """Wait no more: there is work, or it is over."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fire(self) -> None:
        self._timer = None
        self._task = asyncio.get_running_loop().create_task(self._end())


class RequestProcess:
    """A process that answers one request at a time.

    A request starts it, unless it runs already. It ends when there was none for IDLE_SECONDS.
    """

    def __init__(
        self, argv: Sequence[str], *, nice: int = 0, variables: Mapping[str, str] = NO_VARIABLES
    ) -> None:
        """`variables` are added to the daemon's environment, before the process imports anything."""
        self._argv = argv
        self._nice = nice
        self._variables = variables
        self._child: ChildProcess | None = None
        self._answer: asyncio.Future[frames.Frame | None] | None = None
        self._idle = IdleTimer(self.close)

    async def start(self) -> None:
        """Start it, unless it runs already. Raises OSError."""
        if self._child is not None:
            return
        child = ChildProcess(
            self._argv,
            nice=self._nice,
            variables=self._variables,
            on_frame=self._heard,
            on_death=self._died,
        )
        self._child = child
        try:
            await child.start()
        except OSError:
            self._child = None
            raise
        if self._child is not child:  # closed meanwhile
            await child.close()

    async def ask(self, request: frames.Frame) -> frames.Frame | None:
        """Return the answer to a request; None if the process dies or is closed before. Raises OSError."""
        self._idle.stop()
        await self.start()
        if self._child is None:  # it is dead already
            return None
        self._answer = asyncio.get_running_loop().create_future()
        self._child.send(request)
        try:
            return await self._answer
        finally:
            if self._child is not None:
                self._idle.restart()

    async def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """End it, within `seconds`. Nothing happens if it does not run."""
        self._idle.stop()
        if self._child is not None:
            child, self._child = self._child, None
            self._heard(None)
            await child.close(seconds)

    def kill(self) -> None:
        if self._child is not None:
            self._child.kill()

    def _heard(self, frame: frames.Frame | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(frame)

    def _died(self, _status: int) -> None:
        self._child = None
        self._heard(None)


class _Pipes(asyncio.SubprocessProtocol):
    """The protocol of a child's pipes, which joins its output to frames and lines."""

    def __init__(self, child: ChildProcess) -> None:
        self._child = child
        self._buffer = bytearray()
        self._complaint = b""  # a line that has no end yet

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport now: output may come before `subprocess_exec` returns, and lead to `kill`."""
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
            self._child._on_garbage(error)

    def pause_writing(self) -> None:
        self._child._has_room.clear()

    def resume_writing(self) -> None:
        self._child._has_room.set()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """Wake up the sender, if the process has closed its input."""
        if fd == _INPUT:
            self._child._has_room.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end of the process, when all its output has been read."""
        if self._complaint:
            self._child._on_complaint(self._complaint)
        self._child._on_end()

    def _complain(self, data: bytes) -> None:
        *lines, self._complaint = data.split(b"\n")
        if len(self._complaint) > LINE_BYTES_MAX:
            lines, self._complaint = [*lines, self._complaint], b""
        for line in lines:
            self._child._on_complaint(line)

    def _next(self) -> frames.Frame | None:
        if len(self._buffer) < frames.HEADER_BYTES:
            return None
        end = frames.HEADER_BYTES + frames.frame_body_bytes(bytes(self._buffer[: frames.HEADER_BYTES]))
        if len(self._buffer) < end:
            return None
        body = bytes(self._buffer[frames.HEADER_BYTES : end])
        del self._buffer[:end]
        return frames.unpack_frame(body)


def _be_nice(pid: int, nice: int) -> None:
    """Set the niceness from the parent: code between fork and exec could block on a lock of the parent."""
    try:
        os.setpriority(os.PRIO_PROCESS, pid, nice)
    except (ProcessLookupError, PermissionError) as error:
        log.debug("no nice for %s: %s", pid, error)
