"""workspace.replaced_files, the quarantine: a write to a file that was just replaced is found."""

from __future__ import annotations

import errno
import os
import time
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from editd.errors import Refused
from editd.system.filesystem import Disk
from editd.values.content import Change, FileState
from editd.workspace.publish import ConcurrentWrite
from editd.workspace.replaced_files import KEPT_SECONDS, Quarantine
from editd.workspace.writer import WorkspaceWriter
from support.in_memory import path_of
from support.racing_disk import MeddlingDisk, failing
from support.working_files import THEIRS, commit_and_publish, held, put, written_since
from support.workplace import write

if TYPE_CHECKING:
    from pathlib import Path

    from support.workplace import Workplace

OLD, NEW = FileState(b"old\n"), FileState(b"new\n")


def replaced_once(tmp_path: Path) -> tuple[WorkspaceWriter, Path]:
    """A file that has just been replaced, and the folder in which the old one is kept."""
    root, kept = tmp_path / "root", tmp_path / "kept"
    root.mkdir()
    (root / "f.txt").write_bytes(OLD.content)
    files = WorkspaceWriter(Disk(str(root)), replaced=Quarantine(str(kept)))
    staging = files.stage([Change(path_of("f.txt"), OLD, NEW)], "t")
    commit_and_publish(files, staging)
    files.finish(staging)
    assert os.listdir(root) == ["f.txt"]
    assert (root / "f.txt").read_bytes() == NEW.content
    return files, kept


def renaming(tmp_path: Path) -> tuple[MeddlingDisk, WorkspaceWriter, Path, Path]:
    """Files that are published without an exchange, on a disk with `a` and `b`."""
    root, kept = tmp_path / "root", tmp_path / "kept"
    root.mkdir()
    for name in "ab":
        (root / name).write_bytes(OLD.content)
    disk = MeddlingDisk(str(root))
    disk.can_exchange = False
    return disk, WorkspaceWriter(disk, replaced=Quarantine(str(kept))), root, kept


BOTH = [Change(path_of(name), OLD, NEW) for name in "ab"]


def test_without_exchange_what_was_replaced_is_kept_too_and_makes_no_spare(tmp_path: Path) -> None:
    _, files, root, kept = renaming(tmp_path)
    staging = files.stage(BOTH, "t")
    commit_and_publish(files, staging)
    files.finish(staging)
    assert sorted(os.listdir(root)) == ["a", "b"]
    first, _ = sorted(kept.iterdir())
    first.write_bytes(b"theirs\n")
    assert list(written_since(files, 10.0)) == []
    assert list(written_since(files, 10.0 + KEPT_SECONDS)) == [(path_of("a"), FileState(b"theirs\n"))]
    assert os.listdir(kept) == []
    assert files.make_ahead() is None


def test_without_exchange_what_is_written_in_place_just_before_the_rename_is_put_back(
    tmp_path: Path,
) -> None:
    disk, files, root, kept = renaming(tmp_path)
    disk.meddle["replace", 2] = lambda: (root / "b").write_bytes(b"theirs\n")
    staging = files.stage(BOTH, "t")
    with pytest.raises(ConcurrentWrite) as overtaken:
        commit_and_publish(files, staging)
    files.discard(staging)
    assert overtaken.value.paths == [path_of("b")]
    assert (root / "a").read_bytes() == OLD.content
    assert (root / "b").read_bytes() == b"theirs\n"
    assert sorted(os.listdir(root)) == ["a", "b"]
    assert list(written_since(files, None)) == []  # our own versions were kept for the second look
    assert os.listdir(kept) == []


def test_without_exchange_what_has_no_place_when_it_is_taken_back_is_told_by_the_second_look(
    tmp_path: Path,
) -> None:
    disk, files, root, kept = renaming(tmp_path)

    def meddle() -> None:
        (kept / ".editd-t-0").write_bytes(b"theirs\n")  # `a`, by whoever was just opening it
        (root / "newest").write_bytes(b"newest\n")
        (root / "newest").rename(root / "a")
        (root / "b").write_bytes(b"theirs, too\n")

    disk.meddle["replace", 2] = meddle
    staging = files.stage(BOTH, "t")
    with pytest.raises(ConcurrentWrite):
        commit_and_publish(files, staging)
    files.discard(staging)
    assert (root / "a").read_bytes() == b"newest\n"
    assert (root / "b").read_bytes() == b"theirs, too\n"
    assert list(written_since(files, 10.0)) == []
    assert list(written_since(files, 10.0 + KEPT_SECONDS)) == [(path_of("a"), FileState(b"theirs\n"))]
    assert os.listdir(kept) == []


def test_without_exchange_a_rename_that_fails_leaves_no_second_name(tmp_path: Path) -> None:
    disk, files, root, kept = renaming(tmp_path)
    disk.meddle["replace", 1] = failing()
    staging = files.stage(BOTH, "t")
    with pytest.raises(Refused):
        commit_and_publish(files, staging)
    files.discard(staging)
    assert os.listdir(kept) == []
    assert {name: (root / name).stat().st_nlink for name in os.listdir(root)} == {"a": 1, "b": 1}


def test_what_was_replaced_is_kept_out_of_sight_and_then_removed(tmp_path: Path) -> None:
    files, kept = replaced_once(tmp_path)
    assert list(written_since(files, 10.0)) == []
    assert len(os.listdir(kept)) == 1
    assert list(written_since(files, 10.0 + KEPT_SECONDS)) == []
    assert os.listdir(kept) == []


