"""The process of the exchange with other hosts, which the optional part `remote` brings.

The daemon finds the part by its entry point, when a request or a joined host first needs it.
"""

from __future__ import annotations

import asyncio
import os
from functools import partial
from typing import TYPE_CHECKING, Any

from editd.config.runtime_folder import socket_folder
from editd.errors import Conflict, IoError, NotInstalled, Refused
from editd.parts import PARTS, PartFailed, parts_of
from editd.server.child_process import PYTHON, RequestProcess

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME = "remote"
CHILD_NICE = 5
CLOSE_SECONDS = 1.0  # then the child is killed: each of its steps can be done again


class LogCopyLost(Conflict):
    """This host's copy of the log was deleted, and the server lacks what was taken in."""


class ProcessEnded(Refused):
    """The process of the exchange ended before its answer: it was killed, or out of memory."""


class ExchangeProcess:
    """A process that answers one request at a time. A request starts it, unless it runs already."""

    def __init__(self, folder: str) -> None:
        """`folder` is the state folder."""
        self._folder = folder
        self._child: RequestProcess | None = None

    async def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to a request. Raises Refused: NotInstalled without the part."""
        if self._child is None:
            argv = [*PYTHON[:-1], *remote_part().COMMAND, self._folder, socket_folder()]
            self._child = RequestProcess(argv, nice=CHILD_NICE)
        try:
            answer = await self._child.ask(dict(request))
        except OSError as error:
            raise IoError(error, "The process of the exchange cannot be started") from error
        if answer is None:
            raise ProcessEnded("The process of the exchange ended.", hint="It is started again.")
        if "failed" in answer:
            kind = LogCopyLost if answer.get("forked") else Conflict
            raise kind(answer["failed"], hint=answer["hint"])
        return answer

    def kill(self) -> None:
        if self._child is not None:
            self._child.kill()

    async def close(self) -> None:
        """End it. Nothing happens if it does not run."""
        if self._child is not None:
            await self._child.close(CLOSE_SECONDS)


async def check_server(url: str, folder: str) -> None:
    """Refuse a URL of no server, before anything is started. Raises InvalidParams, NotInstalled.

    `folder` is the state folder. In a thread, because the file system of a server's folder may not answer.
    """
    check = partial(remote_part().check_server, url, os.path.dirname(folder))
    await asyncio.get_running_loop().run_in_executor(None, check)


def remote_part() -> Any:
    """Return the module of the part. Raises NotInstalled."""
    part = parts_of(PARTS).get(NAME)
    data = {"group": PARTS, "part": NAME}
    if part is None:
        raise NotInstalled("The exchange with other hosts is not installed.", data=data)
    try:
        return part.load()
    except PartFailed as failure:
        raise NotInstalled(
            f"The exchange with other hosts cannot be loaded: {failure}.",
            data={**data, "reason": str(failure)},
        ) from failure
