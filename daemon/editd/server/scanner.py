"""The scanner: a process that walks the workspace, and the engine's check of its findings and of notices.

A scan or a notice only names the files to check; the engine reads them itself and decides by the hash.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import deque
from functools import cache, partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from editd.engine.external_changes import WHOLE, known_below, suspects_in, sweep
from editd.engine.scan_worker import too_large
from editd.errors import Broken, IoError, Refused
from editd.server.change_rates import ChangeRates
from editd.server.child_process import PYTHON, ChildProcess, IdleTimer
from editd.values.content import Version, version_of
from editd.values.path import WorkspacePath, inner
from editd.workspace.git_files import GitHead, describe_move, head_moves, is_in_progress, is_locked
from editd.workspace.hard_links import HardLinks
from editd.workspace.scan import FILE_BYTES_MAX
from editd.workspace.scope import WorkspaceScope

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence, Set

    from editd.engine.engine import Engine
    from editd.engine.external_changes import Portion, Reconciliation
    from editd.server.engine_queue import EngineQueue
    from editd.system.fs_watch import FsEvent
    from editd.values.excluded_paths import ExcludedPaths
    from editd.workspace.reader import FileStat

log = logging.getLogger(__name__)

TRIES = 3  # of a scan whose process is killed, for example by the out-of-memory killer


class Scanner:
    """The scanning process. It also takes the baseline, before the engine exists."""

    def __init__(self, root: str, folder: str, *, file_bytes_max: int = FILE_BYTES_MAX) -> None:
        """`file_bytes_max` is the limit of edits."""
        self._file_bytes_max = file_bytes_max
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
        self.rates = ChangeRates()
        self.links = HardLinks()  # as the last scan has seen them
        self.inner: set[bytes] = set()  # workspaces inside this one, seen by the last scan or since
        self.files = 0  # seen in the last scan
        self.unseen: list[WorkspacePath] = []  # known paths in folders that the last scan did not reach
        self.unrecorded: list[str] = []  # findings of the last scan that the engine could not record

    @property
    def uncovered(self) -> list[str]:
        """Sentences on the files that the history does not cover, too large ones by their current size."""
        return self._left_out + too_large(self.too_large_files(), self._file_bytes_max)

    def too_large_files(self) -> dict[bytes, int]:
        """Return the files that the scan leaves out for their size, with their present sizes."""
        sizes = {path: self._size_of(path) for path in self._too_large}
        sizes = {path: size for path, size in sizes.items() if size > FILE_BYTES_MAX}
        self._too_large = set(sizes)
        return sizes

    def note_too_large(self, path: WorkspacePath) -> None:
        """Remember a file that was seen since the last scan, and is too large to record."""
        self._too_large.add(path.raw)

    def _take_left_out(self, frame: dict[str, Any]) -> None:
        self._left_out = list(frame["uncovered"])
        self._too_large = set(map(os.fsencode, frame["too_large"]))
        self.inner = set(map(os.fsencode, frame["inner"]))
        self.links = HardLinks.of(frame["linked"])

    def _size_of(self, path: bytes) -> int:
        try:
            return os.lstat(os.path.join(self._root, path)).st_size
        except OSError:
            return 0

    async def start(self) -> None:
        """Start the process, so that the next work finds it running."""
        await self._start()

    async def baseline(
        self, time_us: int, rule: ExcludedPaths, progress: Callable[[int, int], None]
    ) -> dict[str, Any]:
        """Record the workspace as first seen in the store, without the contents of excluded files.

        Raises Broken if that fails.
        """
        request = {"do": "baseline", "time": time_us, "exclude": rule.texts}
        for _ in range(TRIES):
            frame = await self._baseline_once(request, progress)
            if frame is not None:
                return frame
            log.error("the scanning process ended while it took the baseline")
        raise Broken("The scanning process ended while it took the baseline.", hint="See the log.")

    async def _baseline_once(
        self, request: dict[str, Any], progress: Callable[[int, int], None]
    ) -> dict[str, Any] | None:
        child = await self._start()
        child.send(request)
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
                return frame | {"excluded": {Version(version): path for version, path in frame["excluded"]}}
            progress(frame["progress"], frame["bytes"])

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
        child = await self._start()
        self._number += 1
        # Let an inspection finish first. Otherwise the scan may find a file as recorded, and the inspection
        # may then record the content from before the scan.
        async with queue.inspecting:
            child.send({"do": "scan", "id": self._number})
        suspects: list[WorkspacePath] = []
        seen: set[str] = set()
        known = {""}  # the recorded folders
        while True:
            frame = await self._frames.get()
            if frame is None:
                return False
            if frame.get("id") != self._number:
                continue
            if "done" in frame:
                break
            seen.add(frame["folder"])
            files = {os.fsencode(name): (mode, Version(version)) for name, mode, version in frame["files"]}
            differing, below = await queue.run(partial(suspects_in, engine.history, frame["folder"], files))
            suspects += differing
            known.update(below)
        self._idle.restart()
        self._take_left_out(frame)
        self.files = frame["files"]
        self.unseen = await queue.run(lambda: _below(engine, known - seen))
        suspects += self.unseen
        await self._record(engine, queue, suspects)
        strays = list(map(os.fsencode, frame["strays"]))
        if engine.recorder.broken is None:  # otherwise recovery may need them
            await queue.run(partial(sweep, engine.files, engine.history, strays))
        return True

    async def _record(self, engine: Engine, queue: EngineQueue, suspects: list[WorkspacePath]) -> None:
        """Check the files, and record what is different. Raises IoError if the journal cannot be written."""
        async with queue.inspecting:
            inspection = await queue.run(engine.recorder.inspect)
            await queue.run_in_slices(map(inspection.look, suspects))
            try:
                await record_in_portions(engine, queue, inspection, self.rates, TreeLabels())
            except IoError as refusal:
                problems = [f"{path.text}: {refusal.message}" for path in inspection.found]
                self.unrecorded = inspection.failed + problems
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

    async def _start(self) -> ChildProcess:
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


def _below(engine: Engine, folders: set[str]) -> list[WorkspacePath]:
    """Return the recorded files in and below these folders, without inner workspaces."""
    inner = engine.recorder.hidden.inner.lookup()
    own = [folder for folder in sorted(folders) if not inner(os.fsencode(folder))]
    return [path for folder in own for path in known_below(engine.history, folder)]


# Notices: the files that the watcher names, gathered until it is quiet, then checked and recorded.

QUIET_SECONDS = 0.05  # after the last notice, before anything is taken in
SAVING_SECONDS = 0.2  # the same for a missing or empty file: a program may be about to write it
GIT_SECONDS = 0.2  # the same after git was at work: it often goes on
STEPS_SECONDS = 0.5  # the same in the middle of a rebase
NOISE_SECONDS_MAX = 1.0  # then even steady noise is taken in
GROWING_SECONDS_MAX = 5.0  # the same while more and more files change, as in a long `rm -rf`
ECHOED_SECONDS = 0.25  # then, and when it is quiet, these are checked too: others may have written
PAUSE_SECONDS_MAX = 0.05  # between two portions of a bulk change
ROOM_SECONDS_MAX = 300.0  # then a bulk change is recorded anyway: packing may have failed
LOCKED_SECONDS = 0.02  # between two checks of git's lock
LARGE_BYTES = 1024 * 1024  # a file of this size is read in a thread
EMPTY = version_of(b"")
_NOT_OURS = -1


class PendingEvents(Struct):
    """Notices that are not processed yet. The times are the loop's; 0 is never."""

    paths: set[bytes] = field(default_factory=set)
    folders: set[bytes] = field(default_factory=set)
    repositories: set[bytes] = field(default_factory=set)
    first: float = 0.0
    grown: float = 0.0  # the last notice of a new path
    last: float = 0.0
    echo: float = 0.0  # the first notice that probably comes from our own writes
    echoed: float = 0.0  # the last such notice

    def is_empty(self) -> bool:
        return not (self.paths or self.folders or self.repositories)

    def add(self, notice: FsEvent, now: float, *, is_echo: bool) -> None:
        before = len(self)
        self.paths |= notice.paths
        self.folders |= notice.folders
        self.repositories |= notice.repositories
        if is_echo:
            self.echo = self.echo or now
            self.echoed = now
            return
        self.first = self.first or now
        self.last = now
        if len(self) > before:
            self.grown = now

    def take_back(self, taken: PendingEvents) -> None:
        """Put back notices that were taken, to be processed again."""
        self.paths |= taken.paths
        self.folders |= taken.folders
        self.repositories |= taken.repositories
        self.first = taken.first or self.first
        self.grown, self.last = max(taken.grown, self.grown), max(taken.last, self.last)
        self.echo = taken.echo or self.echo
        self.echoed = max(taken.echoed, self.echoed)

    def due(self) -> float:
        """Return the time to take them in."""
        dues: list[float] = []
        if self.echo:
            quiet = max(self.echo + ECHOED_SECONDS, self.echoed + QUIET_SECONDS)
            dues.append(min(quiet, self.echo + NOISE_SECONDS_MAX))
        if self.first:
            quiet = self.last + self._quiet_seconds()
            most = min(self.first + GROWING_SECONDS_MAX, self.grown + NOISE_SECONDS_MAX)
            dues.append(quiet if self.repositories else min(quiet, most))
        return min(dues, default=0.0)

    def patience(self, *, is_settling: bool) -> float:
        """Return the time until which a missing or empty file may still be written."""
        newest = self.last or self.echo
        oldest = self.first or self.echo
        return min(newest + (QUIET_SECONDS if is_settling else SAVING_SECONDS), oldest + GROWING_SECONDS_MAX)

    def _quiet_seconds(self) -> float:
        if any(map(is_in_progress, self.repositories)):
            return STEPS_SECONDS
        return GIT_SECONDS if self.repositories else QUIET_SECONDS

    def __len__(self) -> int:
        return len(self.paths) + len(self.folders) + len(self.repositories)


