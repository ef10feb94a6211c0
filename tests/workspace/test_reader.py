from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

import pytest

from editd.errors import InUse, NotAFile, PathOutside, PathProtected, PermissionDenied, TooLarge
from editd.system.filesystem import Disk, ignore_lease_signal, read_whole
from editd.values.content import EXECUTABLE, SYMLINK, FileState
from editd.values.path import WorkspacePath
from editd.workspace.reader import LINKS_MAX, WorkspaceReader

if TYPE_CHECKING:
    from pathlib import Path

P = WorkspacePath.parse
ignore_lease_signal()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


@pytest.fixture(params=[False, True], ids=["openat2", "walk"])
def tree(root: Path, request: pytest.FixtureRequest) -> WorkspaceReader:
    return WorkspaceReader(Disk(str(root), walk=request.param), file_bytes_max=100_000)


@pytest.mark.parametrize("quiet", [False, True])
def test_a_file_is_its_bytes_its_mode_and_its_permissions(
    root: Path, tree: WorkspaceReader, quiet: bool
) -> None:
    (root / "d").mkdir()
    (root / "d/f").write_bytes(b"x" * 50_000)
    (root / "d/f").chmod(0o751)
    found = tree.read(P("d/f"), quiet=quiet)
    assert found == FileState(b"x" * 50_000, EXECUTABLE)
    assert found is not None
    assert found.permissions == 0o751


@pytest.mark.parametrize("name", ["\udcff\udcfe", "new\nline", "ü" * 127, " "])
def test_names_are_any_bytes(root: Path, tree: WorkspaceReader, name: str) -> None:
    (root / name).write_bytes(b"x")
    assert tree.read(P(name)) == FileState(b"x")


def test_a_symlink_is_its_target(root: Path, tree: WorkspaceReader) -> None:
    (root / "l").symlink_to(os.fsdecode(b"/any/where/\xff"))
    assert tree.read(P("l")) == FileState(b"/any/where/\xff", SYMLINK)


def test_what_is_not_there_is_none(root: Path, tree: WorkspaceReader) -> None:
    (root / "f").write_bytes(b"")
    assert [tree.read(P(path)) for path in ("gone", "gone/x", "f/x")] == [None] * 3
    assert [tree.entry(P(path)) for path in ("gone", "gone/x", "f/x")] == [None] * 3


def test_a_folder_a_fifo_and_a_socket_are_no_files(root: Path, tree: WorkspaceReader) -> None:
    (root / "folder").mkdir()
    os.mkfifo(root / "fifo")
    with socket.socket(socket.AF_UNIX) as listening:
        descriptor = os.open(root, os.O_RDONLY)
        listening.bind(f"/proc/self/fd/{descriptor}/socket")
        os.close(descriptor)
        for path in ("folder", "fifo", "socket"):
            with pytest.raises(NotAFile):
                tree.read(P(path))


