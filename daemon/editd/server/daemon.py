"""A daemon's life: taking the workspace, opening its history, serving, and ending cleanly.

taken      the flock is ours, so no other daemon can be on this workspace
scanning   the socket answers; requests for the history wait until the baseline is in it. If that takes long,
           edits and reads are served meanwhile, and the others wait (`MethodRow.needs`)
ready      everything is served
draining   no new requests are taken; those under way are finished, packed and synced
ended      the socket is gone, the flock is free
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import signal
import time
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import asdict

import editd
from editd.advice import Advice, step_term
from editd.config.paths import review_socket_path
from editd.edits.comparison import TURN, ComparisonTurn
from editd.engine.access import excluded_paths_of
from editd.engine.changesets import Changesets
from editd.engine.engine import Engine
from editd.engine.exec_spans import ExecSpans
from editd.engine.hooks import hooks_of
from editd.engine.permissions import verify_table
from editd.engine.queries import Queries
from editd.engine.recorder import Recorder
from editd.engine.regex_worker import COMPARISON_SECONDS
from editd.engine.turns import SessionTurns
from editd.errors import Broken, InvalidParams, Refused, ShuttingDown, UnknownSession
from editd.review.proposals import Proposals
from editd.server import installed_parts
from editd.server.check_runner import CheckRunner
from editd.server.check_runs import CheckRuns
from editd.server.connection import Calls, ClientState, Connections, MethodCall, SocketConnection
from editd.server.content_removal import ContentRemoval
from editd.server.dispatch import Dispatch
from editd.server.engine_queue import Activity, EngineQueue, first_of
from editd.server.gate import Gate
from editd.server.hook_runner import HookRunner, describe
from editd.server.lenders import Lenders
from editd.server.maintenance import Maintenance
from editd.server.method_table import METHODS, verify_methods
from editd.server.methods import Configuration, Services
from editd.server.methods.check import Repairs
from editd.server.methods.documents import DocumentMethods
from editd.server.methods.exec_spans import ExecMethods
from editd.server.methods.leases import LeaseMethods
from editd.server.methods.proposals import ProposalMethods
from editd.server.methods.sessions import SessionMethods, open_guard, restore_reads
from editd.server.methods.turns import TurnMethods
from editd.server.missed_calls import MissedCalls
from editd.server.ownership import bind, inode_of, open_disk, owned, serve, unbind, watching_name
from editd.server.refusals import Refusals
from editd.server.regex_pool import RegexPool
from editd.server.retention import NO_HISTORY, Retention
from editd.server.scanner import Scanner
from editd.server.shared_log import SharedLog
from editd.server.state_folder import StateFolder
from editd.server.subscriptions import Subscriptions
from editd.server.systemd import SystemdNotifier, SystemdStatus
from editd.server.watcher import WorkspaceWatcher
from editd.store import first_scan
from editd.store.excluded import append_excluded
from editd.store.git_repository import create_store, is_store, move_head, write_manifest
from editd.store.journal import SEGMENT_BYTES
from editd.store.proposals import ProposalStore
from editd.store.salvage import Salvage, open_history
from editd.store.turn_store import TurnStore
from editd.store.verify import is_begun
from editd.system.clock import RealClock
from editd.system.filesystem import Disk, ignore_lease_signal
from editd.system.memory import release_free_memory, use_one_heap
from editd.system.mounts import mounts
from editd.tool_api.dialect_registry import DIALECTS
from editd.tool_api.tool_paths import ToolPaths
from editd.tool_api.tool_set import ToolSet
from editd.tool_api.tool_settings import ToolSettings
from editd.wire import messages
from editd.wire.limits import LIMITS, within_descriptors
from editd.workspace.reader import WorkspaceReader
from editd.workspace.replaced_files import Quarantine
from editd.workspace.scope import scope_predicate
from editd.workspace.staged_change import CreatedDirs
from editd.workspace.uncovered_paths import load_uncovered
from editd.workspace.weaker_guarantees import WeakerGuarantees
from editd.workspace.writer import WorkspaceWriter

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping

    from editd.config.schema import Config
    from editd.engine.access import AccessControl
    from editd.server.connection import Answer
    from editd.server.ownership import WorkspacePaths
    from editd.store.git_objects import Oid
    from editd.values.content import Version
    from editd.values.path import WorkspacePath
    from editd.wire.connection import Request

log = logging.getLogger(__name__)

LOST_SECONDS = 1.0  # between two checks of the socket, if the system cannot notify of its loss
GIVE_BACK_SECONDS = 1.0  # after a client has left, before its memory goes back to the system
ENCODINGS = ["msgpack-rpc", "json-rpc", "json-rpc-lines"]
WATCH_SECONDS = 2.0  # for the watcher to be ready before the baseline; after that, a scan follows it
LONG_FILES = 5_000  # after these, some tenths of a second, edits do not wait for the end of the first scan
LONG_FOLDERS = 1_000  # the same for the folders that the watch has found, before the scan begins
LONG_BYTES = 64 * 1024 * 1024  # the same for the bytes of a few large files
LONG_SECONDS = 3.0  # the same after the first report of the scan, for disks that are slow
WATCH_STEP_SECONDS = 0.1  # between two looks at the number of folders meanwhile
DRAIN_SECONDS = 10.0  # for requests under way at the end of the daemon


def _real_path(path: str) -> str:
    """Return the path with symlinked folders resolved; its last name may be one of our own links."""
    return os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))


def _collect() -> None:
    """Free the garbage of the start, and leave what remains out of later collections."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()


