"""The method `check`: a verification that history, journal and files agree."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from editd.errors import Refused
from editd.store.journal import JournalPosition, frames, read_while_written
from editd.wire import messages

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from editd.server.dispatch import ClientState, MethodCall, Services


class CheckMethods:
    def __init__(
        self, services: Services, later: Callable[[Coroutine[Any, Any, None], MethodCall], None]
    ) -> None:
        self._services = services
        self._engine = services.engine
        self._later = later
        self.methods: dict[type[messages.Params], Callable[[Any, ClientState, MethodCall], None]] = {
            messages.Check: self._check
        }

    def _check(self, params: messages.Check, caller: ClientState, call: MethodCall) -> None:
        del params, caller
        self._later(self._answer(call), call)

    async def _answer(self, call: MethodCall) -> None:
        self._engine.check_in_place()
        await self._services.scanner.settle(self._engine, self._services.queue)
        problems = await problems_of_history(self._services)
        await self._services.queue.idle()
        problems += self._disagreements(problems)
        call.reply(messages.CheckResult(ok=not problems, problems=problems, repaired=[], lost=[], aside=None))

    def _disagreements(self, known: list[str]) -> list[str]:
        """Return disagreements of index, head and files, and the engine's fault unless it is `known`."""
        history = self._engine.history
        problems = [f"The files and the history differ: {path}" for path in self._services.scanner.unrecorded]
        broken = self._engine.broken
        if broken is not None:
            file = broken.data.get("file")
            is_known = any(broken.message in said or (file and file in said) for said in known)
            return problems if is_known else [*problems, broken.text()]
        try:
            counted = history.index.count(history.floor.seq)
        except Refused as refusal:
            return [*problems, refusal.text()]
        if counted != history.head - history.floor.seq:
            problems.append(
                f"The index has {counted} transactions after {history.floor.seq}, "
                f"the history {history.head - history.floor.seq}."
            )
        return problems


async def problems_of_history(services: Services) -> list[str]:
    """Return the problems of store, index and journal, as sentences. Raises ShuttingDown."""
    problems = await services.background.check()
    journal = services.engine.history.journal.folder
    return problems + await asyncio.get_running_loop().run_in_executor(None, _of_journal, journal)


def _of_journal(folder: str) -> list[str]:
    """Return the problems of the whole journal, which may be written meanwhile."""

    def read() -> None:
        for _frame in frames(folder, JournalPosition(0, 0)):
            continue

    try:
        read_while_written(read)
    except Refused as refusal:
        return [refusal.text()]
    except OSError as error:
        return [f"The journal cannot be read: {error}."]
    return []
