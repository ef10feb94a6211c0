from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from editd.system.filesystem import (
    PROBE_PREFIX,
    Disk,
    file_flags,
    ignore_lease_signal,
    make_apart,
    read_whole,
    take_lease,
    write_synced,
    write_whole,
)
from editd.values.path import TEMPORARY_PREFIX
from support import machine, outsider

BOTH_WAYS = pytest.mark.parametrize("walk", [False, True], ids=["openat2", "walk"])


def refused(disk: Disk, path: bytes) -> int | None:
    with pytest.raises(OSError) as caught:
        disk.folder(path)
    return caught.value.errno


@BOTH_WAYS
def test_a_folder_is_reached_by_its_names(tmp_path: Path, walk: bool) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/f").write_bytes(b"content")
    with Disk(str(tmp_path), walk=walk).folder(b"a/b") as folder:
        descriptor = folder.open(b"f")
        assert read_whole(descriptor, 7) == b"content"
        os.close(descriptor)
        assert folder.names() == [b"f"]


@BOTH_WAYS
def test_no_symlink_is_followed_to_a_folder(tmp_path: Path, walk: bool) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "inside").symlink_to("a")
    (tmp_path / "outside").symlink_to("/etc")
    (tmp_path / "nowhere").symlink_to("gone")
    disk = Disk(str(tmp_path), walk=walk)
    assert {refused(disk, name) for name in (b"inside", b"outside", b"nowhere", b"outside/x")} == {
        errno.ELOOP
    }


@BOTH_WAYS
def test_nothing_above_the_root_is_reached(tmp_path: Path, walk: bool) -> None:
    root = tmp_path / "root"
    root.mkdir()
    disk = Disk(str(root), walk=walk)
    assert {refused(disk, path) for path in (b"..", b"../root", b"/etc")} == {errno.EXDEV}


@BOTH_WAYS
def test_what_is_missing_is_told_from_what_is_no_folder(tmp_path: Path, walk: bool) -> None:
    (tmp_path / "f").write_bytes(b"")
    disk = Disk(str(tmp_path), walk=walk)
    assert refused(disk, b"gone/x") == errno.ENOENT
    assert refused(disk, b"f") == errno.ENOTDIR
    assert refused(disk, b"f/x") == errno.ENOTDIR


@BOTH_WAYS
def test_a_folder_that_is_flipped_to_a_symlink_never_leads_outside(tmp_path: Path, walk: bool) -> None:
    for place in ("outside", "root/sub"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "f").write_text(place)
    (tmp_path / "root/link").symlink_to(tmp_path / "outside")
    disk = Disk(str(tmp_path / "root"), walk=walk)
    seen: set[bytes] = set()
    with outsider.flipping(tmp_path / "root/sub", tmp_path / "root/link"):
        end = time.monotonic() + 1
        while time.monotonic() < end:
            try:
                with disk.folder(b"sub") as folder:
                    descriptor = folder.open(b"f")
                    seen.add(read_whole(descriptor, 0))
                    os.close(descriptor)
            except OSError as error:
                seen.add(errno.errorcode[error.errno or 0].encode())
    assert seen == {b"root/sub", b"ELOOP"}


