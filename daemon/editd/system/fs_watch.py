"""Notices: paths of possible changes below a folder, as the system reports them.

watchdog is the frame: its observer, its events, and its emitters for machines without inotify. On Linux the
emitter is ours, because watchdog's own dies silently when folders come and go, and hides lost events.

A folder that comes, goes or moves is walked anew, regardless of its earlier events. When the last of such
events is processed, the watches match the disk. Failed watches, lost events, and the end of the watch are
notices too.

Does not know the purpose of a file. A notice only names paths to check, never a change.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import select
import socket
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct, field
from watchdog.events import DirModifiedEvent, FileSystemEvent, FileSystemEventHandler
from watchdog.observers.api import BaseObserver, EventEmitter

from editd.system import inotify
from editd.system.git_paths import git_folder
from editd.system.native import NATIVE

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator

    from watchdog.observers.api import EventQueue, ObservedWatch

log = logging.getLogger(__name__)

GIT = b".git"
_MOVES = inotify.MOVED_FROM | inotify.MOVED_TO
GATHER_SECONDS = 0.02  # events within it are one notice; `hurry` ends it
GONE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})  # the folder is gone by now
STOP_SECONDS = 2.0  # for the threads to end; as daemon threads, they end with the process at the latest

State = Literal["ready", "overflow", "gone", "died"]


class FsEvent(Struct, frozen=True):
    """One notice. Paths are bytes, relative to the root; b"" is the root."""

    paths: frozenset[bytes] = frozenset()
    folders: frozenset[bytes] = frozenset()  # with everything that is or was below them
    cookies: tuple[bytes, ...] = ()  # the names in the root that begin with the cookies' prefix
    repositories: frozenset[bytes] = frozenset()  # git's folders with an event in them, absolute
    state: State | None = None  # of the watch itself
    reason: str = ""


class WatchFilter(Struct, frozen=True):
    """The paths to watch below the root."""

    is_wanted: Callable[[bytes], bool] = lambda _folder: True  # called in the emitter's thread
    own_prefix: bytes = b".editd-"  # of names without notices
    cookie_prefix: bytes = b".editd-cookie-"  # of names in the root with their own notices
    repositories: tuple[bytes, ...] = ()  # git's folders above the root
    renew: Callable[[], None] = lambda: None  # called when a `.git` has come or gone, in the same thread
    is_own: Callable[[bytes, int], bool] = lambda _path, _moves: False
    """Whether so many files were moved to a path by ourselves, and the last is there. In the same thread."""
    add_watch: Callable[[int, bytes, int], int] = inotify.add_watch


def can_watch() -> bool:
    """Return whether this system reports changes of files."""
    return NATIVE.has_inotify


class Watcher:
    """The watch on one folder and everything below it, in its own threads."""

    def __init__(
        self,
        root: bytes,
        tell: Callable[[FsEvent], None],
        wanted: WatchFilter | None = None,
        emitter_class: type[EventEmitter] | None = None,
    ) -> None:
        """`tell` gets one notice after another, in a thread. `emitter_class` replaces our emitter."""
        self._root = root
        self._wanted = wanted or WatchFilter()
        self._handler = _Teller(root, tell, self._wanted)
        self._emitter: FolderEmitter | None = None
        self.folders: Container[bytes] | None = None  # the watched ones, kept up to date; None if unknown
        if emitter_class is None:
            self.backend = "inotify"
            self._observer = BaseObserver(FolderEmitter, wanted=self._wanted)
        else:
            self.backend = emitter_class.__name__
            self._observer = BaseObserver(emitter_class)

    def start(self) -> None:
        """Begin; the notice `ready` follows when all is watched. Raises OSError if nothing can be."""
        self._observer.schedule(self._handler, os.fsdecode(self._root), recursive=True)
        emitters = list(self._observer.emitters)
        self._emitter = next((one for one in emitters if isinstance(one, FolderEmitter)), None)
        if self._emitter is not None:
            self.folders = self._emitter.folders
        self._observer.start()
        if self._emitter is None:
            self._handler.tell(FsEvent(state="ready"))  # watchdog's own emitters are ready when started

    def stop(self) -> None:
        """Stop, and wait a moment for the threads to end. Never raises."""
        try:
            self._observer.stop()
            for thread in (*self._observer.emitters, self._observer):
                if thread.is_alive() and thread is not threading.current_thread():
                    thread.join(STOP_SECONDS)
        except Exception:  # watchdog's own emitters may raise here, and an end need not be clean
            log.exception("the watch did not end cleanly")

    def is_alive(self) -> bool:
        """Whether all its threads run. Only a cookie proves that notices arrive."""
        threads = (self._observer, *self._observer.emitters)
        return len(threads) > 1 and all(thread.is_alive() for thread in threads)

    @property
    def turns(self) -> int:
        """A number that rises while the reader makes progress."""
        return 0 if self._emitter is None else self._emitter.turns

    @property
    def directories(self) -> int:
        """The number of watched folders; 0 if unknown."""
        return 0 if self._emitter is None else len(self._emitter.folders)

    @property
    def failures(self) -> dict[bytes, int]:
        """The folders that cannot be watched, by path, with the error's number."""
        return {} if self._emitter is None else dict(self._emitter.failed)

    def top_of(self, repository: bytes) -> bytes:
        """Return the top of the work tree of git's own folder; b"" for one at or above the root."""
        if self._emitter is not None:
            return self._emitter.tops.get(repository, b"")
        top, name = os.path.split(os.path.relpath(repository, self._root))
        return top if name == GIT and not top.startswith(b"..") else b""

    def has(self, folder: bytes) -> bool:
        """Whether this folder is watched."""
        return self.folders is None or folder in self.folders

    def hurry(self) -> None:
        """Report the events until now without delay, because a caller waits for them."""
        if self._emitter is not None:
            self._emitter.rewatch(())

    def rewatch(self, folders: Iterable[bytes]) -> None:
        """Walk these folders anew, such as failed ones, or ones that came into scope."""
        if self._emitter is not None:
            self._emitter.rewatch(folders)


