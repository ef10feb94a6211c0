"""What a file has beside its bytes stays with it, whatever is done to it."""

from __future__ import annotations

import errno
import os
import stat
import struct
from typing import TYPE_CHECKING

import pytest

from editd.errors import IoError, PermissionDenied
from editd.system.filesystem import Disk, write_whole
from editd.values.content import EXECUTABLE, FileState
from editd.workspace.temp_files import permissions_for
from editd.workspace.writer import WorkspaceWriter
from support.working_files import LINK, NEW, OLD, change, commit_and_publish, files_on, put

if TYPE_CHECKING:
    from pathlib import Path

    from editd.values.content import Change

pytestmark = pytest.mark.usefixtures("spared")
NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
ACCESS, DEFAULT = "system.posix_acl_access", "system.posix_acl_default"


def acl(*, user: int, x: int = 0) -> bytes:
    """An ACL as the kernel has it (acl(5)): rw- for the owner and one more user, r-- for the group.

    `x` 1 adds x to each, as in a folder's default, without which nothing in a folder is reached.
    """
    unnamed = 0xFFFFFFFF
    owner, named, group, mask, other = 0x01, 0x02, 0x04, 0x10, 0x20
    entries = [
        (owner, 6, unnamed),
        (named, 6, user),
        (group, 4, unnamed),
        (mask, 6, unnamed),
        (other, 0, unnamed),
    ]
    packed = [struct.pack("<HHI", tag, bits | x, who) for tag, bits, who in entries]
    return struct.pack("<I", 2) + b"".join(packed)


def names_user(path: Path, user: int) -> bool:
    """Whether the file's ACL has an entry for a user by name."""
    entries = struct.iter_unpack("<HHI", os.getxattr(path, ACCESS)[4:])
    return any(tag == 0x02 and who == user for tag, _, who in entries)


def publish(root: Path, *changes: Change[FileState]) -> None:
    disk = Disk(str(root))
    files = files_on(disk)
    files.check(changes)
    staging = files.stage(changes, "t")
    commit_and_publish(files, staging)
    files.finish(staging)
    disk.close()


def set_attribute(path: Path, name: str, value: bytes) -> None:
    try:
        os.setxattr(path, name, value)
    except OSError as error:
        if error.errno != errno.ENOTSUP:
            raise
        pytest.skip(f"{name} is not had on this file system")


def permissions(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    put(tmp_path, {"a": OLD})
    return tmp_path / "a"


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o664, 0o666, 0o640])
def test_permissions_are_kept(file: Path, mode: int) -> None:
    file.chmod(mode)
    publish(file.parent, change("a", OLD, NEW))
    assert permissions(file) == mode


@pytest.mark.parametrize(
    ("mode", "executable", "becomes"),
    [
        (0o644, True, 0o755),
        (0o600, True, 0o700),
        (0o640, True, 0o750),
        (0o751, True, 0o751),
        (0o755, False, 0o644),
        (0o2751, False, 0o2640),
        (0o654, False, 0o654),
    ],
)
@pytest.mark.parametrize("content", [b"old", b"new"])
def test_x_is_set_where_r_is_and_nothing_else_is_touched(
    file: Path, mode: int, executable: bool, becomes: int, content: bytes
) -> None:
    file.chmod(mode)
    before = FileState(b"old", EXECUTABLE if mode & 0o100 else OLD.mode)
    after = FileState(content, EXECUTABLE if executable else OLD.mode)
    inode = file.stat().st_ino
    publish(file.parent, change("a", before, after))
    assert permissions(file) == (becomes if content == b"old" else becomes & 0o777)
    assert (file.stat().st_ino == inode) is (content == b"old")


def test_an_owner_that_cannot_read_can_still_execute() -> None:
    assert permissions_for(0o244, executable=True) == 0o355
    assert permissions_for(0o100444, executable=True) == 0o555


