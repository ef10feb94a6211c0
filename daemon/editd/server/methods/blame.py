"""The method `blame`: at once for a file with few versions, otherwise in slices between other turns."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from editd.engine.blame import LineBlame
from editd.errors import FileMissing, NotText, PathIgnored, Timeout
from editd.server import convert
from editd.store.commit_message import rfc3339
from editd.wire import messages

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from editd.engine.engine import Engine
    from editd.server.dispatch import ClientState, MethodCall
    from editd.server.engine_queue import EngineQueue
    from editd.values.content import Version
    from editd.values.path import WorkspacePath

SLICE_SECONDS = 0.02  # of the engine's time, before other requests get theirs
BLAME_SECONDS_MAX = 60.0  # some 50,000 versions of a file of 1,000 lines


class BlameMethods:
    def __init__(
        self,
        engine: Engine,
        queue: EngineQueue,
        later: Callable[[Coroutine[Any, Any, None], MethodCall], None],
    ) -> None:
        """`later` runs the work that an answer waits for, and answers with its refusal."""
        self._engine = engine
        self._queue = queue
        self._later = later
        self.methods: dict[type[messages.Params], Callable[[Any, ClientState, MethodCall], None]] = {
            messages.Blame: self._blame
        }

    def _blame(self, params: messages.Blame, caller: ClientState, call: MethodCall) -> None:
        del caller
        path = self._engine.tree.resolve(convert.path(params.path))
        version = self._recorded(path)
        self._later(self._answer(path, version, LineBlame(self._engine.history, path, version), call), call)

    def _recorded(self, path: WorkspacePath) -> Version:
        """Record the current content, as `read` does, and return its version. Raises Refused."""
        state = self._engine.look(path)
        data = {"path": path.text}
        if state is None:
            raise FileMissing(f"{path} does not exist.", hint="Run `log` to see its deletion.", data=data)
        entry = self._engine.history.entry(path)
        if entry is None:
            raise PathIgnored(
                f"{path} is not in the history: git ignores it, and no edit has touched it.",
                hint="Edit the file to add it to the history.",
                data=data,
            )
        if b"\0" in state.content:
            raise NotText(
                f"{path} has a NUL in it, and no lines.", hint="Run `log` to see its authors.", data=data
            )
        return entry.version

    async def _answer(
        self, path: WorkspacePath, version: Version, blame: LineBlame, call: MethodCall
    ) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + BLAME_SECONDS_MAX
        while not await self._queue.run_in_thread(partial(blame.go_on, SLICE_SECONDS)):
            if loop.time() > until:
                raise Timeout(
                    f"{path} has too many versions to go through within {BLAME_SECONDS_MAX:g} s.",
                    hint="Run `log` with this path to list its transactions.",
                    data={"path": path.text},
                )
            await asyncio.sleep(0)  # requests that wait for a turn go first
        await self._queue.idle()
        call.reply(messages.BlameResult(version=version, lines=self._lines(blame)))

    def _lines(self, blame: LineBlame) -> list[messages.BlameLine]:
        made = {seq: self._engine.history.index.made(seq) for seq in set(blame.seqs)}
        return [
            messages.BlameLine(
                line=number,
                seq=seq,
                actor=made[seq].actor,
                session=made[seq].session,
                time=rfc3339(made[seq].time_us),
            )
            for number, seq in enumerate(blame.seqs, 1)
        ]
