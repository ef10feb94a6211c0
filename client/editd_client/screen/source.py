"""The connection of the screen: its requests, the events of the daemon, and a daemon that comes and goes.

A connection that is lost is made again every second, and everything is fetched anew then. A request is sent
once: the screen shows afterwards whether it took effect.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from editd_client.aio import AsyncClient
from editd_client.connect import Endpoint, connect_or_start
from editd_client.errors import EditdError, Unreachable
from editd_client.locate import current_actor

if TYPE_CHECKING:
    from collections.abc import Callable

    from editd_client.locate import Workspace
    from editd_client.prepared_call import PreparedCall
    from editd_client.session_state import Happening

RETRY_SECONDS = 1.0
Result = TypeVar("Result")


class DaemonSource:
    """The daemon of a workspace. `on_state` is called when it is there, and when it has gone."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self._address = Endpoint.of(workspace, start=False, as_owner=True)
        self.is_live = False
        self.on_event: Callable[[Happening], None] = lambda _happening: None
        self.on_state: Callable[[bool], None] = lambda _is_live: None
        self._client: AsyncClient | None = None

    async def run(self) -> None:
        """Follow the events for ever."""
        while True:
            client = AsyncClient(self._address, reconnect=False)
            try:
                await client.hello(current_actor())
                events = await client.subscribe(brief=True)
                self._client, self.is_live = client, True
                self.on_state(True)
                async for happening in events:
                    if happening.event == "shutdown":
                        break
                    self.on_event(happening)
            except (Unreachable, EditdError, OSError):
                pass  # It is tried again below.
            finally:
                self._client = None
                await client.close()
            if self.is_live:
                self.is_live = False
                self.on_state(False)
            await asyncio.sleep(RETRY_SECONDS)

    async def ask(self, call: PreparedCall[Result]) -> Result:
        """Send a request. Raises EditdError, and Unreachable while no daemon is there."""
        if self._client is None:
            raise Unreachable("No daemon answers.", hint="r starts it.")
        return await self._client.ask(call)

    async def unlock(self, pin: str) -> None:
        """Give the PIN, for the rest of this connection."""
        if self._client is not None:
            await self._client.review_unlock(pin)

    async def start(self) -> None:
        """Start the daemon. Raises Unreachable."""
        stream, _ = await asyncio.to_thread(connect_or_start, self.workspace)
        stream.close()
