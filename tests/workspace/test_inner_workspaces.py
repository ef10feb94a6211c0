"""Which folders of a workspace are separate workspaces."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from editd.config import paths
from editd.errors import PermissionDenied
from editd.values.path import WorkspacePath
from editd.workspace.inner_workspaces import InnerWorkspaces

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


def link(folder: Path, git: Path, *, common: bool = True, exists: bool = True) -> None:
    """Make `folder` the work tree of the git folder `git`."""
    folder.mkdir(parents=True)
    (folder / ".git").write_text(f"gitdir: {git}\n")
    if exists:
        git.mkdir(parents=True)
    if common:
        (git / "commondir").write_text("../..\n")


def serve(folder: Path, sign: str) -> None:
    state = paths.state_of(str(folder))
    os.makedirs(os.path.join(state, sign))
    with open(os.path.join(state, "root"), "w", encoding="utf-8") as file:
        file.write(f"{folder}\n")


def test_a_linked_worktree_is_one_and_a_submodule_is_none(root: Path, tmp_path: Path) -> None:
    link(root / "wt", tmp_path / "main/.git/worktrees/wt")
    link(root / "lost", tmp_path / "gone/.git/worktrees/lost", common=False, exists=False)
    link(root / "sub", root / ".git/modules/sub", common=False)
    link(root / "worktrees/sub", root / ".git/modules/worktrees/sub", common=False)
    link(root / "of-sub", root / ".git/modules/sub/worktrees/of-sub")
    inner = InnerWorkspaces(str(root))
    names = ("wt", "lost", "sub", "worktrees/sub", "of-sub")
    assert [inner.is_one(name.encode()) for name in names] == [True, True, False, False, True]


@pytest.mark.parametrize("kind", ["fifo", "symlink", "folder", "text", "NUL", "empty"])
def test_another_git_file_makes_no_worktree(root: Path, tmp_path: Path, kind: str) -> None:
    (root / "d").mkdir()
    git = root / "d/.git"
    (tmp_path / "file").write_text("gitdir: /x/worktrees/y\n")
    if kind == "fifo":
        os.mkfifo(git)
    elif kind == "symlink":
        git.symlink_to(tmp_path / "file")
    elif kind == "folder":
        git.mkdir()
    else:
        git.write_bytes({"text": b"worktrees/", "NUL": b"gitdir: /x/worktrees/\0y\n", "empty": b""}[kind])
    assert not InnerWorkspaces(str(root)).is_one(b"d")


def test_a_history_makes_one_of_a_repository_and_the_mark_of_any_folder(root: Path) -> None:
    for name, sign in (("plain", "store.git"), ("repository", "store.git"), ("marked", paths.NESTED)):
        (root / name).mkdir()
        serve(root / name, sign)
    (root / "repository/.git").mkdir()
    inner = InnerWorkspaces(str(root))
    assert [inner.is_one(name) for name in (b"plain", b"repository", b"marked")] == [False, True, True]
    assert paths.served_below(str(root)) == [f"{root}/{name}" for name in ("marked", "plain", "repository")]


def test_a_path_inside_is_refused_at_any_depth_and_one_beside_is_not(root: Path, tmp_path: Path) -> None:
    link(root / "d/wt", tmp_path / "main/.git/worktrees/wt")
    inner = InnerWorkspaces(str(root))
    for name in ("d/wt/a", "d/wt/b/c/a"):
        with pytest.raises(PermissionDenied, match="d/wt is a linked worktree") as refusal:
            inner.refuse(WorkspacePath(name))
        assert refusal.value.data == {"path": name, "workspace": f"{root}/d/wt"}
    for name in ("a", "d/a", "d/wt2/a", "d/wt"):
        inner.refuse(WorkspacePath(name))
    assert inner.top_over(b"d/wt/b") == b"d/wt"
    assert inner.top_over(b"d") == b""


def test_a_description_ends_with_the_inner_workspace(root: Path, tmp_path: Path) -> None:
    link(root / "wt", tmp_path / "main/.git/worktrees/wt")
    inner = InnerWorkspaces(str(root))
    assert inner.descriptions(()) == []
    (sentence,) = inner.descriptions({b"wt", b"other"})
    assert sentence.startswith("wt is a linked worktree, a separate workspace")
    (root / "wt/.git").unlink()
    assert inner.descriptions({b"wt"}) == []
