"""A visitor: one browser, with its own connections to the daemon.

The daemon asks for the PIN once a connection, so each browser has to give it. Decisions and undos go over
different connections, because a connection that has proposed an edit may not decide any more.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from editd_client.aio import AsyncClient
from editd_client.connect import Endpoint
from editd_client.web.review_cache import ReviewCache

if TYPE_CHECKING:
    from collections.abc import Callable

    from editd_client.locate import Workspace
    from editd_client.web.trials import Trials


class Visitor:
    """The connections of one browser."""

    def __init__(
        self, workspace: Workspace, secret: str, trials: Trials, is_told: Callable[[], bool]
    ) -> None:
        self.trials = trials  # of all visitors
        self.reviewer = AsyncClient(Endpoint.of(workspace, as_owner=True))
        self.editor = AsyncClient(Endpoint.of(workspace, as_owner=True))
        self.cache = ReviewCache(self.reviewer, is_told)
        self._secret = secret
        self._is_introduced = False

    async def introduce(self) -> None:
        """Name the reviewer on both connections, once. Raises Unreachable."""
        if not self._is_introduced:
            await self.reviewer.hello()
            await self.editor.hello()
            self._is_introduced = True

    async def unlock(self, pin: str) -> None:
        """Give the PIN on both connections. Raises EditdError if it is wrong."""
        await self.reviewer.review_unlock(pin)
        await self.editor.review_unlock(pin)

    def request_id(self, *parts: object) -> str:
        """Return the id of a request that a form makes: the same form, sent twice, is one request."""
        text = "\0".join([self._secret, *map(str, parts)])
        return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:32]

    async def close(self) -> None:
        await self.reviewer.close()
        await self.editor.close()