class Repositories:
    """The user's git repositories in the workspace: the HEAD of each, by git's own folder, and the locks."""

    def __init__(self) -> None:
        self.heads: dict[bytes, GitHead] = {}
        self.tops: dict[bytes, bytes] = {}  # of their work trees, relative to the workspace
        self.is_held = False  # by a git that has an index locked

    def note(self, noticed: Set[bytes], top_of: Callable[[bytes], bytes]) -> None:
        """Read the HEAD of each noticed repository that is new. `top_of` returns the top of its work tree."""
        for repository in noticed - self.heads.keys():
            self.heads[repository] = GitHead.of(repository)
        for repository in noticed:
            self.tops[repository] = top_of(repository)

    def clear(self) -> None:
        """Forget all of them, to read them anew."""
        self.heads.clear()
        self.tops.clear()

    async def git_done(self) -> None:
        """Wait until no git is at work, nor about to move HEAD, which it does after unlocking the index."""
        while await self.unlocked():  # noqa: ASYNC110  # git has no notification for that
            await asyncio.sleep(QUIET_SECONDS)

    async def unlocked(self) -> bool:
        """Wait until no git has an index locked; return whether one had."""
        was_held = False
        while any(is_locked(repository, time.time()) for repository in self.heads):
            self.is_held = was_held = True
            await asyncio.sleep(LOCKED_SECONDS)
        self.is_held = False
        return was_held