def test_what_somebody_writes_into_it_is_told_before_it_is_removed(tmp_path: Path) -> None:
    files, kept = replaced_once(tmp_path)
    (old,) = kept.iterdir()
    old.write_bytes(b"theirs\n")
    assert list(written_since(files, 10.0)) == []
    told = written_since(files, 10.0 + KEPT_SECONDS)
    assert next(told) == (path_of("f.txt"), FileState(b"theirs\n"))
    assert old.exists()
    assert list(told) == []
    assert not old.exists()


@pytest.mark.needs("leases")
def test_while_somebody_has_it_open_for_writing_it_stays(tmp_path: Path) -> None:
    files, kept = replaced_once(tmp_path)
    (old,) = kept.iterdir()
    with old.open("ab"):
        list(written_since(files, 10.0))
        assert list(written_since(files, 20.0)) == []
        assert old.exists()
    looked_at_again(files, 20.0)
    assert not old.exists()


def looked_at_again(files: WorkspaceWriter, now: float) -> None:
    """Look a second after the last time: a program may have the file open for days."""
    assert list(written_since(files, now)) == []
    assert list(written_since(files, now + KEPT_SECONDS)) == []


@pytest.mark.needs("leases")
def test_one_that_is_being_written_does_not_hold_up_the_others(tmp_path: Path) -> None:
    files, kept = replaced_once(tmp_path)
    (busy,) = kept.iterdir()
    staging = files.stage([Change(path_of("f.txt"), NEW, OLD)], "u")
    commit_and_publish(files, staging)
    files.finish(staging)
    with busy.open("ab"):
        list(written_since(files, 10.0))
        list(written_since(files, 20.0))
        assert list(kept.iterdir()) == [busy]
    looked_at_again(files, 30.0)
    assert os.listdir(kept) == []


def test_what_could_not_be_recorded_stays_and_is_told_again(tmp_path: Path) -> None:
    files, kept = replaced_once(tmp_path)
    (old,) = kept.iterdir()
    old.write_bytes(b"theirs\n")
    list(written_since(files, 10.0))
    for _ in range(2):
        with closing(written_since(files, 20.0)) as told:
            assert next(told) == (path_of("f.txt"), FileState(b"theirs\n"))
    assert old.exists()


def test_what_could_not_be_looked_at_is_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, kept = replaced_once(tmp_path)
    (old,) = kept.iterdir()
    list(written_since(files, 10.0))
    with monkeypatch.context() as patched:
        patched.setattr(os, "open", _no_descriptor)
        check = files.check_quarantine(20.0)
        assert check is not None
        checks = check()
    with pytest.raises(OSError, match="Too many open files"):
        list(files.late_writes(checks))
    assert old.exists()
    looked_at_again(files, 20.0)
    assert not old.exists()


def _no_descriptor(*_: object, **__: object) -> int:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def test_at_the_end_all_of_it_goes(tmp_path: Path) -> None:
    files, kept = replaced_once(tmp_path)
    assert list(written_since(files, None)) == []
    assert os.listdir(kept) == []


def test_what_a_killed_daemon_has_left_is_told_and_removed(tmp_path: Path) -> None:
    _, kept = replaced_once(tmp_path)
    left = Quarantine(str(kept))
    assert list(left.late_writes(left.check(left.due(None), at_the_end=True))) == [(None, OLD)]
    assert os.listdir(kept) == []


def test_a_version_that_was_written_too_late_is_in_the_history(place: Workplace) -> None:
    place.write({"f.txt": "old\n"})
    with place.start() as client:
        client.settle()
        client.apply([write("f.txt", "new\n")])
        (old,) = (path for path in (place.state / "replaced").iterdir() if path.stat().st_size)
        old.write_text("too late\n")
        deadline = time.monotonic() + 10
        while old.exists():  # until it is removed, or a spare under another name
            assert time.monotonic() < deadline
            time.sleep(0.05)
        newest = client.log(limit=3).transactions
        assert client.read("f.txt", at=newest[1].seq).content == "too late\n"
        assert client.read("f.txt").content == "new\n"
        assert client.check().problems == []
    place.stop()


def test_what_is_written_to_our_version_while_it_is_taken_back_is_found_without_leases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("editd.workspace.reader.take_lease", lambda _descriptor: False)
    disk, files, root, _ = renaming(tmp_path)
    opened: list[int] = []

    def meddle() -> None:
        opened.append(os.open(root / "a", os.O_WRONLY))
        put(root, {"b": THEIRS})

    staging = files.stage(BOTH, "t")
    disk.meddle["link", 2] = meddle  # our version of `a` is in place by then
    with pytest.raises(ConcurrentWrite):
        commit_and_publish(files, staging)
    files.discard(staging)
    os.pwrite(opened[0], b"theirs", 0)
    os.ftruncate(opened[0], len(b"theirs"))
    os.close(opened[0])
    assert held(root) == {"a": OLD, "b": THEIRS}
    assert [(str(path), state.content) for path, state in written_since(files, None)] == [("a", b"theirs")]


def test_our_version_that_was_taken_back_is_nobodys_news(tmp_path: Path) -> None:
    disk, files, root, _ = renaming(tmp_path)
    staging = files.stage(BOTH, "t")
    disk.meddle["link", 2] = lambda: put(root, {"b": THEIRS})
    with pytest.raises(ConcurrentWrite):
        commit_and_publish(files, staging)
    files.discard(staging)
    assert held(root) == {"a": OLD, "b": THEIRS}
    assert list(written_since(files, None)) == []
