"""trial: a command sees the proposed files, and nothing that it does reaches the workspace."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from editd_client.trial import ProposedContent, TooMuchToCopy, Trial, copy_workspace, run_trial

if TYPE_CHECKING:
    from pathlib import Path

FILES = [
    ProposedContent("a.txt", b"proposed\n", "100644"),
    ProposedContent("new/run", b"#!/bin/sh\necho ran\n", "100755"),
    ProposedContent("gone", None),
    ProposedContent("link", b"a.txt", "120000"),
]
LOOK = """
set -e
cat a.txt; new/run; cat link; test ! -e gone; cat kept
echo written >a.txt; rm kept; mkdir made; echo x >made/y; id -u
"""
SEEN = f"proposed\nran\nproposed\nkept\n{os.getuid()}\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "work, space:with\\odd name"
    made.mkdir()
    for name in ("a.txt", "gone", "kept", "ignored"):
        (made / name).write_text(f"{name}\n")
    (made / ".gitignore").write_text("ignored\n")
    subprocess.run(["git", "init", "-q", made], check=True)
    return made


def files_below(root: Path) -> dict[str, str]:
    return {
        str(path.relative_to(root)): path.read_text()
        for path in root.rglob("*")
        if path.is_file() and ".git" not in path.parts
    }


@pytest.fixture(params=["overlay", "copy"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    if request.param == "copy":
        forbid_overlays(monkeypatch, tmp_path)
    return str(request.param)


def forbid_overlays(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Have the process that would enter an overlay end at once. The one that copies runs as always."""
    program = folder / "python"
    real = shlex.quote(sys.executable)
    program.write_text(f'#!/bin/sh\ncase "$4" in overlay) exit 1;; esac\nexec {real} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))


def trial(root: Path, way: str, *command: str) -> Trial:
    done = run_trial(str(root), FILES, command)
    if way == "overlay" and done.way != "overlay":
        pytest.skip("no overlay in a user namespace here")
    assert done.way == way
    return done


def test_a_command_sees_the_proposed_files_and_changes_nothing(root: Path, way: str) -> None:
    before = files_below(root)
    done = trial(root, way, "sh", "-c", LOOK)
    assert (done.exit, done.output) == (0, SEEN)
    assert files_below(root) == before


def test_its_exit_status_is_that_of_a_shell(root: Path, way: str) -> None:
    assert trial(root, way, "sh", "-c", "exit 3").exit == 3
    assert trial(root, way, "sh", "-c", "kill -9 $$").exit == 137
    missing = trial(root, way, "no-such-program")
    assert (missing.exit, missing.output) == (127, "no-such-program: not found\n")
    assert trial(root, way, str(root)).exit == 126


def test_only_the_end_of_much_output_is_kept(root: Path, way: str) -> None:
    done = trial(root, way, "sh", "-c", "seq 100000")
    assert len(done.output) == 4000
    assert done.output.endswith("99999\n100000\n")


def test_it_runs_where_the_caller_is(root: Path, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "below").mkdir()
    (root / "below" / "kept").write_text("1")
    monkeypatch.chdir(root / "below")
    assert trial(root, way, "cat", "../a.txt", "kept").output == "proposed\n1"


def test_an_overlay_shows_ignored_files_too(root: Path) -> None:
    assert trial(root, "overlay", "cat", "ignored").output == "ignored\n"


def test_a_copy_has_what_git_does_not_ignore(root: Path, tmp_path: Path) -> None:
    (root / "to").symlink_to("kept")
    (root / "kept").chmod(0o755)
    copy_workspace(str(root), str(tmp_path / "copy"), FILES)
    assert set(files_below(tmp_path / "copy")) == {".gitignore", "a.txt", "kept", "link", "new/run", "to"}
    assert (tmp_path / "copy" / "a.txt").read_text() == "proposed\n"
    assert (tmp_path / "copy" / "to").is_symlink()
    assert os.access(tmp_path / "copy" / "kept", os.X_OK)


def test_a_copy_of_a_folder_without_git_has_all_files(tmp_path: Path) -> None:
    (tmp_path / "plain" / "sub").mkdir(parents=True)
    (tmp_path / "plain" / "sub" / "x").write_text("1")
    (tmp_path / "plain" / "link").symlink_to("sub")
    copy_workspace(str(tmp_path / "plain"), str(tmp_path / "copy"), [])
    assert files_below(tmp_path / "copy") == {"sub/x": "1"}
    assert (tmp_path / "copy" / "link").is_symlink()


def test_a_copy_does_not_go_into_a_folder_with_files(root: Path) -> None:
    with pytest.raises(FileExistsError):
        copy_workspace(str(root), str(root), FILES)
    assert (root / "a.txt").read_text() == "a.txt\n"


def test_a_workspace_that_is_too_large_is_not_copied(root: Path, tmp_path: Path) -> None:
    os.truncate(root / "kept", 4 * 1024**3 + 1)  # a hole, which takes no space
    with pytest.raises(TooMuchToCopy):
        copy_workspace(str(root), str(tmp_path / "copy"), FILES)
