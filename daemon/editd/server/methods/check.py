"""The method `check`: a verification that history, journal and files agree."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sqlite3
from typing import TYPE_CHECKING

from msgspec import MsgspecError

from editd.advice import Advice, command_term
from editd.errors import HistoryDamaged, IoError, Refused
from editd.server import convert
from editd.server.connection import PendingAnswer
from editd.store.journal import JournalPosition, frames, read_while_written
from editd.store.proposal_seals import PROPOSALS_FILE, flaws_in, losses
from editd.store.repair import Repair
from editd.store.transaction_record import rfc3339
from editd.store.verify import MENDS
from editd.wire import messages
from editd.workspace.reader import WorkspaceReader

if TYPE_CHECKING:
    from editd.server.connection import Answer, ClientState
    from editd.server.maintenance import HistoryCheck
    from editd.server.methods import Services
    from editd.system.filesystem import Disk


async def check(services: Services, params: messages.Check, _caller: ClientState) -> messages.CheckResult:
    services.engine.recorder.check_in_place()
    with contextlib.suppress(IoError):  # The scanner has it in `unrecorded`.
        await services.scanner.settle(services.engine, services.queue)
    problems, known, known_us = await _verify_history(services, is_full=params.full)
    problems += await services.queue.run(lambda: _disagreements(services, problems))
    return messages.CheckResult(
        ok=not problems, problems=problems, repaired=[], lost=[], aside=None, known=known,
        known_time=None if known_us is None else rfc3339(known_us),
    )  # fmt: skip


def _disagreements(services: Services, known: list[str]) -> list[str]:
    """Return disagreements of index, head and files, and the engine's fault unless it is `known`."""
    history = services.engine.history
    problems = [f"The files and the history differ: {path}" for path in services.scanner.unrecorded]
    broken = services.engine.recorder.broken
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


async def _verify_history(services: Services, *, is_full: bool) -> HistoryCheck:
    """Verify store, index, journal and proposals. Raises ShuttingDown."""
    verified = await services.background.check(is_full=is_full)
    journal, loop = services.engine.history.journal.folder, asyncio.get_running_loop()
    problems = await loop.run_in_executor(None, _of_journal, journal)
    problems += await loop.run_in_executor(None, _of_proposals, os.path.dirname(journal))
    return verified._replace(problems=[*verified.problems, *problems])


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


def _of_proposals(folder: str) -> list[str]:
    """Return the problems of the proposals, whose database may be written meanwhile."""
    try:
        flaws = flaws_in(os.path.join(folder, PROPOSALS_FILE))
        return [*(f"{flaw.sentence} {MENDS}" for flaw in flaws), *losses(folder)]
    except (OSError, sqlite3.Error, MsgspecError) as error:
        return [f"The proposals cannot be read: {error}."]


# The method `check` with `repair`: planned while the history is open, carried out when it is closed.
#
# A repair rewrites the files that the engine has open, so it is the last action of a daemon. It is refused
# if something would be lost. Otherwise the daemon ends, repairs once the history is closed, and answers.

log = logging.getLogger(__name__)

_NOTHING_FOUND = "The history cannot be opened, and a repair finds nothing in it that it can repair."
LOST_NAMED_MAX = 1000  # in one answer


class Repairs:
    def __init__(self, folder: str, disk: Disk, stop: asyncio.Event, file_bytes_max: int) -> None:
        """`folder` is the state folder; setting `stop` ends the daemon for a repair."""
        self._folder = folder
        self._tree = WorkspaceReader(disk, file_bytes_max=file_bytes_max)
        self._stop = stop
        self._waiting: PendingAnswer | None = None  # the request for the repair at the end

    async def repair(self, params: messages.Check, services: Services | None) -> Answer:
        """Plan a repair; if there is something to do, end the daemon for it, and answer then.

        `services` are None if the history is not open. Raises Refused.
        """
        try:
            repair, problems = await self._planned(services)
        except OSError as error:
            raise _failure(error) from error
        if repair is None or (not repair.done and not repair.lost):
            return messages.CheckResult(
                ok=repair is None, problems=problems, repaired=[], lost=[], aside=None
            )
        if repair.lost and not params.lose:
            raise _would_lose(repair)
        if self._waiting is not None:
            raise HistoryDamaged("A repair is under way.", hint="Connect again when it is done.")
        self._waiting = PendingAnswer()
        self._stop.set()
        return self._waiting

    async def _planned(self, services: Services | None) -> tuple[Repair | None, list[str]]:
        """Return the plan of a repair, and the problems before it; None if a check finds no problem.

        Raises Refused, OSError.

        A plan needs a history that does not change: in one that grows meanwhile, the new half would look
        lost. A check does not need that, so no client waits if all is well.
        """
        loop = asyncio.get_running_loop()
        if services is None:
            return await loop.run_in_executor(None, self._plan), [_NOTHING_FOUND]
        engine = services.engine
        broken = engine.recorder.broken
        if broken is not None:
            problems = [broken.text()]
        else:
            problems = (await _verify_history(services, is_full=True)).problems
        if not problems:
            return None, []
        async with services.background.exclusively():
            if engine.recorder.broken is not None:  # so no edit can come in between
                return await loop.run_in_executor(None, self._plan), problems

            def plan() -> Repair:
                with contextlib.suppress(Refused):  # the index may be what is damaged
                    engine.history.index.flush()
                return self._plan()

            return await services.queue.run_in_thread(plan), problems

    async def finish(self) -> None:
        """Carry out the requested repair. The history is closed by now."""
        if self._waiting is None:
            return
        call = self._waiting.call
        try:
            repair, aside, left = await asyncio.get_running_loop().run_in_executor(None, self._carry_out)
        except (Refused, OSError) as error:
            log.critical("the repair failed: %s", error)
            call.refuse(error if isinstance(error, Refused) else _failure(error))
            return
        for sentence in (*repair.done, *(f"lost: {lost}" for lost in repair.lost)):
            log.warning("repaired: %s", sentence)
        for sentence in left:
            log.critical("still damaged after the repair: %s", sentence)
        call.reply(
            messages.CheckResult(
                ok=not left, problems=left, repaired=repair.done, lost=repair.lost, aside=aside
            )
        )

    def _plan(self) -> Repair:
        return Repair(self._folder, self._held)

    def _carry_out(self) -> tuple[Repair, str | None, list[str]]:
        """Carry out the repair; return it, the folder of damaged files, and what it has not repaired."""
        repair = self._plan()
        aside = repair.carry_out()
        if aside is not None and not os.path.isdir(os.path.join(self._folder, "store.git")):
            return repair, aside, []  # the next start begins a new history
        again = Repair(self._folder, self._held, has_index=False)
        return repair, aside, [*again.done, *again.lost]

    def _held(self, path: str) -> bytes | None:
        try:
            state = self._tree.read(convert.known_path(path))
        except (Refused, OSError):
            return None
        return None if state is None else state.content


def _would_lose(repair: Repair) -> HistoryDamaged:
    return HistoryDamaged(
        f"A repair would lose {len(repair.lost)} things that cannot be brought back: {repair.lost[0]}",
        hint=Advice(
            "Nothing was changed. To accept this loss, run ", command_term("check --repair --yes"), "."
        ),
        data={"lost": repair.lost[:LOST_NAMED_MAX], "repaired": repair.done[:LOST_NAMED_MAX]},
    )


def _failure(error: OSError) -> IoError:
    return IoError(error, "The history could not be repaired")
