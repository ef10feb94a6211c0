"""The watcher: changes by other programs become transactions a moment later.

Notices only name the files to check. The engine reads those files itself and decides by the hash, so that our
own writes add nothing here. Notices are gathered until it is quiet, because a save is several steps and a
file may be missing, empty or half written in between. While git has an index locked nothing is taken in, so
that a checkout is one transaction.

    starting    the folders are being walked for the first time
    rescanning  notices may have been missed: `settle` scans until a scan of everything is done
    partial     some folders cannot be watched, or are on a mount where others write without a notice:
                `settle` scans, and a scan runs now and then
    ready       no notice is missed: `settle` waits for a cookie only
    holding     as ready, but git is at work, and its changes are taken in when it has finished
    paused      a caller takes in the changes itself (see `pause`)
    down        nothing is watched: `settle` scans, and a retry or a scan follows now and then

Correctness does not rest on it: an edit checks the files that it touches.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from itertools import islice
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from editd.errors import Refused
from editd.server.engine_queue import Alarm, wait_event
from editd.server.own_writes import LOOKS_MAX, OwnWrites
from editd.server.scanner import (
    QUIET_SECONDS,
    NoticeRecorder,
    PendingEvents,
    Repositories,
    check_replaced_files,
)
from editd.system.fs_watch import FsEvent, Watcher, WatchFilter, can_watch
from editd.values.path import TEMPORARY_PREFIX, WorkspacePath
from editd.workspace.git_files import repository_above
from editd.workspace.inner_workspaces import InnerWorkspaces
from editd.workspace.watch_set import WatchSet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from editd.engine.engine import Engine
    from editd.server.engine_queue import EngineQueue
    from editd.server.scanner import Scanner
    from editd.values.transaction import Transaction

log = logging.getLogger(__name__)

COOKIE_PREFIX = f"{TEMPORARY_PREFIX}cookie-"
COOKIE_SECONDS = 1.0  # a cookie that is not back by then will not come, unless the reader makes progress
COOKIE_SECONDS_MAX = 10.0
COVERING_ROUNDS = 3  # of a settle whose findings require more watches
TICK_SECONDS = 1.0
UNRECORDED_MAX = 1000  # files that a command's end may report as gone
BLIND_SECONDS = 30.0  # between two scans, or two retries, if something cannot be watched


class WorkspaceWatcher:
    """The workspace's watcher: starts before there is an engine, and works for it when it is there."""

    def __init__(
        self, root: str, scanner: Scanner, is_deaf: Callable[[Callable[[bytes], bool]], bool]
    ) -> None:
        """`is_deaf` is `WeakerGuarantees.is_deaf`; its argument returns whether a folder is watched."""
        self._root = root
        self._scanner = scanner
        self._is_deaf = is_deaf
        self._engine: Engine | None = None
        self._queue: EngineQueue | None = None
        self._recorder: NoticeRecorder | None = None
        self._tell: Callable[[str, dict[str, Any]], None] = lambda _event, _body: None
        self._loop = asyncio.get_running_loop()
        self._covering = WatchSet(root)
        self._inner = InnerWorkspaces(root)
        self._watch: Watcher | None = None
        self._is_ready = False
        self._ready = Alarm()
        self._generation = 0  # one more each time that notices may have been missed
        self._seen = -1  # nothing is missed up to this generation
        self._lost = ""  # the reason for a pending rescan
        self._ailing = Alarm()
        self._rescanning = asyncio.Lock()
        self._retry_at = 0.0
        self._scan_at = 0.0  # the next scan that makes up for a deaf watch
        self._overflows = self._rebuilds = 0
        self._pending = PendingEvents()
        self._stirred = asyncio.Event()
        self._roused = Alarm()  # something is due before the end of the sleep
        self._sleeps_until = 0.0
        self._own = OwnWrites(os.fsencode(root))
        self._repositories = Repositories()
        self._uncovered: frozenset[bytes] = frozenset()  # left out by the baseline
        self._resting: asyncio.TimerHandle | None = None
        self.on_git: list[Callable[[], None]] = []  # called after a change in a folder of git
        self._taking = asyncio.Lock()
        self._pauses = 0
        self._resumed = asyncio.Event()
        self._cookies: dict[bytes, asyncio.Future[bool]] = {}
        self._serial = 0
        self._tasks: list[asyncio.Task[None]] = []

    # ── lifecycle ──

    async def ready(self, seconds: float) -> int | None:
        """Wait up to `seconds` until everything is watched.

        Returns the generation since which nothing is missed, for `start`; None if it is not ready yet.
        """
        await wait_event(self._ready, seconds)
        return self._generation if self._is_ready else None

    def start(
        self,
        engine: Engine,
        queue: EngineQueue,
        uncovered: frozenset[bytes],
        seen: int | None,
        tell: Callable[[str, dict[str, Any]], None],
    ) -> None:
        """Work for this engine. `seen` is the result of `ready`, if everything was scanned since then.

        `tell` sends an event to the subscribers when notices were missed.
        """
        self._engine, self._queue, self._tell = engine, queue, tell
        self._recorder = NoticeRecorder(
            self._root, engine, queue, self._scanner, uncovered, self._repositories
        )
        self._uncovered = uncovered
        self._seen = -1 if seen is None else seen
        self._tasks = [self._loop.create_task(self._supervise()), self._loop.create_task(self._run())]
        self._ailing.set()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._resting is not None:
            self._resting.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        watch, self._watch = self._watch, None
        if watch is not None:
            await self._loop.run_in_executor(None, watch.stop)

    def status(self) -> dict[str, Any]:
        watch = self._watch
        failed = 0 if watch is None else len(watch.failures)
        return {
            "backend": "scan" if watch is None else watch.backend,
            "state": self._state(failed),
            "directories": 0 if watch is None else watch.directories,
            "failed": failed,
            "overflows": self._overflows,
            "rebuilds": self._rebuilds,
        }

    def _state(self, failed: int) -> str:
        if self._watch is None or not self._watch.is_alive():
            return "down"
        if self._pauses:
            return "paused"
        if not self._is_ready:
            return "starting"
        if self._seen != self._generation:
            return "rescanning"
        if failed or self._is_deaf(self._watch.has):
            return "partial"
        return "holding" if self._repositories.is_held else "ready"

    @property
    def is_whole(self) -> bool:
        """Whether the return of a cookie proves that no notice was missed."""
        watch = self._watch
        return (
            watch is not None
            and self._is_ready
            and self._seen == self._generation
            and not watch.failures
            and watch.is_alive()
            and not self._is_deaf(watch.has)
        )

    # ── calls by others ──

    def pause(self) -> None:
        """Keep the notices, and take nothing in until `resume` was called as often."""
        self._pauses += 1
        self._resumed.clear()

    def resume(self) -> None:
        self._pauses -= 1
        if not self._pauses:
            self._resumed.set()

    def recorded(self, transaction: Transaction) -> None:
        """Note a transaction whose changes are in the files. May be called from the engine's thread."""
        now = time.monotonic()
        watched = None if self._watch is None else self._watch.folders
        unwatched: set[bytes] = set()
        is_outside, rates = transaction.kind == "outside", self._scanner.rates
        own, is_looked_at = self._own.by_path, not is_outside and len(transaction.touches) <= LOOKS_MAX
        for touch in transaction.touches:
            raw = touch.path.raw
            before, status = own.get(raw), None
            if is_looked_at and touch.after is not None:
                with contextlib.suppress(OSError):
                    status = os.lstat(os.path.join(self._own.root, raw))
            own[raw] = now, 1 if before is None else before[1] + 1, status
            if not is_outside and rates.by_path:
                rates.edited(raw)
            folder = raw.rpartition(b"/")[0]
            if watched is not None and touch.after is not None and folder not in watched:
                unwatched.add(folder)
        if len(own) > self._own.kept_max:
            self._own.forget_old()
        if unwatched:
            self._loop.call_soon_threadsafe(self._cover, unwatched)

    def unrecorded_files(self) -> dict[WorkspacePath, tuple[int, int]]:
        """Return size and mtime_ns of the files that were never recorded, the largest first, so many at most.

        Files that git ignores are not among them.
        """
        facts: dict[WorkspacePath, tuple[int, int]] = {}
        for path in (*self._scanner.too_large_files(), *islice(sorted(self._uncovered), UNRECORDED_MAX)):
            with contextlib.suppress(OSError):
                status = os.lstat(os.path.join(os.fsencode(self._root), path))
                facts[WorkspacePath(os.fsdecode(path))] = status.st_size, status.st_mtime_ns
        largest = sorted(facts.items(), key=lambda item: item[1], reverse=True)
        return dict(largest[:UNRECORDED_MAX])

    async def settle(self) -> None:
        """Return when all changes made before this call are seen and recorded. Raises Refused."""
        assert self._engine is not None
        self._engine.recorder.check_in_place()
        await self._settle()
        await check_replaced_files(self._engine)

    async def _settle(self) -> None:
        assert self._engine is not None
        assert self._queue is not None
        for _ in range(COVERING_ROUNDS):
            if self._pauses or not self.is_whole or not await self._cookie():
                break
            leads_on = await asyncio.shield(self._loop.create_task(self._take_in(is_settling=True)))
            if not leads_on and self.is_whole:  # The notices of a failed attempt before it may be lost.
                return
        if not self.is_whole:
            self._ailing.set()  # The cause may be a mount that came without a notice.
        await self._repositories.git_done()
        await self._scanner.settle(self._engine, self._queue)

    async def rescan(self) -> None:
        """Record changes made while no daemon ran. Raises Refused."""
        await wait_event(self._ready, COOKIE_SECONDS_MAX)
        await self._rescan()

    # ── notices ──

    def begin(self) -> None:
        """Start a new watch, in any state of the watch before."""
        if not can_watch():
            self._ready.set()  # no caller has to wait for a watch
            return
        self._is_ready = False
        self._ready.clear()
        self._retry_at = self._loop.time() + BLIND_SECONDS  # unless it makes progress until then
        self._repositories.clear()
        above = repository_above(os.fsencode(self._root))
        watch = Watcher(
            os.fsencode(self._root),
            lambda notice: self._told(watch, notice),
            WatchFilter(
                self._covering.has,
                TEMPORARY_PREFIX.encode(),
                COOKIE_PREFIX.encode(),
                () if above is None else (above,),
                self._covering.renew,
                self._own.is_own,
            ),
        )
        self._watch = watch
        try:
            watch.start()
        except Exception as error:  # noqa: BLE001  # watchdog's emitters do not document their exceptions
            log.warning("nothing can be watched: %s", error)
            self._watch = None

    def _told(self, watch: Watcher, notice: FsEvent) -> None:
        """Pass a notice from the watch's thread to the loop."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._heard, watch, notice)

    def _heard(self, watch: Watcher, notice: FsEvent) -> None:
        if watch is not self._watch:
            return  # from a watch that was given up
        notice = self._without_inner(watch, notice)
        self._repositories.note(notice.repositories, watch.top_of)
        if notice.repositories:
            for listener in self.on_git:
                listener()
        if notice.state is not None:
            self._stated(notice)
            return
        if watch.failures:
            self._ailing.set()
        now = self._loop.time()
        if notice.paths or notice.folders or notice.repositories:
            self._pending.add(notice, now, is_echo=self._is_echo(notice))
            self._stirred.set()
            if self._pending.due() < self._sleeps_until:
                self._roused.set()
        for name in notice.cookies:
            cookie = self._cookies.get(name)
            if cookie is not None and not cookie.done():
                cookie.set_result(True)

    def _without_inner(self, watch: Watcher, notice: FsEvent) -> FsEvent:
        """Return the notice without the repositories of inner workspaces, which have their own daemons."""
        inner = {one for one in notice.repositories if self._inner.is_one(watch.top_of(one))}
        if not inner:
            return notice
        self._scanner.inner.update(map(watch.top_of, inner))
        return replace(notice, repositories=notice.repositories - inner)

    def _is_echo(self, notice: FsEvent) -> bool:
        if notice.folders or notice.repositories:
            return False
        return all(map(self._own.is_recent, notice.paths))

    def _stated(self, notice: FsEvent) -> None:
        """Handle a change of the watch itself."""
        if notice.state == "ready":
            self._is_ready = True
            self._ready.set()
            self._ailing.set()
            return
        if notice.state == "overflow":
            self._overflows += 1
        self._is_ready = False
        self._ready.clear()
        self._retry_at = 0.0
        if notice.state == "gone":
            self._watch, watch = None, self._watch
            self._retry_at = self._loop.time() + TICK_SECONDS
            if watch is not None:
                self._loop.run_in_executor(None, watch.stop)
        self._distrust(notice.reason)

    def _distrust(self, reason: str) -> None:
        """Note that notices may have been missed, so that everything is scanned again."""
        log.warning("changes may have been missed: %s", reason)
        self._lost = reason
        self._generation += 1
        for cookie in self._cookies.values():
            if not cookie.done():
                cookie.set_result(False)
        self._ailing.set()

    async def _cookie(self) -> bool:
        """Make a cookie file; return whether its notice came, and with it all earlier ones."""
        watch = self._watch
        assert watch is not None
        self._serial += 1
        name = f"{COOKIE_PREFIX}{os.getpid()}-{self._serial}".encode()
        cookie = self._cookies[name] = self._loop.create_future()  # before the file can be seen
        until = self._loop.time() + COOKIE_SECONDS_MAX
        try:
            _touch(os.path.join(os.fsencode(self._root), name))
            watch.hurry()
            queue = -1
            while not cookie.done() and watch.turns != queue and self._loop.time() < until:
                queue = watch.turns
                await asyncio.wait({cookie}, timeout=COOKIE_SECONDS)
        except OSError as error:
            log.warning("no cookie could be made: %s", error)
            return False
        finally:
            del self._cookies[name]
        if cookie.done():
            return bool(cookie.result())
        if watch is self._watch:
            self._give_up(watch, "the watcher does not answer")
        return False

    def _give_up(self, watch: Watcher, reason: str) -> None:
        self._watch = None
        self._is_ready = False
        self._retry_at = 0.0
        self._loop.run_in_executor(None, watch.stop)
        self._distrust(reason)

    # ── repair ──

    async def _supervise(self) -> None:
        while True:
            if self.is_whole:
                await self._ailing.wait()
            else:
                await wait_event(self._ailing, TICK_SECONDS)
            self._ailing.clear()
            try:
                await self._mend()
            except (Refused, OSError) as error:
                log.warning("the watch is not repaired yet: %s", error)
                await asyncio.sleep(TICK_SECONDS)
            except Exception:  # our bug; without this task nothing would ever be repaired
                log.exception("repairing the watch failed")
                await asyncio.sleep(TICK_SECONDS)

    async def _mend(self) -> None:
        now, watch = self._loop.time(), self._watch
        if not can_watch():
            if now >= self._scan_at:
                self._scan_at = now + BLIND_SECONDS
                await self._rescan()
        elif watch is None or not watch.is_alive():
            if now >= self._retry_at:
                await self._rebuild()
        elif self._is_ready and self._seen != self._generation:
            await self._rescan()
        elif self._is_ready and watch.failures and now >= self._retry_at:
            self._retry_at = now + BLIND_SECONDS
            watch.rewatch(watch.failures)
            await self._rescan()
        elif self._is_ready and now >= self._scan_at:
            self._scan_at = now + BLIND_SECONDS
            if self._is_deaf(watch.has):
                await self._rescan()

    async def _rebuild(self) -> None:
        """Start the watch again; if that fails too, scan everything now and then."""
        if not self._lost and self._watch is not None:
            self._distrust("the watcher ended")
        if not os.path.isdir(self._root):  # noqa: ASYNC240
            self._retry_at = self._loop.time() + TICK_SECONDS
            return
        watch, self._watch = self._watch, None
        if watch is not None:
            await self._loop.run_in_executor(None, watch.stop)
        self._rebuilds += 1
        log.warning("the watcher is restarted")
        self.begin()
        if self._watch is None:
            await self._rescan()

    async def _rescan(self) -> None:
        """Scan everything; from then on nothing is missed, if the watch was ready before."""
        assert self._engine is not None
        assert self._queue is not None
        async with self._rescanning:
            if not self.is_whole:
                await self._rescan_now(self._engine, self._queue)

    async def _rescan_now(self, engine: Engine, queue: EngineQueue) -> None:
        generation, is_ready, before = self._generation, self._is_ready, engine.history.head
        await self._scanner.settle(engine, queue)
        self._cover({path.raw.rpartition(b"/")[0] for path in self._scanner.unseen})
        if generation != self._generation or not is_ready:
            return
        self._seen = generation
        reason, self._lost = self._lost, ""
        if reason:
            log.info("everything was scanned again")
            self._tell("resync", {"from": before, "head": engine.history.head, "reason": reason})

    def _cover(self, folders: Iterable[bytes]) -> None:
        """Watch these folders too: they are out of scope, but the history knows files in them."""
        watch = self._watch
        if watch is None:
            return
        new = self._covering.add(folder for folder in folders if not watch.has(folder))
        if new:
            watch.rewatch(new)

    # ── taking in ──

    async def _run(self) -> None:
        """Take in the notices whenever it is quiet."""
        while True:
            await self._stirred.wait()
            if self._pauses:
                await self._resumed.wait()
            seconds = self._pending.due() - self._loop.time()
            if seconds > 0:
                self._sleeps_until = self._loop.time() + seconds
                self._roused.clear()
                await wait_event(self._roused, seconds)
                self._sleeps_until = 0.0
                continue  # more notices may have come meanwhile
            if self._pauses:
                continue
            if await self._repositories.unlocked():
                await asyncio.sleep(QUIET_SECONDS)  # git's last notices are still to come
                continue
            try:
                await self._take_in(is_settling=False)
            except (Refused, OSError) as error:
                log.warning("outside changes could not be recorded: %s", error)
                await asyncio.sleep(TICK_SECONDS)
            except Exception:  # our bug
                log.exception("outside changes could not be taken in")
                await asyncio.sleep(TICK_SECONDS)
            if self._pending.is_empty():
                self._stirred.clear()

    async def _take_in(self, *, is_settling: bool) -> bool:
        """Check and record the noticed files; return whether that leads to more notices.

        Raises Refused or OSError if they cannot be recorded now; the notices are kept.
        """
        assert self._recorder is not None
        async with self._taking:
            while True:
                await self._repositories.git_done()
                taken, self._pending = self._pending, PendingEvents()
                self._rest(taken, is_settling=is_settling)
                if taken.is_empty():
                    return False
                patience = taken.patience(is_settling=is_settling)
                try:
                    is_done = await self._recorder.inspect(taken, may_wait=patience > self._loop.time())
                except (Refused, OSError):
                    self._pending.take_back(taken)
                    raise
                except Exception:  # our bug: a scan checks those files instead
                    self._distrust("taking in outside changes failed")
                    raise
                if is_done:
                    return self._covers_more(taken)
                self._pending.take_back(taken)
                await asyncio.sleep(max(0.0, patience - self._loop.time()))

    def _rest(self, taken: PendingEvents, *, is_settling: bool) -> None:
        """Leave out the paths that change without pause, until their rest ends; all are in for a `settle`."""
        rates = self._scanner.rates
        taken.paths |= rates.take_rested(is_settling=is_settling)
        if not is_settling and not taken.repositories:  # a checkout is whole
            taken.paths -= rates.rest(taken.paths)
        self._wake_after_rest()

    def _wake_after_rest(self) -> None:
        seconds = self._scanner.rates.seconds_left()
        if seconds is not None and self._resting is None:
            self._resting = self._loop.call_later(seconds, self._end_rest)

    def _end_rest(self) -> None:
        self._resting = None
        if rested := self._scanner.rates.take_rested():
            self._pending.add(FsEvent(paths=rested), self._loop.time(), is_echo=False)
            self._stirred.set()
        self._wake_after_rest()

    def _covers_more(self, taken: PendingEvents) -> bool:
        """Watch and check paths that are no longer ignored; return whether there may be any."""
        folders = {path.rpartition(b"/")[0] for path in taken.paths if path.endswith(b".gitignore")}
        if folders and self._watch is not None:
            self._watch.rewatch(folders)
        return bool(folders)


def _touch(path: bytes) -> None:
    """Make a file and remove it again. Raises OSError."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    os.unlink(path)
