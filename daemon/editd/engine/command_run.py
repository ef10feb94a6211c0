"""One command of the user's, run by a worker process of the daemon within limits.

Until the command has ended, the worker watches its own standard input. If that closes, the daemon is dead or
has given up. Then the command is killed with all processes that it has started, in any session.
"""

from __future__ import annotations

import os
import resource
import select
import selectors
import signal
import socket
import sys
import time
from typing import IO, TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import asdict

from editd.system.confinement import confine, has_filter, landlock_version
from editd.system.process import kill_descendants, read_frame, set_subreaper, write_frame
from editd.workspace.trial_tree import can_leave_network, leave_network

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from editd.system.process import Frame

LOOK_SECONDS = 0.01  # interval for checking whether a silent command has ended
PRINTED_BYTES_MAX = 64 * 1024 * 1024  # on one stream, unless a formatter's content is longer
WRITTEN_BYTES_MAX = 1024 * 1024 * 1024  # of one file in the scratch folder
PARENT = 0  # stdin, which closes when the daemon dies


FILES, NETWORK, UNIX_SOCKETS, PROCESSES = (
    "files",
    "network",
    "unix_sockets",
    "processes",
)  # the names of what a system cannot keep from a command


class CommandReach(Struct, frozen=True):
    """The paths that a command may write to beside its scratch folder, and the sockets that it may make."""

    writable: tuple[str, ...] = ()
    network: bool = False
    unix_sockets: bool = False

    @classmethod
    def of(
        cls, writable: Sequence[str] | None, network: bool | None, unix_sockets: bool | None
    ) -> CommandReach | None:
        """Return the reach of an entry with these keys; None for an old entry, which has none of them."""
        if writable is None and network is None and unix_sockets is None:
            return None
        return cls(tuple(writable or ()), bool(network), bool(unix_sockets))

    def unheld(self) -> list[str]:
        """Return the names of what this system cannot keep from the command. Call it with one thread."""
        lost = [] if landlock_version() else [FILES]
        if not self.network and not can_leave_network() and _has_internet():
            lost.append(NETWORK)
        if not has_filter():
            lost += [PROCESSES] if self.unix_sockets else [UNIX_SOCKETS, PROCESSES]
        return lost

    def enter(self, own: Iterable[str], unheld: Collection[str], *, has_left: bool = False) -> None:
        """Confine this process, which is about to become the command, to `own` paths and its reach.

        It has left the network already if `has_left`. Raises OSError.
        """
        if not self.network and NETWORK not in unheld and not has_left and _has_internet():
            leave_network()
        writable = [*own, *map(os.path.expanduser, self.writable)]
        confine(writable, network=True, unix_sockets=self.unix_sockets)


def reach_of_frame(frame: Mapping[str, Any] | None) -> CommandReach | None:
    """Return the reach that a request names."""
    return (
        None
        if frame is None
        else CommandReach(tuple(frame["writable"]), frame["network"], frame["unix_sockets"])
    )


def reach_frame(reach: CommandReach | None) -> Frame | None:
    """Return a reach as a request names it."""
    return None if reach is None else asdict(reach)


def _has_internet() -> bool:
    """Return whether this process can make a socket of the internet; systemd may forbid that."""
    try:
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close()
    except OSError:
        return False
    return True


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
