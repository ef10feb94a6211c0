"""The scanner: a process that walks the workspace, and the engine's check of its findings.

A scan only names the files to check; the engine reads them itself and decides by the hash.
"""

from __future__ import annotations

import asyncio
import logging
import os
from functools import partial
from typing import TYPE_CHECKING, Any

from editd.engine.external_changes import suspects_in, suspects_unseen, sweep
from editd.engine.scan_worker import too_large
from editd.errors import Broken, IoError
from editd.server.child_process import PYTHON, ChildProcess, IdleTimer
from editd.values.content import Version
from editd.workspace.scan import FILE_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

    from editd.engine.engine import Engine
    from editd.server.engine_queue import EngineQueue
    from editd.values.path import WorkspacePath

log = logging.getLogger(__name__)

TRIES = 3  # of a scan whose process is killed, for example by the out-of-memory killer


class Scanner:
    """The scanning process. It also takes the baseline, before the engine exists."""

    def __init__(self, root: str, folder: str) -> None:
        self._argv = [*PYTHON, "editd.engine.scan_worker", root, folder]
        self._child: ChildProcess | None = None
        self._frames: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._number = 0
        self._next: asyncio.Task[None] | None = None  # the scan that has not begun yet
        self._running: asyncio.Task[None] | None = None
        self._idle = IdleTimer(self._end_child)
        self._root = os.fsencode(root)
        self._left_out: list[str] = []  # sentences of the last scan
        self._too_large: set[bytes] = set()
        self.files = 0  # seen in the last scan
        self.unseen: list[WorkspacePath] = []  # known paths in folders that the last scan did not reach
        self.unrecorded: list[str] = []  # findings of the last scan that the engine could not record

    @property
    def uncovered(self) -> list[str]:
        """Sentences on the files that the history does not cover, too large ones by their current size."""
        self._too_large = {path for path in self._too_large if self._is_too_large(path)}
        return self._left_out + too_large(list(self._too_large))

    def note_too_large(self, path: WorkspacePath) -> None:
        """Remember a file that was seen since the last scan, and is too large to record."""
        self._too_large.add(path.raw)

    def _take_left_out(self, frame: dict[str, Any]) -> None:
        self._left_out = list(frame["uncovered"])
        self._too_large = set(map(os.fsencode, frame["too_large"]))

    def _is_too_large(self, path: bytes) -> bool:
        try:
            return os.lstat(os.path.join(self._root, path)).st_size > FILE_BYTES_MAX
        except OSError:
            return False

    async def baseline(self, time_us: int, progress: Callable[[int], None]) -> dict[str, Any]:
        """Record the workspace as first seen in the store. Raises Broken if that fails."""
        for _ in range(TRIES):
            frame = await self._baseline_once(time_us, progress)
            if frame is not None:
                return frame
            log.error("the scanning process ended while it took the baseline")
        raise Broken("The scanning process ended while it took the baseline.", hint="See the log.")

    async def _baseline_once(self, time_us: int, progress: Callable[[int], None]) -> dict[str, Any] | None:
        child = await self._started()
        child.send({"do": "baseline", "time": time_us})
        while True:
            frame = await self._frames.get()
            if frame is None:
                return None
            if "failed" in frame:
                raise Broken(
                    f"The baseline failed: {frame['failed']}", hint="Remove the cause and start again."
                )
            if "baseline" in frame:
                self._take_left_out(frame)
                self.files = frame["files"]
                self._idle.restart()
                return frame
            progress(frame["progress"])

    async def settle(self, engine: Engine, queue: EngineQueue) -> None:
        """Return when all changes made before this call are seen and recorded. Raises Broken or IoError."""
        if self._next is None:
            self._next = asyncio.create_task(self._scan_after(self._running, engine, queue))
        await asyncio.shield(self._next)

    async def _scan_after(
        self, before: asyncio.Task[None] | None, engine: Engine, queue: EngineQueue
    ) -> None:
        if before is not None:
            await asyncio.wait([before])
        self._running, self._next = self._next, None  # later callers of settle need another scan
        await self._scan(engine, queue)

    async def _scan(self, engine: Engine, queue: EngineQueue) -> None:
        """Scan. Raises Broken if the process keeps ending, because an unfinished scan settles nothing."""
        for _ in range(TRIES):
            if await self._scan_once(engine, queue):
                return
            log.error("the scanning process ended during a scan")
        raise Broken("The scanning process keeps ending.", hint="See the daemon's log, and retry.")

    async def _scan_once(self, engine: Engine, queue: EngineQueue) -> bool:
        child = await self._started()
        self._number += 1
        # Let an inspection finish first. Otherwise the scan may find a file as recorded, and the inspection
        # may then record the content from before the scan.
        async with queue.inspecting:
            child.send({"do": "scan", "id": self._number})
        suspects: list[WorkspacePath] = []
        seen: set[str] = set()
        while True:
            frame = await self._frames.get()
            if frame is None:
                return False
            if frame.get("id") != self._number:
                continue
            if "done" in frame:
                break
            seen.add(frame["folder"])
            found = {os.fsencode(name): (mode, Version(version)) for name, mode, version in frame["files"]}
            suspects += await queue.run(partial(suspects_in, engine.history, frame["folder"], found))
        self._idle.restart()
        self._take_left_out(frame)
        self.files = frame["files"]
        self.unseen = await queue.run(lambda: list(suspects_unseen(engine.history, seen)))
        suspects += self.unseen
        await self._record(engine, queue, suspects)
        strays = list(map(os.fsencode, frame["strays"]))
        if engine.broken is None:  # otherwise recovery may need them
            await queue.run(partial(sweep, engine.files, engine.history, strays))
        return True

    async def _record(self, engine: Engine, queue: EngineQueue, suspects: list[WorkspacePath]) -> None:
        """Check the files, and record what is different. Raises IoError if the journal cannot be written."""
        async with queue.inspecting:
            inspection = await queue.run(engine.inspect)
            await queue.run_in_slices(map(inspection.look, suspects))
            try:
                await queue.run_in_thread(inspection.record)
            except IoError as refusal:
                found = [f"{path.text}: {refusal.message}" for path in inspection.found]
                self.unrecorded = inspection.failed + found
                raise
        self.unrecorded = inspection.failed

    async def close(self) -> None:
        for task in (self._next, self._running):
            if task is not None:
                task.cancel()
        await self._end_child()

    async def _end_child(self) -> None:
        self._idle.stop()
        if self._child is not None:
            child, self._child = self._child, None
            await child.close()

    async def _started(self) -> ChildProcess:
        self._idle.stop()
        if self._child is None:
            self._frames = asyncio.Queue()  # drops the last frames of an earlier process
            child = ChildProcess(self._argv, nice=5, on_frame=self._frames.put_nowait, on_death=self._died)
            await child.start()
            self._child = child
        return self._child

    def _died(self, _status: int) -> None:
        self._child = None
        self._frames.put_nowait(None)
