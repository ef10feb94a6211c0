"""Folders made for what is being staged: a crash leaves none of them behind, and takes nobody else's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from editd.system.filesystem import Disk
from editd.workspace.staged_change import CreatedDirs

if TYPE_CHECKING:
    from pathlib import Path


def noted(tmp_path: Path, *paths: str) -> tuple[Path, CreatedDirs]:
    """A workspace in which the folders were noted and made."""
    root = tmp_path / "workspace"
    root.mkdir()
    folders = CreatedDirs(str(tmp_path / "folders"))
    folders.note([path.encode() for path in paths])
    for path in paths:
        (root / path).mkdir(parents=True, exist_ok=True)
    return root, folders


def left(tmp_path: Path, root: Path) -> list[str]:
    """What stands when the next daemon has removed what it may."""
    disk = Disk(str(root))
    CreatedDirs(str(tmp_path / "folders")).remove_left(disk)
    disk.close()
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


def test_empty_folders_of_a_dead_daemon_are_removed_the_deepest_first(tmp_path: Path) -> None:
    root, _ = noted(tmp_path, "made/deep", "made", "other")
    (root / "theirs").mkdir()
    assert left(tmp_path, root) == ["theirs"]


def test_a_folder_that_somebody_has_put_something_into_stays(tmp_path: Path) -> None:
    root, _ = noted(tmp_path, "made/deep", "made")
    (root / "made" / "theirs").write_text("theirs\n")
    assert left(tmp_path, root) == ["made", "made/theirs"]


def test_what_was_forgotten_is_not_looked_at_again(tmp_path: Path) -> None:
    root, folders = noted(tmp_path, "made")
    folders.forget()
    assert left(tmp_path, root) == ["made"]


def test_a_path_that_was_cut_off_is_not_taken_for_another(tmp_path: Path) -> None:
    root, _ = noted(tmp_path, "made", "made/deep")
    with (tmp_path / "folders").open("ab") as notes:
        notes.write(b"theirs")
    (root / "theirs").mkdir()
    assert left(tmp_path, root) == ["theirs"]
