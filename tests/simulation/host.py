"""One host of a simulated network: an engine with its queue, its exchange, and clients who ask again.

The process of the exchange is `exchange_worker.Worker` in this process. It dies with its host, or alone.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from editd.config.schema import RemoteKeys
from editd.errors import Broken, Refused, ShuttingDown
from editd.remote.exchange_worker import Worker
from editd.review.proposals import Proposals
from editd.server.engine_queue import EngineQueue
from editd.server.exchange_process import ExchangeProcess
from editd.server.shared_log import SharedLog
from editd.store.pack_cleanup import tidy
from editd.store.pack_worker import Packer
from editd.store.proposals import ProposalStore
from editd.system.frames import HEADER_BYTES, pack_frame, unpack_frame
from editd.values.excluded_paths import ExcludedPaths
from simulation.calls import Current, Killed
from simulation.loop import SimulatedLoop
from support.log_checker import Acknowledged

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from contextlib import AbstractContextManager
    from random import Random

    from editd.engine.commands import Result, Write
    from editd.values.transaction import Outcome, Transaction
    from simulation.world import World

POLL_SECONDS = 1.0
PACK_SECONDS_MAX = 0.01  # until the packing process answers
ASK_SECONDS_MAX = 0.02  # until the process of the exchange has read a request, or its answer is read
PAUSE_SECONDS = 1.0  # between two background works
DOWN_SECONDS_MAX = 0.5  # after a kill


class ExchangeKilled(BaseException):
    """The process of the exchange is killed, and its host lives on."""


@dataclass
class Asked:
    """A request of a client without an answer: after a kill it is sent again."""

    command: Write
    added: dict[str, str]
    removed: dict[str, str]


class Exchanger:
    """The process of the exchange, as `RequestProcess` is for the daemon."""

    def __init__(self, state: str, chance: Random) -> None:
        self._state, self._chance = state, chance
        self._worker: Worker | None = None
        self.failure = ""  # of a rule

    async def ask(self, request: dict[str, Any]) -> dict[str, Any] | None:
        asked = unpack_frame(pack_frame(request)[HEADER_BYTES:])
        await asyncio.sleep(self._chance.random() * ASK_SECONDS_MAX)
        self._worker = self._worker or Worker(self._state, "/nowhere")
        names = os.listdir(self._state)
        try:
            answer = pack_frame(self._worker.answer(asked))
        except ExchangeKilled:
            self.kill()
            return None
        finally:
            self._check_names(names)
        await asyncio.sleep(self._chance.random() * ASK_SECONDS_MAX)
        return unpack_frame(answer[HEADER_BYTES:])

    def _check_names(self, before: list[str]) -> None:
        made = {*os.listdir(self._state)} - {*before}
        if made:
            self.failure = f"L7: the exchange has made {made}"

    def kill(self) -> None:
        if self._worker is not None:
            self._worker._forget()
            self._worker = None

    async def close(self, _seconds: float) -> None:
        self.kill()


class Background:
    """The background work of a host, as `server.maintenance` does it: packing and the sync of files."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._packing = asyncio.Lock()

    async def pack(self) -> None:
        host = self._host
        async with self._packing:
            due = await host.queue.run(host.engine.recorder.packing_due)
            if due is None:
                return
            start, until, through = due
            await asyncio.sleep(host.chance.random() * PACK_SECONDS_MAX)
            if host.world.packer is None:
                tidy(os.path.join(host.engine.history.store, "objects", "pack"))
                host.world.packer = Packer(host.engine.history.folder)
            host.world.packer.pack(start, until, through)
            await host.queue.run(partial(host.engine.recorder.packed, through, until))

    async def run(self) -> None:
        """Pack and sync from time to time, and check the replaced files."""
        host = self._host
        while True:
            await asyncio.sleep(PAUSE_SECONDS * (0.5 + host.chance.random()))
            packing = asyncio.ensure_future(self.pack())  # beside the sync
            through = host.engine.history.head
            await host.queue.run_in_thread(partial(host.engine.recorder.sync_files, through))
            await host.queue.run(partial(host.engine.recorder.files_synced, through))
            await host.queue.run(self._check_replaced)
            await packing

    def _check_replaced(self) -> None:
        check = self._host.engine.recorder.check_quarantine(is_busy=False)
        if check is not None:
            self._host.engine.recorder.record_late_writes(check())


class WatchedQueue(EngineQueue):
    """The queue, and a look whether the engine is entered while its thread has it."""

    _loop: SimulatedLoop

    async def _run(self, work: Callable[[], Any], compared: Any) -> Any:
        def watched() -> Any:
            self._look()
            return work()

        return await super()._run(watched, compared)

    def _carried_out(self, requests: list[Write]) -> list[Result]:
        self._look()
        return super()._carried_out(requests)

    def _look(self) -> None:
        if self._loop.away:
            self._loop.failures.append(AssertionError("the engine is entered by two"))