class QueuedEvent(FileSystemEvent):
    """A notice in watchdog's queue, which drops an event equal to the one before."""

    __hash__ = object.__hash__

    def __init__(self, notice: FsEvent) -> None:
        super().__init__(b"")
        self.notice = notice

    def __eq__(self, other: object) -> bool:
        return self is other


class FolderEmitter(EventEmitter):
    """The reader of one inotify queue, with a watch on each folder in scope."""

    def __init__(
        self,
        event_queue: EventQueue,
        watch: ObservedWatch,
        *,
        timeout: float = 1.0,
        event_filter: list[type[FileSystemEvent]] | None = None,
        wanted: WatchFilter,
    ) -> None:
        super().__init__(event_queue, watch, timeout=timeout, event_filter=event_filter)
        self.name = "editd-notices"
        self._root = os.fsencode(watch.path)
        self._wanted = wanted
        self._queue = -1
        self._waking, self._woken = socket.socketpair()
        self._waking.setblocking(False)
        self._woken.setblocking(False)
        self._asked: deque[bytes] = deque()  # folders to walk anew
        self._paths: dict[int, bytes] = {}  # by watch
        self._below: dict[bytes, set[bytes]] = {}  # the watched folders directly below each
        self._repositories: dict[int, bytes] = {}  # git's own folders by watch, absolute
        self.tops: dict[bytes, bytes] = {}  # the tops of their work trees below the root, by git's folder
        self.folders: dict[bytes, int] = {}  # by path
        self.failed: dict[bytes, int] = {}
        self.turns = 0

    def rewatch(self, folders: Iterable[bytes]) -> None:
        self._asked.extend(folders)
        self._wake()

    def on_thread_stop(self) -> None:
        self._wake()

    def run(self) -> None:
        reason = ""
        try:
            self._begin()
            while self.should_keep_running():
                self._turn()
        except BaseException as error:  # noqa: BLE001  # of any kind: the end of the watch must be reported
            reason = f"{type(error).__name__}: {error}"
            log.error("the watch ended: %s", reason)
        finally:
            self._end()
        if reason:
            self._tell(FsEvent(state="died", reason=reason))

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # full: it is awake; closed: it has ended
            self._waking.send(b"!")

    def _tell(self, notice: FsEvent) -> None:
        self.queue_event(QueuedEvent(notice))

    def _begin(self) -> None:
        """Watch all folders in scope, with a new queue, and report that. Raises OSError."""
        if self._queue >= 0:
            os.close(self._queue)
            self._queue = -1
        for known in (self._paths, self._below, self._repositories, self.tops, self.folders, self.failed):
            known.clear()
        self._queue = inotify.open_queue()
        for repository in self._wanted.repositories:
            self._watch_repository(repository)
        self._cover(b"", _Heard())
        self._tell(FsEvent(repositories=frozenset(self._repositories.values()), state="ready"))

    def _end(self) -> None:
        if self._queue >= 0:
            os.close(self._queue)
            self._queue = -1
        self._waking.close()
        self._woken.close()
        self.folders.clear()

    def _turn(self) -> None:
        """Wait for events, and process them. Raises OSError."""
        _wait_for(self._queue, self._woken.fileno())
        _wait_for(self._woken.fileno(), seconds=GATHER_SECONDS)
        self.turns += 1
        heard = _Heard()
        with contextlib.suppress(BlockingIOError):
            self._woken.recv(4096)
        while self._asked:
            heard.folders.add(self._asked.popleft())
        with contextlib.suppress(BlockingIOError):
            data = os.read(self._queue, inotify.QUEUE_BYTES)
            if not data:
                raise OSError(errno.EBADF, "the queue ended")
            for event in inotify.events_in(data):
                if event.mask & inotify.OVERFLOW:
                    self._start_over()
                    return
                self._sort(event, heard)
        for folder in heard.topmost():
            self._forget(folder)
            self._cover(folder, heard)
        notice = heard.notice(self._wanted.is_own)
        if notice is not None:
            self._tell(notice)

    def _start_over(self) -> None:
        """Watch everything anew: notices were lost, perhaps of moved folders."""
        self._tell(FsEvent(state="overflow", reason="the kernel's queue overflowed"))
        self._begin()

    def _sort(self, event: inotify.InotifyEvent, heard: _Heard) -> None:
        """Add the paths to check of one event."""
        watch, mask, name = event
        repository = self._repositories.get(watch)
        if repository is not None:
            heard.repositories.add(repository)
            if mask & inotify.IGNORED:
                del self._repositories[watch]
        folder = self._paths.get(watch)
        if folder is None:
            return  # from a watch that was given up: everything below that folder is walked anew in any case
        if mask & inotify.IGNORED:
            self._let_go(folder)
            heard.folders.add(folder)
        if not name:
            if not folder and mask & (inotify.MOVE_SELF | inotify.DELETE_SELF | inotify.UNMOUNT):
                self._tell(FsEvent(state="gone", reason="the root was moved or removed"))
            return
        path = _join(folder, name)
        if name.startswith(self._wanted.own_prefix):
            if not folder and name.startswith(self._wanted.cookie_prefix):
                heard.cookies.append(name)
        elif name == GIT:
            heard.repositories.update(self._watch_repositories_at(path))
            if folder and mask & inotify.ANY_NAME:  # other files may be in scope by now
                self._wanted.renew()
                heard.folders.add(folder)
        elif not mask & ~_MOVES:
            heard.moved[path] = heard.moved.get(path, 0) + (mask == inotify.MOVED_TO)
        elif not mask & inotify.IS_FOLDER:
            heard.paths.add(path)
        elif mask & inotify.ANY_NAME or path in self.failed:  # we may be able to read it by now
            heard.folders.add(path)

    def _cover(self, top: bytes, heard: _Heard) -> None:
        """Watch `top` and the folders in scope below it, and add every file in them.

        A folder is watched before it is listed, so that any later change makes an event.
        """
        waiting = [top]
        while waiting and self.should_keep_running():
            folder = waiting.pop()
            if not self._wanted.is_wanted(folder) or not self._add(folder):
                continue
            if folder:
                self._below.setdefault(folder.rpartition(b"/")[0], set()).add(folder)
            for entry in self._list(folder):
                name = os.fsencode(entry.name)
                path = _join(folder, name)
                if name == GIT:
                    heard.repositories.update(self._watch_repositories_at(path))
                elif not name.startswith(self._wanted.own_prefix):
                    if _is_folder(entry):
                        waiting.append(path)
                    else:
                        heard.paths.add(path)

    def _list(self, folder: bytes) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(os.fsdecode(self._absolute(folder))) as entries:
                return list(entries)
        except OSError as error:
            if error.errno not in GONE:
                self._fail(folder, error)
            return []

    def _add(self, folder: bytes) -> bool:
        """Watch a folder; return whether it exists. A failed watch is recorded."""
        self.turns += 1
        try:
            watch = self._wanted.add_watch(self._queue, self._absolute(folder), inotify.FOLDER)
        except OSError as error:
            if error.errno in GONE:
                if not folder:
                    raise
                return False
            self._fail(folder, error)
            return True
        before = self._paths.get(watch)
        if before is not None and before != folder:
            self._drop(before)  # the same inode: it has moved, and the event of that is still to come
        self._paths[watch] = folder
        self.folders[folder] = watch
        self.failed.pop(folder, None)
        return True

    def _fail(self, folder: bytes, error: OSError) -> None:
        if not self.failed:
            log.warning("%s cannot be watched: %s", os.fsdecode(folder) or "the root", error)
        self.failed[folder] = error.errno or 0

    def _forget(self, top: bytes) -> None:
        """Drop the watches on `top` and all below it, but never the root's, which reports the cookies."""
        waiting = [top]
        while waiting:
            folder = waiting.pop()
            waiting.extend(self._below.pop(folder, ()))
            watch = self.folders.get(folder) if folder else None
            if watch is not None:
                with contextlib.suppress(OSError):  # the kernel has already dropped it
                    inotify.remove_watch(self._queue, watch)
                del self._paths[watch]
                self._drop(folder)
        if self.failed:
            for folder in [failed for failed in self.failed if _is_below(failed, top)]:
                del self.failed[folder]

    def _let_go(self, folder: bytes) -> None:
        """Forget a folder that the kernel no longer watches."""
        watch = self.folders.get(folder)
        if watch is not None:
            self._paths.pop(watch, None)
            self._drop(folder)

    def _drop(self, folder: bytes) -> None:
        del self.folders[folder]
        self._below.get(folder.rpartition(b"/")[0], set()).discard(folder)

    def _watch_repositories_at(self, path: bytes) -> Iterator[bytes]:
        """Watch git's folder that a `.git` is or names, for names directly in it: `HEAD`, `index.lock`."""
        folder = git_folder(self._absolute(path))
        if folder is not None:
            self.tops[folder] = path.rpartition(b"/")[0]
            self._watch_repository(folder)
            yield folder

    def _watch_repository(self, folder: bytes) -> None:
        try:
            watch = self._wanted.add_watch(self._queue, folder, inotify.NAMES)
        except OSError as error:
            if error.errno not in GONE:
                log.warning("%s cannot be watched: %s", os.fsdecode(folder), error)
            return
        self._repositories[watch] = folder

    def _absolute(self, path: bytes) -> bytes:
        return os.path.join(self._root, path) if path else self._root


