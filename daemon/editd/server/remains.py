"""The remains of dropped content outside the packs: old segments, replaced files, freed pages of databases.

A segment keeps its records until it is overwritten, a database keeps deleted rows in freed pages and in its
log, and a replaced file is in the quarantine for a moment. `Remains.clear` removes all of it from the disk,
up to the transactions that were committed when it was called. Edits go on meanwhile.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from editd.errors import Broken, IoError

if TYPE_CHECKING:
    from editd.engine.engine import Engine
    from editd.server.engine_queue import EngineQueue
    from editd.server.maintenance import Maintenance

QUARANTINE_SECONDS = 6.0  # twice the longest time of a replaced file under load
LOOK_SECONDS = 0.1


class Remains:
    """What `store` and `workspace` keep of content that the history has dropped."""

    def __init__(self, engine: Engine, queue: EngineQueue, background: Maintenance) -> None:
        self._engine = engine
        self._queue = queue
        self._background = background

    async def clear(self, *, pages: bool) -> None:
        """Remove the remains; `pages`: also those in databases, which takes a second for 100 MB.

        Raises Refused. Whatever is done by then is done, and a second call does the rest.
        """
        try:
            await self._clear_quarantine(await self._queue.run(self._engine.files.replaced_names))
            await self._queue.run(self._begin_segment)
            await self._background.pack()
            await self._background.sync()
            async with self._background.exclusively():
                await self._queue.run(self._erase_segments)
                await self._queue.run_in_thread(partial(self._scrub, pages=pages))
        except OSError as error:
            raise IoError(error, "Remains of dropped content could not be removed") from error

    async def _clear_quarantine(self, names: set[bytes]) -> None:
        """Wait until these files are checked and emptied. A file that a program writes to stays longer."""
        until = asyncio.get_running_loop().time() + QUARANTINE_SECONDS
        while asyncio.get_running_loop().time() < until:
            self._queue.activity.note()  # so that the check comes without an edit, too
            names &= await self._queue.run(self._engine.files.replaced_names)
            if not names:
                return
            await asyncio.sleep(LOOK_SECONDS)

    def _begin_segment(self) -> None:
        if self._engine.recorder.broken is not None:
            raise self._engine.recorder.broken
        history = self._engine.history
        history.journal.begin_segment(history.head, history.head_commit)

    def _erase_segments(self) -> None:
        """Remove all segments but the begun segment. They are packed, with head and files durable."""
        history = self._engine.history
        if self._engine.recorder.has_sync_failed:
            raise Broken("The workspace is not synced, so the journal is kept.", hint="Restart the daemon.")
        history.journal.erase(min(self._engine.recorder.synced, history.packed))

    def _scrub(self, *, pages: bool) -> None:
        self._engine.history.index.scrub(pages=pages)
        if self._engine.landing.proposals is not None:
            self._engine.landing.proposals.store.scrub(pages=pages)
