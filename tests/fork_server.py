"""Daemons from a fork server: a process that has imported all of editd, and forks for each start.

To start an interpreter and import the daemon takes a second on two busy cores, and most tests begin so. A
forked daemon runs the same code in a process of its own. Tests of the start itself and of crashes exec a
real one (`Workplace.is_forked`).

`python fork_server.py FD` serves on the socket FD. A request `{argv, environment, descriptor}` comes with
three descriptors: the one that `argv` names, stdout and stderr. The answer is `{pid}`. When a daemon has
ended, `{pid, status}` follows.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import Any

MESSAGE_BYTES_MAX = 1 << 16
LOOK_SECONDS = 0.005  # between two looks at whether a daemon has ended
MAKE_SECONDS = 60.0


class Forked:
    """A daemon that the fork server has started; it can do what tests ask of a `subprocess.Popen`."""

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
            time.sleep(LOOK_SECONDS)
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
        with theirs:
            argv = [sys.executable, __file__, str(theirs.fileno())]
            self._process = subprocess.Popen(
                argv, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, env=_own_environment()
            )
        self._lock = threading.Lock()
        self._ended: dict[int, int] = {}

    def start(self, argv: list[str], environment: dict[str, str], descriptor: int) -> Forked:
        """Fork a daemon with these arguments; `descriptor` is its own under the same number."""
        request = {"argv": argv, "environment": environment, "descriptor": descriptor}
        with self._lock:
            socket.send_fds(self._stream, [json.dumps(request).encode()], [descriptor, 1, 2])
            self._stream.settimeout(MAKE_SECONDS)
            while "status" in (answer := self._receive()):
                self._ended[answer["pid"]] = answer["status"]
        return Forked(self, answer["pid"], argv)

    def status_of(self, pid: int) -> int | None:
        """Return the exit status of a daemon that has ended."""
        with self._lock:
            self._stream.settimeout(0)
            with contextlib.suppress(BlockingIOError):
                while True:
                    answer = self._receive()
                    self._ended[answer["pid"]] = answer["status"]
            return self._ended.get(pid)

    def _receive(self) -> dict[str, int]:
        data = self._stream.recv(MESSAGE_BYTES_MAX)
        assert data, "the fork server has ended"
        answer: dict[str, int] = json.loads(data)
        return answer


@functools.cache
def server() -> Server:
    """Return the fork server of this process."""
    return Server()


def _own_environment() -> dict[str, str]:
    """Return an environment in which nothing of the user's is found; each daemon is given its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "GIT_"))}
    return {**kept, "HOME": "/nonexistent"}


# ── in the server ──


def _serve(stream: socket.socket) -> None:
    _import_the_daemon()
    waking, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    with selectors.DefaultSelector() as selector:
        for descriptor in (stream.fileno(), waking):
            selector.register(descriptor, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fd == waking:
                    os.read(waking, 4096)
                    _report_ends(stream)
                elif not _fork_one(stream):
                    return


def _report_ends(stream: socket.socket) -> None:
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            ended = {"pid": pid, "status": os.waitstatus_to_exitcode(status)}
            stream.sendall(json.dumps(ended).encode())


def _fork_one(stream: socket.socket) -> bool:
    """Take a request and fork; False once the test's process has ended."""
    data, descriptors, _, _ = socket.recv_fds(stream, MESSAGE_BYTES_MAX, 3)
    if not data:
        return False
    request = json.loads(data)
    pid = os.fork()
    if not pid:
        status = 1
        try:
            stream.close()
            status = _be_the_daemon(request, *descriptors)
        finally:
            os._exit(status)
    for descriptor in descriptors:
        os.close(descriptor)
    stream.sendall(json.dumps({"pid": pid}).encode())
    return True


def _be_the_daemon(request: dict[str, Any], ready: int, stdout: int, stderr: int) -> int:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(request["environment"])
    _let_git_look_again(request["environment"])
    for source, number in ((stdout, 1), (stderr, 2), (ready, request["descriptor"])):
        os.dup2(source, number)
    for number in map(int, os.listdir("/proc/self/fd")):
        if number > 2 and number != request["descriptor"]:
            with contextlib.suppress(OSError):
                os.close(number)
    sys.argv = ["editd", *request["argv"]]
    from editd.cli import main

    try:
        main(request["argv"])
    except SystemExit as end:
        sys.stdout.flush()
        sys.stderr.flush()
        return end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    return 0


def _import_the_daemon() -> None:
    import asyncio.unix_events
    import concurrent.futures.thread
    import encodings.idna
    import sqlite3

    import editd.cli
    import editd.server.daemon

    del asyncio, concurrent, encodings, sqlite3, editd


def _let_git_look_again(environment: dict[str, str]) -> None:
    """Have libgit2 look for configuration where the environment says now, and not where it said at import."""
    import pygit2

    home = environment.get("HOME", "")
    levels = pygit2.enums.ConfigLevel
    pygit2.settings.search_path[levels.GLOBAL] = home
    pygit2.settings.search_path[levels.XDG] = os.path.join(
        environment.get("XDG_CONFIG_HOME", os.path.join(home, ".config")), "git"
    )


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
