"""Background work: packing commits, syncing published files, recycling segments, and verifying.

No edit waits for any of it, and all of it is finished before the daemon ends. A separate task checks the
replaced files: packing and syncing take seconds, while eight clients replace thousands of files.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from editd.advice import Advice, command_term
from editd.errors import Broken, HistoryDamaged, Refused, ShuttingDown
from editd.server.child_process import PYTHON, RequestProcess
from editd.server.engine_queue import Alarm, wait_event
from editd.store.journal import JournalPosition
from editd.store.pack_cleanup import is_tidy
from editd.system.filesystem import flush
from editd.system.memory import release_free_memory
from editd.values.path import forget_bytes_of_paths

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from editd.engine.engine import Engine
    from editd.server.engine_queue import EngineQueue
    from editd.values.transaction import Seq

log = logging.getLogger(__name__)

QUIET_SECONDS = 0.15  # without an edit, before packing or a check starts: a burst has the machine for itself
PACK_QUIET_SECONDS = 5.0  # without an edit, before a few transactions are packed: the journal has them
GIVE_BACK_BYTES = 8 * 1024 * 1024  # packed at once: the memory of these contents goes back to the system
GIVE_BACK_SECONDS = 1.0  # later: an answer or a queue may hold them a little longer
LAG_SECONDS_MAX = 2.0  # then packing starts in the middle of a burst, too
SYNC_SECONDS = 1.0  # after the last edit: until then a power cut costs a redo from the journal
SYNC_SECONDS_MAX = 5.0  # under load
TICK_SECONDS = 0.1  # at least, between two looks for work
REST_SECONDS = 1.05  # after the first activity: all that an edit leaves to do within SYNC_SECONDS is due then
LATE_SECONDS = 0.005  # so that what is due is due by every clock
RETRY_SECONDS = 2.0  # after a failure, such as a full disk, which is logged each time
PACKER_NICE = 10
PROVER_NICE = 15  # packing goes first
FINISH_SECONDS_MAX = 60.0  # for packing at the end; unpacked transactions stay in the journal

_NOT_AHEAD = "files for the next edits could not be prepared: %s"


class HistoryCheck(NamedTuple):
    """The problems of the history, as sentences, and which verification this one continues, if any."""

    problems: list[str]
    known: int | None = None  # up to this transaction all was verified earlier
    known_us: int | None = None  # at this time


class Maintenance:
    def __init__(self, engine: Engine, queue: EngineQueue, folder: str) -> None:
        self._engine = engine
        self._queue = queue
        self._packer = RequestProcess([*PYTHON, "editd.store.pack_worker", folder], nice=PACKER_NICE)
        # A large comparison of the index spills into files. SQLite reads the variable when it is imported.
        self._prover = RequestProcess(
            [*PYTHON, "editd.store.verify_worker", folder],
            nice=PROVER_NICE,
            variables={"SQLITE_TMPDIR": folder},
        )
        self._deaths = 0  # of it, one after the other
        self._busy = asyncio.Lock()  # one request to the packer at a time
        self._proving = asyncio.Lock()  # one verification at a time
        self._packed_at = self._synced_at = asyncio.get_running_loop().time()
        self._work: asyncio.Future[tuple[None, None]] | None = None
        self._end = Alarm()
        self._urged = Alarm()  # much waits for packing, or the daemon ends
        self._loop = asyncio.get_running_loop()
        engine.recorder.on_pressing.append(self._urge)
        self._has_journal_failed = False
        self._is_tidy = True
        self._give_back_at: float | None = None  # the loop's time
        self._long_works = 0  # after which memory was given back, or will be
        self._rests_until = 0.0  # after preparing files has failed

    def start(self) -> None:
        if self._engine.recorder.broken is None:
            if (make := self._engine.files.make_ahead()) is not None:
                with contextlib.suppress(OSError):  # a later attempt logs it
                    self._engine.files.made_ahead(make())  # now: edits without a pause leave no time for it
            with contextlib.suppress(OSError):
                self._is_tidy = is_tidy(os.path.join(self._engine.history.store, "objects", "pack"))
        self._work = asyncio.gather(
            self._run(self._tick, self._tick_due, self._urged),
            self._run(self._look, self._look_due, self._end),
        )

    async def finish(self) -> None:
        """Pack and sync everything, then end the packing process. A verification is cut off."""
        self._end.set()
        self._urged.set()
        self._queue.activity.note()
        try:
            async with asyncio.timeout(FINISH_SECONDS_MAX):
                await self._end_proof()
                if self._work is not None:  # not cancelled: its answer would be taken for the next one
                    await asyncio.shield(self._work)
                await self.pack()
        except TimeoutError:
            log.error("not all is packed: the packing process does not answer, and is killed")
            self._packer.kill()
            if self._work is not None:
                await self._work
        except (Refused, OSError) as error:
            log.error("not all is packed: %s", error)  # it stays in the journal
        try:
            await self._sync()
        except OSError as error:
            log.error("the workspace is not synced: %s", error)  # the next daemon does it
        await self._packer.close()

    async def check(self, *, is_full: bool) -> HistoryCheck:
        """Verify the store's objects and their chain in a process. Raises ShuttingDown.

        Unless `is_full`, what an earlier verification has covered counts. Packing goes on meanwhile, because
        a long history takes minutes.
        """
        async with self._proving:
            self._check_open()
            try:
                await self.pack()
                await self._queue.run(self._engine.history.index.flush)  # which is compared with the packs
            except Refused as refusal:
                return HistoryCheck([refusal.text()])
            through = None if self._engine.recorder.broken is not None else int(self._engine.history.head)
            answer = await self._proven({"through": through, "full": is_full})
        if answer is None:
            self._check_open()
            return HistoryCheck(["The process that checks the history ended before it was done."])
        problems = list(answer["problems"])
        if answer["damaged"]:
            await self._queue.run(partial(self._mark_damaged, problems[0]))
        return HistoryCheck(problems, answer["known"], answer["known_us"])

    def _mark_damaged(self, problem: str) -> None:
        if self._engine.recorder.broken is None:
            self._engine.recorder.broken = HistoryDamaged(problem, hint="Nothing was changed.")

    @contextlib.asynccontextmanager
    async def exclusively(self) -> AsyncIterator[None]:
        """Keep packing and verification out while this lasts; afterwards, packing reads the store again.

        Waits for a verification under way first, while packing goes on. Raises ShuttingDown.
        """
        async with self._proving, self._busy:
            self._check_open()
            await self._packer.close()
            yield

    async def _run(
        self,
        work: Callable[[], Awaitable[None]],
        due: Callable[[], float | None],
        urged: Alarm,
    ) -> None:
        """Work when something is due, at most once a tick. Otherwise sleep: no timer wakes an idle daemon.

        `due` returns the seconds until `work` may have something to do, or None if it has nothing.
        """
        loop = asyncio.get_running_loop()
        seconds = pause = TICK_SECONDS
        rested_at = loop.time()
        while True:
            if await wait_event(urged, seconds):
                await wait_event(self._end, rested_at + pause - loop.time())
            if self._end.is_set():
                return
            urged.clear()
            rested_at, pause = loop.time(), TICK_SECONDS
            try:
                await work()
                rested_at = loop.time()
                seconds = max(pause, await self._until(due))
            except (Refused, OSError) as error:
                log.critical("background work failed, and is retried: %s", error)
                seconds = pause = RETRY_SECONDS
            except Exception:  # our bug; without this task all of its work would be left undone
                log.exception("background work failed, and is retried")
                seconds = pause = RETRY_SECONDS

    async def _until(self, due: Callable[[], float | None]) -> float:
        """Sleep while nothing is due soon. Return the seconds until something may be.

        An edit puts off what waits for quiet, so that a long sleep begins anew with it.
        """
        seconds, news = await self._queue.run(lambda: self._next(due))
        if news is None:
            return 0.0 if seconds is None else seconds
        if seconds is None:
            await news.wait()
        elif not await wait_event(news, seconds):
            return 0.0
        return REST_SECONDS

    def _next(self, due: Callable[[], float | None]) -> tuple[float | None, Alarm | None]:
        """Return the seconds until something is due, and an event for the next activity if that is long."""
        seconds = due()
        if seconds is not None:
            seconds += LATE_SECONDS
        is_soon = seconds is not None and seconds <= REST_SECONDS
        return seconds, None if is_soon or self._end.is_set() else self._queue.activity.next()

    def _urge(self) -> None:
        """Note that there is much to pack. For any thread."""
        if not self._urged.is_set():
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._urged.set)

    def _tick_due(self) -> float | None:
        """Return the seconds until `_tick` may have something to do, or None."""
        recorder, history = self._engine.recorder, self._engine.history
        now, quiet = asyncio.get_running_loop().time(), self._quiet
        waits: list[float] = []
        if recorder.synced < history.head and not recorder.has_sync_failed:
            waits.append(min(SYNC_SECONDS - quiet, SYNC_SECONDS_MAX - (now - self._synced_at)))
        if recorder.packing_due() is not None:
            waits.append(self._until_packing(quiet, now))
        if history.index.is_waiting:
            waits.append(0.0 if history.index.flaw is not None else self._patience - quiet)
        if self._give_back_at is not None:
            waits.append(self._give_back_at - now)
        is_unsynced = history.journal.is_unsynced and not self._has_journal_failed
        has_no_spare = recorder.broken is None and not history.journal.has_empty_segment
        if not self._is_tidy or is_unsynced or has_no_spare or self._long_works != self._queue.long_works:
            waits.append(0.0)
        return min(waits, default=None)

    @property
    def _patience(self) -> float:
        """The seconds without an edit before packing starts."""
        return QUIET_SECONDS if self._engine.history.is_pressing else PACK_QUIET_SECONDS

    def _until_packing(self, quiet: float, now: float) -> float:
        """Return the seconds until packing is due, at most 0 if it is."""
        history = self._engine.history
        if history.is_half_full:
            return 0.0
        if not history.is_pressing:
            return PACK_QUIET_SECONDS - quiet
        return min(QUIET_SECONDS - quiet, LAG_SECONDS_MAX - (now - self._packed_at))

    def _look_due(self) -> float | None:
        """Return the seconds until `_look` may have something to do, or None."""
        engine = self._engine
        if engine.recorder.broken is not None:
            return None
        waits: list[float] = []
        if (seconds := engine.files.quarantine_due(engine.clock.monotonic())) is not None:
            waits.append(seconds)
        if engine.files.make_ahead() is not None:
            rest = self._rests_until - asyncio.get_running_loop().time()
            waits.append(max(QUIET_SECONDS - self._quiet, rest))
        return min(waits, default=None)

    async def _tick(self) -> None:
        """Sync and pack if they are due. Raises Refused, OSError."""
        loop = asyncio.get_running_loop()
        now, quiet = loop.time(), self._quiet
        if self._engine.recorder.synced < self._engine.history.head:
            if quiet > SYNC_SECONDS or now - self._synced_at > SYNC_SECONDS_MAX:
                await self._sync()
                self._synced_at = loop.time()
        else:
            self._synced_at = now
        await self._sync_journal()
        if self._until_packing(quiet, now) <= 0 and await self.pack():
            self._packed_at = loop.time()
        if not self._is_tidy:
            async with self._busy:
                await self._packer.start()
                self._is_tidy = True
        await self._make_segment()
        await self._give_back()
        index = self._engine.history.index
        if quiet > self._patience or index.flaw is not None:
            while await self._queue.run(index.write_some):  # noqa: ASYNC110  # others come in between
                await asyncio.sleep(0)

    @property
    def _quiet(self) -> float:
        """Seconds since the last edit."""
        return self._engine.clock.monotonic() - self._engine.recorder.last_write

    async def _look(self) -> None:
        """Check the files replaced a while ago, and prepare new ones. Raises Refused, OSError."""
        loop = asyncio.get_running_loop()
        is_busy = self._quiet <= QUIET_SECONDS
        check = await self._queue.run(partial(self._engine.recorder.check_quarantine, is_busy=is_busy))
        if check is not None:
            checks = await loop.run_in_executor(None, check)
            await self._queue.run(partial(self._engine.recorder.record_late_writes, checks))
        if not is_busy and loop.time() >= self._rests_until:
            await self._make_files()

    async def _make_files(self) -> None:
        """Prepare the files of the next edits, some at a time, until there are enough or an edit comes."""
        loop = asyncio.get_running_loop()
        while self._quiet > QUIET_SECONDS and self._engine.recorder.broken is None and not self._end.is_set():
            make = await self._queue.run(self._engine.files.make_ahead)
            if make is None:
                return
            try:
                made = await loop.run_in_executor(None, make)
            except OSError as error:
                log.warning(_NOT_AHEAD, error)
                self._rests_until = loop.time() + RETRY_SECONDS
                return
            await self._queue.run(partial(self._engine.files.made_ahead, made))

    async def _make_segment(self) -> None:
        """Prepare a segment of the journal. It is 8 MiB, so a thread makes it."""
        journal = self._engine.history.journal
        if self._engine.recorder.broken is None and not journal.has_empty_segment:
            try:
                made = await asyncio.get_running_loop().run_in_executor(None, journal.make_empty_segment)
            except OSError as error:
                log.warning(_NOT_AHEAD, error)
                return
            await self._queue.run(partial(journal.add_empty_segment, made))

    async def pack(self) -> bool:
        """Pack all transactions committed so far; return whether there were any. Raises Broken."""
        due = await self._queue.run(self._engine.recorder.packing_due)
        if due is None:
            return False
        held_bytes = self._engine.history.pending.bytes
        start, until, through = due
        request = {
            "start": [start.segment, start.offset],
            "until": [until.segment, until.offset],
            "through": through,
        }
        answer = await self._ask(request)
        await self._queue.run(partial(self._packed, answer))
        if held_bytes - self._engine.history.pending.bytes > GIVE_BACK_BYTES:
            self._give_back_at = asyncio.get_running_loop().time() + GIVE_BACK_SECONDS
        return True

    async def _give_back(self) -> None:
        """Give the memory of packed contents and of long work back to the system, some time after it."""
        loop = asyncio.get_running_loop()
        if self._long_works != self._queue.long_works:
            self._long_works = self._queue.long_works
            self._give_back_at = loop.time() + GIVE_BACK_SECONDS
        if self._give_back_at is not None and loop.time() > self._give_back_at:
            self._give_back_at = None
            await self._queue.run(self._engine.history.index.give_back)
            forget_bytes_of_paths()
            await loop.run_in_executor(None, release_free_memory)

    def _packed(self, answer: dict[str, Any] | None) -> None:
        """Take over what the packing process has done. Raises Broken if it failed."""
        if answer is None:
            self._deaths += 1
            log.warning("the packing process ended; it will be started again")
            if self._deaths > 1:
                raise Broken("The packing process keeps crashing.", hint="See the daemon's log.")
        elif "failed" in answer:
            failure = Broken(
                f"Packing failed: {answer['failed']}", hint=Advice("Run ", command_term("check"), ".")
            )
            if answer["damaged"]:
                self._engine.recorder.broken = failure
            raise failure  # unpacked transactions stay in the journal
        else:
            self._deaths = 0
            self._engine.recorder.packed(answer["packed"], JournalPosition(*answer["until"]))

    async def _sync_journal(self) -> None:
        """With `durability = "relaxed"`, sync the answered edits, but never again after that has failed.

        A second sync may well succeed after the kernel has dropped the pages that the first could not write.
        """
        if self._has_journal_failed:
            return
        begun = await self._queue.run(self._engine.history.journal.begin_sync)
        if begun is None:
            return
        descriptor, done = begun
        try:
            await asyncio.get_running_loop().run_in_executor(None, flush, descriptor)
        except OSError as error:
            log.critical("the journal could not be synced: %s", error)
            self._has_journal_failed = True
            self._engine.recorder.broken = Broken(
                f"The journal could not be synced, and answered edits may be lost: {error}.",
                hint="Repair the disk and restart the daemon.",
            )
            return
        finally:
            os.close(descriptor)
        await self._queue.run(done)

    async def sync(self) -> None:
        """Sync all published files, and the journal's mark. Raises OSError."""
        await self._sync()
        journal = self._engine.history.journal
        await asyncio.get_running_loop().run_in_executor(None, journal.sync_mark)

    async def _sync(self) -> None:
        """Sync all published files. Raises OSError if no sync could be tried."""
        through = await self._queue.run(self._unsynced)
        if through is None:
            return
        try:
            await asyncio.get_running_loop().run_in_executor(None, self._engine.recorder.sync_files, through)
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                raise
            log.critical("the workspace could not be synced: %s", error)
            await self._queue.run(partial(self._engine.recorder.sync_failed, error))
            return
        await self._queue.run(partial(self._engine.recorder.files_synced, through))

    def _unsynced(self) -> Seq | None:
        """Return the newest transaction to sync, if any: all up to it are in the files now."""
        head = self._engine.history.head
        return None if self._engine.recorder.synced >= head or self._engine.recorder.has_sync_failed else head

    async def _ask(self, request: dict[str, Any]) -> dict[str, Any] | None:
        """Send one request to the packing process, started if needed; return None if it dies."""
        async with self._busy:
            answer = await self._packer.ask(request)
            self._is_tidy = True  # its start removes the leftovers of a killed one
            return answer

    async def _proven(self, request: dict[str, Any]) -> dict[str, Any] | None:
        """Verify in a separate process; return its answer, None if it dies. Raises ShuttingDown."""
        self._check_open()
        try:
            return await self._prover.ask(request)
        finally:
            await self._prover.close()

    async def _end_proof(self) -> None:
        """Cut off a verification under way. All who wait for it have been answered."""
        await self._prover.close()
        async with self._proving:
            return

    def _check_open(self) -> None:
        """Raise ShuttingDown if the daemon is ending."""
        if self._end.is_set():
            raise _cut_off()


def _cut_off() -> ShuttingDown:
    return ShuttingDown("The daemon is ending.", hint="Connect again and retry: nothing was changed.")