class NoticeRecorder:
    """The engine's check of the files that notices name, and the record of their changes."""

    def __init__(
        self,
        root: str,
        engine: Engine,
        queue: EngineQueue,
        scanner: Scanner,
        uncovered: frozenset[bytes],
        repositories: Repositories,
    ) -> None:
        """A record brings the heads of `repositories` up to date."""
        self._root = root
        self._engine = engine
        self._queue = queue
        self._scanner = scanner
        self._uncovered = uncovered
        self._repositories = repositories
        self._other_names: set[WorkspacePath] = set()  # of the noticed files
        self._has_unknown_links = False

    async def inspect(self, taken: PendingEvents, *, may_wait: bool) -> bool:
        """Check and record all files; return False if one may be in the middle of a save, and `may_wait`.

        Scan if a noticed file has other names, and they are unknown.
        """
        self._has_unknown_links = False
        async with self._queue.inspecting:
            inspection = await self._inspect(taken, may_wait=may_wait)
            if inspection is not None:
                await self._record(inspection, taken)
        if inspection is not None and self._has_unknown_links and not self._engine.recorder.is_first_scan:
            await self._scanner.settle(self._engine, self._queue)
        return inspection is not None

    async def _inspect(self, taken: PendingEvents, *, may_wait: bool) -> Reconciliation | None:
        """Check all files; return None if one may be in the middle of a save, and `may_wait`."""
        inspection = await self._queue.run(self._engine.recorder.inspect)
        scope = cache(lambda: WorkspaceScope(self._root))
        is_saving = False

        def look_at_each() -> Iterator[Callable[[], object] | None]:
            nonlocal is_saving
            for path in chain(self._places(taken), self._take_other_names(taken)):
                size = self._size(path, scope)
                is_saving = size is None and may_wait
                if is_saving:
                    return
                if size is not None and size >= LARGE_BYTES:
                    yield partial(inspection.look, path)
                elif size != _NOT_OURS:
                    inspection.look(path)
                    yield None

        await self._queue.run_in_slices(look_at_each())
        return None if is_saving else inspection

    def _places(self, taken: PendingEvents) -> Iterator[WorkspacePath]:
        """Yield every path to check: the noticed ones, and the known ones below noticed folders."""
        for raw in sorted(taken.paths | taken.folders - {b""}):
            yield WorkspacePath(os.fsdecode(raw))
        for folder in sorted(taken.folders - inner(taken.folders)):
            for path in known_below(self._engine.history, os.fsdecode(folder)):
                if path.raw not in taken.paths:
                    yield path

    def _take_other_names(self, taken: PendingEvents) -> Iterator[WorkspacePath]:
        """Yield the other paths of the noticed files. Call it when `_size` has seen all of these."""
        names, self._other_names = self._other_names, set()
        yield from sorted(path for path in names if path.raw not in taken.paths)

    def _note_links(self, path: WorkspacePath, status: FileStat) -> None:
        if status.links > 1 and status.kind == "file":
            names = self._scanner.links.other_names(path, status)
            self._has_unknown_links |= names is None
            self._other_names |= names or set()

    def _size(self, path: WorkspacePath, scope: Callable[[], WorkspaceScope]) -> int | None:
        """Return the bytes to read: None for a known file that is missing or empty, _NOT_OURS for nothing."""
        known = self._engine.history.entry(path)
        try:
            look = self._engine.tree.entry(path)
        except Refused:
            return 0 if known is not None else _NOT_OURS  # the engine's check gives the reason
        if known is not None:
            if look is None:
                return None
            self._note_links(path, look)
            is_emptied = not look.size and look.kind == "file" and known.version != EMPTY
            return None if is_emptied else look.size
        if look is None or look.kind not in ("file", "symlink"):
            return _NOT_OURS
        if look.size > FILE_BYTES_MAX:
            if scope().is_in(path):
                self._scanner.note_too_large(path)
            return _NOT_OURS
        if path.raw in self._uncovered or not scope().is_in(path):
            return _NOT_OURS
        self._note_links(path, look)
        return look.size

    async def _record(self, inspection: Reconciliation, taken: PendingEvents) -> None:
        heads = {repository: GitHead.of(repository) for repository in taken.repositories}
        labels = TreeLabels(self._movements(heads), set(self._repositories.tops.values()))
        # A checkout is one transaction, which says where HEAD moved.
        most = WHOLE if taken.repositories else None
        await record_in_portions(self._engine, self._queue, inspection, self._scanner.rates, labels, most)
        self._repositories.heads |= heads
        for failure in inspection.failed:
            log.info("not recorded: %s", failure)

    def _movements(self, heads: Mapping[bytes, GitHead]) -> dict[bytes, str]:
        """Return a message on git's actions meanwhile, by the top of the work tree, if there were any.

        `heads` are the repositories' heads now.
        """
        movements: dict[bytes, list[str]] = {}
        for repository, after in sorted(heads.items()):
            before = self._repositories.heads.get(repository, GitHead())
            moved = describe_move(before, after, head_moves(repository))
            if moved:
                top = self._repositories.tops.get(repository, b"")
                movements.setdefault(top, []).append(f"{_name_of(top)}: {moved}" if top else moved)
        return {top: "; ".join(sentences) for top, sentences in movements.items()}


