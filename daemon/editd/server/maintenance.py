"""Background work: packing commits, syncing published files, recycling segments, and verifying.

No edit waits for any of it, and all of it is finished before the daemon ends. A task of its own checks the
replaced files: packing and syncing take seconds, in which eight clients replace thousands of files.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
from typing import TYPE_CHECKING, Any

from editd.errors import Broken, HistoryDamaged, Refused, ShuttingDown
from editd.server.async_timeout import wait_event
from editd.server.child_process import PYTHON, ChildProcess, answering
from editd.store.journal import JournalPosition
from editd.store.pack_cleanup import is_tidy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from editd.engine.engine import Engine
    from editd.server.engine_queue import EngineQueue

log = logging.getLogger(__name__)

QUIET_SECONDS = 0.15  # without an edit, before packing or a check starts: a burst has the machine for itself
LAG_SECONDS_MAX = 2.0  # then packing starts in the middle of a burst, too
SYNC_SECONDS = 1.0  # after the last edit: until then a power cut costs a redo from the journal
SYNC_SECONDS_MAX = 5.0  # under load
TICK_SECONDS = 0.1
RETRY_SECONDS = 2.0  # after a failure, such as a full disk, which is logged each time
PACKER_NICE = 10
PROVER_NICE = 15  # packing goes first
FINISH_SECONDS_MAX = 60.0  # for packing at the end; unpacked transactions stay in the journal

_NOT_AHEAD = "files for the next edits could not be prepared: %s"


class Maintenance:
    def __init__(self, engine: Engine, queue: EngineQueue, folder: str) -> None:
        self._engine = engine
        self._queue = queue
        self._folder = folder
        self._packer: ChildProcess | None = None
        self._deaths = 0  # of it, one after the other
        self._answer: asyncio.Future[dict[str, Any] | None] | None = None  # of the current request
        self._busy = asyncio.Lock()  # one request to the packer at a time
        self._proof: asyncio.Future[dict[str, Any] | None] | None = None  # of the verification under way
        self._proving = asyncio.Lock()  # one verification at a time
        self._packed_at = self._synced_at = asyncio.get_running_loop().time()
        self._work: asyncio.Future[tuple[None, None]] | None = None
        self._end = asyncio.Event()
        self._has_journal_failed = False
        self._is_tidy = True
        self._rests_until = 0.0  # after preparing files has failed

    def start(self) -> None:
        if self._engine.broken is None:
            if (make := self._engine.files.make_ahead()) is not None:
                with contextlib.suppress(OSError):  # a later attempt logs it
                    self._engine.files.made_ahead(make())  # now: edits without a pause leave no time for it
            with contextlib.suppress(OSError):
                self._is_tidy = is_tidy(os.path.join(self._engine.history.store, "objects", "pack"))
        self._work = asyncio.gather(
            self._run(self._tick, self._is_work_left), self._run(self._look, self._are_looks_left)
        )

    async def finish(self) -> None:
        """Pack and sync everything, then end the packing process. A verification is cut off."""
        self._end.set()
        self._queue.activity.note()
        try:
            async with asyncio.timeout(FINISH_SECONDS_MAX):
                await self._end_proof()
                if self._work is not None:  # not cancelled: its answer would be taken for the next one
                    await asyncio.shield(self._work)
                await self._pack()
        except TimeoutError:
            log.error("not all is packed: the packing process does not answer, and is killed")
            if self._packer is not None:
                self._packer.kill()
            if self._work is not None:
                await self._work
        except (Refused, OSError) as error:
            log.error("not all is packed: %s", error)  # it stays in the journal
        try:
            await self._sync()
        except OSError as error:
            log.error("the workspace is not synced: %s", error)  # the next daemon does it
        if self._packer is not None:
            packer, self._packer = self._packer, None
            await packer.close()

    async def pack(self) -> None:
        """Pack all transactions committed so far. Raises Broken if that fails."""
        await self._pack()

    async def check(self) -> list[str]:
        """Verify the store's objects and their chain in a process; return the problems, as sentences.

        Packing goes on meanwhile, because a long history takes minutes. Raises ShuttingDown.
        """
        async with self._proving:
            self._check_open()
            try:
                await self._pack()
                await self._queue.idle()
                self._engine.history.index.flush()  # the process compares its file with the packs
            except Refused as refusal:
                return [refusal.text()]
            through = None if self._engine.broken is not None else int(self._engine.history.head)
            answer = await self._proven({"through": through})
        if answer is None:
            return ["The process that checks the history ended before it was done."]
        problems = list(answer["problems"])
        if answer["damaged"] and self._engine.broken is None:
            await self._queue.idle()
            self._engine.broken = HistoryDamaged(problems[0], hint="Nothing was changed.")
        return problems

    @contextlib.asynccontextmanager
    async def exclusively(self) -> AsyncIterator[None]:
        """Keep packing and verification out while this lasts; afterwards, packing reads the store again.

        Waits for a verification under way first, while packing goes on. Raises ShuttingDown.
        """
        async with self._proving, self._busy:
            self._check_open()
            if self._packer is not None:
                packer, self._packer = self._packer, None
                await packer.close()
            yield

    async def _run(self, work: Callable[[], Awaitable[None]], is_left: Callable[[], bool]) -> None:
        """Work every tick while something is left to do. Otherwise sleep until the next activity."""
        seconds = TICK_SECONDS
        while not await wait_event(self._end, seconds):
            try:
                await work()
                seconds = TICK_SECONDS
            except (Refused, OSError) as error:
                log.critical("background work failed, and is retried: %s", error)
                seconds = RETRY_SECONDS
            except Exception:  # our bug; without this task all of its work would be left undone
                log.exception("background work failed, and is retried")
                seconds = RETRY_SECONDS
            await self._queue.idle()
            if not (is_left() or self._end.is_set()):  # no await between this check and the wait
                await self._queue.activity.wait()

    def _is_work_left(self) -> bool:
        """Whether `_tick` has something to do now or soon."""
        engine = self._engine
        journal = engine.history.journal
        return (
            not self._is_tidy
            or (engine.synced < engine.history.head and not engine.has_sync_failed)
            or (journal.is_unsynced and not self._has_journal_failed)
            or engine.packing_due() is not None
            or (engine.broken is None and not journal.has_spare)
            or engine.history.index.is_waiting
        )

    def _are_looks_left(self) -> bool:
        """Whether `_look` has something to do now or soon."""
        files = self._engine.files
        return self._engine.broken is None and (files.has_replaced or files.make_ahead() is not None)

    async def _tick(self) -> None:
        """Sync and pack if they are due. Raises Refused, OSError."""
        loop = asyncio.get_running_loop()
        await self._queue.idle()
        now, quiet = loop.time(), self._quiet
        if self._engine.synced < self._engine.history.head:
            if quiet > SYNC_SECONDS or now - self._synced_at > SYNC_SECONDS_MAX:
                await self._sync()
                self._synced_at = loop.time()
        else:
            self._synced_at = now
        await self._sync_journal()
        if self._engine.packing_due() and (quiet > QUIET_SECONDS or now - self._packed_at > LAG_SECONDS_MAX):
            await self._pack()
            self._packed_at = loop.time()
        if not self._is_tidy:
            async with self._busy:
                await self._begin_packer()
        await self._queue.idle()
        await self._make_segment()
        if quiet > QUIET_SECONDS or self._engine.history.index.flaw is not None:
            while self._engine.history.index.write_some():
                await asyncio.sleep(0)  # let other requests in between
                await self._queue.idle()

    @property
    def _quiet(self) -> float:
        """Seconds since the last edit."""
        return self._engine.clock.monotonic() - self._engine.last_write

    async def _look(self) -> None:
        """Check the files replaced a while ago, and prepare new ones. Raises Refused, OSError."""
        loop = asyncio.get_running_loop()
        await self._queue.idle()
        is_busy = self._quiet <= QUIET_SECONDS
        if (look := self._engine.check_quarantine(is_busy=is_busy)) is not None:
            looks = await loop.run_in_executor(None, look)
            await self._queue.idle()
            self._engine.record_late_writes(looks)
        if not is_busy and loop.time() >= self._rests_until:
            await self._make_files()

    async def _make_files(self) -> None:
        """Prepare some files, so that no edit waits for them to be made."""
        make = self._engine.files.make_ahead() if self._engine.broken is None else None
        if make is None:
            return
        loop = asyncio.get_running_loop()
        try:
            made = await loop.run_in_executor(None, make)
        except OSError as error:
            log.warning(_NOT_AHEAD, error)
            self._rests_until = loop.time() + RETRY_SECONDS
            return
        await self._queue.idle()
        self._engine.files.made_ahead(made)

    async def _make_segment(self) -> None:
        """Prepare a segment of the journal. It is 8 MiB, so a thread makes it."""
        journal = self._engine.history.journal
        if self._engine.broken is None and not journal.has_spare:
            try:
                made = await asyncio.get_running_loop().run_in_executor(None, journal.make_spare)
            except OSError as error:
                log.warning(_NOT_AHEAD, error)
                return
            await self._queue.idle()
            journal.add_spare(made)

    async def _pack(self) -> None:
        """Pack all committed transactions. Raises Broken if that fails."""
        await self._queue.idle()
        due = self._engine.packing_due()
        if due is None:
            return
        start, until, through = due
        request = {
            "start": [start.segment, start.offset],
            "until": [until.segment, until.offset],
            "through": through,
        }
        answer = await self._ask(request)
        await self._queue.idle()
        if answer is None:
            self._deaths += 1
            log.warning("the packing process ended; it will be started again")
            if self._deaths > 1:
                raise Broken("The packing process keeps crashing.", hint="See the daemon's log.")
        elif "failed" in answer:
            failure = Broken(f"Packing failed: {answer['failed']}", hint="Run `editctl check`.")
            if answer["damaged"]:
                self._engine.broken = failure
            raise failure  # unpacked transactions stay in the journal
        else:
            self._deaths = 0
            self._engine.packed(answer["packed"], JournalPosition(*answer["until"]))

    async def _sync_journal(self) -> None:
        """With `durability = "relaxed"`, sync the answered edits, but never again after that has failed.

        A second sync may well succeed after the kernel has dropped the pages that the first could not write.
        """
        await self._queue.idle()
        begun = None if self._has_journal_failed else self._engine.history.journal.begin_sync()
        if begun is None:
            return
        descriptor, done = begun
        try:
            await asyncio.get_running_loop().run_in_executor(None, os.fdatasync, descriptor)
        except OSError as error:
            log.critical("the journal could not be synced: %s", error)
            self._has_journal_failed = True
            self._engine.broken = Broken(
                f"The journal could not be synced, and answered edits may be lost: {error}.",
                hint="Repair the disk and restart the daemon.",
            )
            return
        finally:
            os.close(descriptor)
        await self._queue.idle()
        done()

    async def _sync(self) -> None:
        """Sync all published files. Raises OSError if no sync could be tried."""
        await self._queue.idle()
        if self._engine.synced >= self._engine.history.head or self._engine.has_sync_failed:
            return
        through = self._engine.history.head  # all of it is in the files now; later transactions may not be
        try:
            await asyncio.get_running_loop().run_in_executor(None, self._engine.sync_files, through)
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                raise
            log.critical("the workspace could not be synced: %s", error)
            await self._queue.idle()
            self._engine.sync_failed(error)
            return
        await self._queue.idle()
        self._engine.files_synced(through)

    async def _ask(self, request: dict[str, Any]) -> dict[str, Any] | None:
        """Send one request to the packing process, started if needed; return None if it dies."""
        async with self._busy:
            packer = await self._begin_packer()
            self._answer = asyncio.get_running_loop().create_future()
            packer.send(request)
            return await self._answer

    async def _begin_packer(self) -> ChildProcess:
        """Return the packing process, started if needed. It then removes the leftovers of a killed one."""
        if self._packer is None:
            argv = [*PYTHON, "editd.store.pack_worker", self._folder]
            packer = ChildProcess(argv, nice=PACKER_NICE, on_frame=self._heard, on_death=self._died)
            await packer.start()
            self._packer, self._is_tidy = packer, True
        return self._packer

    async def _proven(self, request: dict[str, Any]) -> dict[str, Any] | None:
        """Verify in a process of its own; return its answer, None if it dies. Raises ShuttingDown."""
        argv = [*PYTHON, "editd.store.verify_worker", self._folder]
        async with answering(argv, request, nice=PROVER_NICE) as (_, answer):
            self._check_open()
            self._proof = answer
            return await answer

    async def _end_proof(self) -> None:
        """Cut off a verification under way. All who wait for it have been answered."""
        if self._proof is not None and not self._proof.done():
            self._proof.set_exception(_cut_off())
        async with self._proving:
            return

    def _check_open(self) -> None:
        """Raise ShuttingDown if the daemon is ending."""
        if self._end.is_set():
            raise _cut_off()

    def _heard(self, answer: dict[str, Any] | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(answer)

    def _died(self, _status: int) -> None:
        self._packer = None
        self._heard(None)  # without effect if it was killed between two requests


def _cut_off() -> ShuttingDown:
    return ShuttingDown("The daemon is ending.", hint="Connect again and retry: nothing was changed.")
