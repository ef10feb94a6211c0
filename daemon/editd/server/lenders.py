"""The watch over the user's repository, whose contents the history borrows (`engine.borrowed_contents`).

If the repository is removed or loses packs, as by `rm -rf .git` or `git filter-repo`, a process takes what is
missing from the files that still have it. `status` names the rest.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from editd.engine.borrowed_contents import lenders
from editd.errors import Refused, join_names
from editd.server.child_process import PYTHON, RequestProcess
from editd.server.engine_queue import Alarm, wait_event
from editd.store.index_tables import LogQuery

if TYPE_CHECKING:
    from editd.engine.engine import Engine
    from editd.server.engine_queue import EngineQueue
    from editd.server.maintenance import Maintenance

log = logging.getLogger(__name__)

QUIET_SECONDS = 0.3  # after a change in git's folder: a removal of it takes a while
RETRY_SECONDS = 10.0  # after a failure, such as a full disk
NICE = 10
BASELINES_MAX = 100  # the baseline, and the transactions of a first scan beside edits


class Lenders:
    """The repositories that lend contents to the history. A change of their packs is checked once."""

    def __init__(
        self, engine: Engine, queue: EngineQueue, background: Maintenance, root: str, folder: str
    ) -> None:
        self._engine = engine
        self._queue = queue
        self._background = background
        self._worker = RequestProcess([*PYTHON, "editd.engine.scan_worker", root, folder], nice=NICE)
        self._changed = Alarm()
        self._task: asyncio.Task[None] | None = None
        self._known = lenders(engine.history.store)

    def start(self) -> None:
        if any(packs is None for _, packs in self._known):  # it went while no daemon ran
            self._known = ()
            self._changed.set()
        self._task = asyncio.create_task(self._watch())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._worker.close(0.1)

    def note_change(self) -> None:
        """Look at the repositories soon, because something in a folder of git has changed."""
        self._changed.set()

    async def _watch(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            if await wait_event(self._changed, QUIET_SECONDS):
                continue
            present = await asyncio.to_thread(lenders, self._engine.history.store)
            if present == self._known:
                continue
            try:
                await self._take_over()
                self._known = present
            except (Refused, OSError) as error:
                log.error(
                    "contents of the user's repository are not taken over, and are tried again: %s", error
                )
                self._changed.set()
                await asyncio.sleep(RETRY_SECONDS)

    async def _take_over(self) -> None:
        """Have the missing contents taken from the files. Raises OSError, Refused.

        The process knows the packs alone, so that all transactions are packed first.
        """
        await self._background.pack()
        commits = await self._queue.run(self._baseline)
        answer = await self._worker.ask({"do": "take_over", "commits": commits})
        if answer is None or "failed" in answer:
            raise OSError("the process died" if answer is None else answer["failed"])
        if answer["taken"]:
            log.info("%d contents that the user's repository had are taken from the files", answer["taken"])
        await self._queue.run(partial(self._note, answer["lost"], answer["lost_count"]))

    def _baseline(self) -> list[str]:
        """Return the commits whose content may be borrowed, as far as they are packed."""
        history = self._engine.history
        first = history.index.log(
            LogQuery(kinds=("baseline",), before=history.packed + 1), BASELINES_MAX, files=False
        )
        return [transaction.id for transaction in first]

    def _note(self, lost: list[str], count: int) -> None:
        history = self._engine.history
        history.reopen_packs()
        history.unlent = []
        if count:
            names = (
                join_names(lost) if count == len(lost) else f"{join_names(lost[:10])} and {count - 10} more"
            )
            cause = "The user's git repository has lost it, and the file was changed before editd took it."
            history.unlent = [f"The first content of {names} cannot be restored. {cause}"]
            log.warning("%s", history.unlent[0])
