"""The method `check` with `repair`: planned while the history is open, carried out when it is closed.

A repair rewrites the files that the engine has open, so it is the last action of a daemon. It is refused if
something would be lost. Otherwise the daemon ends, repairs once the history is closed, and answers.
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
        """`folder` is the state folder; setting `stop` ends the daemon for a repair."""
        self._folder = folder
        self._tree = WorkspaceReader(disk, file_bytes_max=file_bytes_max)
        self._stop = stop
        self._waiting: MethodCall | None = None  # the request for the repair at the end
        self._tasks: set[asyncio.Task[None]] = set()

    def ask(self, params: messages.Check, call: MethodCall, services: Services | None) -> None:
        """Begin to plan a repair. `services` have the history open, unless None."""
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
        """Return the plan of a repair; None if a check finds no problem. Raises Refused, OSError.

        A plan needs a history that does not change: in one that grows meanwhile, the new half would look
        lost. A check does not need that, so nobody waits if all is well.
        """
        loop = asyncio.get_running_loop()
        if services is None:
            return await loop.run_in_executor(None, self._plan)
        engine = services.engine
        if engine.broken is None and not await problems_of_history(services):
            return None
        async with services.background.exclusively():
            if engine.broken is not None:  # so no edit can come in between
                return await loop.run_in_executor(None, self._plan)

            def plan() -> Repair:
                with contextlib.suppress(Refused):  # the index may be what is damaged
                    engine.history.index.flush()
                return self._plan()

            return await services.queue.run_in_thread(plan)

    async def finish(self) -> None:
        """Carry out the requested repair. The history is closed by now."""
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
        hint="Nothing was changed. To accept this loss, run `editctl check --repair --yes`.",
        data={"lost": repair.lost[:LOST_NAMED_MAX], "repaired": repair.done[:LOST_NAMED_MAX]},
    )


def _refusal(error: Refused | OSError) -> Refused:
    return error if isinstance(error, Refused) else IoError(error, "The history could not be repaired")
