"""A visitor: one browser, with its own connections to the daemon.

The daemon asks for the PIN once a connection, so each browser has to give it. Decisions and undos go over
different connections, because a connection that has proposed an edit may not decide any more.
"""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

from editd.config.paths import review_socket_path
from editd_client.aio import AsyncClient
from editd_client.connect import Endpoint

if TYPE_CHECKING:
    from editd_client.locate import Workspace
    from editd_client.web.trials import Trials


class Visitor:
    """The connections of one browser."""

    def __init__(self, workspace: Workspace, secret: str, trials: Trials) -> None:
        self.trials = trials  # of all visitors
        self.reviewer = client_of(workspace)
        self.editor = client_of(workspace)
        self._secret = secret
        self._is_introduced = False

    async def introduce(self) -> None:
        """Name the reviewer on both connections, once. Raises Unreachable."""
        if not self._is_introduced:
            await self.reviewer.hello()
            await self.editor.hello()
            self._is_introduced = True

    def request_id(self, *parts: object) -> str:
        """Return the id of a request that a form makes: the same form, sent twice, is one request."""
        text = "\0".join([self._secret, *map(str, parts)])
        return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:32]

    async def close(self) -> None:
        await self.reviewer.close()
        await self.editor.close()


def client_of(workspace: Workspace) -> AsyncClient:
    """Return a client on the reviewers' own socket if the daemon has one, otherwise on the ordinary one."""
    own = review_socket_path(workspace.socket_path)
    return AsyncClient(own if os.path.lexists(own) else Endpoint.of(workspace))