def test_a_move_never_replaces(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    (tmp_path / "b").write_text("b")
    with Disk(str(tmp_path)).folder(b"") as folder:
        with pytest.raises(FileExistsError):
            folder.move(b"a", folder, b"b")
        folder.move(b"a", folder, b"c")
    assert ((tmp_path / "b").read_text(), (tmp_path / "c").read_text()) == ("b", "a")


@pytest.mark.needs("exchange")
def test_an_exchange_is_one_step(tmp_path: Path) -> None:
    (tmp_path / "b").write_text("b")
    (tmp_path / "c").write_text("a")
    with Disk(str(tmp_path)).folder(b"") as folder:
        folder.exchange(b"b", folder, b"c")
    assert ((tmp_path / "b").read_text(), (tmp_path / "c").read_text()) == ("a", "b")


@pytest.mark.needs("leases")
def test_a_lease_says_whether_anybody_is_writing(tmp_path: Path) -> None:
    ignore_lease_signal()
    (tmp_path / "f").write_bytes(b"")
    reader = os.open(tmp_path / "f", os.O_RDONLY)
    assert take_lease(reader)
    os.close(reader)
    writer = os.open(tmp_path / "f", os.O_WRONLY)
    reader = os.open(tmp_path / "f", os.O_RDONLY)
    with pytest.raises(BlockingIOError):
        take_lease(reader)
    os.close(writer)
    assert take_lease(reader)
    os.close(reader)


@pytest.mark.needs("leases")
def test_someone_waiting_for_a_lease_does_not_end_us(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"")
    program = (
        "import os, sys; sys.path[:0] = sys.argv[2:]\n"
        "from editd.system import filesystem as disk; disk.ignore_lease_signal()\n"
        "d = os.open(sys.argv[1], os.O_RDONLY); assert disk.take_lease(d)\n"
        "try: os.open(sys.argv[1], os.O_WRONLY | os.O_NONBLOCK)\n"
        "except BlockingIOError: print('alive')\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "f"), *sys.path], capture_output=True, check=False
    )
    assert (ran.returncode, ran.stdout) == (0, b"alive\n"), ran.returncode == -signal.SIGIO


def test_reading_and_writing_go_on_until_all_is_done() -> None:
    reader, writer = os.pipe()
    write_whole(writer, b"x" * 5000)
    write_whole(writer, b"")
    os.close(writer)
    assert read_whole(reader, 10) == b"x" * 5000
    os.close(reader)


def _written(path: Path, *parts: bytes) -> bytes:
    """What is in the file at `path`, after 3 bytes, when `parts` were written there."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        write_synced(descriptor, parts, 3)
        return os.pread(descriptor, 100, 3)
    finally:
        os.close(descriptor)


@pytest.mark.needs("synced writes")
def test_a_synced_write_goes_on_after_a_short_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _written(tmp_path / "f", b"head", b"", b"payload") == b"headpayload"
    write, synced = os.pwritev, list[int]()
    monkeypatch.setattr("editd.system.filesystem.os.fdatasync", synced.append)
    for length in (2, 4, 6):
        whole = [b"HEAD", b"PAYLOAD"]
        monkeypatch.setattr(
            "editd.system.filesystem.os.pwritev",
            lambda descriptor, parts, offset, _flags, length=length: write(
                descriptor, [b"".join(parts)[:length]], offset
            ),
        )
        assert _written(tmp_path / "g", *whole) == b"HEADPAYLOAD"
    assert len(synced) == 3


@pytest.mark.needs("synced writes")
@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM])
def test_without_a_synced_write_two_calls_do_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    calls, synced, sync = list[int](), list[int](), os.fdatasync

    def refuse(descriptor: int, *_arguments: object) -> int:
        calls.append(descriptor)
        raise OSError(number, os.strerror(number))

    def note(descriptor: int) -> None:
        synced.append(descriptor)
        sync(descriptor)

    monkeypatch.setattr("editd.system.filesystem._refused", set[str]())
    monkeypatch.setattr("editd.system.filesystem.os.pwritev", refuse)
    monkeypatch.setattr("editd.system.filesystem.os.fdatasync", note)
    for content in (b"first", b"other"):
        assert _written(tmp_path / "f", content) == content
    assert (len(calls), len(synced)) == (1, 2)


@pytest.mark.needs("synced writes")
def test_a_synced_write_that_fails_is_not_tried_in_another_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr("editd.system.filesystem.os.pwritev", fail)
    with pytest.raises(OSError, match="Input/output error"):
        _written(tmp_path / "f", b"content")
    assert (tmp_path / "f").read_bytes() == b""


def test_reading_stops_beyond_the_limit(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x" * 50_000)
    descriptor = os.open(tmp_path / "f", os.O_RDONLY)
    assert 100 < len(read_whole(descriptor, 0, 100)) < 50_000
    os.close(descriptor)


def test_a_root_that_went_away_is_noticed(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    disk = Disk(str(root))
    assert disk.is_root_in_place()
    root.rename(tmp_path / "elsewhere")
    assert not disk.is_root_in_place()
    root.mkdir()
    assert not disk.is_root_in_place()
    (tmp_path / "elsewhere").rmdir()
    assert refused(disk, b"a") == errno.ENOENT
    with disk.folder(b"") as folder, pytest.raises(FileNotFoundError):
        folder.make_folder(b"a")


def test_the_root_may_be_reached_through_a_symlink(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "link").symlink_to("root")
    disk = Disk(str(tmp_path / "link"))
    assert disk.root == os.fsencode(tmp_path / "root")
    assert disk.is_root_in_place()


def test_probing_leaves_nothing_behind(tmp_path: Path) -> None:
    disk = Disk(str(tmp_path))
    assert list(tmp_path.iterdir()) == []
    assert PROBE_PREFIX.startswith(TEMPORARY_PREFIX.encode())
    assert not [sentence for sentence in disk.weaker if "not be probed" in sentence]
    if disk.can_sync_whole:
        disk.sync()
    disk.close()


def test_a_read_only_root_is_taken_and_said() -> None:
    if not Path("/sys/kernel").is_dir():
        pytest.skip("no /sys here, which no one can write to")
    assert [text for text in Disk("/sys/kernel").weaker if "not be probed" in text]


def test_names_are_any_bytes(tmp_path: Path) -> None:
    names = [b"\xff\xfe", b"new\nline", b"x" * 255]
    with Disk(str(tmp_path)).folder(b"") as folder:
        for name in names:
            os.close(folder.create(name, 0o644))
        assert sorted(folder.names()) == sorted(names)


def test_a_mount_has_another_name_when_the_same_is_mounted_again(tmp_path: Path) -> None:
    if (reason := machine.missing()) is not None:
        pytest.skip(reason)
    image, names = machine.new_image(tmp_path), list[bytes]()
    for _ in range(2):
        with machine.mounted(image, tmp_path / "mounted"):
            for _ in range(2):
                with contextlib.closing(Disk(str(tmp_path / "mounted"))) as disk:
                    names.append(disk.mount)
    if b"" in names:
        pytest.skip("this kernel does not tell one mount from another")
    assert names[0] == names[1] != names[2] == names[3]


def flags_of(folder: Path) -> int:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        return file_flags(descriptor)
    finally:
        os.close(descriptor)


def test_a_folder_that_is_made_apart_leaves_the_flags_of_its_parent_as_they_were(tmp_path: Path) -> None:
    before = flags_of(tmp_path)
    for _ in range(2):  # the second time it exists
        make_apart(str(tmp_path / "state/replaced"))
        assert (tmp_path / "state/replaced").stat().st_mode & 0o7777 == 0o700
        assert flags_of(tmp_path / "state") == before


def test_on_ext4_a_folder_that_is_made_apart_has_an_inode_group_of_its_own(tmp_path: Path) -> None:
    kind = subprocess.run(["stat", "-f", "-c", "%T", tmp_path], capture_output=True, text=True, check=True)
    if kind.stdout.strip() != "ext2/ext3":
        pytest.skip("another file system")
    inodes: list[int] = []
    for number in range(8):  # the file system may choose the group of the parent, too
        folder = tmp_path / f"state{number}/replaced"
        make_apart(str(folder))
        inodes.append(abs(folder.stat().st_ino - tmp_path.stat().st_ino))
    near = min(os.statvfs(tmp_path).f_files, 4096)
    assert any(distance >= near for distance in inodes)