class TreeLabels(Struct, frozen=True):
    """The messages on git's actions, by work tree."""

    movements: Mapping[bytes, str] = {}  # by the top of the work tree
    tops: Set[bytes] = frozenset()  # of all work trees

    def divide(self, paths: Sequence[WorkspacePath]) -> list[tuple[str, list[WorkspacePath]]]:
        """Divide files by the messages of their work trees, which is empty for a tree without a movement."""
        if not self.movements:
            return [("", list(paths))]
        parts: dict[str, list[WorkspacePath]] = {}
        for path in paths:
            parts.setdefault(self.movements.get(self._top_over(path), ""), []).append(path)
        return list(parts.items())

    def _top_over(self, path: WorkspacePath) -> bytes:
        folder = path.raw
        while (folder := folder.rpartition(b"/")[0]) not in self.tops and folder:
            continue
        return folder


def _name_of(top: bytes) -> str:
    """Return the name of a work tree for a message, on one line."""
    text = top.decode("utf-8", "backslashreplace")
    return text if text.isprintable() else repr(text)


async def record_in_portions(
    engine: Engine,
    queue: EngineQueue,
    inspection: Reconciliation,
    rates: ChangeRates,
    labels: TreeLabels,
    most: Portion | None = None,
) -> None:
    """Record the differences, and serve requests between the portions. Raises IoError.

    Requests come first: a portion waits while the journal has no more room than requests may need.
    """
    most = engine.recorder.portion if most is None else most
    until = time.monotonic() + ROOM_SECONDS_MAX
    parts = (part for paths in inspection.portions(most) for part in labels.divide(paths))
    for message, paths in parts:
        while engine.history.is_half_full and engine.recorder.broken is None and time.monotonic() < until:  # noqa: ASYNC110
            await asyncio.sleep(QUIET_SECONDS)  # the maintenance packs, and has no notification
        began = time.monotonic()
        facts = [(path.raw, inspection.size(path), inspection.is_new(path)) for path in paths]
        await queue.run_in_thread(partial(inspection.record, paths, message))
        for path, content_bytes, is_new in facts:
            rates.note(path, content_bytes, is_new=is_new)
        await asyncio.sleep(min(time.monotonic() - began, PAUSE_SECONDS_MAX))  # as long for requests


async def check_replaced_files(engine: Engine) -> None:
    """Wait for the second check of replaced files, if no lease shows their writers."""
    waiting = deque(engine.files.unchecked_files())
    while waiting and engine.recorder.broken is None:  # a background task makes the checks
        await asyncio.sleep(QUIET_SECONDS)
        while waiting and waiting[0].is_checked:
            waiting.popleft()
