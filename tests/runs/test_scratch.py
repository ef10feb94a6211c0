"""runs.scratch: a link leads no write out of the folder, and all of it is removed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from editd.runs.scratch import TrialFile, remove_tree, write_files
from editd.runs.workspace_copy import copy_workspace

if TYPE_CHECKING:
    from pathlib import Path


def test_no_file_is_written_behind_a_link(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (outside / "kept").write_text("kept")
    (root / "link").symlink_to(outside)
    for content in (b"x", None):
        with pytest.raises(OSError, match="behind a symbolic link"):
            write_files(str(root), [TrialFile("link/kept", content)])
    with pytest.raises(OSError, match="behind a symbolic link"):
        copy_workspace(str(root), str(tmp_path / "copy"), [TrialFile("link/kept", b"x")])
    assert (outside / "kept").read_text() == "kept"


def test_a_proposed_file_replaces_a_link_itself(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "kept").write_text("kept")
    (root / "a").symlink_to(tmp_path / "kept")
    write_files(str(root), [TrialFile("a", b"new", "100644"), TrialFile("b/c", b"#!", "100755")])
    assert (root / "a").read_text() == "new"
    assert not (root / "a").is_symlink()
    assert (tmp_path / "kept").read_text() == "kept"
    assert os.access(root / "b/c", os.X_OK)


def test_a_scratch_folder_goes_though_it_has_folders_that_nobody_may_enter(tmp_path: Path) -> None:
    (tmp_path / "scratch/work/work").mkdir(parents=True)
    (tmp_path / "scratch/work/work").chmod(0)
    remove_tree(str(tmp_path / "scratch"))
    assert not (tmp_path / "scratch").exists()
