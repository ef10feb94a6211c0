"""systemd: sockets that it hands over, notifications to it, and the supervision of the daemon.

Sockets handed over (sd_listen_fds(3)): LISTEN_PID, LISTEN_FDS and LISTEN_FDNAMES, from descriptor 3 on.
Notifications (sd_notify(3)): datagrams to NOTIFY_SOCKET, with WATCHDOG_USEC and WATCHDOG_PID.

The variables are removed from the environment, so that no child of the daemon takes them for its own. A
failed notification raises nothing: the daemon still serves.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import stat
import time
from typing import TYPE_CHECKING

from msgspec import Struct, field

from editd.server.engine_queue import Activity, wait_event
from editd.system.confinement import forbidden

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping

    from editd.wire.messages import StatusResult

FIRST_DESCRIPTOR = 3  # SD_LISTEN_FDS_START
SOCKET_NAME = "editd"  # FileDescriptorName= of our socket unit
STATUS_LENGTH_MAX = 500  # characters of a sentence for `systemctl status`


FORBIDDEN = {  # by the name of `system.confinement.forbidden`
    "internet": "The systemd unit forbids the network: remotes by ssh, https, http and git fail, and "
    "`network = true` gives a hook or check none. `editctl systemd install --remote` allows it.",
    "namespaces": "The systemd unit forbids namespaces: a check runs in a copy of the workspace, and has no "
    "separate loopback.",
}
READ_ONLY_HOME = (
    "The systemd unit makes your home folder read-only: hooks and checks cannot write to `writable` paths "
    "there. `ReadWritePaths` in a drop-in allows a path."
)


class SystemdNotifier(Struct):
    """The socket that systemd has given, and the notifications to it; without systemd, they do nothing."""

    listener: socket.socket | None = None
    watchdog_seconds: float | None = None  # the longest time between two signs of life
    _address: str | None = None
    _told: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, environment: MutableMapping[str, str]) -> SystemdNotifier:
        """Return the systemd that the environment names. Raises OSError for sockets that are not ours."""
        return cls(_inherit(environment), _watchdog_seconds(environment), _address(environment))

    @property
    def is_there(self) -> bool:
        """Whether systemd started us: it wants notifications, or passed us a listening socket."""
        return self._address is not None or self.listener is not None

    def weaker(self) -> list[str]:
        """Return a sentence for each thing that the unit of systemd forbids."""
        if not self.is_there:
            return []
        sentences = [FORBIDDEN[name] for name in forbidden()]
        return sentences if os.access(os.path.expanduser("~"), os.W_OK) else [*sentences, READ_ONLY_HOME]

    def ready(self) -> None:
        """Notify that the socket answers."""
        self._tell("READY=1")

    def reloading(self) -> None:
        """Notify that the configuration is being reloaded; `ready` follows."""
        self._tell("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def stopping(self) -> None:
        """Notify that no new requests are taken."""
        self._tell("STOPPING=1")

    def alive(self) -> None:
        """Notify that the loop is running."""
        self._tell("WATCHDOG=1")

    def status(self, sentence: str) -> None:
        """Notify of the daemon's status, unless it is the same as the last one."""
        text = " ".join(sentence.split())[:STATUS_LENGTH_MAX]
        if self._told.get("STATUS") != text:
            self._told["STATUS"] = text
            self._tell(f"STATUS={text}")

    def _tell(self, *lines: str) -> None:
        if self._address is None:
            return
        with (
            contextlib.suppress(OSError),  # it is gone, or too slow to read: no reason to end
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagram,
        ):
            datagram.setblocking(False)
            datagram.sendto("\n".join(lines).encode("utf-8", "replace"), self._address)


