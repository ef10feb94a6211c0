"""The address of a daemon, for the first and each later connection: a path, or a workspace."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Self

from msgspec import Struct

from editd_client.connect import connect, connect_or_start
from editd_client.errors import Unreachable

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from editd_client.locate import Workspace

RECONNECT_SECONDS_MAX = 10.0  # a daemon that is restarted is back in some 0.3 s, after a long journal in 2 s
RETRY_SECONDS = 0.02


class Endpoint(Struct, frozen=True):
    """A socket's path. With a `workspace`, its daemon is started if none answers there.

    `named` is the workspace that the daemon must serve: EDITD_SOCKET may have been set for another one.
    """

    path: str
    workspace: Workspace | None = None
    on_wait: Callable[[], None] | None = None
    named: Workspace | None = None

    @classmethod
    def of(
        cls, workspace: Workspace, *, start: bool = True, on_wait: Callable[[], None] | None = None
    ) -> Self:
        """Return that of a workspace's daemon; `on_wait` is called if its start takes over a second."""
        is_doubtful = workspace.found == "named" and bool(os.environ.get("EDITD_SOCKET"))
        return cls(
            workspace.socket_path, workspace if start else None, on_wait, workspace if is_doubtful else None
        )

    def connect(self) -> socket.socket:
        """Connect at once. Raises Unreachable if no daemon answers and none may be started."""
        if self.workspace is not None:
            return connect_or_start(self.workspace, on_wait=self.on_wait)[0]
        stream = connect(self.path)
        if stream is None:
            raise Unreachable(f"No daemon answers at {self.path}.", hint="Start one with `editctl start`.")
        return stream

    def reconnect(self) -> socket.socket:
        """Connect again after a lost connection, with ten seconds for a restart of the daemon."""
        if self.workspace is not None:
            return self.connect()
        stream = self.reconnect_if_running()
        return self.connect() if stream is None else stream

    def reconnect_if_running(self) -> socket.socket | None:
        """Connect to a daemon that another program starts within ten seconds; otherwise return None."""
        until = time.monotonic() + RECONNECT_SECONDS_MAX
        while True:
            stream = connect(self.path)
            if stream is not None or time.monotonic() > until:
                return stream
            time.sleep(RETRY_SECONDS)
