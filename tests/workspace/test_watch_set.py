"""Which folders are watched."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from editd.workspace import watch_set
from editd.workspace.watch_set import WatchSet

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def git(place: Path, *argv: str) -> None:
    subprocess.run(["git", "-C", place, *argv], check=True, capture_output=True)


def make(root: Path, *folders: str) -> None:
    for folder in folders:
        (root / folder).mkdir(parents=True)


def test_ignored_folders_are_left_out_but_those_with_tracked_files(tmp_path: Path) -> None:
    make(tmp_path, "src/in", "build/deep", "build/kept", "nested/out")
    (tmp_path / ".gitignore").write_text("build/\n")
    (tmp_path / "build/kept/file").touch()
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-f", "build/kept/file")
    git(tmp_path / "nested", "init", "-q")
    (tmp_path / "nested/.gitignore").write_text("out\n")
    here = WatchSet(str(tmp_path))
    for folder in (b"", b"src", b"src/in", b"build", b"build/kept", b"nested"):
        assert here.has(folder), folder
    for folder in (b"build/deep", b"nested/out", b".git", b"src/.git"):
        assert not here.has(folder), folder


def test_without_git_what_is_generated_is_left_out_whole(tmp_path: Path) -> None:
    make(tmp_path, "node_modules/package/lib", "src")
    here = WatchSet(str(tmp_path))
    assert here.has(b"src")
    assert not here.has(b"node_modules")
    assert not here.has(b"node_modules/package/lib")


def test_what_is_known_is_covered_with_all_above_it_and_nothing_else(tmp_path: Path) -> None:
    make(tmp_path, "node_modules/package/lib", "node_modules/other")
    here = WatchSet(str(tmp_path))
    assert here.add([b"node_modules/package"]) == {b"node_modules"}
    assert here.has(b"node_modules")
    assert here.has(b"node_modules/package")
    assert not here.has(b"node_modules/package/lib")
    assert not here.has(b"node_modules/other")
    assert here.add([b"node_modules/package"]) == set()
    assert here.add([b"node_modules/package/lib", b"node_modules"]) == {b"node_modules/package/lib"}


def test_the_rules_are_read_again_after_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, "out")
    git(tmp_path, "init", "-q")
    here = WatchSet(str(tmp_path))
    assert here.has(b"out")
    (tmp_path / ".gitignore").write_text("out\n")
    monkeypatch.setattr(watch_set, "FRESH_SECONDS", 0.0)
    assert not here.has(b"out")
