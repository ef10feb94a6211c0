"""Nothing that anyone wrote is lost: others write at each moment of publishing, chosen or at random (C4)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from editd.errors import InUse, IoError
from editd.system.filesystem import Disk
from editd.values.content import EXECUTABLE, FileState
from editd.values.path import WorkspacePath
from editd.workspace.publish import ConcurrentWrite
from editd.workspace.reader import WorkspaceReader
from support import outsider
from support.racing_disk import MeddlingDisk, failing
from support.working_files import (
    LINK,
    NEW,
    NEWEST,
    OLD,
    THEIRS,
    Held,
    change,
    commit_and_publish,
    files_on,
    held,
    put,
)

if TYPE_CHECKING:
    from pathlib import Path

    from editd.values.content import Change

pytestmark = [pytest.mark.disk, pytest.mark.usefixtures("spared")]
A = WorkspacePath.parse("a")


def overtaken(disk: MeddlingDisk, *changes: Change[FileState]) -> Held:
    """Publish, expecting to be overtaken at `a`; return the orphans."""
    files = files_on(disk)
    staging = files.stage(changes, "t")
    with pytest.raises(ConcurrentWrite) as caught:
        commit_and_publish(files, staging)
    files.discard(staging)
    assert caught.value.paths == [A]
    return {path.text: state for path, state in caught.value.orphans}


@pytest.fixture
def disk(tmp_path: Path) -> MeddlingDisk:
    return MeddlingDisk(str(tmp_path))


@pytest.mark.needs("exchange")
def test_a_save_between_check_and_exchange_is_put_back(tmp_path: Path, disk: MeddlingDisk) -> None:
    put(tmp_path, {"a": OLD})
    disk.meddle["exchange", 1] = lambda: put(tmp_path, {"a": THEIRS})
    assert overtaken(disk, change("a", OLD, NEW)) == {}
    assert held(tmp_path) == {"a": THEIRS}


@pytest.mark.needs("exchange")
def test_a_save_onto_our_version_stays_and_the_one_before_is_an_orphan(
    tmp_path: Path, disk: MeddlingDisk
) -> None:
    put(tmp_path, {"a": OLD})
    disk.meddle["exchange", 1] = lambda: put(tmp_path, {"a": THEIRS})
    disk.meddle["exchange", 2] = lambda: put(tmp_path, {"a": NEWEST})
    assert overtaken(disk, change("a", OLD, NEW)) == {"a": THEIRS}
    assert held(tmp_path) == {"a": NEWEST}


@pytest.mark.needs("exchange")
def test_of_three_saves_in_our_way_none_is_lost(tmp_path: Path, disk: MeddlingDisk) -> None:
    put(tmp_path, {"a": OLD})
    disk.meddle["exchange", 1] = lambda: put(tmp_path, {"a": THEIRS})
    disk.meddle["exchange", 2] = lambda: put(tmp_path, {"a": FileState(b"second")})
    # The third comes onto the first, which stood at the path between the two exchanges: its author saw it.
    disk.meddle["exchange", 3] = lambda: put(tmp_path, {"a": NEWEST})
    orphans = overtaken(disk, change("a", OLD, NEW))
    assert {**orphans, **held(tmp_path)} != orphans
    assert {state.content for state in (*orphans.values(), *held(tmp_path).values())} == {
        b"second",
        b"newest",
    }


@pytest.mark.needs("exchange")
def test_a_file_deleted_while_it_is_put_back_stays_deleted(tmp_path: Path, disk: MeddlingDisk) -> None:
    put(tmp_path, {"a": OLD})
    disk.meddle["exchange", 1] = lambda: put(tmp_path, {"a": THEIRS})
    disk.meddle["exchange", 2] = (tmp_path / "a").unlink
    assert overtaken(disk, change("a", OLD, NEW)) == {"a": THEIRS}
    assert held(tmp_path) == {}


@pytest.mark.needs("exchange")
def test_whoever_has_the_file_open_gets_it_back(tmp_path: Path, disk: MeddlingDisk) -> None:
    put(tmp_path, {"a": OLD})
    writers: list[int] = []
    disk.meddle["exchange", 1] = lambda: writers.append(os.open(tmp_path / "a", os.O_WRONLY))
    assert overtaken(disk, change("a", OLD, NEW)) == {}
    os.write(writers[0], b"theirs")
    os.close(writers[0])
    assert held(tmp_path) == {"a": THEIRS}


@pytest.mark.needs("exchange")
def test_of_two_writers_one_gets_the_path_and_both_are_kept(tmp_path: Path, disk: MeddlingDisk) -> None:
    put(tmp_path, {"a": OLD})
    first: list[int] = []
    disk.meddle["exchange", 1] = lambda: first.append(os.open(tmp_path / "a", os.O_WRONLY))
    disk.meddle["exchange", 2] = lambda: (tmp_path / "a").write_bytes(b"newest")
    orphans = overtaken(disk, change("a", OLD, NEW))
    os.write(first[0], b"theirs")
    os.close(first[0])
    assert orphans == {"a": NEWEST}
    assert held(tmp_path) == {"a": THEIRS}


@pytest.mark.needs("exchange")
def test_what_was_done_in_a_folder_is_taken_back_there_though_it_was_moved_away(
    tmp_path: Path, disk: MeddlingDisk
) -> None:
    put(tmp_path, {"d/b": OLD, "d/c": OLD, "a": OLD})
    elsewhere = tmp_path.parent / f"{tmp_path.name} elsewhere"

    def meddle() -> None:
        put(tmp_path, {"a": THEIRS})
        (tmp_path / "d").rename(elsewhere)
        (tmp_path / "d").symlink_to(elsewhere)

    disk.meddle["exchange", 2] = meddle
    created, deleted = change("d/new", None, NEW), change("d/c", OLD, None)
    assert overtaken(disk, deleted, change("d/b", OLD, NEW), created, change("a", OLD, NEW)) == {}
    assert {name: (elsewhere / name).read_bytes() for name in ("b", "c")} == {"b": b"old", "c": b"old"}
    assert not (elsewhere / "new").exists()
    assert (tmp_path / "a").read_bytes() == b"theirs"


@pytest.mark.needs("exchange")
@pytest.mark.parametrize("became", ["folder", "symlink", "nothing"])
def test_what_is_no_file_any_more_is_put_back(tmp_path: Path, disk: MeddlingDisk, became: str) -> None:
    put(tmp_path, {"a": OLD})

    def replace() -> None:
        (tmp_path / "a").unlink()
        if became == "folder":
            put(tmp_path, {"a/b": THEIRS})
        if became == "symlink":
            put(tmp_path, {"a": LINK})

    disk.meddle["exchange", 1] = replace
    assert overtaken(disk, change("a", OLD, NEW)) == {}
    assert held(tmp_path) == {"folder": {"a/b": THEIRS}, "symlink": {"a": LINK}, "nothing": {}}[became]


def test_a_save_before_a_deletion_is_put_back(tmp_path: Path, disk: MeddlingDisk) -> None:
    put(tmp_path, {"a": OLD})
    disk.meddle["move", 1] = lambda: put(tmp_path, {"a": THEIRS})
    assert overtaken(disk, change("a", OLD, None)) == {}
    assert held(tmp_path) == {"a": THEIRS}


def test_a_save_after_a_deletion_stays_and_the_one_before_is_an_orphan(
    tmp_path: Path, disk: MeddlingDisk
) -> None:
    put(tmp_path, {"a": OLD})
    disk.meddle["move", 1] = lambda: put(tmp_path, {"a": THEIRS})
    disk.meddle["move", 2] = lambda: put(tmp_path, {"a": NEWEST})
    assert overtaken(disk, change("a", OLD, None)) == {"a": THEIRS}
    assert held(tmp_path) == {"a": NEWEST}


def test_a_file_that_somebody_makes_first_is_left(tmp_path: Path, disk: MeddlingDisk) -> None:
    disk.meddle["move", 1] = lambda: put(tmp_path, {"a": THEIRS})
    assert overtaken(disk, change("a", None, NEW)) == {}
    assert held(tmp_path) == {"a": THEIRS}


@pytest.mark.parametrize(
    ("ours", "moment"),
    [
        (change("b", None, NEW), ("move", 3)),
        pytest.param(change("b", OLD, NEW), ("exchange", 2), marks=pytest.mark.needs("exchange")),
        (change("b", OLD, None), ("move", 3)),
        (change("b", OLD, FileState(b"old", EXECUTABLE)), ("move", 1)),
    ],
    ids=["created", "modified", "deleted", "mode"],
)
def test_what_somebody_writes_onto_what_is_being_taken_back_stays(
    tmp_path: Path, disk: MeddlingDisk, ours: Change[FileState], moment: tuple[str, int]
) -> None:
    put(tmp_path, {} if ours.before is None else {"b": OLD})
    files = files_on(disk)
    staging = files.stage([ours, change("c", None, NEW)], "t")
    disk.meddle["move", b"c"] = failing()
    disk.meddle[moment] = lambda: put(tmp_path, {"b": THEIRS})
    with pytest.raises(IoError):
        commit_and_publish(files, staging)
    files.discard(staging)
    assert held(tmp_path) == {"b": THEIRS}


def test_who_saves_a_file_whose_mode_is_being_taken_back_keeps_its_permissions(
    tmp_path: Path, disk: MeddlingDisk
) -> None:
    put(tmp_path, {"b": OLD})
    files = files_on(disk)
    ours = [change("b", OLD, FileState(OLD.content, EXECUTABLE)), change("c", None, NEW)]
    staging = files.stage(ours, "t")

    def save() -> None:
        put(tmp_path, {"b": THEIRS})
        (tmp_path / "b").chmod(0o600)
        failing()()

    disk.meddle["move", b"c"] = save
    with pytest.raises(IoError):
        commit_and_publish(files, staging)
    files.discard(staging)
    assert (tmp_path / "b").stat().st_mode & 0o7777 == 0o600


def test_permissions_given_after_staging_are_kept(tmp_path: Path) -> None:
    put(tmp_path, {"a": OLD})
    files = files_on(Disk(str(tmp_path)))
    staging = files.stage([change("a", OLD, NEW)], "t")
    (tmp_path / "a").chmod(0o600)
    commit_and_publish(files, staging)
    files.finish(staging)
    assert held(tmp_path) == {"a": NEW}
    assert (tmp_path / "a").stat().st_mode & 0o7777 == 0o600


@pytest.mark.needs("exchange")
@pytest.mark.parametrize("kind", outsider.KINDS)
def test_no_version_of_an_outside_writer_is_lost(tmp_path: Path, kind: str, is_long: bool) -> None:
    rounds = 1500 if is_long else 300
    put(tmp_path, {"a": OLD, "b": OLD})
    disk = Disk(str(tmp_path))
    tree, files = WorkspaceReader(disk, file_bytes_max=1 << 20), files_on(disk)
    command = [sys.executable, outsider.__file__, kind, str(tmp_path / "a"), str(rounds)]
    seen: set[bytes] = set()
    published = 0
    with open(tmp_path.parent / "replaced", "w+b") as told, subprocess.Popen(command, stdout=told) as process:
        while process.poll() is None:
            try:
                before = tree.read(A, quiet=True)
            except InUse:
                continue
            if before is None:
                continue
            seen.add(before.content.strip())
            ours = FileState(b"ours %d" % published)
            pair = [change("a", before, ours), change("b", OLD, OLD.with_content(b"old!"))]
            staging = files.stage(pair, f"t{published}")
            try:
                commit_and_publish(files, staging)
            except ConcurrentWrite as caught:
                seen.update(state.content.strip() for _, state in caught.orphans)
                files.discard(staging)
                continue
            published += 1
            files.finish(staging)
            (tmp_path / "b").write_bytes(b"old")
        told.seek(0)
        seen.update(text.encode() for text in json.load(told))
    seen.add((tmp_path / "a").read_bytes().strip())
    wrote = {outsider.version(number).strip() for number in range(rounds)}
    assert wrote - seen == set()
    assert published, "it must have been a race"
    assert held(tmp_path).keys() == {"a", "b"}


def test_a_file_that_was_saved_before_its_mode_is_changed_keeps_its_mode(
    tmp_path: Path, disk: MeddlingDisk
) -> None:
    put(tmp_path, {"a": OLD})
    files = files_on(disk)
    staging = files.stage([change("a", OLD, FileState(OLD.content, EXECUTABLE))], "t")
    put(tmp_path, {"a": THEIRS})
    saved = (tmp_path / "a").stat()
    with pytest.raises(ConcurrentWrite):
        commit_and_publish(files, staging)
    files.discard(staging)
    assert held(tmp_path) == {"a": THEIRS}
    assert (tmp_path / "a").stat().st_ctime_ns == saved.st_ctime_ns


def test_a_file_that_is_saved_while_its_mode_is_changed_is_seen(
    tmp_path: Path, disk: MeddlingDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, {"a": OLD})
    fchmod = os.fchmod

    def save_meanwhile(descriptor: int, mode: int) -> None:
        fchmod(descriptor, mode)
        monkeypatch.undo()
        put(tmp_path, {"a": THEIRS})

    files = files_on(disk)
    staging = files.stage([change("a", OLD, FileState(OLD.content, EXECUTABLE))], "t")
    monkeypatch.setattr("editd.workspace.publish.os.fchmod", save_meanwhile)
    with pytest.raises(ConcurrentWrite):
        commit_and_publish(files, staging)
    files.discard(staging)
    assert held(tmp_path) == {"a": THEIRS}
