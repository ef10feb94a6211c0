"""system.fs_watch: notices of changes below a folder while folders come and go, and reports of lost ones.

Each test with many folder changes ends with a probe in every folder. Its notice must have the right path.
"""

from __future__ import annotations

import ctypes
import errno
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from watchdog.observers.inotify import InotifyEmitter
from watchdog.observers.polling import PollingEmitter

from editd.system import inotify
from editd.system.fs_watch import FolderEmitter, FsEvent, Watcher, WatchFilter
from support.outsider import exchange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from watchdog.observers.api import EventEmitter

pytestmark = pytest.mark.needs("inotify")
SECONDS = 20.0
ALL: list[Watcher] = []


@pytest.fixture(autouse=True)
def _stop_all() -> Iterator[None]:
    """Stop all watches at the end of a test, even of a failed one."""
    yield
    while ALL:
        ALL.pop().stop()


class Ear:
    """A watch, and all its notices."""

    def __init__(
        self, root: Path, wanted: WatchFilter | None = None, emitter_class: type[EventEmitter] | None = None
    ) -> None:
        self.root = root
        self.notices: list[FsEvent] = []
        self._changed = threading.Condition()
        self.watch = Watcher(os.fsencode(root), self._told, wanted, emitter_class)
        ALL.append(self.watch)
        self.watch.start()
        self.wait(lambda: "ready" in self.states)

    def _told(self, notice: FsEvent) -> None:
        with self._changed:
            self.notices.append(notice)
            self._changed.notify_all()

    @property
    def states(self) -> list[str | None]:
        return [notice.state for notice in self.notices]

    @property
    def paths(self) -> set[str]:
        return {os.fsdecode(path) for notice in self.notices for path in notice.paths}

    @property
    def folders(self) -> set[str]:
        return {os.fsdecode(path) for notice in self.notices for path in notice.folders}

    def wait(self, is_so: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(is_so, SECONDS), (self.states, sorted(self.paths)[:50])

    def catch_up(self) -> None:
        """Wait for the notice of a cookie: all earlier notices have come by then."""
        name = f".editd-cookie-{random.random()}"
        (self.root / name).touch()
        (self.root / name).unlink()
        self.watch.hurry()
        self.wait(lambda: any(name.encode() in notice.cookies for notice in self.notices))

    def probe(self) -> None:
        """Change a file in every folder. Verify one notice for each, at its right path."""
        self.catch_up()
        self.notices.clear()
        places = [Path(place).relative_to(self.root) for place, _, _ in os.walk(self.root)]
        for place in places:
            (self.root / place / "probe").write_text(str(time.time_ns()))
        self.catch_up()
        assert self.paths == {str(place / "probe") for place in places}
        assert self.watch.directories == len(places)
        assert self.watch.is_alive()
        assert not {"overflow", "died"} & set(self.states)


@pytest.fixture
def ear(tmp_path: Path) -> Ear:
    (tmp_path / "top/below").mkdir(parents=True)
    return Ear(tmp_path)


def fill(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "file").write_text("1\n")


# ── the notices of a change ──


def test_each_way_of_writing_a_file_names_it(ear: Ear) -> None:
    folder = ear.root / "top"
    (folder / "created").touch()
    (folder / "written").write_text("x")
    (folder / "t").write_text("x")
    (folder / "t").rename(folder / "renamed")
    (folder / "renamed").chmod(0o755)
    (folder / "link").symlink_to("nowhere")
    (folder / "written").unlink()
    ear.catch_up()
    assert ear.paths == {f"top/{name}" for name in ("created", "written", "t", "renamed", "link")}


def test_moves_of_our_own_are_left_out_and_all_else_is_told(tmp_path: Path) -> None:
    asked: list[tuple[bytes, int]] = []

    def is_own(path: bytes, moves: int) -> bool:
        asked.append((path, moves))
        return path.startswith(b"own")

    ear = Ear(tmp_path, WatchFilter(is_own=is_own))
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    outside.mkdir()
    for name in ("own-1", "own-2", "theirs"):
        (outside / name).write_text("x")
        (outside / name).rename(tmp_path / name)
    ear.catch_up()
    assert ear.paths == {"theirs"}
    assert set(asked) == {(b"own-1", 1), (b"own-2", 1), (b"theirs", 1)}
    (tmp_path / "own-1").write_text("written")
    (tmp_path / "own-2").unlink()
    ear.catch_up()
    assert ear.paths == {"theirs", "own-1", "own-2"}


def test_reading_is_not_noticed(ear: Ear) -> None:
    (ear.root / "top/file").write_text("x")
    ear.catch_up()
    ear.notices.clear()
    for _ in range(100):
        (ear.root / "top/file").read_text()
        os.listdir(ear.root / "top")
    ear.catch_up()
    assert not ear.paths
    assert not ear.folders


def test_names_are_bytes(ear: Ear) -> None:
    name = b"\xff\xfe not utf-8"
    Path(os.fsdecode(os.path.join(os.fsencode(ear.root), b"top", name))).write_text("x")
    ear.catch_up()
    assert any(b"top/" + name in notice.paths for notice in ear.notices)


def test_our_own_temporaries_are_left_out(ear: Ear) -> None:
    (ear.root / "top/.editd-x-0").write_text("x")
    exchange(str(ear.root / "top/.editd-x-0"), str(ear.root / "top/below"))
    exchange(str(ear.root / "top/.editd-x-0"), str(ear.root / "top/below"))
    ear.catch_up()
    assert ear.paths <= {"top/below"}


def test_a_folder_that_is_moved_away_is_told_whole(
    ear: Ear, tmp_path_factory: pytest.TempPathFactory
) -> None:
    away = tmp_path_factory.mktemp("away") / "top"
    (ear.root / "top").rename(away)
    ear.catch_up()
    assert "top" in ear.folders
    ear.notices.clear()
    (away / "unseen").touch()
    away.rename(ear.root / "back")
    ear.catch_up()
    assert "back/unseen" in ear.paths
    ear.probe()


def test_git_folders_are_watched_for_names_alone(tmp_path: Path) -> None:
    (tmp_path / "repository/.git/objects").mkdir(parents=True)
    (tmp_path / "worktree").mkdir()
    (tmp_path / "repository/.git/worktrees/w").mkdir(parents=True)
    (tmp_path / "worktree/.git").write_text("gitdir: ../repository/.git/worktrees/w\n")
    ear = Ear(tmp_path)
    ear.notices.clear()
    (tmp_path / "repository/.git/objects/aa").mkdir()
    (tmp_path / "repository/.git/objects/aa/blob").touch()
    ear.catch_up()
    assert not ear.paths
    assert not any(notice.repositories for notice in ear.notices)
    (tmp_path / "repository/.git/index.lock").touch()
    (tmp_path / "repository/.git/worktrees/w/index.lock").touch()
    ear.catch_up()
    told = {folder for notice in ear.notices for folder in notice.repositories}
    assert told == {
        os.fsencode(tmp_path / "repository/.git"),
        os.fsencode(tmp_path / "repository/.git/worktrees/w"),
    }
    assert not ear.paths


def test_a_repository_that_is_made_later_is_watched_too(ear: Ear) -> None:
    subprocess.run(["git", "init", "-q", ear.root / "top"], check=True)
    ear.catch_up()
    ear.notices.clear()
    (ear.root / "top/.git/index.lock").touch()
    ear.catch_up()
    assert any(os.fsencode(ear.root / "top/.git") in notice.repositories for notice in ear.notices)


def test_what_is_not_wanted_is_not_watched_until_it_is(tmp_path: Path) -> None:
    fill(tmp_path, "a", "node_modules/x")
    unwanted = {b"node_modules"}
    ear = Ear(tmp_path, WatchFilter(lambda folder: folder not in unwanted))
    assert ear.watch.directories == 2
    (tmp_path / "node_modules/x/file").write_text("2\n")
    ear.catch_up()
    assert not ear.paths
    unwanted.clear()
    ear.watch.rewatch([b"node_modules"])
    ear.wait(lambda: "node_modules/x/file" in ear.paths)
    ear.probe()


def test_no_cookie_is_lost_while_the_root_is_walked_anew(ear: Ear) -> None:
    fill(ear.root, *(f"d{number}" for number in range(50)))
    for _ in range(100):
        ear.watch.rewatch([b""])
        ear.catch_up()


# ── many folder changes ──


def test_removed_and_made_again(ear: Ear) -> None:
    for _ in range(200):
        fill(ear.root, "p", "p/q")
        shutil.rmtree(ear.root / "p")
    fill(ear.root, "p", "p/q")
    ear.probe()


def test_removed_made_moved_and_removed_in_a_loop(ear: Ear) -> None:
    for _ in range(200):
        shutil.rmtree(ear.root / "p", ignore_errors=True)
        fill(ear.root, "p", "p/q")
        (ear.root / "p").rename(ear.root / "moved")
        shutil.rmtree(ear.root / "moved")
    fill(ear.root, "p", "moved/q")
    ear.probe()


def test_folders_that_change_places(ear: Ear) -> None:
    fill(ear.root, "a", "a/in/a", "b", "b/in/b")
    for turn in range(200):
        exchange(str(ear.root / "a"), str(ear.root / "b"))
        if turn % 3 == 0:
            exchange(str(ear.root / "a/in"), str(ear.root / "b"))
            exchange(str(ear.root / "a/in"), str(ear.root / "b"))
        if turn % 10 == 0:
            shutil.rmtree(ear.root / "b/in")
            fill(ear.root, "b/in/b")
    ear.probe()


def test_staged_as_npm_does_it(ear: Ear) -> None:
    for turn in range(12):
        for package in range(10):
            stage = f"modules/.stage-{package}-{turn}"
            fill(ear.root, stage, f"{stage}/lib/deep", f"{stage}/bin")
            target = ear.root / f"modules/package{package}"
            if target.exists():
                target.rename(ear.root / f"modules/.old-{package}")
            (ear.root / stage).rename(target)
            shutil.rmtree(ear.root / f"modules/.old-{package}", ignore_errors=True)
    ear.probe()


def test_thousands_of_files_in_folders_that_are_just_made(ear: Ear) -> None:
    made = set()
    for number in range(200):
        folder = f"new{number % 20}/in{number}"
        (ear.root / folder).mkdir(parents=True)
        for file in range(20):
            (ear.root / folder / str(file)).touch()
            made.add(f"{folder}/{file}")
    ear.catch_up()
    assert made <= ear.paths
    ear.probe()


def test_made_moved_and_removed_at_random(ear: Ear) -> None:
    chance = random.Random(4)
    for _ in range(1500):
        folders = [Path(place) for place, _, _ in os.walk(ear.root)]
        one, other = chance.choice(folders), chance.choice(folders)
        match chance.randrange(4):
            case 0 | 1:
                (one / str(chance.randrange(5)) / str(chance.randrange(3))).mkdir(parents=True, exist_ok=True)
            case 2:
                if one != ear.root and one not in (other, *other.parents):
                    target = other / str(chance.randrange(5))
                    if not target.exists():
                        one.rename(target)
            case _:
                if one != ear.root:
                    shutil.rmtree(one)
    ear.probe()


# ── reports of lost notices ──


def test_folders_beyond_the_limit_are_told_and_tried_again(tmp_path: Path) -> None:
    fill(tmp_path, *(f"d{number}/in" for number in range(10)))
    limit = 8

    def add(queue: int, path: bytes, mask: int) -> int:
        if ear_watches() >= limit:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return inotify.add_watch(queue, path, mask)

    def ear_watches() -> int:
        emitters = [one for one in threading.enumerate() if isinstance(one, FolderEmitter)]
        return max((len(one.folders) for one in emitters), default=0)

    ear = Ear(tmp_path, WatchFilter(add_watch=add))
    assert ear.watch.directories == 8
    assert len(ear.watch.failures) == 21 - 8
    assert set(ear.watch.failures.values()) == {errno.ENOSPC}
    limit = 100
    ear.watch.rewatch(ear.watch.failures)
    ear.catch_up()
    assert not ear.watch.failures
    ear.probe()


LIMITED = """
import os, sys, time
sys.path[:0] = sys.argv[2:]
with open("/proc/sys/user/max_inotify_watches", "w") as limit:
    limit.write("10")
from editd.system.fs_watch import Watcher
told = []
watch = Watcher(os.fsencode(sys.argv[1]), told.append)
watch.start()
while not any(notice.state for notice in told):
    time.sleep(0.01)
failed = watch.failures
print([notice.state for notice in told], watch.directories, set(failed.values()), len(failed))
"""


def test_the_kernels_own_limit(tmp_path: Path) -> None:
    fill(tmp_path, *(f"d{number}" for number in range(20)))
    argv = ["unshare", "--user", "--map-root-user", sys.executable, "-c", LIMITED, str(tmp_path), *sys.path]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if "unshare" in done.stderr or "max_inotify_watches" in done.stderr:
        pytest.skip(f"this machine gives nobody a limit of his own: {done.stderr[-200:]}")
    assert done.stdout.split("\n")[0] == "['ready'] 10 {28} 11", done.stderr


def test_an_overflow_is_told_and_all_is_watched_again(ear: Ear) -> None:
    fill(ear.root, "before/in")
    ear.catch_up()
    emitter = next(one for one in threading.enumerate() if isinstance(one, FolderEmitter))
    is_going_on = threading.Event()
    emitter._turn, turn = is_going_on.wait, emitter._turn  # type: ignore[method-assign,assignment]
    (ear.root / "top/wakes").touch()  # the reader processes this one as before, and stops after it
    ear.wait(lambda: "top/wakes" in ear.paths)
    most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    for number in range(most // 3 + 100):
        (ear.root / "top" / str(number % 7)).write_text("x")
        (ear.root / "before" / str(number % 7)).touch()
    (ear.root / "before").rename(ear.root / "after")
    emitter._turn = turn  # type: ignore[method-assign]
    is_going_on.set()
    ear.wait(lambda: "overflow" in ear.states)
    ear.wait(lambda: ear.states.count("ready") == 2)
    ear.notices.clear()
    ear.probe()


@pytest.mark.parametrize("how", ["moved", "removed"])
def test_a_root_that_goes_is_told(tmp_path: Path, how: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    ear = Ear(root)
    if how == "moved":
        root.rename(tmp_path / "elsewhere")
    else:
        root.rmdir()
    ear.wait(lambda: "gone" in ear.states)


def test_a_reader_that_fails_says_so(ear: Ear) -> None:
    emitter = next(one for one in threading.enumerate() if isinstance(one, FolderEmitter))
    assert emitter.ident is not None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(emitter.ident), ctypes.py_object(SystemExit))
    (ear.root / "top/wakes").touch()
    ear.wait(lambda: "died" in ear.states)
    emitter.join(SECONDS)
    assert not ear.watch.is_alive()


def test_stopping_ends_the_threads_and_closes_the_queue(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd")), threading.active_count()
    for _ in range(5):
        Ear(tmp_path).watch.stop()
    assert (len(os.listdir("/proc/self/fd")), threading.active_count()) == before


@pytest.mark.parametrize("emitter_class", [PollingEmitter, InotifyEmitter])
def test_elsewhere_watchdogs_own_emitters_are_heard(
    tmp_path: Path, emitter_class: type[EventEmitter]
) -> None:
    fill(tmp_path, "a", ".git")
    ear = Ear(tmp_path, emitter_class=emitter_class)
    (tmp_path / "a/file").write_text("longer\n")
    (tmp_path / "a/b").mkdir()
    (tmp_path / "a/b/new").touch()
    (tmp_path / ".git/index.lock").touch()
    (tmp_path / ".editd-cookie-1-1").touch()
    ear.wait(lambda: {"a/file", "a/b/new"} <= ear.paths)
    ear.wait(lambda: any(notice.cookies == (b".editd-cookie-1-1",) for notice in ear.notices))
    ear.wait(lambda: any(notice.repositories for notice in ear.notices))
    assert not any(".git" in path for path in ear.paths)