class _Heard(Struct):
    """The events of one turn of the reader."""

    paths: set[bytes] = field(default_factory=set)
    moved: dict[bytes, int] = field(default_factory=dict)  # the number of files that were moved to each path
    folders: set[bytes] = field(default_factory=set)
    cookies: list[bytes] = field(default_factory=list)
    repositories: set[bytes] = field(default_factory=set)

    def topmost(self) -> list[bytes]:
        """Return the folders that are inside none of the others."""
        outermost: list[bytes] = []
        for folder in sorted(self.folders, key=lambda path: path.split(b"/") if path else []):
            if not outermost or not _is_below(folder, outermost[-1]):
                outermost.append(folder)
        return outermost

    def notice(self, is_own: Callable[[bytes, int], bool] = lambda _path, _moves: False) -> FsEvent | None:
        for path, moves in self.moved.items():
            if path not in self.paths and not is_own(path, moves):
                self.paths.add(path)
        if not (self.paths or self.folders or self.cookies or self.repositories):
            return None
        return FsEvent(
            frozenset(self.paths), frozenset(self.folders), tuple(self.cookies), frozenset(self.repositories)
        )


class _Teller(FileSystemEventHandler):
    """The handler that passes notices on, and makes them from the events of watchdog's own emitters."""

    def __init__(self, root: bytes, tell: Callable[[FsEvent], None], wanted: WatchFilter) -> None:
        self._root = root
        self._wanted = wanted
        self.tell = tell

    def dispatch(self, event: FileSystemEvent) -> None:
        if isinstance(event, QueuedEvent):
            self.tell(event.notice)
            return
        if event.event_type in ("opened", "closed_no_write") or isinstance(event, DirModifiedEvent):
            return
        heard = _Heard()
        for path in (event.src_path, event.dest_path):
            if path:
                self._sort(os.path.relpath(os.fsencode(path), self._root), event, heard)
        notice = heard.notice()
        if notice is not None:
            self.tell(notice)

    def _sort(self, path: bytes, event: FileSystemEvent, heard: _Heard) -> None:
        names = path.split(b"/")
        if names[0] == b"..":
            return
        if GIT in names:
            if names.index(GIT) == len(names) - 2:
                heard.repositories.add(os.path.join(self._root, *names[:-1]))
        elif names[-1].startswith(self._wanted.own_prefix):
            if path.startswith(self._wanted.cookie_prefix):
                heard.cookies.append(path)
        elif event.is_directory:
            heard.folders.add(b"" if path == b"." else path)
            heard.paths.update(self._below(path))
        else:
            heard.paths.add(path)

    def _below(self, folder: bytes) -> Iterator[bytes]:
        """Yield the files below a folder that was moved in."""
        for inner, folders, files in os.walk(os.path.join(self._root, folder)):
            folders[:] = [name for name in folders if name != GIT]
            for name in files:
                yield os.path.relpath(os.path.join(inner, name), self._root)


def _wait_for(*descriptors: int, seconds: float | None = None) -> None:
    """Wait until a descriptor can be read, or the time is up."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    poll.poll(None if seconds is None else seconds * 1000)


def _join(folder: bytes, name: bytes) -> bytes:
    return folder + b"/" + name if folder else name


def _is_below(path: bytes, top: bytes) -> bool:
    """Return whether `path` is `top`, or inside it."""
    return not top or path == top or path.startswith(top + b"/")


def _is_folder(entry: os.DirEntry[Any]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:  # gone
        return False
