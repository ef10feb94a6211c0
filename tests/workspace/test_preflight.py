"""What cannot be published is refused before anything is done."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from editd.errors import NotAFile, PermissionDenied, Refused
from editd.system.filesystem import Disk
from editd.values.content import EXECUTABLE, FileState
from editd.workspace.staged_change import check_publishable
from support.working_files import LINK, NEW, OLD, Held, change, put

if TYPE_CHECKING:
    from pathlib import Path

    from editd.values.content import Change

AS_USER = pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
X = FileState(b"old", EXECUTABLE)


def refusal(
    root: Path, *changes: Change[FileState], pending: tuple[Change[FileState], ...] = ()
) -> type[Refused] | None:
    """What kind of no the changes get; None if they may be published."""
    try:
        check_publishable(Disk(str(root)), changes, pending)
    except Refused as refused:
        return type(refused)
    return None


@pytest.mark.parametrize(
    ("ours", "says"),
    [
        (change("a", OLD, NEW), PermissionDenied),
        (change("a", OLD, X), PermissionDenied),
        (change("a", OLD, None), None),
        (change("other", OLD, NEW), None),
    ],
)
def test_a_hard_link_is_not_parted(
    tmp_path: Path, ours: Change[FileState], says: type[Refused] | None
) -> None:
    put(tmp_path, {"a": OLD, "other": OLD})
    os.link(tmp_path / "a", tmp_path / "b")
    assert refusal(tmp_path, ours) is says


@pytest.mark.parametrize(
    ("ours", "says"),
    [
        (change("a", OLD, NEW), PermissionDenied),
        (change("a", OLD, None), PermissionDenied),
        (change("a", OLD, X), None),
    ],
)
def test_a_read_only_file_keeps_its_content(
    tmp_path: Path, ours: Change[FileState], says: type[Refused] | None
) -> None:
    put(tmp_path, {"a": OLD})
    (tmp_path / "a").chmod(0o444)
    assert refusal(tmp_path, ours) is says


@AS_USER
def test_nothing_is_deleted_from_a_read_only_folder(tmp_path: Path) -> None:
    put(tmp_path, {"d/a": OLD, "d/l": LINK})
    (tmp_path / "d").chmod(0o555)
    try:
        assert refusal(tmp_path, change("d/a", OLD, None)) is PermissionDenied
        assert refusal(tmp_path, change("d/l", LINK, None)) is PermissionDenied
    finally:
        (tmp_path / "d").chmod(0o755)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_another_user_s_file_is_left_as_it_is(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    put(tmp_path, {"a": OLD})
    disk = Disk(str(tmp_path))
    os.seteuid(65534)
    try:
        for after in (X, NEW, None):
            with pytest.raises(PermissionDenied):
                check_publishable(disk, [change("a", OLD, after)])
    finally:
        os.seteuid(0)


@pytest.mark.parametrize(
    ("there", "changes", "says"),
    [
        ({"a/b": OLD}, [change("a", None, NEW)], NotAFile),
        ({"a/b": OLD}, [change("a", OLD, None)], NotAFile),
        ({"a/b": OLD}, [change("a", None, NEW), change("a/b", OLD, None)], None),
        ({"a/b/c": OLD, "a/d": OLD}, [change("a", None, LINK), change("a/b/c", OLD, None)], NotAFile),
        ({"a": OLD}, [change("a/b", None, NEW)], NotAFile),
        ({"a": LINK}, [change("a/b", None, NEW)], NotAFile),
        ({"a": OLD}, [change("a", OLD, None), change("a/b/c", None, NEW)], None),
        ({"a": OLD}, [change("a", OLD, NEW), change("a/b/c", None, NEW)], NotAFile),
        ({"a": OLD}, [change("b/c/d", None, NEW)], None),
        ({"a": OLD}, [change("a/b", OLD, None)], None),
    ],
)
def test_files_and_folders_do_not_share_a_name(
    tmp_path: Path, there: Held, changes: list[Change[FileState]], says: type[Refused] | None
) -> None:
    put(tmp_path, there)
    assert refusal(tmp_path, *changes) is says


def test_what_was_planned_before_counts_as_done(tmp_path: Path) -> None:
    put(tmp_path, {"a": OLD, "d/b": OLD})
    gone = (change("a", OLD, None), change("d/b", OLD, None))
    assert refusal(tmp_path, change("a/b", None, NEW), change("d", None, NEW), pending=gone) is None
    again = (*gone, change("a", None, NEW), change("d", None, NEW))
    assert refusal(tmp_path, change("d", NEW, None), pending=again) is None
    assert refusal(tmp_path, change("a/b", None, NEW), pending=again) is NotAFile


def test_a_fifo_is_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a")
    assert refusal(tmp_path, change("a", None, NEW)) is NotAFile


def test_a_symlink_is_no_file_to_be_checked(tmp_path: Path) -> None:
    put(tmp_path, {"a": LINK, "target": OLD})
    (tmp_path / "target").chmod(0o444)
    assert refusal(tmp_path, change("a", LINK, NEW)) is None
