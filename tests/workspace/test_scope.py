"""What is in scope: asked path by path, the answer is the one that the walk gives."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from editd.values.path import WorkspacePath
from editd.workspace.git_ignore import DEEP_NAMES
from editd.workspace.scan import Walk
from editd.workspace.scope import WorkspaceScope, is_never_ours
from support.scan_process import Ground

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


def is_in(ground: Ground, path: str) -> bool:
    return WorkspaceScope(str(ground.root)).is_in(WorkspacePath(path))


def walked(ground: Ground) -> set[str]:
    """The paths that a walk finds; each must be in scope when asked for alone, and no other file."""
    found = {
        os.fsdecode(os.path.join(folder.path, name))
        for folder in Walk(str(ground.root), WorkspaceScope(str(ground.root)), {}).folders()
        for name in folder.files
    }
    asked = {path for path in map(os.fsdecode, ground.on_disk()) if is_in(ground, path)}
    assert asked == found
    return found


@pytest.mark.parametrize("name", [".git", ".GIT", "git~1", ".git ", ".g\u200cit", ".editd-1-2"])
def test_some_names_are_never_in(ground: Ground, name: str) -> None:
    assert is_never_ours(os.fsencode(name))
    assert not is_in(ground, name)
    assert not is_in(ground, f"sub/{name}/a")


@pytest.mark.parametrize("name", [".gitignore", ".github", "git", "editd-1", "a.git", ".gitmodules"])
def test_names_like_them_are(ground: Ground, name: str) -> None:
    assert not is_never_ours(os.fsencode(name))
    assert is_in(ground, name)


def test_where_no_git_says_so_generated_folders_are_out(ground: Ground) -> None:
    ground.write({"src/a.py": "", "src/__pycache__/a.pyc": "", "web/node_modules/x/y.js": "", ".tox/f": ""})
    ground.write(
        {"env/pyvenv.cfg": "", "env/lib/b": "", "cache/CACHEDIR.TAG": "", "cache/c": "", ".venv/d": ""}
    )
    ground.write({"rust/Cargo.toml": "", "rust/target/e": "", "docs/target/f": "", "file/target": ""})
    kept = {"src/a.py", "rust/Cargo.toml", "docs/target/f", "file/target"}
    assert walked(ground) == kept


def test_what_editors_keep_beside_a_file_is_out_unless_git_tracks_it(ground: Ground) -> None:
    ground.write(dict.fromkeys(("a", "#a", "a.swp", ".swp", ".#a", "#a#", ".a.swp", "d/.b.swo", "4913"), ""))
    assert walked(ground) == {"a", "#a", "a.swp", ".swp"}
    ground.git("init", "-q")
    ground.git("add", "-f", ".a.swp")
    assert walked(ground) == {"a", "#a", "a.swp", ".swp", ".a.swp"}


def test_where_git_speaks_only_git_does(ground: Ground) -> None:
    ground.git("init", "-q")
    ground.write(
        {".gitignore": "*.o\n/out/\n", "node_modules/a": "", "x.o": "", "out/b": "", "sub/out/c": ""}
    )
    assert walked(ground) == {".gitignore", "node_modules/a", "sub/out/c"}


def test_rules_hold_for_files_that_are_not_there_yet(ground: Ground) -> None:
    ground.git("init", "-q")
    ground.write({".gitignore": "*.o\nbuild/\n"})
    assert is_in(ground, "new/folder/a.c")
    assert not is_in(ground, "new/folder/a.o")
    assert not is_in(ground, "build/a.c")


@pytest.mark.parametrize("version", [2, 3, 4])
def test_what_git_tracks_is_in_though_it_ignores_it(ground: Ground, version: int) -> None:
    ground.git("init", "-q")
    ground.write({".gitignore": "*.log\nbuild/\n", "a.log": "", "build/b": "", "build/x/c": "", "later": ""})
    ground.git("add", "-f", ".gitignore", "a.log", "build/x/c")
    if version == 3:
        ground.git("add", "-N", "later")
    ground.git("update-index", "--index-version", str(version))
    assert walked(ground) == {".gitignore", "a.log", "build/x/c", "later"}


def test_a_nested_repository_has_its_own_rules(ground: Ground) -> None:
    ground.git("init", "-q")
    ground.write(
        {".gitignore": "*.outer\nhidden/\n", "in/.gitignore": "*.inner\n", "in/a.outer": "", "in/b.inner": ""}
    )
    ground.git("init", "-q", at="in")
    ground.write({"hidden/c": "", "d.inner": ""})
    ground.git("init", "-q", at="hidden")
    assert walked(ground) == {".gitignore", "in/.gitignore", "in/a.outer", "d.inner"}


@pytest.mark.parametrize("folder", ["inner", "plain/folders/inner"])
def test_a_repository_around_the_workspace_has_its_rules_there(ground: Ground, folder: str) -> None:
    ground.git("init", "-q")
    ground.write({".gitignore": "*.log\n/inner/top\n", f"{folder}/a.log": "", f"{folder}/top": ""})
    scope = WorkspaceScope(str(ground.root / folder))
    assert not scope.is_in(WorkspacePath("a.log"))
    assert not scope.is_in(WorkspacePath("sub/b.log"))
    assert scope.is_in(WorkspacePath("a.py"))
    assert scope.is_in(WorkspacePath("top")) == (folder != "inner")


def test_a_broken_nested_repository_leaves_the_outer_ones_rules(ground: Ground) -> None:
    ground.git("init", "-q")
    ground.write({".gitignore": "*.o\n", "in/.git": "gitdir: /nowhere\n", "in/a.o": "", "in/b": ""})
    assert walked(ground) == {".gitignore", "in/b"}


def test_names_that_are_not_utf8_are_matched_too(ground: Ground) -> None:
    ground.git("init", "-q")
    ground.write(
        {b".gitignore": "*.log\n", b"\xff.log": "", b"\xff.txt": "", b"\xfe/a.log": "", b"\xfe/b": ""}
    )
    assert walked(ground) == {".gitignore", os.fsdecode(b"\xff.txt"), os.fsdecode(b"\xfe/b")}


def test_a_work_tree_that_is_configured_elsewhere_is_not_ours(ground: Ground) -> None:
    ground.git("init", "-q")
    ground.git("config", "core.worktree", str(ground.home))
    ground.write({".gitignore": "a\n", "a": "", "node_modules/b": ""})
    assert walked(ground) == {".gitignore", "a"}


def test_deep_in_the_tree_the_rules_are_gits_too(ground: Ground) -> None:
    deep = "/".join(["d"] * (DEEP_NAMES + 2))
    ground.git("init", "-q")
    ground.git("config", "core.excludesFile", str(ground.folder / "everywhere"))
    (ground.folder / "everywhere").write_text("everywhere\n")
    (ground.root / ".git" / "info" / "exclude").write_text("excluded\n!brought-back\n")
    ground.write({".gitignore": f"*.o\nbuild/\n/{deep}/anchored\nd/anchored-not\n# comment\n"})
    ground.write({f"{deep}/.gitignore": "!keep.o\n/here\nlocal/**/x\n"})
    names = ["a.o", "keep.o", "build/a", "anchored", "anchored-not", "everywhere", "excluded", "here",
             "below/here", "local/x", "local/m/x", "local/m/y", "plain", "build.txt"]  # fmt: skip
    ground.write({f"{deep}/{name}": name for name in names})
    ignored = {name for name in names if git_ignores(ground, f"{deep}/{name}")}
    found = walked(ground)
    assert {name for name in names if f"{deep}/{name}" not in found} == ignored
    assert {"a.o", "build/a", "anchored", "local/m/x"} <= ignored


def git_ignores(ground: Ground, path: str) -> bool:
    argv = ["git", "-C", str(ground.root), "check-ignore", "-q", path]
    return subprocess.run(argv, env=ground.environment, check=False).returncode == 0
