"""Processes of editd from a fork server, which has imported everything and forks for each start.

To start an interpreter and import a program takes 0.1 to 0.3 s of a CPU, and most tests begin so. A forked
process runs the same code in a process of its own, with the arguments, environment, folder and descriptors
of a real one. That holds for the daemon, for the processes that it starts, for `editctl`, and for a daemon
that `editctl` starts. Tests of the start itself exec real ones (`Workplace.is_forked`).

This module is the end in the test's process; `forked_process` has the server.
"""

from __future__ import annotations

import contextlib
import functools
import marshal
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

from support.forked_process import ARGUMENT_BYTES, MESSAGE_BYTES_MAX, ForkingPopen

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from support.forked_process import Request

LOOK_SECONDS = 0.05  # another thread may have read the message that a process has ended
MAKE_SECONDS = 60.0

# A program with the arguments and descriptors of `editctl`, which costs a tenth of it. It has the fork server
# run `editctl`, passes signals on, and ends as the forked process does. If it is killed, so is that one.
# `-S` and built-in modules: an interpreter without its library starts in 9 ms.
SHIM = """#!{python} -IS
import _signal, _socket, marshal, posix, sys
stream = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
stream.connect({address!r})
argv = ["-P", "-m", "editd_client", *sys.argv[1:]]
request = marshal.dumps((argv, dict(posix.environ), posix.getcwdb(), (0, 1, 2), False, False))
numbers = b"".join(number.to_bytes(4, sys.byteorder) for number in (0, 1, 2))
stream.sendmsg([request], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, numbers)])
for number in (_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP):
    _signal.signal(number, lambda number, _: stream.send(marshal.dumps(number)))
stream.recv(64)
status = marshal.loads(stream.recv(64))[1]
if status < 0:
    _signal.signal(-status, _signal.SIG_DFL) if -status != _signal.SIGKILL else None
    posix.kill(posix.getpid(), -status)
posix._exit(status)
"""


class Forked:
    """A process that the fork server has started; it can do what tests ask of a `subprocess.Popen`."""

    def __init__(self, server: Server, pid: int, args: list[str]) -> None:
        self.pid = pid
        self.args = args
        self._server = server

    @property
    def returncode(self) -> int | None:
        return self._server.status_of(self.pid)

    def poll(self) -> int | None:
        """Return the exit status, negative for a signal; None while it runs."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end, and return the exit status. Raises subprocess.TimeoutExpired."""
        until = None if timeout is None else time.monotonic() + timeout
        while (status := self.returncode) is None:
            if until is not None and time.monotonic() > until:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            self._server.wait_for_news(LOOK_SECONDS)
        return status

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


class Server:
    """The end of the fork server in the test's process; one for each, started when it is first needed."""

    def __init__(self) -> None:
        self._stream, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._address = f"\0editd-test-{os.getpid()}-{secrets.token_hex(8)}".encode()
        with theirs, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(self._address)
            listener.listen()
            descriptors = [theirs.fileno(), listener.fileno()]
            program = os.path.join(os.path.dirname(__file__), "forked_process.py")
            argv = [sys.executable, program, *map(str, descriptors), " " * ARGUMENT_BYTES]
            self._process = subprocess.Popen(
                argv, pass_fds=descriptors, stdin=subprocess.DEVNULL, env=_own_environment()
            )
        self._lock = threading.Lock()
        self._ended: dict[int, int] = {}

    @property
    def pid(self) -> int:
        """The parent of each process that this server starts."""
        return self._process.pid

    def start(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        descriptors: Mapping[int, int],
        folder: str | Path = "/",
    ) -> Forked:
        """Fork a process with these arguments of Python, which end with `-m MODULE …`, or are `-c CODE …`.

        `descriptors` has each of its own, and the one of this process that it is a copy of.
        """
        request = list(argv), dict(environment), os.fspath(folder), tuple(descriptors), False, False
        return Forked(self, self._forked(request, list(descriptors.values())), list(argv))

    def start_child(self, request: Request, descriptors: list[int]) -> int:
        """Fork a child of this process, and return its number."""
        return self._forked((*request[:5], True), descriptors)

    def _forked(self, request: Request, descriptors: list[int]) -> int:
        with self._lock:
            socket.send_fds(self._stream, [marshal.dumps(request)], descriptors)
            self._stream.settimeout(MAKE_SECONDS)
            while (answer := self._receive())[1] is not None:
                self._ended[answer[0]] = answer[1]
            self._ended.pop(answer[0], None)  # of an earlier process with this id
        return answer[0]

    def status_of(self, pid: int) -> int | None:
        """Return the exit status of a process that has ended."""
        with self._lock:
            self._stream.settimeout(0)
            with contextlib.suppress(BlockingIOError):
                while (answer := self._receive())[1] is not None:
                    self._ended[answer[0]] = answer[1]
            return self._ended.get(pid)

    def wait_for_news(self, seconds: float) -> None:
        """Wait until a message has come, at most so long."""
        select.select([self._stream], [], [], seconds)

    def write_shim(self, path: Path) -> None:
        """Write an executable `editctl` that has this server run the real one."""
        path.write_text(SHIM.format(python=sys.executable, address=self._address))
        path.chmod(0o755)

    def _receive(self) -> tuple[int, int | None]:
        data = self._stream.recv(MESSAGE_BYTES_MAX)
        assert data, "the fork server has ended"
        pid, status = marshal.loads(data)
        return pid, status


@functools.cache
def server() -> Server:
    """Return the fork server of this process."""
    return Server()


class WorkerPopen(ForkingPopen):
    """A Popen of the test's process: processes of editd come from the fork server, as its own children."""

    def _forked(self, request: Request, descriptors: list[int]) -> int:
        return server().start_child(request, descriptors)


def run_forked(
    argv: Sequence[str], *, environment: Mapping[str, str], folder: str | Path, stdin: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    """Run a forked process to its end, and return its status and all of its output.

    Files in memory take its input and output. So nothing waits for a process that it has left behind.
    """
    files = [os.memfd_create(name) for name in ("stdin", "stdout", "stderr")]
    try:
        os.write(files[0], stdin)
        os.lseek(files[0], 0, os.SEEK_SET)
        status = server().start(argv, environment, dict(enumerate(files)), folder).wait()
        stdout, stderr = (os.pread(file, os.fstat(file).st_size, 0) for file in files[1:])
    finally:
        for file in files:
            os.close(file)
    return subprocess.CompletedProcess(list(argv), status, stdout, stderr)


def _own_environment() -> dict[str, str]:
    """Return an environment in which nothing of the user's is found; each process is given its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "GIT_"))}
    kept = {name: value for name, value in kept.items() if name not in ("PYTHONUNBUFFERED", "COLUMNS")}
    return {**kept, "HOME": "/nonexistent"}
