"""One command of the user's, run to its end within limits."""

from __future__ import annotations

import os
import select
import selectors
import signal
import time
from typing import IO, TYPE_CHECKING

from editd.system.process_tree import kill_descendants

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Sequence

LOOK_SECONDS = 0.01  # interval for checking whether a silent command has ended
NOT_FOUND, NOT_RUN, SIGNALLED = 127, 126, 128  # the exit codes of a shell
PRINTED_BYTES_MAX = 64 * 1024 * 1024  # on one stream, unless a formatter's content is longer
PARENT = 0  # stdin, which closes when the daemon dies


class Abandoned(Exception):
    """The daemon no longer waits for the answer."""


def has_parent() -> bool:
    """Return whether the daemon still waits for the answer."""
    poll = select.poll()
    poll.register(PARENT, select.POLLIN)
    return not poll.poll(0)


class OutputStream:
    """One output stream of a command. Its first bytes are kept, or with `is_end` its last ones."""

    def __init__(self, pipe: IO[bytes], kept_max: int, *, is_end: bool = False) -> None:
        self.pipe = pipe
        self.kept = bytearray()
        self.count = 0
        self._kept_max = kept_max
        self._is_end = is_end
        os.set_blocking(pipe.fileno(), False)

    @property
    def is_flood(self) -> bool:
        """Whether the command printed more than the limit."""
        return self.count > max(PRINTED_BYTES_MAX, self._kept_max)

    def take(self) -> bool:
        """Read the available output. Return whether the stream is still open."""
        try:
            output = os.read(self.pipe.fileno(), 1024 * 1024)
        except BlockingIOError:
            return True
        self.count += len(output)
        if self._is_end:
            self.kept += output
            del self.kept[: -self._kept_max]
        else:
            self.kept += output[: max(0, self._kept_max - len(self.kept))]
        return bool(output)

    def finish(self) -> None:
        """Read the remaining output. The writers are dead by now."""
        until = time.monotonic() + 1.0
        while not self.pipe.closed and not self.is_flood and time.monotonic() < until:
            before = self.count
            if not self.take() or self.count == before:
                break
        self.pipe.close()


def attend(process: subprocess.Popen[bytes], streams: Sequence[OutputStream], until: float) -> bool:
    """Read the output until the process ends or prints too much. Return whether it timed out.

    Raises Abandoned if stdin closes.
    """
    with selectors.DefaultSelector() as selector:
        selector.register(PARENT, selectors.EVENT_READ)
        for output in streams:
            selector.register(output.pipe, selectors.EVENT_READ, output)
        while process.poll() is None:
            if time.monotonic() >= until:
                return True
            for key, _ in selector.select(LOOK_SECONDS):
                if key.fd == PARENT:
                    raise Abandoned
                stream: OutputStream = key.data
                if stream.is_flood:
                    return False
                if not stream.take():
                    selector.unregister(stream.pipe)
    return False


def end_with_all(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and all processes that it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        process.poll()  # the group is empty: all members have ended or left it
    process.wait()
    kill_descendants()
