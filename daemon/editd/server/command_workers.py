"""The worker processes that run the user's commands for the daemon, each in its own scratch folder.

Hooks and checks share their life: a scratch folder, a process of `editd.runs` that gets a request and answers
it, a time limit, and an end that leaves no process and no folder. The daemon's own kill ends them too: a
worker ends when its input closes, and the next daemon removes the folders.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from typing import TYPE_CHECKING

from editd.runs.reach import unheld_sentence
from editd.runs.scratch import remove_tree
from editd.server.child_process import ChildProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from editd.system.frames import Frame

CLOSE_SECONDS = 2.0  # for a worker that is no longer needed to end its own children


class CommandWorkers:
    """The workers of one kind of command. Used by the loop's thread."""

    def __init__(self, argv: Sequence[str], folder: str, *, nice: int = 0) -> None:
        """`folder` has the scratch folders, and loses those of an earlier daemon."""
        self._argv = argv
        self._folder = folder
        self._nice = nice
        self._running: dict[ChildProcess, asyncio.Future[None]] = {}
        self._unheld: dict[str, list[str]] = {}  # the lost parts of the reach, by the name of the command
        if os.path.isdir(folder):
            remove_tree(folder)

    async def run(
        self, request: Callable[[str], Sequence[Frame]], take: Callable[[Frame], bool], seconds: float
    ) -> None:
        """Have one worker answer the frames of `request`, which gets the scratch folder.

        Returns when `take` has returned True for a frame of the answer, or when the worker has ended. Raises
        TimeoutError beyond `seconds`, because a command may stop its worker; OSError; and ValueError for
        frames that cannot be sent.
        """
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        os.makedirs(self._folder, 0o700, exist_ok=True)
        scratch = os.path.join(self._folder, secrets.token_hex(8))
        child = ChildProcess(
            self._argv,
            on_frame=lambda frame: _settle(ended) if take(frame) else None,
            on_death=lambda _status: _settle(ended),
            nice=self._nice,
        )
        try:
            await child.start()
            self._running[child] = ended
            for frame in request(scratch):
                child.send(frame)
            async with asyncio.timeout(seconds):
                await ended
        finally:
            self._running.pop(child, None)
            await child.close(CLOSE_SECONDS)
            remove_tree(scratch)  # a killed worker has left it

    def note_unheld(self, name: str, lost: Sequence[str]) -> None:
        """Note the parts of its reach that the last run of a command was not kept to."""
        self._unheld[name] = list(lost)

    def weaker(self, kind: str) -> list[str]:
        """Return a sentence for each command whose last run was not confined as its keys say."""
        return [unheld_sentence(f"{kind} {name!r}", lost) for name, lost in self._unheld.items() if lost]

    async def close(self) -> None:
        """End the running workers, with all processes that they have started."""
        for ended in self._running.values():
            _settle(ended)
        await asyncio.gather(*(child.close(CLOSE_SECONDS) for child in list(self._running)))


def _settle(ended: asyncio.Future[None]) -> None:
    if not ended.done():
        ended.set_result(None)