@NEEDS_ROOT
@pytest.mark.parametrize("mode", [0o4755, 0o2755, 0o6755, 0o4644, 0o2644])
def test_the_owner_is_kept_and_new_content_gets_no_privilege_of_the_old(file: Path, mode: int) -> None:
    """The attack: an edit of a program that runs as its owner is run as that owner."""
    os.chown(file, 1234, 4321)
    file.chmod(mode)
    git_mode = EXECUTABLE if mode & 0o100 else OLD.mode
    publish(file.parent, change("a", FileState(b"old", git_mode), FileState(b"new", git_mode)))
    found = file.stat()
    assert (found.st_uid, found.st_gid, permissions(file)) == (1234, 4321, mode & 0o777)


@NEEDS_ROOT
def test_an_owner_that_cannot_be_kept_is_refused_and_nothing_is_left(file: Path) -> None:
    file.chmod(0o666)
    file.parent.chmod(0o777)
    files = WorkspaceWriter(Disk(str(file.parent)))
    os.seteuid(65534)
    try:
        files.check([change("a", OLD, NEW)])
        with pytest.raises(PermissionDenied, match="belongs to user 0"):
            files.stage([change("a", OLD, NEW)], "t")
    finally:
        os.seteuid(0)
    assert [path.name for path in file.parent.iterdir()] == ["a"]
    assert file.read_bytes() == b"old"


@pytest.mark.needs("attributes")
def test_attributes_are_kept(file: Path) -> None:
    set_attribute(file, "user.one", b"1")
    set_attribute(file, "user.two", b"\0\xff" * 100)
    publish(file.parent, change("a", OLD, NEW))
    assert os.getxattr(file, "user.one") == b"1"
    assert os.getxattr(file, "user.two") == b"\0\xff" * 100


@pytest.mark.needs("attributes")
@pytest.mark.parametrize("after", [NEW, FileState(b"new", EXECUTABLE)])
def test_an_acl_is_kept(file: Path, after: FileState) -> None:
    set_attribute(file, ACCESS, acl(user=4242))
    publish(file.parent, change("a", OLD, after))
    assert names_user(file, 4242)
    if after.mode == OLD.mode:
        assert os.getxattr(file, ACCESS) == acl(user=4242)
    assert bool(permissions(file) & 0o100) is after.is_executable


def test_a_new_file_has_what_its_folder_gives(tmp_path: Path) -> None:
    set_attribute(tmp_path, DEFAULT, acl(user=4242, x=1))
    publish(tmp_path, change("a", None, NEW), change("d/b", None, NEW))
    for path in (tmp_path / "a", tmp_path / "d/b"):
        assert names_user(path, 4242)


@pytest.mark.needs("attributes")
def test_an_old_file_does_not_get_what_its_folder_gives_new_ones(file: Path) -> None:
    file.chmod(0o640)
    set_attribute(file.parent, DEFAULT, acl(user=4242, x=1))
    publish(file.parent, change("a", OLD, NEW))
    assert ACCESS not in os.listxattr(file)
    assert permissions(file) == 0o640


@NEEDS_ROOT
def test_a_folder_s_group_goes_to_what_is_made_in_it(tmp_path: Path) -> None:
    os.chown(tmp_path, -1, 4321)
    tmp_path.chmod(0o2775)
    publish(tmp_path, change("a", None, NEW), change("d/b", None, NEW))
    assert {(tmp_path / path).stat().st_gid for path in ("a", "d", "d/b")} == {4321}


def test_a_new_file_obeys_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        publish(tmp_path, change("a", None, NEW), change("b", None, FileState(b"", EXECUTABLE)))
    finally:
        os.umask(before)
    assert (permissions(tmp_path / "a"), permissions(tmp_path / "b")) == (0o640, 0o750)


