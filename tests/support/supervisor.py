"""A daemon under a supervisor of the test's own: a socket handed over, its news read from a datagram."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from support.workplace import START_SECONDS, Workplace

if TYPE_CHECKING:
    from collections.abc import Iterator

# It hands on descriptor 3 as systemd does: LISTEN_PID is the daemon's own number, which is known here only.
HAND_OVER = (
    "import os, sys; os.environ['LISTEN_PID'] = os.environ['WATCHDOG_PID'] = str(os.getpid()); "
    "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
)
# The daemon itself, in which SIGUSR1 stops the thread of the loop, and only that, as a deadlock would.
HANGING = (
    "import signal, sys, time; signal.signal(signal.SIGUSR1, lambda *_: time.sleep(60)); "
    "from editd.cli import main; main()"
)


@dataclass
class Supervised:
    """A workspace whose daemon is started with a socket that this process has opened."""

    place: Workplace
    listener: socket.socket
    news: socket.socket
    address: str  # as NOTIFY_SOCKET has it
    process: subprocess.Popen[bytes] | None = None
    heard: list[str] = field(default_factory=list)

    def start(self, *, code: str | None = None, watchdog_seconds: float | None = None, **more: str) -> None:
        """Start the daemon, or `code`, which is one; it need not be ready yet."""
        environment = {
            **self.place.environment,
            "LISTEN_FDS": "1",
            "NOTIFY_SOCKET": self.address,
            **({"WATCHDOG_USEC": str(int(watchdog_seconds * 1e6))} if watchdog_seconds else {}),
            **more,
        }
        given = ["-c", code] if code else ["-m", "editd"]
        argv = [sys.executable, "-c", HAND_OVER, "-P", *given, "--foreground", "-C", str(self.place.root)]
        kept = os.dup(3) if _is_open(3) else None
        try:
            os.dup2(self.listener.fileno(), 3)
            self.process = subprocess.Popen(argv, env=environment, pass_fds=[3], stderr=subprocess.PIPE)
        finally:
            os.close(3)
            if kept is not None:
                os.dup2(kept, 3)
                os.close(kept)
        self.place.process = self.process  # so that its end is the workplace's care

    def hear(self, wanted: str, seconds: float = START_SECONDS) -> str:
        """Read news until a message begins with `wanted`; return it."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.news.settimeout(max(0.01, until - time.monotonic()))
            try:
                said = self.news.recv(65536).decode()
            except TimeoutError:
                break
            self.heard.append(said)
            if said.startswith(wanted):
                return said
        raise AssertionError(f"{wanted} was not heard within {seconds} s: {self.heard}")

    def drain(self) -> list[str]:
        """What has come and was not read yet."""
        self.news.setblocking(False)
        said = []
        with contextlib.suppress(BlockingIOError):
            while True:
                said.append(self.news.recv(65536).decode())
        return said

    def end(self) -> str:
        """SIGTERM, a clean end, and what the daemon has said on stderr."""
        assert self.process is not None
        self.process.terminate()
        _, said = self.process.communicate(timeout=START_SECONDS)
        assert self.process.returncode == 0, said
        return said.decode()


@contextlib.contextmanager
def supervised(place: Workplace, *, is_abstract: bool = False) -> Iterator[Supervised]:
    """The socket of `place`, opened by us, and a socket for news, of the abstract kind if asked for."""
    os.makedirs(os.path.dirname(place.socket), 0o700)
    with (
        socket.socket(socket.AF_UNIX) as listener,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as news,
    ):
        listener.bind(place.socket)
        listener.listen()
        address = f"@editd-test-{os.getpid()}-{place.id}" if is_abstract else str(place.runtime / "notify")
        news.bind("\0" + address[1:] if is_abstract else address)
        one = Supervised(place, listener, news, address)
        try:
            yield one
        finally:
            place.end()
            if one.process is not None and one.process.stderr is not None:
                one.process.stderr.close()


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True
