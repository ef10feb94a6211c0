"""What one transaction does to the files, and what becomes of it when it cannot be whole."""

from __future__ import annotations

import errno
import os
import subprocess
import time
from contextlib import suppress
from itertools import count, pairwise
from typing import TYPE_CHECKING, Literal, NoReturn

import pytest

from editd.errors import IoError, Refused
from editd.system.filesystem import Disk, OpenFolder
from editd.system.native import NATIVE
from editd.values.content import EXECUTABLE, SYMLINK, FileState
from editd.values.path import WorkspacePath
from editd.workspace.publish import ConcurrentWrite, PublishFailed
from editd.workspace.staged_change import TRANSITIONS, TransactionState
from support.outsider import flipping
from support.racing_disk import MeddlingDisk, failing
from support.working_files import (
    LINK,
    NEW,
    NEWEST,
    OLD,
    THEIRS,
    Held,
    change,
    changes_between,
    commit_and_publish,
    files_on,
    held,
    put,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from editd.values.content import Change
    from editd.workspace.writer import WorkspaceWriter

pytestmark = pytest.mark.usefixtures("spared")
How = Literal["exchange", "rename"]
BOTH_WAYS = pytest.mark.parametrize("how", ["exchange", "rename"])
EVERY_SHAPE: dict[str, tuple[Held, Held]] = {
    "create": ({}, {"a": NEW}),
    "create in folders": ({}, {"d/e/f": NEW, "d/e/g": NEW, "d/h": NEW}),
    "create a symlink": ({}, {"d/l": LINK}),
    "create an executable": ({}, {"a": FileState(b"new", EXECUTABLE)}),
    "modify": ({"a": OLD}, {"a": NEW}),
    "modify so that it is empty": ({"a": OLD}, {"a": FileState(b"")}),
    "modify many": ({"a": OLD, "d/b": OLD}, {"a": NEW, "d/b": NEW}),
    "modify and make executable": ({"a": OLD}, {"a": FileState(b"new", EXECUTABLE)}),
    "make executable": ({"a": OLD}, {"a": FileState(b"old", EXECUTABLE)}),
    "make not executable": ({"a": FileState(b"old", EXECUTABLE)}, {"a": OLD}),
    "delete": ({"a": OLD, "b": OLD}, {"b": OLD}),
    "delete the last in a folder": ({"d/e/f": OLD, "d/g": OLD}, {"d/g": OLD}),
    "delete all": ({"d/e/f": OLD}, {}),
    "delete a symlink": ({"l": LINK}, {}),
    "a file becomes a symlink": ({"a": OLD}, {"a": LINK}),
    "a symlink becomes a file": ({"a": LINK}, {"a": NEW}),
    "a symlink to elsewhere": ({"a": LINK}, {"a": FileState(b"elsewhere", SYMLINK)}),
    "a folder becomes a file": ({"a/b/c": OLD, "a/d": OLD}, {"a": NEW}),
    "a folder becomes a symlink": ({"a/b": OLD}, {"a": LINK}),
    "a file becomes a folder": ({"a": OLD}, {"a/b/c": NEW, "a/d": NEW}),
    "a symlink becomes a folder": ({"a": LINK}, {"a/b": NEW}),
    "odd names": ({"\udcff": OLD, "n\nl": OLD}, {"\udcff": NEW, "n\nl": NEW, "x" * 255: NEW}),
}
IN_EVERY_SHAPE = pytest.mark.parametrize(("before", "after"), EVERY_SHAPE.values(), ids=EVERY_SHAPE)


def carry_out(files: WorkspaceWriter, changes: list[Change[FileState]], token: str = "t") -> None:
    files.check(changes)
    staging = files.stage(changes, token)
    commit_and_publish(files, staging)
    files.finish(staging)


@BOTH_WAYS
@IN_EVERY_SHAPE
def test_the_files_become_what_they_are_to_be(tmp_path: Path, how: How, before: Held, after: Held) -> None:
    put(tmp_path, before)
    carry_out(files_on(Disk(str(tmp_path)), publish=how), changes_between(before, after))
    assert held(tmp_path) == after


@IN_EVERY_SHAPE
def test_what_is_discarded_was_never_there(tmp_path: Path, before: Held, after: Held) -> None:
    put(tmp_path, before)
    files = files_on(Disk(str(tmp_path)))
    staging = files.stage(changes_between(before, after), "t")
    files.discard(staging)
    files.discard(staging)
    assert held(tmp_path) == before


@BOTH_WAYS
@IN_EVERY_SHAPE
def test_an_error_in_the_last_step_leaves_all_as_it_was(
    tmp_path: Path, how: How, before: Held, after: Held
) -> None:
    put(tmp_path, before)
    disk = MeddlingDisk(str(tmp_path))
    disk.meddle["move", b"zz"] = failing()
    files = files_on(disk, publish=how)
    staging = files.stage([*changes_between(before, after), change("zz", None, NEW)], "t")
    with pytest.raises(IoError) as refused:
        commit_and_publish(files, staging)
    assert refused.value.data["errno_name"] == "EIO"
    files.discard(staging)
    assert held(tmp_path) == before


@BOTH_WAYS
@IN_EVERY_SHAPE
def test_what_somebody_saved_before_is_left_and_nothing_else_is_done(
    tmp_path: Path, how: How, before: Held, after: Held
) -> None:
    put(tmp_path, {**before, "zz": OLD})
    files = files_on(Disk(str(tmp_path)), publish=how)
    staging = files.stage([*changes_between(before, after), change("zz", OLD, NEW)], "t")
    put(tmp_path, {"zz": THEIRS})
    with pytest.raises(ConcurrentWrite) as overtaken:
        commit_and_publish(files, staging)
    files.discard(staging)
    assert [path.text for path in overtaken.value.paths] == ["zz"]
    assert overtaken.value.orphans == []
    assert held(tmp_path) == {**before, "zz": THEIRS}


def test_what_is_not_committed_is_not_published(tmp_path: Path) -> None:
    put(tmp_path, {"a": OLD})
    files = files_on(Disk(str(tmp_path)))
    staging = files.stage([change("a", OLD, NEW)], "t")
    with pytest.raises(AssertionError, match="staged"):
        files.publish(staging)
    files.discard(staging)
    assert held(tmp_path) == {"a": OLD}


@pytest.mark.needs("exchange")
def test_what_can_not_be_taken_back_is_left_for_recovery(tmp_path: Path) -> None:
    put(tmp_path, {"a": OLD})
    disk = MeddlingDisk(str(tmp_path))
    disk.meddle["move", b"zz"] = failing()
    disk.meddle["exchange", 2] = failing(errno.ENOSPC)
    files = files_on(disk)
    staging = files.stage([change("a", OLD, NEW), change("zz", None, NEW)], "t")
    with pytest.raises(PublishFailed) as half:
        commit_and_publish(files, staging)
    assert half.value.path == WorkspacePath.parse("a")
    assert (staging.state, TRANSITIONS[staging.state]) == (TransactionState.BROKEN, frozenset())
    assert files.leftovers(change("a", OLD, NEW), "t", 0) == [OLD]
    assert not files.sweep(b".editd-t-0")


def test_the_transactions_of_a_batch_are_staged_before_any_is_published(tmp_path: Path) -> None:
    states: list[Held] = [
        {"a": OLD, "d/b": OLD},
        {"a": NEW, "d/b": FileState(b"old", EXECUTABLE)},
        {"a": THEIRS, "d/b": FileState(b"new", EXECUTABLE)},
        {"d/b": FileState(b"new", EXECUTABLE), "e/new": NEW},
        {"d": NEW, "e/new": OLD},
        {"d": LINK, "a": NEW},
        {"d": LINK, "a": NEW, "e/x/y": NEW},
    ]
    put(tmp_path, states[0])
    files = files_on(Disk(str(tmp_path)))
    steps = [changes_between(before, after) for before, after in pairwise(states)]
    pending: list[Change[FileState]] = []
    stagings = []
    for number, changes in enumerate(steps):
        files.check(changes, pending)
        stagings.append(files.stage(changes, f"t{number}"))
        pending += changes
    for staging in stagings:
        commit_and_publish(files, staging)
    for staging in stagings:
        files.finish(staging)
    assert held(tmp_path) == states[-1]
    for staging in reversed(stagings):
        with pytest.raises(AssertionError):
            files.discard(staging)


def test_a_batch_that_is_discarded_newest_first_leaves_no_folder(tmp_path: Path) -> None:
    files = files_on(Disk(str(tmp_path)))
    stagings = [files.stage([change(f"d/e/{n}", None, NEW)], f"t{n}") for n in range(3)]
    for staging in reversed(stagings):
        files.discard(staging)
    assert held(tmp_path) == {}


def test_a_folder_that_is_made_before_us_is_taken_as_it_is(tmp_path: Path) -> None:
    files = files_on(Disk(str(tmp_path)))
    staging = files.stage([change("d/a", None, NEW)], "t")
    put(tmp_path, {"d/b": THEIRS})
    files.discard(staging)
    assert held(tmp_path) == {"d/b": THEIRS}


def test_a_folder_with_something_else_in_it_does_not_become_a_file(tmp_path: Path) -> None:
    put(tmp_path, {"a/b": OLD})
    files = files_on(Disk(str(tmp_path)))
    staging = files.stage([change("a", None, NEW), change("a/b", OLD, None)], "t")
    put(tmp_path, {"a/c": THEIRS})
    with pytest.raises(ConcurrentWrite):
        commit_and_publish(files, staging)
    files.discard(staging)
    assert held(tmp_path) == {"a/b": OLD, "a/c": THEIRS}


def test_a_folder_that_is_put_back_has_its_permissions(tmp_path: Path) -> None:
    put(tmp_path, {"a/b": OLD, "z": OLD})
    (tmp_path / "a").chmod(0o2751)
    files = files_on(Disk(str(tmp_path)))
    staging = files.stage([change("a", None, NEW), change("a/b", OLD, None), change("z", THEIRS, NEW)], "t")
    with pytest.raises(ConcurrentWrite):
        commit_and_publish(files, staging)
    assert (tmp_path / "a").stat().st_mode & 0o7777 == 0o2751


def test_a_folder_that_is_moved_away_meanwhile_is_noticed(tmp_path: Path) -> None:
    put(tmp_path, {"d/a": OLD})
    files = files_on(Disk(str(tmp_path)))
    staging = files.stage([change("d/a", OLD, NEW)], "t")
    (tmp_path / "d").rename(tmp_path / "e")
    with pytest.raises(ConcurrentWrite):
        commit_and_publish(files, staging)
    assert (tmp_path / "e/a").read_bytes() == b"old"


def test_a_folder_that_becomes_a_symlink_meanwhile_leads_nowhere(tmp_path: Path) -> None:
    put(tmp_path, {"root/d/a": OLD, "outside/a": OLD})
    files = files_on(Disk(str(tmp_path / "root")))
    staging = files.stage([change("d/a", OLD, NEW)], "t")
    (tmp_path / "root/d").rename(tmp_path / "root/e")
    (tmp_path / "root/d").symlink_to("../outside")
    with pytest.raises(ConcurrentWrite):
        commit_and_publish(files, staging)
    files.discard(staging)
    assert held(tmp_path / "outside") == {"a": OLD}


@pytest.mark.parametrize("somewhere", ["target", "temporary"])
def test_what_is_removed_meanwhile_is_noticed(tmp_path: Path, somewhere: str) -> None:
    put(tmp_path, {"a": OLD})
    files = files_on(Disk(str(tmp_path)))
    staging = files.stage([change("a", OLD, NEW)], "t")
    beside, spare = tmp_path / ".editd-t-0", tmp_path.with_name(f"{tmp_path.name}.replaced") / ".editd-t-0"
    temporary = beside if beside.exists() else spare
    (tmp_path / "a" if somewhere == "target" else temporary).unlink()
    with pytest.raises(ConcurrentWrite):
        commit_and_publish(files, staging)
    files.discard(staging)
    assert held(tmp_path) == ({} if somewhere == "target" else {"a": OLD})


def test_a_folder_that_is_flipped_to_a_symlink_is_never_written_through(tmp_path: Path) -> None:
    put(tmp_path, {"root/d/a": OLD, "outside/a": OLD})
    (tmp_path / "root/l").symlink_to(tmp_path / "outside")
    files = files_on(Disk(str(tmp_path / "root")))
    end = time.monotonic() + 0.5
    with flipping(tmp_path / "root/d", tmp_path / "root/l"):
        for number in count():
            with suppress(Refused, ConcurrentWrite, PublishFailed):
                commit_and_publish(files, files.stage([change(f"d/{number}", None, NEW)], f"t{number}"))
            if time.monotonic() > end:
                break
    inside = tmp_path / ("root/l" if (tmp_path / "root/d").is_symlink() else "root/d")
    assert [path for path in inside.iterdir() if path.read_bytes() == b"new"]
    assert held(tmp_path / "outside") == {"a": OLD}


@pytest.mark.parametrize("missing", ["exchange", "move"])
def test_a_file_system_that_cannot_exchange_is_written_by_check_and_rename(
    tmp_path: Path, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, {"a": OLD, "b": OLD, "c/d": OLD})
    if missing == "move":  # nor rename without replacing
        monkeypatch.setattr("editd.system.filesystem._renameat2", None)
    disk = MeddlingDisk(str(tmp_path))
    assert ("cannot exchange" in " ".join(disk.weaker)) is (missing == "move" or not NATIVE.exchange_flag)
    disk.meddle["exchange", 1] = disk.meddle["exchange", 2] = failing(errno.EINVAL)
    files = files_on(disk)
    changes = [change("a", OLD, NEW), change("b", OLD, LINK), change("c/d", OLD, None)]
    staging = files.stage([*changes, change("e", THEIRS, NEW)], "t")
    with pytest.raises(ConcurrentWrite):
        commit_and_publish(files, staging)
    files.discard(staging)
    assert held(tmp_path) == {"a": OLD, "b": OLD, "c/d": OLD}
    disk.counts.clear()
    carry_out(files, [*changes, change("e", None, NEW)], "u")
    assert held(tmp_path) == {"a": NEW, "b": LINK, "e": NEW}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k,nr_inodes=12", "tmpfs", str(small)]
    mounted = subprocess.run(mount, capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no small file system to be had: {mounted.stderr.decode().strip()}")
    yield small
    subprocess.run(["umount", "--lazy", str(small)], check=True)


def test_a_full_disk_refuses_and_leaves_nothing(small_disk: Path) -> None:
    put(small_disk, {"a": OLD})
    files = files_on(Disk(str(small_disk)))
    with pytest.raises(IoError) as refused:
        files.stage([change("a", OLD, NEW), change("d/b", None, FileState(b"x" * 100_000))], "t")
    assert refused.value.data["errno_name"] == "ENOSPC"
    assert held(small_disk) == {"a": OLD}
    many = [change(f"d/{number}/f", None, NEW) for number in range(20)]
    with pytest.raises(IoError):
        files.stage(many, "u")
    assert held(small_disk) == {"a": OLD}


@pytest.mark.needs("syncfs")
def test_a_file_system_mounted_within_is_synced_too(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(str(small_disk.parent))
    synced: list[bytes] = []
    monkeypatch.setattr(disk, "sync", lambda path=b"": synced.append(path))
    files = files_on(disk)
    carry_out(files, [change("a", None, NEW)])
    files.sync()
    carry_out(files, [change("small/d/a", None, NEW)], "u")
    files.sync()
    assert synced == [b"", b"", b"small"]


# Recovery


@pytest.mark.parametrize(
    ("there", "after", "expected", "is_put"),
    [
        (OLD, NEW, [OLD], True),
        (OLD, NEW, [None, OLD], True),
        (NEW, NEW, [OLD], True),
        (None, NEW, [None], True),
        (None, None, [OLD], True),
        (OLD, None, [OLD], True),
        (FileState(b"old", EXECUTABLE), OLD, [FileState(b"old", EXECUTABLE)], True),
        (THEIRS, NEW, [OLD, None], False),
        (THEIRS, None, [OLD], False),
        (OLD, NEW, [None], False),
        (None, NEW, [OLD], False),
        (LINK, NEW, [OLD], False),
    ],
)
def test_recovery_puts_a_state_only_over_what_is_expected(
    tmp_path: Path,
    there: FileState | None,
    after: FileState | None,
    expected: list[FileState | None],
    is_put: bool,
) -> None:
    put(tmp_path, {} if there is None else {"d/a": there})
    files = files_on(Disk(str(tmp_path)))
    assert files.put(WorkspacePath.parse("d/a"), after, expected, "t") is is_put
    state = after if is_put else there
    assert held(tmp_path) == ({} if state is None else {"d/a": state})


def test_recovery_leaves_alone_what_is_no_file(tmp_path: Path) -> None:
    put(tmp_path, {"d/a": OLD, "f": OLD})
    (tmp_path / "empty").mkdir()
    before = held(tmp_path)
    files = files_on(Disk(str(tmp_path)))
    assert not files.put(WorkspacePath.parse("d"), NEW, [None, OLD], "t")
    assert not files.put(WorkspacePath.parse("f/x"), NEW, [None], "t")
    assert not files.put(WorkspacePath.parse("empty"), NEW, [OLD], "t"), "another file was expected there"
    assert held(tmp_path) == before


@IN_EVERY_SHAPE
def test_recovery_finishes_what_a_crash_cut_off_anywhere(tmp_path: Path, before: Held, after: Held) -> None:
    changes = sorted(changes_between(before, after), key=lambda found: found.after is not None)
    for cut in range(2 * len(changes) + 2):
        root = tmp_path / str(cut)
        put(root, {"unrelated": OLD, **before})
        leave_after(root, changes, cut)
        files = files_on(Disk(str(root)))
        for number, found in enumerate(changes):
            assert files.put(found.path, found.after, [found.before], f"redo{number}")
        for index, found in enumerate(changes):
            assert all(left in (found.before, found.after) for left in files.leftovers(found, "t", index))
            files.remove_leftover(found, "t", index, is_recorded=False)
        assert held(root) == {"unrelated": OLD, **after}, cut


def leave_after(root: Path, changes: list[Change[FileState]], cut: int) -> None:
    """Publish as a daemon that dies after so many steps does."""
    disk = MeddlingDisk(str(root))

    def die() -> None:
        if sum(disk.counts.values()) > cut:
            raise KeyboardInterrupt

    for number in range(20):
        disk.meddle["move", number] = disk.meddle["exchange", number] = die
    files = files_on(disk)
    staging = files.stage(changes, "t")
    with suppress(KeyboardInterrupt):
        commit_and_publish(files, staging)
        if cut % 2:
            files.finish(staging)


def test_a_stray_is_looked_at_and_swept_unless_it_is_in_use(tmp_path: Path) -> None:
    put(tmp_path, {"d/.editd-dead-0": THEIRS})
    files = files_on(Disk(str(tmp_path)))
    staging = files.stage([change("d/a", None, NEW)], "t")
    assert files.stray(b"d/.editd-dead-0") == THEIRS
    assert files.sweep(b"d/.editd-dead-0")
    assert files.sweep(b"d/.editd-dead-0")
    assert files.stray(b"d/.editd-dead-0") is None
    assert not files.sweep(b"d/.editd-t-0")
    commit_and_publish(files, staging)
    assert held(tmp_path) == {"d/a": NEW}
    with pytest.raises(AssertionError):
        files.sweep(b"d/a")


@pytest.mark.parametrize("ends", [pytest.param("finished", marks=pytest.mark.needs("exchange")), "discarded"])
def test_a_temporary_that_cannot_be_removed_in_time_is_removed_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    put(tmp_path, {"l": LINK})
    files = files_on(Disk(str(tmp_path)))
    staging = files.stage([change("l", LINK, NEW)], "t")
    if ends == "finished":
        commit_and_publish(files, staging)
    with monkeypatch.context() as full:
        full.setattr(Disk, "folder", _no_descriptor)
        if ends == "finished":
            files.finish(staging)
        else:
            files.discard(staging)
    expected = {"l": NEW if ends == "finished" else LINK}
    assert held(tmp_path).keys() > expected.keys(), "something is left"
    files.make_ahead()
    assert held(tmp_path) == expected


def test_a_folder_that_cannot_be_removed_when_it_is_empty_is_removed_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, {"made/below/a": OLD, "b": OLD})
    files = files_on(Disk(str(tmp_path)))
    with monkeypatch.context() as failing:
        failing.setattr(OpenFolder, "remove_folder", _fails)
        carry_out(files, [change("made/below/a", OLD, None)])
    assert (tmp_path / "made/below").is_dir()
    files.make_ahead()
    assert os.listdir(tmp_path) == ["b"]


def _fails(*_: object) -> NoReturn:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def _no_descriptor(*_: object) -> NoReturn:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def test_nothing_is_followed_or_written_outside(tmp_path: Path) -> None:
    put(tmp_path, {"root/a": OLD, "secret": OLD})
    (tmp_path / "root/l").symlink_to("../secret")
    files = files_on(Disk(str(tmp_path / "root")))
    carry_out(files, [change("l", FileState(b"../secret", SYMLINK), NEW)])
    assert held(tmp_path / "root") == {"a": OLD, "l": NEW}
    assert (tmp_path / "secret").read_bytes() == OLD.content
    assert os.path.islink(tmp_path / "root/l") is False


@pytest.mark.needs("exchange")
def test_what_somebody_wrote_while_recovery_puts_a_file_in_place_is_handed_out(tmp_path: Path) -> None:
    put(tmp_path, {"a": OLD})
    disk = MeddlingDisk(str(tmp_path))
    disk.meddle["exchange", 1] = lambda: put(tmp_path, {"a": THEIRS})
    disk.meddle["exchange", 2] = lambda: put(tmp_path, {"a": NEWEST})
    with pytest.raises(ConcurrentWrite) as overtaken:
        files_on(disk).put(WorkspacePath("a"), NEW, [OLD], "t")
    assert overtaken.value.orphans == [(WorkspacePath("a"), THEIRS)]
