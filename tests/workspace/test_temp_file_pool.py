"""workspace.replaced_files, the pool: an edit creates no file, and reuses none that a program leads to."""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
import subprocess
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from editd.system.filesystem import Disk, ignore_lease_signal, take_lease
from editd.system.overlay_lock import lock_overlay
from editd.values.content import EXECUTABLE, FileState
from editd.workspace.replaced_files import (
    AHEAD,
    BATCH,
    FEW,
    KEPT_SECONDS,
    KEPT_SECONDS_MAX,
    PERMISSIONS,
    Quarantine,
)
from editd.workspace.writer import WorkspaceWriter
from support.working_files import (
    NEW,
    NEWEST,
    OLD,
    THEIRS,
    change,
    commit_and_publish,
    held,
    make_ahead,
    put,
    written_since,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


NATIVE_LIBC = ctypes.CDLL(None)
CHANGES, MOVED_TO = 0xFFF & ~0x31, 0x80  # sys/inotify.h: all but IN_ACCESS, IN_OPEN and IN_CLOSE_NOWRITE

pytestmark = pytest.mark.needs("exchange")


class Spared:
    """A workspace with a file `a`, and what its files are written with."""

    def __init__(self, folder: Path) -> None:
        self.root, self.kept = folder / "root", folder / "replaced"
        put(self.root, {"a": OLD})
        self.replaced = Quarantine(str(self.kept))
        self.files = WorkspaceWriter(Disk(str(self.root)), replaced=self.replaced)
        make_ahead(self.files)
        self.now = 0.0

    def replace(self, old: FileState, new: FileState, path: str = "a") -> None:
        changes = [change(path, old, new)]
        staging = self.files.stage(changes, self.files.token(changes))
        commit_and_publish(self.files, staging)
        self.files.finish(staging)

    def wait(self) -> None:
        """Let what was replaced be kept for long enough."""
        for _ in range(2):
            self.now += KEPT_SECONDS + 1
            assert list(written_since(self.files, self.now)) == []

    @property
    def spares(self) -> dict[int, bytes]:
        """The inodes that are ready to be used again, and their names."""
        return {path.stat().st_ino: path.name.encode() for path in self.kept.iterdir()}


@pytest.fixture
def spared(tmp_path: Path) -> Spared:
    return Spared(tmp_path)


def inode(path: Path) -> int:
    return path.stat().st_ino


def test_what_was_replaced_is_a_spare_when_it_has_been_kept_and_is_used_again(spared: Spared) -> None:
    first = inode(spared.root / "a")
    spared.replace(OLD, NEW)
    assert held(spared.root) == {"a": NEW}
    assert len(spared.spares) == BATCH
    assert spared.spares[first] == b".editd-" + spared.spares[first].removeprefix(b".editd-")
    spared.wait()
    assert (spared.kept / os.fsdecode(spared.spares[first])).read_bytes() == b""
    spared.replace(NEW, NEWEST)
    assert inode(spared.root / "a") == first
    assert held(spared.root) == {"a": NEWEST}


def test_a_used_spare_is_for_its_own_path_only(spared: Spared) -> None:
    first = inode(spared.root / "a")
    put(spared.root, {"b": OLD})
    spared.replace(OLD, NEW)
    spared.wait()
    for old, new in ((OLD, NEW), (NEW, NEWEST), (NEWEST, OLD)):
        spared.replace(old, new, "b")
        assert inode(spared.root / "b") != first
    assert first in spared.spares


@pytest.mark.needs("leases")
def test_spares_with_the_lease_of_another_program_are_dropped_and_the_edit_goes_on(spared: Spared) -> None:
    """The attack: a program leases all of `replaced/`, and each edit of any client fails."""
    ignore_lease_signal()
    with ExitStack() as stack:
        leased = [stack.enter_context(path.open("rb")) for path in spared.kept.iterdir()]
        assert [take_lease(file.fileno()) for file in leased] == [True] * BATCH
        spared.replace(OLD, NEW)
        assert [os.fstat(file.fileno()).st_nlink for file in leased] == [0] * BATCH
        assert held(spared.root) == {"a": NEW}


def test_while_an_overlay_is_open_no_replaced_file_is_reused(spared: Spared) -> None:
    first = inode(spared.root / "a")
    overlay = os.open(spared.root, os.O_RDONLY)
    lock_overlay(overlay)
    spared.replace(OLD, NEW)
    spared.wait()
    assert first not in spared.spares
    os.close(overlay)
    second = inode(spared.root / "a")
    spared.replace(NEW, NEWEST)
    spared.wait()
    assert second in spared.spares


def test_beyond_the_limit_the_spare_whose_path_was_idle_for_longest_is_removed(
    spared: Spared, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["a", "b", "c"]
    put(spared.root, {"b": OLD, "c": OLD})
    first, *others = (inode(spared.root / name) for name in names)
    monkeypatch.setattr(spared.replaced.pool, "_size_max", 2)
    for name in names:
        spared.replace(OLD, NEW, name)
        spared.wait()
    assert first not in spared.spares
    assert set(others) <= set(spared.spares)


def test_the_transaction_takes_the_token_of_its_spare_so_that_nothing_is_renamed(spared: Spared) -> None:
    changes = [change("a", OLD, NEW)]
    token = spared.files.token(changes)
    assert f".editd-{token}-0".encode() in spared.spares.values()
    staging = spared.files.stage(changes, token)
    assert (spared.kept / f".editd-{token}-0").read_bytes() == NEW.content
    assert spared.files.token(changes) != token
    spared.files.discard(staging)
    assert not (spared.kept / f".editd-{token}-0").exists()
    assert held(spared.root) == {"a": OLD}


def test_more_are_made_each_time_until_there_are_enough(spared: Spared) -> None:
    make_ahead(spared.files)
    assert len(spared.spares) == 2 * BATCH
    for _ in range(AHEAD // BATCH):
        make_ahead(spared.files)
    assert len(spared.spares) == AHEAD


def test_after_a_burst_as_many_are_made_as_the_next_one_needs(
    spared: Spared, monkeypatch: pytest.MonkeyPatch
) -> None:
    few, burst, most = 2, BATCH + 5, BATCH + 7
    monkeypatch.setattr("editd.workspace.replaced_files.AHEAD", few)
    monkeypatch.setattr("editd.workspace.replaced_files.POOL_FILES_MAX", most)
    pool = Quarantine(str(spared.kept.parent / "other")).pool
    for edits, wanted in ((0, few), (burst, burst), (1, burst), (most + 1, most)):
        pool.expect(edits)
        while number := pool.count_to_make():
            for name in pool.make(number):
                pool.add(name)
        assert len(list((spared.kept.parent / "other").iterdir())) == wanted


def test_what_is_kept_at_once_is_what_the_next_burst_needs(
    spared: Spared, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted: list[int] = []
    monkeypatch.setattr(spared.replaced.pool, "expect", noted.append)
    spared.replace(OLD, NEW)
    spared.replace(NEW, OLD)
    assert spared.files.check_quarantine(spared.now, is_busy=True) is None
    assert noted == [2]


def test_while_edits_come_without_a_pause_what_was_replaced_waits_until_it_is_pressing(
    spared: Spared, monkeypatch: pytest.MonkeyPatch
) -> None:
    while len(spared.spares) <= FEW:
        make_ahead(spared.files)
    spared.replace(OLD, NEW)
    assert spared.files.check_quarantine(10.0, is_busy=True) is None
    late = 10.0 + KEPT_SECONDS
    assert spared.files.check_quarantine(late, is_busy=True) is None
    with monkeypatch.context() as patched:
        patched.setattr("editd.workspace.replaced_files.KEPT_BYTES_MAX", len(OLD.content) - 1)
        assert spared.files.check_quarantine(late, is_busy=True) is not None, "it takes too much room"
    spared.replace(NEW, NEWEST)
    assert spared.files.check_quarantine(late, is_busy=True) is None
    too_late = late + KEPT_SECONDS_MAX
    assert spared.files.check_quarantine(too_late, is_busy=True) is not None, "it was kept for too long"
    spared.replace(NEWEST, OLD)
    assert spared.files.check_quarantine(too_late, is_busy=True) is None
    spared.replaced.pool.clear()
    few = spared.files.check_quarantine(too_late + KEPT_SECONDS, is_busy=True)
    assert few is not None, "spares are few"


def test_what_was_checked_takes_no_room_among_what_is_kept(
    spared: Spared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("editd.workspace.replaced_files.KEPT_BYTES_MAX", 2 * len(NEW.content))
    for _ in range(3):
        spared.replace(OLD, NEW)
        spared.wait()
        spared.replace(NEW, OLD)
        spared.wait()
    spared.replace(OLD, NEW)
    assert spared.files.check_quarantine(spared.now) is None, "it is not kept for its time"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_where_few_files_have_room_most_of_it_is_left_to_others(tmp_path: Path) -> None:
    small = ["mount", "-t", "tmpfs", "-o", "nr_inodes=600", "spares", str(tmp_path)]
    if subprocess.run(small, check=False, capture_output=True).returncode:
        pytest.skip("no mounting here")
    try:
        spared = Spared(tmp_path)
        assert len(spared.spares) == 5
        for old, new in ((OLD, NEW), (NEW, OLD)) * 5:
            spared.replace(old, new)
        spared.wait()
        assert len(spared.spares) == 5
    finally:
        subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


def test_a_transaction_that_changes_nothing_has_a_token_too(spared: Spared) -> None:
    assert f".editd-{spared.files.token([])}-0".encode() not in spared.spares.values()


def events_of_new_files(spared: Spared, *paths: str) -> list[tuple[int, str]]:
    """Make new files, and return what a watcher of the root sees: masks and names, in their order."""
    watch = NATIVE_LIBC.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        assert NATIVE_LIBC.inotify_add_watch(watch, os.fsencode(spared.root), CHANGES) > 0
        changes = [change(path, None, NEW) for path in paths]
        staging = spared.files.stage(changes, spared.files.token(changes))
        commit_and_publish(spared.files, staging)
        spared.files.finish(staging)
        return list(events_in(os.read(watch, 1 << 16)))
    finally:
        os.close(watch)


def events_in(data: bytes) -> Iterator[tuple[int, str]]:
    """Yield mask and name of each event, as inotify(7) has them."""
    while data:
        _watch, mask, _cookie, length = struct.unpack_from("iIII", data)
        yield mask, os.fsdecode(data[16 : 16 + length].rstrip(b"\0"))
        data = data[16 + length :]


@pytest.mark.needs("inotify")
def test_a_watcher_sees_one_event_of_a_new_file_and_no_temporary(spared: Spared) -> None:
    """fsnotify/fsnotify #134: of an atomic save a watcher sees four events, two of them of a temporary."""
    assert events_of_new_files(spared, "new", "other") == [(MOVED_TO, "new"), (MOVED_TO, "other")]
    assert held(spared.root) == {"a": OLD, "new": NEW, "other": NEW}


@pytest.mark.needs("inotify")
def test_a_watcher_sees_one_event_of_each_new_file_of_a_request_larger_than_the_pool(spared: Spared) -> None:
    names = [f"new{number}" for number in range(BATCH + 5)]
    assert events_of_new_files(spared, *names) == [(MOVED_TO, name) for name in names]
    assert held(spared.root) == {"a": OLD, **dict.fromkeys(names, NEW)}


@pytest.mark.needs("inotify")
def test_a_file_that_gets_something_from_its_folder_is_made_there(spared: Spared) -> None:
    spared.root.chmod(0o2755)
    events = events_of_new_files(spared, "new")
    assert events[-1] == (MOVED_TO, "new")
    assert len(events) > 1
    assert held(spared.root) == {"a": OLD, "new": NEW}


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_a_new_file_has_the_permissions_that_the_umask_leaves(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        spared = Spared(tmp_path)
        changes = [change("new", None, NEW), change("run", None, FileState(b"run", EXECUTABLE))]
        commit_and_publish(spared.files, spared.files.stage(changes, spared.files.token(changes)))
    finally:
        os.umask(before)
    modes = [(spared.root / name).stat().st_mode & 0o7777 for name in ("new", "run")]
    assert modes == [0o666 & ~umask, 0o777 & ~umask]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_a_new_file_in_a_folder_that_is_another_mount_is_made_beside(spared: Spared) -> None:
    put(spared.root, {"d/b": OLD, "elsewhere/b": OLD})
    bind = ["mount", "--bind", str(spared.root / "elsewhere"), str(spared.root / "d")]
    if subprocess.run(bind, check=False, capture_output=True).returncode:
        pytest.skip("no mounting here")
    try:
        changes = [change("d/new", None, NEW)]
        commit_and_publish(spared.files, spared.files.stage(changes, spared.files.token(changes)))
        assert (spared.root / "elsewhere/new").read_bytes() == NEW.content
        assert sorted(os.listdir(spared.root / "elsewhere")) == ["b", "new"]
    finally:
        subprocess.run(["umount", str(spared.root / "d")], check=True)


def test_with_more_files_than_spares_the_rest_are_made(spared: Spared) -> None:
    names = [f"f{number}" for number in range(BATCH + 3)]
    put(spared.root, dict.fromkeys(names, OLD))
    changes = [change(name, OLD, NEW) for name in names]
    staging = spared.files.stage(changes, spared.files.token(changes))
    commit_and_publish(spared.files, staging)
    spared.files.finish(staging)
    assert held(spared.root) == {"a": OLD, **dict.fromkeys(names, NEW)}


def test_a_spare_that_lent_its_token_and_was_not_taken_has_another_name(spared: Spared) -> None:
    try:
        os.setxattr(spared.root / "a", "user.of", b"the file")
    except OSError as error:
        pytest.skip(f"no attributes here: {error}")
    changes = [change("a", OLD, NEW)]
    token = spared.files.token(changes)
    staging = spared.files.stage(changes, token)
    assert len(spared.spares) == BATCH
    assert f".editd-{token}-0".encode() not in spared.spares.values()
    commit_and_publish(spared.files, staging)
    spared.files.finish(staging)
    assert held(spared.root) == {"a": NEW}
    assert (spared.kept / f".editd-{token}-0").read_bytes() == OLD.content


def _reading(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        yield b""
        yield file.read()


def _mapping(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    yield b""
    yield bytes(mapped)


@pytest.mark.parametrize("holding", [_reading, _mapping])
def test_what_somebody_has_open_keeps_its_bytes(
    spared: Spared, holding: Callable[[Path], Iterator[bytes]]
) -> None:
    first = inode(spared.root / "a")
    holder = holding(spared.root / "a")
    next(holder)
    spared.replace(OLD, NEW)
    spared.wait()
    assert first not in spared.spares
    for old, new in ((NEW, THEIRS), (THEIRS, NEWEST)):
        spared.replace(old, new)
    assert next(holder) == OLD.content


def _link(path: Path) -> None:
    os.link(path, path.parent.parent / "another name")


def _attribute(path: Path) -> None:
    try:
        os.setxattr(path, "user.of", b"the file")
    except OSError as error:
        pytest.skip(f"no attributes here: {error}")


def _flag(path: Path) -> None:
    if subprocess.run(["chattr", "+d", path], check=False, capture_output=True).returncode:
        pytest.skip("no flags here")


def _owner(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root gives files away")
    os.chown(path, 1234, 1234)


@pytest.mark.parametrize("mark", [_link, _attribute, _flag, _owner])
def test_what_is_not_like_a_new_file_is_not_used_again(spared: Spared, mark: Callable[[Path], None]) -> None:
    first = inode(spared.root / "a")
    spared.replace(OLD, NEW)
    (kept,) = (path for path in spared.kept.iterdir() if inode(path) == first)
    mark(kept)
    spared.wait()
    assert first not in spared.spares


def test_a_spare_has_the_permissions_of_what_it_replaces_and_forgets_them(spared: Spared) -> None:
    (spared.root / "a").chmod(0o600)
    first = inode(spared.root / "a")
    spared.replace(OLD, NEW)
    assert (spared.root / "a").stat().st_mode & 0o7777 == 0o600
    spared.wait()
    assert (spared.kept / os.fsdecode(spared.spares[first])).stat().st_mode & 0o7777 == PERMISSIONS


def test_spares_that_a_killed_daemon_has_left_are_gone_at_once(spared: Spared) -> None:
    spared.replace(OLD, NEW)
    left = Quarantine(str(spared.kept))
    assert [path.read_bytes() for path in spared.kept.iterdir()] == [OLD.content]
    checks = left.check(left.due(None), at_the_end=True)
    assert [state for _, state in left.late_writes(checks)] == [OLD]
    assert list(spared.kept.iterdir()) == []


def test_at_the_end_none_are_left(spared: Spared) -> None:
    spared.replace(OLD, NEW)
    assert list(written_since(spared.files, None)) == []
    assert list(spared.kept.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_a_folder_that_is_another_mount_is_written_with_a_temporary_beside(spared: Spared) -> None:
    put(spared.root, {"d/b": OLD, "elsewhere/b": OLD})
    bind = ["mount", "--bind", str(spared.root / "elsewhere"), str(spared.root / "d")]
    if subprocess.run(bind, check=False, capture_output=True).returncode:
        pytest.skip("no mounting here")
    try:
        first = inode(spared.root / "d/b")
        spared.replace(OLD, NEW, "d/b")
        assert inode(spared.root / "d/b") != first
        spared.replace(NEW, NEWEST, "d/b")
        assert held(spared.root) == {"a": OLD, "d/b": NEWEST, "elsewhere/b": NEWEST}
    finally:
        subprocess.run(["umount", str(spared.root / "d")], check=True)
