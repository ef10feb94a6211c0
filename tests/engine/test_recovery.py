"""engine.commit: what a start does with a journal that a crash has left (C5), and what it leaves alone."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from editd.engine.commands import Undo
from editd.engine.undo_selection import ByTransaction
from editd.values.content import FileState, version_of
from editd.values.transaction import Authorship
from support import edit_messages
from support.harness import Harness, apply, done, names_below, pack, path_of, sync, write
from support.racing_disk import DiskWithoutSyncfs, MeddlingDisk
from support.working_files import NEWEST, OLD, THEIRS, put

if TYPE_CHECKING:
    from pathlib import Path


LATER_SECONDS = 100  # so much younger than its files an index must be for git, and for editd, to trust it


class Killed(BaseException):
    """The end of the daemon in the middle of a call."""


def kill() -> None:
    raise Killed


@pytest.fixture
def place(tmp_path: Path) -> Harness:
    return Harness(tmp_path / "place")


def test_recovery_empties_a_folder_before_a_file_takes_its_place(place: Harness) -> None:
    place.baseline({"d/e": "e\n"})
    place.crash(apply(edit_messages.delete(path_of("d/e")), write("d", "file\n")))
    (place.state / "published").unlink()
    (place.root / "d").unlink()
    place.write({"d/e": "e\n"})
    with place.engine() as engine:
        assert place.files() == {"d": "file\n"}
        assert engine.history.head == 1


@pytest.mark.needs("/proc")
@pytest.mark.parametrize("reverted", ["a", "b"], ids=["older", "newest"])
def test_recovery_does_not_redo_a_published_transaction_that_the_user_reverted(
    place: Harness, reverted: str
) -> None:
    place.baseline({"a": "old\n", "b": "old\n"})
    place.crash(apply(write("a", "new\n")), apply(write("b", "new\n")))
    place.write({reverted: "old\n"})
    with place.engine():
        assert place.files() == {"a": "new\n", "b": "new\n", reverted: "old\n"}


@pytest.mark.needs("exchange")
def test_an_outside_save_that_equals_a_later_edit_of_its_turn_does_not_undo_the_newest(
    place: Harness,
) -> None:
    """The save comes just before the first of three edits is published, and the kill just after.

    So the temporary of the first edit holds what the second edit makes, and the history has that.
    """
    place.baseline({"a": "old\n"})

    def make_disk(root: str) -> MeddlingDisk:
        disk = MeddlingDisk(root)
        disk.meddle["exchange", 1] = lambda: put(place.root, {"a": FileState(b"two\n")})
        disk.meddle["exchange", 2] = kill
        return disk

    with place.killed(make_disk=make_disk) as engine, pytest.raises(Killed):
        engine.run_batch([apply(write("a", text)) for text in ("one\n", "two\n", "three\n")])
    assert place.files()["a"] == "one\n"
    with place.engine() as engine:
        assert place.files() == {"a": "three\n"}
        assert engine.history.head == 3


@pytest.mark.needs("exchange")
def test_the_start_of_a_file_that_another_program_saved_during_publishing_is_kept_after_a_kill(
    place: Harness,
) -> None:
    """Only a power cut leaves a prefix of what editd wrote. After a kill, it is the other program's."""
    place.baseline({"a": "old and long\n"})

    def make_disk(root: str) -> MeddlingDisk:
        disk = MeddlingDisk(root)
        disk.meddle["exchange", 1] = lambda: put(place.root, {"a": FileState(b"old and")})
        disk.meddle["exchange", 2] = kill
        return disk

    with place.killed(make_disk=make_disk, boot=b"one boot") as engine, pytest.raises(Killed):
        engine.run_batch([apply(write("a", "new\n"))])
    with place.engine(boot=b"one boot") as engine:
        assert engine.history.content(version_of(b"old and")) == b"old and"
        assert place.files()["a"] == "old and"


def test_recovery_removes_the_folder_that_a_deletion_emptied(place: Harness) -> None:
    place.baseline({"d/e": "e\n", "kept": "k\n"})
    place.crash(apply(edit_messages.delete(path_of("d/e"))))
    (place.state / "published").unlink()
    shutil.rmtree(place.state / "replaced")
    (place.root / "d").mkdir()  # as it was before the last call
    with place.engine():
        assert names_below(place.root) == ["kept"]


def test_without_syncfs_a_start_syncs_each_file_that_an_earlier_daemon_published(place: Harness) -> None:
    place.baseline()
    place.crash(apply(write("a", "a\n")), apply(write("d/b", "b\n")))
    disk = DiskWithoutSyncfs(str(place.root))
    with place.engine(make_disk=lambda _root: disk) as engine:
        sync(engine)
    assert sorted(disk.synced) == [b"a", b"d/b"]


@pytest.mark.needs("exchange")
def test_what_somebody_wrote_while_recovery_put_a_file_in_place_is_in_the_history(place: Harness) -> None:
    place.baseline({"a": "old"})
    place.crash(apply(write("a", "new")))
    (place.state / "published").unlink()
    shutil.rmtree(place.state / "replaced")
    put(place.root, {"a": OLD})

    def make_disk(root: str) -> MeddlingDisk:
        disk = MeddlingDisk(root)
        disk.meddle["exchange", 1] = lambda: put(place.root, {"a": THEIRS})
        disk.meddle["exchange", 2] = lambda: put(place.root, {"a": NEWEST})
        return disk

    with place.engine(make_disk=make_disk) as engine:
        assert engine.history.content(version_of(THEIRS.content)) == THEIRS.content
        assert (place.root / "a").read_bytes() == NEWEST.content


def git(folder: Path, *argv: str) -> None:
    identity = ["-c", "user.name=Somebody", "-c", "user.email=somebody@example.org"]
    subprocess.run(["git", *identity, *argv], cwd=folder, check=True)


def test_the_first_edit_of_a_borrowed_file_is_undone_though_the_repository_is_gone(place: Harness) -> None:
    """The file is clean in the user's git when the baseline is taken, so only its name is recorded."""
    place.write({"a": "old\n"})
    git(place.root, "init", "-q")
    git(place.root, "add", "a")
    git(place.root, "commit", "-qm", "first")
    later = (place.root / "a").stat().st_mtime + LATER_SECONDS
    os.utime(place.root / ".git" / "index", (later, later))
    place.baseline()
    with place.engine() as engine:
        seq = done(engine, apply(write("a", "new\n"))).seq
        pack(engine)
        sync(engine)
    shutil.rmtree(place.root / ".git")
    with place.engine() as engine:
        done(engine, Undo(Authorship("somebody", None, ""), "connection 1", ByTransaction(seq)))
    assert place.files() == {"a": "old\n"}