@dataclass
class Host:
    """One host. It runs in `run`, one callback of its loop at a time."""

    name: str
    world: World
    chance: Random
    current: Current
    acknowledged: list[Acknowledged]  # of all hosts
    unanswered: dict[str, Asked] = field(default_factory=dict)  # by request
    down_until: float = 0.0
    loop: SimulatedLoop | None = None
    asked: int = 0

    def __post_init__(self) -> None:
        self.context = contextvars.copy_context()

    @property
    def engine(self) -> Any:
        assert self.world.engine is not None
        return self.world.engine

    @property
    def is_up(self) -> bool:
        return self.loop is not None

    def running(self) -> AbstractContextManager[None]:
        """Return a context in which the calls of this process are this host's."""
        return self.current.running(self.world.calls)

    # ── life and death ──

    def start(self) -> None:
        """Start the daemon. Raises Killed."""
        self.world.start()
        self.context = contextvars.copy_context()
        self.context.run(self._open)

    def _open(self) -> None:
        loop = SimulatedLoop(self.world.clock, self.chance, lambda: self.world.calls.is_dead)
        loop.call_within(partial(self._serve, loop))
        self.loop = loop

    def _serve(self, loop: SimulatedLoop) -> None:
        state, engine = str(self.world.harness.state), self.engine
        self.queue = WatchedQueue(engine, _nobody, _nobody, _nobody)
        store = ProposalStore(state, engine.clock.now_us())
        self.world.opened.callback(store.close)
        engine.landing.proposals = Proposals(store, engine.history, engine.clock)
        self.background = Background(self)
        self.log = SharedLog(engine, self.queue, self.background, state, lambda _name, _data: None)  # type: ignore[arg-type]
        self.exchanger = Exchanger(state, self.chance)
        process = ExchangeProcess(state)
        process._child = self.exchanger  # type: ignore[assignment]
        self.log._exchange = self.log._reader = process
        self.log.configure(RemoteKeys(host=self.name, poll=POLL_SECONDS), ExcludedPaths())
        engine.recorder.on_recorded.append(self._recorded)
        self.log.start()
        loop.create_task(self.background.run())
        for request in [*self.unanswered]:
            loop.create_task(self._ask(request))

    def _recorded(self, transaction: Transaction) -> None:
        self.queue.activity.note()
        self.log.recorded(transaction)

    def bury(self) -> None:
        """End all that the dead process had, and let its machine rest a while."""
        loop, self.loop = self.loop, None
        if loop is not None:
            loop.kill()
            self.exchanger.kill()
        self.world.bury()
        self.down_until = self.world.clock.monotonic() + self.chance.random() * DOWN_SECONDS_MAX

    def next_at(self) -> float | None:
        """Return the time when this host does something next."""
        return self.down_until if self.loop is None else self.loop.next_at()

    def run(self) -> None:
        """Run the next callback, or start. If the host dies in it, bury it."""
        with self.running():
            try:
                if self.loop is None:
                    self.start()
                else:
                    self.loop.step()
            except Killed:
                assert self.world.calls.is_dead
            if self.world.calls.is_dead:
                self.bury()
            elif self.loop is not None:
                assert not self.loop.failures, repr(self.loop.failures[0])
                assert not self.exchanger.failure, self.exchanger.failure
                assert self.engine.recorder.broken is None, self.engine.recorder.broken

    def do(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Begin work in this host's process."""
        assert self.loop is not None
        return self.context.run(self.loop.create_task, work)

    # ── clients ──

    def submit(self, request: str, asked: Asked) -> None:
        """Send a request; after a kill it is sent again."""
        self.unanswered[request] = asked
        if self.loop is not None:
            self.do(self._ask(request))

    async def _ask(self, request: str) -> None:
        asked = self.unanswered[request]
        try:
            outcome = await self.queue.result_of(asked.command)
        except (Broken, ShuttingDown):
            return
        except Refused as refusal:
            self.world.tell(f"{request}: {refusal.message}"[:140])
            del self.unanswered[request]
            return
        self._take_answer(request, asked, outcome)

    def _take_answer(self, request: str, asked: Asked, outcome: Outcome) -> None:
        del self.unanswered[request]
        if outcome.transaction is None:
            return
        seq = int(outcome.transaction.seq)
        made = self.engine.history.index.id_of(seq)
        assert made is not None
        self.world.tell(f"{request}: {self.name} has it as transaction {seq}, {made[:8]}")
        self.acknowledged.append(Acknowledged(self.name, made, seq, asked.added, asked.removed))

    def files(self) -> dict[str, bytes]:
        """Return the files of the workspace, without temporary ones."""
        files = self.world.files()
        return {path: files[path] for path in files if not os.path.basename(path).startswith(".editd-")}

    def end(self) -> None:
        """Leave nothing of the real system open."""
        if self.loop is not None:
            with self.running(), suppress(Killed):
                self.world.calls.die()
                self.bury()


async def _nobody(*_words: object) -> Any:
    raise AssertionError("no request of this world needs another process")
