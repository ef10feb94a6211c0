"""One command of the user's, from its start to its end, within its limits.

`start` begins it, and `events` yields its output as it comes, then its end. No process that it has started,
in any session, is left afterwards. The caller is a process of `runs`, which is the subreaper of the command.
If the caller's own parent dies or gives up, a descriptor closes, and `events` raises Abandoned.
"""

from __future__ import annotations

import contextlib
import os
import select
import selectors
import signal
import subprocess
import time
from typing import IO, TYPE_CHECKING, NamedTuple

from editd.runs.limits import PRINTED_BYTES_MAX
from editd.system.process_tree import die_with_parent, kill_descendants, open_process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

LOOK_SECONDS = 0.01  # between two looks at a silent command, on a system that does not report its end
NOT_FOUND, NOT_RUN, SIGNALLED = 127, 126, 128  # the exit codes of a shell
READ_BYTES = 1024 * 1024
REST_SECONDS = 1.0  # for the output that is still in a pipe when the command has ended
PARENT = 0  # stdin of a worker, which closes when the daemon dies
OUTPUT, ERRORS = 1, 2  # the streams, by their descriptors
LATE, FLOOD = "late", "flood"


class Printed(NamedTuple):
    """Output of a command."""

    stream: int
    text: bytes


class Ended(NamedTuple):
    """The end of a command: its status as `subprocess` has it, and the limit that it broke, if any."""

    status: int
    limit: str = ""  # LATE, FLOOD


class Abandoned(Exception):
    """The daemon, or the client, no longer waits for the answer."""


def has_parent(parent: int = PARENT) -> bool:
    """Return whether the daemon, or the client, still waits for the answer."""
    poll = select.poll()
    poll.register(parent, select.POLLIN)
    return not poll.poll(0)


def start(
    argv: Sequence[str],
    folder: str,
    environment: Mapping[str, str],
    prepare: Callable[[], None],
    *,
    source: IO[bytes] | int = subprocess.DEVNULL,
    errors: int = subprocess.PIPE,
) -> subprocess.Popen[bytes]:
    """Start a command in its own session, with its output in pipes; `prepare` runs just before its program.

    Raises OSError, and SubprocessError if `prepare` fails. Call it with one thread.
    """
    return subprocess.Popen(
        argv, stdin=source, stdout=subprocess.PIPE, stderr=errors, cwd=folder, env=environment,
        start_new_session=True, preexec_fn=_dying_with_parent(prepare),
    )  # fmt: skip


def start_with_terminal(argv: Sequence[str], prepare: Callable[[], None]) -> subprocess.Popen[bytes]:
    """Start a command with the input, the output and the process group of this process; else as `start`."""
    return subprocess.Popen(argv, preexec_fn=_dying_with_parent(prepare))


def _dying_with_parent(prepare: Callable[[], None]) -> Callable[[], None]:
    def become() -> None:
        prepare()
        die_with_parent()  # last: new credentials clear it

    return become


def events(
    process: subprocess.Popen[bytes],
    until: float | None,
    *,
    output_bytes_max: int = PRINTED_BYTES_MAX,
    parent: int = PARENT,
) -> Iterator[Printed | Ended]:
    """Yield the output of a command as it comes, and its end, with which all its processes have ended.

    It is killed at the time `until`, if there is one, or if it prints too much. Raises Abandoned if `parent`
    closes.
    """
    pipes = {OUTPUT: process.stdout, ERRORS: process.stderr}
    limits = {OUTPUT: output_bytes_max, ERRORS: PRINTED_BYTES_MAX}
    streams = [_Stream(number, pipe, limits[number]) for number, pipe in pipes.items() if pipe is not None]
    is_late = False
    try:
        with selectors.DefaultSelector() as selector, _notice_of_end(process, selector) as pause:
            selector.register(parent, selectors.EVENT_READ)
            for stream in streams:
                selector.register(stream.pipe, selectors.EVENT_READ, stream)
            while process.poll() is None and not any(stream.is_flood for stream in streams):
                left = None if until is None else until - time.monotonic()
                if is_late := left is not None and left <= 0:
                    break
                for key, _ in selector.select(
                    min((one for one in (pause, left) if one is not None), default=None)
                ):
                    if key.fd == parent:
                        raise Abandoned
                    if key.data is None:
                        continue  # it has ended
                    if text := key.data.read():
                        yield Printed(key.data.number, text)
                    elif text is not None:
                        selector.unregister(key.fileobj)
    finally:
        _end_with_all(process)
    for stream in streams:
        yield from stream.rest()
    is_flood = any(stream.is_flood for stream in streams)
    yield Ended(process.returncode, LATE if is_late else FLOOD if is_flood else "")


class _Stream:
    """One output stream of a command."""

    def __init__(self, number: int, pipe: IO[bytes], bytes_max: int) -> None:
        self.number = number
        self.pipe = pipe
        self._bytes_max = bytes_max
        self._count = 0
        os.set_blocking(pipe.fileno(), False)

    @property
    def is_flood(self) -> bool:
        """Whether the command printed more than the limit."""
        return self._count > self._bytes_max

    def read(self) -> bytes | None:
        """Read the available output; return None if there is none, and no bytes at the end of the stream."""
        try:
            text = os.read(self.pipe.fileno(), READ_BYTES)
        except BlockingIOError:
            return None
        self._count += len(text)
        return text

    def rest(self) -> Iterator[Printed]:
        """Yield the remaining output. The writers are dead by now."""
        until = time.monotonic() + REST_SECONDS
        while not self.is_flood and time.monotonic() < until and (text := self.read()):
            yield Printed(self.number, text)
        self.pipe.close()


class KeptOutput:
    """The first bytes of an output that are kept, or with `is_end` the last ones."""

    def __init__(self, bytes_max: int, *, is_end: bool = False) -> None:
        self.kept = bytearray()
        self.count = 0
        self._bytes_max = bytes_max
        self._is_end = is_end

    def add(self, text: bytes) -> None:
        """Add the next output."""
        self.count += len(text)
        if self._is_end:
            self.kept += text
            del self.kept[: -self._bytes_max]
        else:
            self.kept += text[: max(0, self._bytes_max - len(self.kept))]


def exit_code(status: int) -> int:
    """Return the exit code that a shell gives to a process with this status of `subprocess`."""
    return status if status >= 0 else SIGNALLED - status


@contextlib.contextmanager
def _notice_of_end(
    process: subprocess.Popen[bytes], selector: selectors.BaseSelector
) -> Iterator[float | None]:
    """Have the selector wake up at the end of a process; yield the interval for looking, if it cannot."""
    try:
        descriptor = open_process(process.pid)
    except OSError:
        yield LOOK_SECONDS
        return
    try:
        selector.register(descriptor, selectors.EVENT_READ)
        yield None
    finally:
        os.close(descriptor)


def _end_with_all(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and all processes that it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        process.kill()  # it leads no group, or has ended
    except PermissionError:
        process.poll()  # it is another user's
    process.wait()
    kill_descendants()