def test_a_file_that_comes_back_has_its_permissions(tmp_path: Path) -> None:
    publish(tmp_path, change("a", None, FileState(b"", permissions=0o600)))
    publish(tmp_path, change("b", None, FileState(b"", EXECUTABLE, permissions=0o640)))
    assert (permissions(tmp_path / "a"), permissions(tmp_path / "b")) == (0o600, 0o750)


def test_a_file_that_was_a_symlink_is_a_new_file(tmp_path: Path) -> None:
    put(tmp_path, {"a": LINK, "target": OLD})
    (tmp_path / "target").chmod(0o600)
    before = os.umask(0o022)
    try:
        publish(tmp_path, change("a", LINK, NEW))
    finally:
        os.umask(before)
    assert permissions(tmp_path / "a") == 0o644


@pytest.mark.needs("attributes")
def test_a_file_that_is_moved_takes_all_with_it(file: Path) -> None:
    file.chmod(0o600)
    set_attribute(file, "user.one", b"1")
    publish(file.parent, change("a", OLD, None), change("d/b", None, NEW, source="a"))
    moved = file.parent / "d/b"
    assert (moved.read_bytes(), permissions(moved)) == (b"new", 0o600)
    assert os.getxattr(moved, "user.one") == b"1"


def test_until_it_is_in_place_nobody_else_may_read_a_secret(file: Path) -> None:
    file.chmod(0o600)
    files_on(Disk(str(file.parent))).stage([change("a", OLD, NEW)], "t")
    beside, hidden = file.parent / ".editd-t-0", file.parent.with_name(f"{file.parent.name}.replaced")
    assert permissions(beside) == 0o600 if beside.exists() else permissions(hidden) == 0o700


def test_while_it_is_written_nobody_else_may_read_a_secret(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.chmod(0o600)
    set_attribute(file, "user.one", b"1")  # so that it is written beside the file, into no spare
    seen: list[int] = []

    def write(descriptor: int, content: bytes) -> None:
        seen.append(stat.S_IMODE(os.fstat(descriptor).st_mode))
        write_whole(descriptor, content)

    monkeypatch.setattr("editd.workspace.temp_files.write_whole", write)
    publish(file.parent, change("a", OLD, NEW))
    assert seen == [0o600]


@pytest.mark.needs("attributes")
@NEEDS_ROOT
def test_what_an_ordinary_user_cannot_keep_is_said(file: Path) -> None:
    os.chown(file, 65534, os.getegid())
    capability = struct.pack("<IIIII", 0x02000001, 1 << 10, 0, 0, 0)  # cap_net_bind_service
    set_attribute(file, "security.capability", capability)
    file.parent.chmod(0o777)
    files = WorkspaceWriter(Disk(str(file.parent)))
    os.seteuid(65534)
    try:
        replacing = files.stage([change("a", OLD, NEW)], "t")
        assert replacing.warnings == ("a: security.capability could not be kept.",)
        files.discard(replacing)
    finally:
        os.seteuid(0)


@pytest.mark.needs("attributes")
@NEEDS_ROOT
def test_what_an_undo_of_a_deletion_does_not_bring_back_is_said(file: Path) -> None:
    os.chown(file, 1234, 4321)
    set_attribute(file, "user.one", b"1")
    files = WorkspaceWriter(Disk(str(file.parent)))
    deleting = files.stage([change("a", OLD, None)], "t")
    told = "a: an undo brings back its bytes and its mode, but not owner 1234:4321, user.one."
    assert deleting.warnings == (told,)
    moving = files.stage([change("a", OLD, None), change("b", None, OLD, source="a")], "u")
    assert moving.warnings == ()


@pytest.mark.needs("attributes")
def test_an_attribute_that_is_required_and_cannot_be_set_refuses_the_edit(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_attribute(file, "user.one", b"1")

    def fail(*_arguments: object) -> None:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

    monkeypatch.setattr(os, "setxattr", fail)
    with pytest.raises(IoError):
        publish(file.parent, change("a", OLD, NEW))
    assert file.read_bytes() == b"old"