def _inherit(environment: MutableMapping[str, str]) -> socket.socket | None:
    """Return the listening socket that was handed over to this very process, if there is one."""
    pid, count, names = (environment.pop(name, "") for name in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"))
    if pid != str(os.getpid()) or not count.isdecimal() or count == "0":
        return None
    descriptors = range(FIRST_DESCRIPTOR, FIRST_DESCRIPTOR + int(count))
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    called = dict(zip(names.split(":"), descriptors, strict=False))
    if len(descriptors) > 1 and SOCKET_NAME not in called:
        raise OSError(
            f"{len(descriptors)} sockets were handed over, and none is named {SOCKET_NAME}. "
            f"Hand over one, or name it with FileDescriptorName={SOCKET_NAME}."
        )
    return _listening(called.get(SOCKET_NAME, FIRST_DESCRIPTOR))


def _listening(descriptor: int) -> socket.socket:
    """Return the Unix socket that listens at `descriptor`. Raises OSError for anything else."""
    if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
        listener = socket.socket(fileno=descriptor)
        if (
            listener.family == socket.AF_UNIX
            and listener.type == socket.SOCK_STREAM
            and listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        ):
            listener.setblocking(False)
            return listener
        listener.detach()
    raise OSError(
        f"Descriptor {descriptor}, which was handed over, is not a listening Unix stream socket. "
        "The socket unit must have one ListenStream= with a path, and no Accept=yes."
    )


def _watchdog_seconds(environment: MutableMapping[str, str]) -> float | None:
    wanted, pid = environment.pop("WATCHDOG_USEC", ""), environment.pop("WATCHDOG_PID", "")
    if not wanted.isdecimal() or wanted == "0" or pid not in ("", str(os.getpid())):
        return None
    return int(wanted) / 1_000_000


def _address(environment: MutableMapping[str, str]) -> str | None:
    """Return NOTIFY_SOCKET as an address: a path, or after an `@` an abstract name."""
    address = environment.pop("NOTIFY_SOCKET", "")
    if address.startswith("@"):
        return "\0" + address[1:]
    return address if address.startswith("/") else None


# Supervision: the loop itself sends the notifications, so if it hangs, systemd gets none and restarts
# the daemon. A long transaction or a baseline holds the loop for no longer than its slices.

log = logging.getLogger(__name__)

STATUS_SECONDS = 5.0
PINGS = 3  # in the time that the watchdog gives: two may be late


class SystemdStatus:
    def __init__(
        self,
        notifier: SystemdNotifier,
        status: Callable[[], StatusResult],
        activity: Activity | None = None,
    ) -> None:
        """`activity` reports that the status may have changed."""
        self._notifier = notifier
        self._status = status
        self._activity = activity or Activity()
        self._telling: asyncio.Task[None] | None = None

    def ready(self) -> None:
        """Notify that the socket answers, and go on notifying that the daemon is alive."""
        if not self._notifier.is_there:
            return
        self._notifier.status(_sentence(self._status()))
        self._notifier.ready()
        self._telling = asyncio.create_task(self._go_on())

    def reloading(self, reload: Callable[[], None]) -> None:
        """Reload, with a notification before and after it, even if it fails."""
        self._notifier.reloading()
        try:
            reload()
        finally:
            self._notifier.ready()

    async def stopping(self) -> None:
        """Notify that the daemon takes no new requests; systemd waits for its end from here on."""
        self._notifier.status("requests under way are being finished")
        self._notifier.stopping()
        if self._telling is not None:
            self._telling.cancel()
            [died_of] = await asyncio.gather(self._telling, return_exceptions=True)
            if isinstance(died_of, Exception):
                log.error("notifying systemd failed", exc_info=died_of)

    async def _go_on(self) -> None:
        watchdog = self._notifier.watchdog_seconds
        while True:
            if watchdog is not None:
                self._notifier.alive()
            news = self._activity.next()
            self._notifier.status(_sentence(self._status()))
            if watchdog is None:
                await asyncio.sleep(STATUS_SECONDS)
                await news.wait()
            else:
                pause = watchdog / PINGS
                await asyncio.sleep(min(STATUS_SECONDS, pause))
                await wait_event(news, max(0.0, pause - STATUS_SECONDS))


def _sentence(status: StatusResult) -> str:
    """Return the daemon's status for one line of `systemctl status`."""
    if status.state == "scanning" and not status.head:
        return f"takes the baseline of {status.root}"
    about = f"{status.state}: {status.reason}" if status.reason else status.state
    return f"{about}; {status.root} is at transaction {status.head}, clients: {status.clients}"
