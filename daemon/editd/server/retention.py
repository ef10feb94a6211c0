"""Retention: how far back the history goes, by `history.keep` and `gc`.

A process does the work (`store.compaction`). This module decides when and how far, and makes the step
from the old history to the new. Kept whatever the configuration: the newest transaction, all unpacked
ones, and all work of open sessions, so that each can still be rolled back as a whole.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from editd.errors import Broken, HistoryDamaged, Refused, ShuttingDown
from editd.server.child_process import PYTHON, RequestProcess
from editd.server.engine_queue import Alarm, wait_event
from editd.server.remains import Remains
from editd.store import compaction
from editd.store.lost_found import drop_lost, lost_bytes
from editd.store.sync_state import read_synced
from editd.values.transaction import CommitId

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from editd.config.schema import Keep
    from editd.engine.access import AccessControl
    from editd.engine.engine import Engine
    from editd.server.engine_queue import EngineQueue
    from editd.server.maintenance import Maintenance
    from editd.store.git_objects import Oid

log = logging.getLogger(__name__)

LOOK_SECONDS = 600.0  # between two checks whether compaction is due
FIRST_LOOK_SECONDS = 2.0  # after the start, and after the configuration has changed
REST_SECONDS = 3600.0  # after an automatic run, before the next one
MARGIN = 1.1  # the daemon compacts when the history is over a limit by this factor
INDEX_SLICE = 200  # transactions that are removed from the index at once: some milliseconds
COMPACTOR_NICE = 15
EXCLUDED_LOOK_SECONDS = 1.0  # between two checks whether contents that are due are synced
NAMED_MAX = 20  # files in one answer


NO_HISTORY: dict[str, Any] = {
    "transactions": 0, "bytes": 0, "proposals": 0, "unsaved": 0, "oldest": 0, "quota": None,
    "is_full": False, "compacting": False, "strays": 0, "forgotten": 0, "forgetting": None,
    "excluded": {"files": [], "count": 0, "kept": 0, "bytes": 0},
}  # fmt: skip


class Retention:
    def __init__(
        self,
        engine: Engine,
        queue: EngineQueue,
        background: Maintenance,
        guard: AccessControl,
        folder: str,
        keep: Keep,
        needed: Callable[[], int | None],
    ) -> None:
        """`folder` is the state folder. `needed` returns the oldest transaction that the exchange needs."""
        self._engine = engine
        self._queue = queue
        self._background = background
        self._guard = guard
        self._folder = folder
        self.keep = keep
        self._needed = needed
        self.review_keep = 30 * 86_400.0  # seconds of a settled proposal: `review.keep`
        self.exclude_keep = 86_400.0  # seconds of the contents of excluded files: `history.exclude_keep`
        self.remains = Remains(engine, queue, background)
        self.alone = asyncio.Lock()  # one run at a time
        self._compactor = RequestProcess([*PYTHON, "editd.store.compaction", folder], nice=COMPACTOR_NICE)
        self.step_of_removal: str | None = None  # of `content_removal`
        self._wake = Alarm()
        self._is_closing = False
        self._rests_until = 0.0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._watch())

    async def close(self) -> None:
        """End a run under way: it has changed nothing, or the next run finishes it."""
        self._is_closing = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._compactor.close(0.1)

    def schedule_check(self) -> None:
        """Check soon, because the configuration has changed."""
        self._rests_until = 0.0
        self._wake.set()
        self._queue.activity.note()

    def tidy_proposals(self) -> int:
        """Expire proposals whose time is over, and forget proposals that were settled long ago.

        Return the bytes of content that this frees.
        """
        if self._engine.landing.proposals is None:
            return 0
        return self._engine.landing.proposals.tidy(int(self.review_keep * 1_000_000))

    def drop_excluded(self) -> int:
        """Delete the contents of excluded files that were kept for long enough; return their number.

        The contents of an edit stay until its files are synced, and its record is packed: a start after a
        power cut may need them. Raises OSError.
        """
        if self._engine.recorder.broken is not None:
            return 0
        excluded = self._engine.history.excluded
        now_us = self._engine.clock.now_us()
        dropped = excluded.drop_old(now_us, int(self.exclude_keep * 1_000_000), self.durable_through())
        if dropped:
            log.info("%d contents of excluded files are deleted", dropped)
        return dropped

    def durable_through(self) -> int:
        """Return the last transaction whose contents recovery and packing do not need any more."""
        return min(int(self._engine.history.packed), read_synced(self._folder) or 0)

    def _seconds_until_look(self) -> float:
        """Return the time until the next check, when a content of an excluded file may be due."""
        due_us = self._engine.history.excluded.due_us(int(self.exclude_keep * 1_000_000))
        if due_us is None:
            return LOOK_SECONDS
        until = (due_us - self._engine.clock.now_us()) / 1_000_000
        return min(max(until, EXCLUDED_LOOK_SECONDS), LOOK_SECONDS)

    def status(self) -> dict[str, Any]:
        """Return the history's part of `status`."""
        history, quota = self._engine.history, self._engine.landing.rules.quota
        stored = self._engine.landing.stored_bytes()
        return {
            "transactions": int(history.head) - history.floor.seq,
            "bytes": stored.history,
            "proposals": stored.proposals,
            "unsaved": stored.unsaved,
            "index": stored.index,
            "marks": stored.marks,
            "oldest": history.floor.seq,
            "quota": quota,
            "is_full": quota is not None and stored.all >= quota,
            "compacting": self.alone.locked(),
            "strays": lost_bytes(self._folder),
            "forgotten": len(history.forgotten),
            "forgetting": self.step_of_removal,
            "excluded": self._status_of_excluded(),
        }

    def _status_of_excluded(self) -> dict[str, Any]:
        """Return the excluded files that the history names, and how many of their contents are kept."""
        excluded = self._engine.history.excluded
        files = excluded.files()
        return {
            "files": files[:NAMED_MAX], "count": len(files),
            "kept": len(excluded.kept), "bytes": excluded.bytes,
        }  # fmt: skip

    async def run(self, *, is_dry: bool = False) -> dict[str, int]:
        """Compact transactions beyond `keep`, and free unused space; return the report of `gc`.

        Raises Refused.
        """
        async with self.alone:
            await self._background.pack()
            history = self._engine.history
            before, oldest, least, most = await self._queue.run(self._limits)
            limit = self.keep.bytes
            was_cut_off = compaction.was_cut_off(self._folder)
            request = {"do": "prepare", "least": least, "most": most, "bytes": limit, "dry": is_dry}
            try:
                planned = await self._ask(request)
                floor, packs = int(planned["floor"]), planned["packs"]
                if not is_dry:
                    await self._switch(floor, CommitId(planned["commit"]), packs)
            finally:
                await self._compactor.close()
            freed = planned["freed"] if is_dry else max(0, before - history.disk_bytes)
            if not is_dry:
                freed += await self._queue.run(self.tidy_proposals)
                await self._queue.run(self.drop_excluded)
                await self.remains.clear(pages=floor > oldest or was_cut_off)
                compaction.end(self._folder)
                freed += drop_lost(self._folder, self._engine.clock.now_us() / 1_000_000)
            if not is_dry and floor > oldest:
                log.info("the history is compacted up to transaction %d: %d bytes are free", floor, freed)
            after = before - planned["freed"] if is_dry else history.disk_bytes
            return {"oldest": floor, "compacted": floor - oldest, "freed": freed, "bytes": after}

    async def pack(self) -> None:
        """Pack all that is committed. Raises Refused, also if the history is damaged."""
        if self._engine.recorder.broken is not None:
            raise self._engine.recorder.broken
        await self._background.pack()

    async def drop(self, chosen: Callable[[], Collection[Oid]]) -> None:
        """Remove the chosen objects from the packs, wherever the history begins. The caller holds `alone`.

        `chosen` is called when nothing more is packed. Raises Refused.
        A crash leaves the old packs, the new ones, or both.
        """
        await self._background.pack()
        try:
            async with self._background.exclusively():
                oids = await self._queue.run(chosen)
                floor = int(self._engine.history.floor.seq)
                planned = await self._ask({
                    "do": "prepare", "least": floor, "most": floor, "bytes": None, "dry": False,
                    "without": sorted(oids),
                })  # fmt: skip
                await self._ask({"do": "sweep", "packs": planned["packs"]})
                await self._queue.run(self._engine.history.reopen_packs)
        finally:
            await self._compactor.close()

    async def _switch(self, floor: int, commit: CommitId, packs: list[str]) -> None:
        """Switch from the old history to the new: setting the floor is the one step, the rest follows."""
        history = self._engine.history
        async with self._background.exclusively():
            if floor > history.floor.seq:  # only this function changes it
                await self._queue.run(partial(history.compact, commit))
            forget = partial(history.forget_compacted, INDEX_SLICE)
            while await self._queue.run(forget):  # noqa: ASYNC110  # others come in between
                await asyncio.sleep(0)
            await self._ask({"do": "sweep", "packs": packs})
            await self._queue.run(history.reopen_packs)

    def _limits(self) -> tuple[int, int, int, int]:
        """Return the bytes of the history, its oldest transaction, and the lowest and highest new one.

        Raises Broken or HistoryDamaged.
        """
        if self._engine.recorder.broken is not None:
            raise self._engine.recorder.broken
        oldest, most = int(self._engine.history.floor.seq), self._most()
        return self._engine.history.disk_bytes, oldest, min(max(oldest, *self._beyond()), most), most

    def _beyond(self) -> tuple[int, int]:
        """Return the newest transactions beyond the age and the count to keep."""
        history, keep = self._engine.history, self.keep
        by_count = 0 if keep.count is None else int(history.head) - keep.count
        by_age = None
        if keep.age is not None:
            by_age = history.index.before_time(self._engine.clock.now_us() - int(keep.age * 1_000_000))
        return by_count, by_age or 0

    def _most(self) -> int:
        """Return the highest transaction that the history may begin after."""
        history = self._engine.history
        firsts = (history.index.first_of(found.session.name) for found in self._guard.sessions)
        held = [seq - 1 for seq in (*firsts, self._needed()) if seq is not None]
        return max(history.floor.seq, min([int(history.packed) - 1, *held]))

    def _is_due(self) -> bool:
        """Return whether the daemon should compact unasked: over a limit, or after a run was cut off."""
        if self._engine.recorder.broken is not None:
            return False
        if compaction.was_cut_off(self._folder):
            return True
        history, keep = self._engine.history, self.keep
        if self._most() <= history.floor.seq:
            return False
        count = int(history.head) - history.floor.seq
        if keep.count is not None and count > max(keep.count * MARGIN, keep.count + 1):
            return True
        if keep.bytes is not None and history.disk_bytes > keep.bytes * MARGIN:
            return True
        if keep.age is None:
            return False
        old = history.index.before_time(self._engine.clock.now_us() - int(keep.age * MARGIN * 1_000_000))
        return old is not None and old > history.floor.seq

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(FIRST_LOOK_SECONDS)
        while True:
            is_enough = False
            news = self._queue.activity.next()  # first: any event from here on may make it due
            try:
                await self._queue.run(self.tidy_proposals)
                await self._queue.run(self.drop_excluded)
                is_due = await self._queue.run(self._is_due)
                is_enough = not is_due and self.keep.age is None and not self._engine.history.excluded.kept
                if is_due and loop.time() >= self._rests_until:
                    self._rests_until = loop.time() + REST_SECONDS
                    await self.run()
            except (Refused, OSError) as error:
                log.error("the history could not be compacted: %s", error)
            except Exception:  # our bug; without this task the history would grow past its limits
                log.exception("the history could not be compacted")
            self._wake.clear()
            if is_enough:  # only activity or another configuration can make anything due
                await news.wait()
            await wait_event(self._wake, await self._queue.run(self._seconds_until_look))

    async def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send one request to the compacting process, started if needed. Raises Refused if it fails."""
        answer = await self._compactor.ask(request)
        if answer is None:
            again = "Run it again to finish the rest."
            if self._is_closing:
                raise ShuttingDown("Compacting was cut off.", hint=again)
            raise Broken("The process that compacts the history died.", hint=f"Nothing is lost. {again}")
        if "failed" in answer:
            kind = HistoryDamaged if answer.get("damaged") else Broken
            raise kind(f"The history could not be compacted: {answer['failed']}", hint="Nothing is lost.")
        return answer
