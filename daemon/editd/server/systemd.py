"""Supervision: notifications to systemd that the daemon is alive, and its status.

The loop itself sends them, so a loop that hangs sends nothing, and systemd restarts the daemon. A long
transaction or a baseline holds the loop for no longer than its slices.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from editd.server.async_timeout import wait_event
from editd.server.engine_queue import Activity

if TYPE_CHECKING:
    from collections.abc import Callable

    from editd.system.systemd_notify import SystemdNotifier
    from editd.wire.messages import StatusResult

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