class Daemon:
    def __init__(
        self,
        places: WorkspacePaths,
        config: Config,
        *,
        idle_seconds: float | None = None,
        notifier: SystemdNotifier | None = None,
        segment_bytes: int | None = None,
    ) -> None:
        """`idle_seconds` overrides the configuration. New segments of the journal have `segment_bytes`."""
        self._places = places
        self._config = config
        self._configuration = Configuration(config, places.name)
        self._idle_seconds = idle_seconds
        self._segment_bytes = segment_bytes or SEGMENT_BYTES
        self._notifier = notifier or SystemdNotifier()
        self._activity = Activity()
        self._comparer: RegexPool  # the process for comparisons of texts
        self._supervision = SystemdStatus(self._notifier, self.status, self._activity)
        self._home: tuple[int, int] | None = None  # the inode of the workspace's folder
        self._state_folder: StateFolder
        self._found_at: tuple[int, int] | None = None  # the inode of the socket that we made
        self._review_socket: str | None = None  # the reviewers' socket, if they have their own
        self.gate = Gate(has_review_socket=config.review.socket == "own")
        self._clock = RealClock()
        self._began = time.monotonic()
        descriptors_max, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._limits = within_descriptors(LIMITS, descriptors_max)
        self._clients = Connections(self._asked, self._left, self._reads_again, limits=self._limits)
        self._callers: dict[SocketConnection, ClientState] = {}
        self._number = 0
        self._services: Services | None = None
        self._dispatch: Dispatch | None = None
        self._failed: Refused | None = None  # why there is no history to serve from
        self._calls = Calls()
        self._opened = asyncio.Event()  # the baseline is taken, or never will be
        self._served = asyncio.Event()  # the requests that need only files are served, or never will be
        self._is_awaited = False  # such a request waits
        self._is_partial = False  # the history has begun, and lacks a part of its baseline
        self._begin: Callable[[], Services] | None = None  # opens the history before it has its baseline
        self._counted = 0  # files seen while the baseline is taken
        self._is_long = False  # they are so many that requests are not to wait for the end
        self._counting_since = 0.0
        self._is_scanning = True
        self._is_draining = False
        self._stop = asyncio.Event()
        self._last_client = time.monotonic()
        self._stirred = asyncio.Event()  # the daemon has to check whether it should end
        self._giving_back: asyncio.TimerHandle | None = None

    async def run(self, ready: Callable[[], None]) -> None:
        """Serve until a signal or a request to end. Calls `ready` when the socket answers.

        Raises AlreadyRunning, Refused or OSError if the workspace cannot be taken.
        """
        listener = self._notifier.listener
        with owned(self._places, None if listener is None else listener.getsockname()):
            if listener is not None:
                # systemd owns this socket: leave it. Clients that connect after our end wait in its backlog.
                if inode_of(self._places.socket) != inode_of(listener.getsockname()):
                    log.warning("clients look for the socket elsewhere, at %s", self._places.socket)
                await self._serve(listener, ready)
                return
            listening = bind(self._places.socket)
            self._found_at = inode_of(self._places.socket)
            try:
                await self._serve(listening, ready)
            finally:
                if not self._is_lost():
                    os.unlink(self._places.socket)

    async def _serve(self, listening: socket.socket, ready: Callable[[], None]) -> None:
        verify_table()
        verify_methods()
        use_one_heap()
        own = self._bind_reviewers()
        self._listen_to_signals()
        self._home = inode_of(self._places.root)
        self._state_folder = StateFolder(self._places.state)
        disk = open_disk(self._places.root)
        self._shortfalls = WeakerGuarantees(
            disk, self._places.state, publish=self._config.publish, in_place=self._config.in_place
        )
        self._repairing = Repairs(self._places.state, disk, self._stop, self._config.file_bytes_max)
        scanner = Scanner(self._places.root, self._places.state, file_bytes_max=self._config.file_bytes_max)
        TURN.set(ComparisonTurn())  # for all that is started below: no client's comparison blocks the loop
        searcher = RegexPool(self._config.regex_seconds)
        self._comparer = RegexPool(COMPARISON_SECONDS)
        self._configuration.take(lambda config: self._configure(config, searcher, scanner))
        watching = self._watching = WorkspaceWatcher(self._places.root, scanner, self._shortfalls.is_deaf)
        watching.begin()
        services: Services | None = None
        try:
            if is_begun(self._places.state):
                services = self._open_again(disk, scanner, searcher)
            server = await serve(listening, self._clients.connect)
            reviewers = None if own is None else await serve(own, self._clients.connect_reviewer)
            ready()
            self._supervision.ready()
            log.info("editd %s serves %s", editd.__version__, self._places.root)
            if services is None or self._is_partial:
                opening = asyncio.create_task(self._first_time(disk, scanner, searcher))
            else:
                opening = asyncio.create_task(self._look_through(services))
            gc.freeze()  # a collection would keep the first client waiting: `_collect` follows
            gc.enable()
            await self._until_told()
            await self._end_requests(server, reviewers)
            opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)
            services = services or self._services
            if services is not None:
                services.subscriptions.finish()
        finally:
            await self._wind_up(disk, scanner, searcher, services)
            if own is not None and self._review_socket is not None:
                own.close()
                unbind(self._review_socket)

    async def _end_requests(self, *servers: asyncio.Server | None) -> None:
        """Take no new requests, and finish those under way."""
        self._is_draining = True
        if self._services is not None:
            self._services.proposals.stop_waiting()
            self._services.spans.finish()
        for server in servers:
            if server is not None:
                server.close()
        await self._supervision.stopping()
        await self._drain()

    def _bind_reviewers(self) -> socket.socket | None:
        """Return the listener of reviewers, or None if they have no separate socket.

        Raises PermissionDenied or IoError.
        """
        path = review_socket_path(self._places.socket)
        if not self.gate.has_review_socket:
            unbind(path)
            return None
        self._review_socket = path
        return bind(path)

    async def _wind_up(
        self, disk: Disk, scanner: Scanner, searcher: RegexPool, services: Services | None
    ) -> None:
        """Take each of the last steps, even if others fail. Raises the first failure."""

        steps = [self._watching.close, scanner.close, searcher.close, self._comparer.close]
        if services is not None:
            steps += [
                services.hooker.close,
                services.checks.close,
                services.shared_log.close,
                services.lenders.close,
                services.removal.close,
                services.retention.close,
                services.background.finish,
            ]
            steps += [partial(services.queue.run, services.proposals.end)]
            steps += [
                partial(services.queue.run, services.guard.sessions.close_all),
                partial(services.queue.run, services.turn_methods.close),
                partial(services.queue.run, services.engine.recorder.close),
            ]
        failures: list[Exception] = []
        for step in (*steps, self._repairing.finish, self._clients.finish):
            try:
                await step()
            except Exception as failure:
                log.exception("a step of the daemon's end failed")
                failures.append(failure)
        disk.close()
        self._state_folder.close()
        log.info("ended")
        if failures:
            raise failures[0]

    def _listen_to_signals(self) -> None:
        loop = asyncio.get_running_loop()
        ignore_lease_signal()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        loop.add_signal_handler(
            signal.SIGHUP, self._supervision.reloading, self._configuration.reload_quietly
        )

    def _open(self, disk: Disk, scanner: Scanner, searcher: RegexPool) -> Services:
        """Open the history and recover. Raises HistoryDamaged, IoError."""
        history = open_history(self._places.state, segment_bytes=self._segment_bytes)
        config = self._config
        history.excluded.rule = excluded_paths_of(config)  # before recovery records what it finds
        replaced = os.path.join(self._places.state, "replaced")
        guard = open_guard(self._places.state, self._clock)
        spans = ExecSpans(guard.sessions.sights)
        recorder = Recorder(
            history,
            WorkspaceReader(disk, file_bytes_max=config.file_bytes_max),
            WorkspaceWriter(
                disk,
                publish=config.publish,
                replaced=Quarantine(replaced) if self._shortfalls.is_state_beside else None,
                made_folders=CreatedDirs(os.path.join(self._places.state, "folders")),
                in_place=config.in_place,
            ),
            self._clock,
            self._scope(),
            disk.is_root_in_place,
            root=self._places.root,
            mount=disk.mount,
            outside_authorship=spans.attribute,
            is_command_open=spans.has_command,
        )
        store = ProposalStore(self._places.state, self._clock.now_us())
        proposals = Proposals(store, history, self._clock, guard.sessions.agents.processes)
        engine = Engine(
            recorder, guard, proposals, fallback_encoding=config.encoding, tooling=self._tooling()
        )
        if isinstance(history, Salvage):
            log.critical("%s", history.damage.text())
            engine.recorder.broken = history.damage
        services = self._services_of(engine, guard, proposals, spans, scanner, searcher)
        services.background.start()
        self._services = services
        self._dispatch = Dispatch(services, self._calls)
        self._clients.on_alone.append(services.queue.begin)
        self._configuration.take(self._dispatch.configure)
        return services

    def _open_again(self, disk: Disk, scanner: Scanner, searcher: RegexPool) -> Services:
        """Open a history that has begun. Its first scan may not have ended yet. Raises as `_open`."""
        services = self._open(disk, scanner, searcher)
        if services.engine.recorder.broken is None and first_scan.is_pending(self._places.state):
            self._is_partial = services.engine.recorder.is_first_scan = True
        else:
            self._work_on(services, None)
        return services

    def _scope(self) -> Callable[[], Callable[[WorkspacePath], bool]]:
        return partial(scope_predicate, self._places.root, load_uncovered(self._places.state))

    def _work_on(self, services: Services, seen: int | None) -> None:
        """Begin the work that needs the whole baseline. `seen` goes to `WorkspaceWatcher.start`."""
        uncovered = load_uncovered(self._places.state)
        tell = services.subscriptions.tell
        self._watching.start(services.engine, services.queue, uncovered, seen, tell)
        services.lenders.start()
        self._watching.on_git.append(services.lenders.note_change)
        services.retention.start()
        services.removal.start()
        services.shared_log.start()

    def _services_of(
        self,
        engine: Engine,
        guard: AccessControl,
        stored: Proposals,
        spans: ExecSpans,
        scanner: Scanner,
        searcher: RegexPool,
    ) -> Services:
        """`stored` are the proposals, and `spans` the open brackets."""
        state, root = self._places.state, self._places.root
        hooker = HookRunner(state, root, self._config.file_bytes_max)
        queue = EngineQueue(engine, searcher.find, hooker.run, self._comparer.compare, self._activity)
        self.gate = Gate(
            has_review_socket=self.gate.has_review_socket,
            sessions=guard.sessions,
            history=engine.history,
            proposals=stored,
        )
        self.gate.configure(self._config)
        background = Maintenance(engine, queue, state)
        subscriptions = Subscriptions(engine.history, queue)
        sessions = SessionMethods(guard, queue, subscriptions, engine.history.index, self.gate)
        keep = self._configuration.config.history.keep
        runs = CheckRuns()
        proposals = ProposalMethods(engine, stored, queue, subscriptions, sessions, self.gate, runs)
        checks = CheckRunner(state, root, queue, proposals, runs)
        shared_log = SharedLog(engine, queue, background, state, subscriptions.tell)
        retention = Retention(engine, queue, background, guard, state, keep, shared_log.needed)
        refusals = Refusals(
            engine.history, engine.clock, sessions, subscriptions, self.gate, engine.tree.resolve
        )
        turns = SessionTurns(TurnStore(state), engine.history, engine.clock)
        span_methods = ExecMethods(
            engine,
            queue,
            self._watching,
            sessions,
            guard,
            self.gate,
            MissedCalls(self._places.socket),
            spans,
            turns,
            self._calls.start,
        )
        return Services(
            root=root,
            fallback_encoding=self._config.encoding,
            engine=engine,
            queue=queue,
            queries=Queries(engine.history, engine.tree),
            guard=guard,
            background=background,
            retention=retention,
            removal=ContentRemoval(
                engine, queue, retention, refusals, shared_log.unlanded, turns.store, state
            ),
            scanner=scanner,
            lenders=Lenders(engine, queue, background, root, state),
            watching=self._watching,
            searcher=searcher,
            hooker=hooker,
            configuration=self._configuration,
            subscriptions=subscriptions,
            gate=self.gate,
            sessions=sessions,
            leases=LeaseMethods(guard, queue, subscriptions, sessions, self.gate),
            proposals=proposals,
            checks=checks,
            documents=DocumentMethods(engine, guard, subscriptions, self._config.encoding),
            spans=span_methods,
            turns=turns,
            turn_methods=TurnMethods(turns, queue, sessions, self.gate, span_methods),
            changesets=Changesets(),
            shared_log=shared_log,
            publishing=asyncio.Lock(),
            refusals=refusals,
        )

    def _configure(self, config: Config, searcher: RegexPool, scanner: Scanner) -> None:
        """Apply the settings that the daemon itself can change while it runs."""
        self._config = config
        self._stirred.set()
        searcher.seconds = config.regex_seconds
        scanner.rates.interval_seconds = config.history.record_interval
        logging.getLogger().setLevel(config.log_level.upper())
        self.gate.configure(config)

    def _tooling(self) -> ToolSet:
        config = self._config
        settings = ToolSettings(
            ignored_paths=config.serena.ignored_paths,
            edit_globs=config.wcgw.edit_globs,
            write_globs=config.wcgw.write_globs,
            generation=config.gemini.generation,
            home=os.path.expanduser("~"),
        )
        return ToolSet(DIALECTS, ToolPaths(self._places.root, _real_path), settings)

    async def _first_time(self, disk: Disk, scanner: Scanner, searcher: RegexPool) -> None:
        """Take the baseline, then serve the requests that waited for it."""
        self._begin = partial(self._open, disk, scanner, searcher)
        is_resumed = self._is_partial  # changes made while no daemon ran are still to be found
        try:
            store = os.path.join(self._places.state, "store.git")
            if not is_store(store):
                create_store(store)
            await scanner.start()  # its interpreter starts while the folders are walked for the watch
            seen = await self._watched()
            rule = excluded_paths_of(self._config)
            taken = await scanner.baseline(self._clock.now_us(), rule, self._count)
            services = self._services
            if self._failed is not None:
                return
            if services is None:
                append_excluded(store, taken["excluded"].items())
                first_scan.end(self._places.state)
                write_manifest(store)
                move_head(store, bytes.fromhex(taken["baseline"]))
                services = self._begin()
            else:
                await self._complete(services, bytes.fromhex(taken["tree"]), taken["excluded"])
            self._work_on(services, None if is_resumed else seen)
        except (Refused, OSError) as error:
            self._fail(error)
        except Exception:  # our bug: answer the requests that wait for the baseline
            log.exception("the baseline failed")
            self._fail(Broken("The baseline failed.", hint="See the daemon's log, and start it again."))
        finally:
            self._is_scanning = self._is_partial = False
            self._activity.note()
            _collect()
            self._served.set()
            self._opened.set()

    async def _watched(self) -> int | None:
        """Wait for the watch, as `WorkspaceWatcher.ready`. Requests do not wait for a large one."""
        until = time.monotonic() + WATCH_SECONDS
        seen = None
        while seen is None and time.monotonic() < until:
            seen = await self._watching.ready(WATCH_STEP_SECONDS)
            self._is_long = self._watching.status()["directories"] > LONG_FOLDERS
            self._begin_if_long()
        return seen

    def _fail(self, error: Refused | OSError) -> None:
        """Refuse everything from now on, because the baseline failed. The next start takes it again."""
        log.critical("the baseline failed: %s", error)
        self._failed = error if isinstance(error, Refused) else Broken(f"The baseline failed: {error}.")
        if self._services is not None:
            self._services.engine.recorder.broken = self._failed

    async def _complete(self, services: Services, scanned: Oid, excluded: Mapping[Version, str]) -> None:
        """Add the files of the scan to a history that has begun without them. Raises OSError, Refused.

        It has no content of the `excluded` versions, which are named with a path each.
        """
        await services.background.pack()  # most of it now, while edits go on
        complete = partial(services.engine.recorder.complete_baseline, scanned, self._scope(), excluded)
        async with services.background.exclusively():
            await services.queue.run_in_thread(complete)

    def _begin_if_long(self) -> None:
        """Begin the history without its baseline, if a request waits and the scan takes long."""
        if self._begin is None or not self._is_awaited or not self._is_long or self._served.is_set():
            return
        try:
            first_scan.begin(self._places.state, self._clock.now_us())
            services = self._begin()
            self._is_partial = services.engine.recorder.is_first_scan = True
        except (Refused, OSError) as error:
            self._fail(error)
        self._served.set()

    async def _look_through(self, services: Services) -> None:
        """Record changes made while no daemon ran. If that fails, the watcher repairs it later."""
        try:
            await services.watching.rescan()
        except (Refused, OSError) as error:
            log.error("the workspace is not scanned yet: %s", error)
        finally:
            self._is_scanning = False
            self._activity.note()
            _collect()

    def _count(self, files: int, content_bytes: int) -> None:
        now = time.monotonic()
        self._counting_since = self._counting_since or now
        self._counted = files
        seconds = now - self._counting_since
        self._is_long |= files > LONG_FILES or content_bytes > LONG_BYTES or seconds > LONG_SECONDS
        self._begin_if_long()

    # ── clients ──

    def _left(self, client: SocketConnection) -> None:
        caller = self._callers.pop(client, None)
        self._last_client = time.monotonic()
        self._stirred.set()
        self._activity.note()
        self._give_back_soon()
        if caller is not None:
            caller.is_gone = True
            if self._dispatch is not None:
                self._dispatch.leave(caller)

    def _reads_again(self, client: SocketConnection) -> None:
        caller = self._callers.get(client)
        if caller is not None and self._services is not None:
            self._services.subscriptions.reads_again(caller)

    def _give_back_soon(self) -> None:
        """Give the memory of clients that have left back to the system, once for all that leave together."""
        if self._giving_back is None and not self._is_draining:
            loop = asyncio.get_running_loop()
            self._giving_back = loop.call_later(GIVE_BACK_SECONDS, self._give_back)

    def _give_back(self) -> None:
        self._giving_back = None
        if not self._is_draining:
            asyncio.get_running_loop().run_in_executor(None, release_free_memory)

    def _asked(self, client: SocketConnection, request: Request) -> None:
        caller = self._callers.get(client)
        if caller is None:
            self._number += 1
            caller = self._callers[client] = ClientState(self._number, client)
        self._activity.note()
        call = MethodCall(client, request, partial(self._refused, request.params, caller))
        self._calls.carry_out(call, self._handle, request.params, caller)

    def _refused(self, params: messages.Params, caller: ClientState, refusal: Refused) -> None:
        if self._dispatch is not None:
            self._dispatch.refused(params, caller, refusal)

    def _handle(self, params: messages.Params, caller: ClientState) -> Answer:
        method = METHODS[type(params)]
        if method.needs == "nothing" or isinstance(params, messages.Check):
            self.gate.check(params, caller)
        match params:
            case _ if method.needs == "nothing":
                return method.function(self, params, caller)
            case _ if self._is_draining:
                raise ShuttingDown("The daemon is ending.", hint=Advice(step_term("start_again")))
            case messages.Check(repair=True):
                return self._repairing.repair(params, self._services)
            case _ if self._failed is not None:
                raise self._failed
            case _ if self._dispatch is None or (self._is_partial and method.needs != "files"):
                return self._handle_later(params, caller)
            case _:
                return self._dispatch.handle(params, caller)

    async def _handle_later(self, params: messages.Params, caller: ClientState) -> Answer:
        """Wait until the request can be served: for the baseline, or for a history without it."""
        if METHODS[type(params)].needs == "files":
            self._is_awaited = True
            self._begin_if_long()
            await self._served.wait()
        else:
            await self._opened.wait()
        return self._handle(params, caller)

    def introduce(self, params: messages.Hello, caller: ClientState) -> messages.HelloResult:
        """Introduce a client. Raises InvalidParams, UnknownSession."""
        if params.protocol != messages.PROTOCOL:
            raise InvalidParams(
                f"This daemon speaks protocol {messages.PROTOCOL}, not {params.protocol}.",
                hint="Use a client and a daemon of the same version.",
            )
        name = params.client.get("name") if isinstance(params.client, dict) else params.client
        if isinstance(name, str):  # a client's own name becomes an actor's name
            caller.name = name[: LIMITS.name_length_max].encode("utf-8", "replace").decode()
        self._attach(params, caller)
        caller.listener.connection.errors_as_text = params.errors == "text"
        return messages.HelloResult(
            server=messages.Server(name="editd", version=editd.__version__),
            protocol=messages.PROTOCOL,
            workspace=messages.Workspace(root=self._places.root, id=self._places.name),
            head=0 if self._services is None else self._services.engine.history.head,
            limits=asdict(self._limits),
            dialects=list(DIALECTS),
            encodings=ENCODINGS,
        )

    def _attach(self, params: messages.Hello, caller: ClientState) -> None:
        """Attach the connection to the session that it names. Raises UnknownSession."""
        if self._services is not None:
            self._services.sessions.hello(params.session, params.token, caller)
            restore_reads(params.seen, caller, self._services.guard, self._services.queue)
        elif params.token is not None:
            raise UnknownSession("No session is open yet.", hint=Advice(step_term("open_a_session")))
        else:
            caller.session = params.session

    def status(self) -> messages.StatusResult:
        """Return the status of the daemon, and of its workspace if that is open."""
        watcher, known = self._watching.status(), mounts()
        alone = messages.StatusResult(
            root=self._places.root,
            head=0,
            uptime=time.monotonic() - self._began,
            version=editd.__version__,
            state="broken" if self._failed is not None else "scanning" if self._is_scanning else "ready",
            reason=None if self._failed is None else self._failed.text(),
            sessions=0,
            leases=0,
            proposals=0,
            watcher=watcher if self._dispatch is not None else watcher | {"files": self._counted},
            journal={"bytes": 0, "unpacked": 0, "unflushed": 0},
            history=NO_HISTORY,
            config=self._configuration.status(),
            hooks=describe(hooks_of(self._config)),
            clients=len(self._clients),
            weaker=[
                *self._shortfalls.weaker(known),
                *self._configuration.weaker(),
                *self.gate.weaker(),
                *self._notifier.weaker(),
                *installed_parts.weaker(),
            ],
            uncovered=self._shortfalls.describe_uncovered(known),
            system=self._shortfalls.facts(known),
            pid=os.getpid(),
            id=self._places.name,
            review_socket=self._review_socket,
            outer=self._places.outer() or None,
            notices=self._state_folder.notices(),
            parts=list(installed_parts.installed_parts()),
        )
        self._look_at_state()
        return alone if self._dispatch is None else self._dispatch.status(alone)

    # ── ending ──

    def stop(self) -> None:
        """End the daemon soon."""
        self._stop.set()

    async def _until_told(self) -> None:
        """Wait for a signal, `shutdown`, the end of the idle time, or the loss of the socket or folder."""
        path = None if self._found_at is None else self._places.socket
        with (
            watching_name(path, self._stirred.set) as is_socket_watched,
            watching_name(self._places.root, self._stirred.set) as is_root_watched,
            watching_name(self._places.state, self._stirred.set) as is_state_watched,
        ):
            is_watched = is_socket_watched and is_root_watched and is_state_watched
            while not self._stop.is_set():
                self._stirred.clear()
                seconds = self._idle_seconds_left()
                if seconds is not None and seconds <= 0:
                    log.info("no client for %g s: the daemon ends", self._idle_seconds_max)
                    self._stop.set()
                self._look_at_state()
                if path is not None and self._is_lost():
                    log.warning("%s is gone or replaced: no client can find this daemon", path)
                    self._stop.set()
                if not len(self._clients) and self._is_homeless():
                    log.warning("%s is gone, and no client is connected: the daemon ends", self._places.root)
                    self._stop.set()
                if not is_watched:
                    seconds = min(LOST_SECONDS, LOST_SECONDS if seconds is None else seconds)
                await first_of((self._stop, self._stirred), seconds)

    @property
    def _idle_seconds_max(self) -> float:
        """Seconds that the daemon stays without clients; 0 for ever."""
        return (self._config.idle_seconds if self._idle_seconds is None else self._idle_seconds) or 0.0

    def _idle_seconds_left(self) -> float | None:
        """Return after how many seconds the daemon ends for lack of clients; None if it does not."""
        if not self._idle_seconds_max or len(self._clients):
            return None
        return self._last_client + self._idle_seconds_max - time.monotonic()

    def _look_at_state(self) -> None:
        """Take no more edits if the state folder is gone."""
        if self._services is not None:
            self._state_folder.look(self._services.engine)

    def _is_homeless(self) -> bool:
        """Return whether the folder of the workspace was moved or removed."""
        return self._home is not None and inode_of(self._places.root) != self._home

    def _is_lost(self) -> bool:
        """Return whether our socket was removed, or replaced by another, as systemd does."""
        return inode_of(self._places.socket) != self._found_at

    async def _drain(self) -> None:
        """Let requests under way finish; refuse requests that wait for the baseline."""
        self._served.set()
        self._opened.set()
        until = time.monotonic() + DRAIN_SECONDS
        # Turns and tasks end soon and in many ways, so no single event covers them.
        while self._is_busy and time.monotonic() < until:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    @property
    def _is_busy(self) -> bool:
        return len(self._calls) > 0 or (self._services is not None and len(self._services.queue) > 0)
