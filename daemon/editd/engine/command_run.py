"""One command of the user's, run by a worker process of the daemon within limits.

Until the command has ended, the worker watches its own standard input. If that closes, the daemon is dead or
has given up, and the command is killed with all processes that it has started, in whatever session.
"""

from __future__ import annotations

import os
import resource
import select
import selectors
import signal
import sys
import time
from typing import IO, TYPE_CHECKING

from editd.system.process import kill_descendants, read_frame, set_subreaper, write_frame

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterable, Sequence

    from editd.system.process import Frame

LOOK_SECONDS = 0.01  # interval for checking whether a silent command has ended
PRINTED_BYTES_MAX = 64 * 1024 * 1024  # on one stream, unless a formatter's content is longer
WRITTEN_BYTES_MAX = 1024 * 1024 * 1024  # of one file in the scratch folder
PARENT = 0  # stdin, which closes when the daemon dies


class Abandoned(Exception):
    """The daemon no longer waits for the answer."""


def serve(
    count: Callable[[Frame], int],
    answers: Callable[[Frame, list[Frame]], Iterable[Frame]],
    remove: Callable[[str], None],
) -> None:
    """Serve one request: a frame, and `count` more of them. End at once if stdin closes.

    The frames of `answers` go to stdout. At the end no process is left, and `remove` gets the request's
    scratch folder.
    """
    _prepare()
    request = read_frame(sys.stdin.buffer)
    if request is None:
        return
    frames: list[Frame] = []
    for _ in range(count(request)):
        frame = read_frame(sys.stdin.buffer)
        if frame is None:
            return
        frames.append(frame)
    try:
        for answer in answers(request, frames):
            write_frame(sys.stdout.buffer, answer)
    except (BrokenPipeError, Abandoned):
        os.dup2(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), sys.stdout.fileno())
    finally:
        kill_descendants()
        remove(request["folder"])


def _prepare() -> None:
    """Prepare this process: it becomes the parent of all orphans below it, and limits what they write."""
    set_subreaper()
    os.umask(0o077)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # no core dumps of killed commands
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    written = WRITTEN_BYTES_MAX if most == resource.RLIM_INFINITY else min(most, WRITTEN_BYTES_MAX)
    resource.setrlimit(resource.RLIMIT_FSIZE, (written, most))


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