def test_a_file_over_the_limit_is_refused_unread(root: Path, tree: WorkspaceReader) -> None:
    with open(root / "f", "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(TooLarge):
        tree.read(P("f"))


def test_a_file_that_grows_over_the_limit_while_it_is_read_is_refused(
    root: Path, tree: WorkspaceReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "f").write_bytes(b"x" * 100_000)

    def read_grown(descriptor: int, size: int, bytes_max: int | None = None) -> bytes:
        with open(root / "f", "ab") as file:
            file.write(b"x")
        return read_whole(descriptor, size, bytes_max)

    monkeypatch.setattr("editd.workspace.reader.read_whole", read_grown)
    with pytest.raises(TooLarge):
        tree.read(P("f"))


@pytest.mark.needs("leases")
def test_a_quiet_read_is_not_had_while_somebody_is_writing(root: Path, tree: WorkspaceReader) -> None:
    with open(root / "f", "wb") as file:
        file.write(b"half")
        file.flush()
        with pytest.raises(InUse):
            tree.read(P("f"), quiet=True)
        assert tree.read(P("f")) == FileState(b"half")
    assert tree.read(P("f"), quiet=True) == FileState(b"half")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_file_that_grants_no_lease_is_read_all_the_same(root: Path) -> None:
    (root / "f").write_bytes(b"x")
    tree = WorkspaceReader(Disk(str(root)), file_bytes_max=100)
    os.seteuid(65534)
    try:
        assert tree.read(P("f"), quiet=True) == FileState(b"x")
    finally:
        os.seteuid(0)


def test_a_file_that_grants_no_lease_is_not_had_while_it_changes(
    root: Path, tree: WorkspaceReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "f").write_bytes(b"x")

    def grant_none(descriptor: int) -> bool:
        (root / "f").write_bytes(b"xy")
        return False

    monkeypatch.setattr("editd.workspace.reader.take_lease", grant_none)
    with pytest.raises(InUse):
        tree.read(P("f"), quiet=True)


def test_a_symlink_above_the_path_is_to_be_resolved_first(root: Path, tree: WorkspaceReader) -> None:
    (root / "d").mkdir()
    (root / "l").symlink_to("d")
    with pytest.raises(PathOutside):
        tree.read(P("l/f"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_may_not_be_read_is_denied(root: Path, tree: WorkspaceReader) -> None:
    (root / "f").write_bytes(b"")
    (root / "f").chmod(0)
    with pytest.raises(PermissionDenied):
        tree.read(P("f"))


def test_an_entry_changes_with_its_file(root: Path, tree: WorkspaceReader) -> None:
    (root / "f").write_bytes(b"1")
    before = tree.entry(P("f"))
    assert before is not None
    assert (before.kind, before.size, before.links) == ("file", 1, 1)
    assert tree.entry(P("f")) == before
    (root / "new").write_bytes(b"2")
    (root / "new").rename(root / "f")
    assert tree.entry(P("f")) != before


@pytest.mark.parametrize(
    ("link", "target", "path", "leads_to"),
    [
        ("l", "d/f", "l", "d/f"),
        ("l", "d", "l/f", "d/f"),
        ("l", "d", "l/gone/x", "d/gone/x"),
        ("l", "gone", "l", "gone"),
        ("d/up", "../d/f", "d/up", "d/f"),
        ("d/up", "..", "d/up/d/f", "d/f"),
        ("l", "./d//", "l/f", "d/f"),
        ("l", ".", "l/d/f", "d/f"),
        ("l", "{root}/d", "l/f", "d/f"),
        ("l", "d/f", "d/f", "d/f"),
        ("l", "\udcff", "l", "\udcff"),
    ],
)
def test_symlinks_lead_to_a_path(
    root: Path, tree: WorkspaceReader, link: str, target: str, path: str, leads_to: str
) -> None:
    (root / "d").mkdir()
    (root / "d/f").write_bytes(b"")
    (root / link).symlink_to(target.format(root=root))
    assert tree.resolve(P(path)) == P(leads_to)


@pytest.mark.parametrize(
    "target", ["..", "../root/d", "/etc", "/", "d/../..", "{root}/..", "{root}x/f", "l", "m/../l"]
)
def test_symlinks_that_leave_or_go_in_circles_are_refused(
    root: Path, tree: WorkspaceReader, target: str
) -> None:
    (root / "d").mkdir()
    (root / "l").symlink_to(target.format(root=root))
    (root / "m").symlink_to("l")
    for path in ("l", "l/f", "m"):
        with pytest.raises(PathOutside):
            tree.resolve(P(path))


def test_git_is_protected_behind_a_symlink_too(root: Path, tree: WorkspaceReader) -> None:
    (root / ".git").mkdir()
    (root / "l").symlink_to(".git")
    with pytest.raises(PathProtected):
        tree.resolve(P("l/config"))


def test_a_link_to_the_root_is_no_file(root: Path, tree: WorkspaceReader) -> None:
    (root / "l").symlink_to(".")
    with pytest.raises(NotAFile):
        tree.resolve(P("l"))


def test_a_chain_is_followed_as_far_as_the_kernel_does(root: Path, tree: WorkspaceReader) -> None:
    for number in range(LINKS_MAX + 1):
        (root / f"l{number}").symlink_to(f"l{number + 1}")
    assert tree.resolve(P("l1")) == P(f"l{LINKS_MAX + 1}")
    with pytest.raises(PathOutside):
        tree.resolve(P("l0"))


def test_the_folder_is_resolved_and_the_last_name_kept(root: Path, tree: WorkspaceReader) -> None:
    (root / "d").mkdir()
    (root / "l").symlink_to("d")
    (root / "d/m").symlink_to("/etc/passwd")
    assert tree.resolve_folder(P("l/m")) == P("d/m")
    assert tree.resolve_folder(P("l")) == P("l")
    assert tree.resolve_folder(P("gone/l")) == P("gone/l")
