"""The method `check` with `repair`: planned while the history is open, done when it is closed.

A repair rewrites what the engine stands on. So it is the last thing that a daemon does: it says no where
something would be lost, else it ends, repairs once nobody has the history open, and answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from editd.errors import HistoryDamaged, IoError, Refused
from editd.server.methods.check import problems_of_history
from editd.store.repair import Repair
from editd.values.path import WorkspacePath
from editd.wire import messages
from editd.workspace.reader import WorkspaceReader

if TYPE_CHECKING:
    from editd.server.dispatch import MethodCall, Services
    from editd.system.filesystem import RealDisk

log = logging.getLogger(__name__)

LOST_NAMED_MAX = 1000  # in one answer


class RepairMethods:
    def __init__(self, folder: str, disk: RealDisk, stop: asyncio.Event, file_bytes_max: int) -> None:
        """`folder` is the state folder; `stop` is set where the daemon is to end for a repair."""
        self._folder = folder
        self._tree = WorkspaceReader(disk, file_bytes_max=file_bytes_max)
        self._stop = stop
        self._waiting: MethodCall | None = None  # whose repair is to be done at the end
        self._tasks: set[asyncio.Task[None]] = set()

    def ask(self, params: messages.Check, call: MethodCall, services: Services | None) -> None:
        """Begin to plan a repair. `workshop`: who has the history open, if anybody has."""
        task = asyncio.get_running_loop().create_task(self._ask(params, call, services))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ask(self, params: messages.Check, call: MethodCall, services: Services | None) -> None:
        try:
            repair = await self._planned(services)
        except (Refused, OSError) as error:
            call.refuse(_refusal(error))
            return
        if repair is None or (not repair.done and not repair.lost):
            call.reply(messages.CheckResult(ok=True, problems=[], repaired=[], lost=[], aside=None))
        elif repair.lost and not params.lose:
            call.refuse(_would_lose(repair))
        elif self._waiting is not None:
            call.refuse(HistoryDamaged("A repair is under way.", hint="Connect again when it is done."))
        else:
            self._waiting = call
            self._stop.set()

    async def _planned(self, services: Services | None) -> Repair | None:
        """What is to be mended; None where a check finds nothing wrong. Raises Refused, OSError.

        A plan is made of a history that stands still: one that grows beneath it would look as if the half of
        it were lost. A check does not need that, so nobody waits where all is well.
        """
        loop = asyncio.get_running_loop()
        if services is None:
            return await loop.run_in_executor(None, self._plan)
        engine = services.engine
        if engine.broken is None and not await problems_of_history(services):
            return None
        async with services.background.exclusively():
            if engine.broken is not None:  # so that nobody edits
                return await loop.run_in_executor(None, self._plan)

            def plan() -> Repair:
                with contextlib.suppress(Refused):  # what is damaged may be the index
                    engine.history.index.flush()
                return self._plan()

            return await services.queue.run_in_thread(plan)

    async def finish(self) -> None:
        """Do what was asked for; nobody has the history open any more."""
        call = self._waiting
        if call is None:
            return
        try:
            repair, aside = await asyncio.get_running_loop().run_in_executor(None, self._carry_out)
        except (Refused, OSError) as error:
            log.critical("the repair failed: %s", error)
            call.refuse(_refusal(error))
            return
        for sentence in (*repair.done, *(f"lost: {lost}" for lost in repair.lost)):
            log.warning("repaired: %s", sentence)
        call.reply(
            messages.CheckResult(ok=True, problems=[], repaired=repair.done, lost=repair.lost, aside=aside)
        )

    def _plan(self) -> Repair:
        return Repair(self._folder, self._held)

    def _carry_out(self) -> tuple[Repair, str | None]:
        repair = self._plan()
        return repair, repair.carry_out()

    def _held(self, path: str) -> bytes | None:
        try:
            state = self._tree.read(WorkspacePath(path))
        except (Refused, OSError):
            return None
        return None if state is None else state.content


def _would_lose(repair: Repair) -> HistoryDamaged:
    return HistoryDamaged(
        f"A repair would lose {len(repair.lost)} things that cannot be brought back: {repair.lost[0]}",
        hint="Nothing was changed. Where that is understood: `editctl check --repair --yes`.",
        data={"lost": repair.lost[:LOST_NAMED_MAX], "repaired": repair.done[:LOST_NAMED_MAX]},
    )


def _refusal(error: Refused | OSError) -> Refused:
    return error if isinstance(error, Refused) else IoError(error, "The history could not be repaired")
