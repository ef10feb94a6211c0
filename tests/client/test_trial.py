"""trial: a command sees the proposed files, and nothing that it does reaches the workspace."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from editd_client.trial import (
    NoOverlay,
    ProposedContent,
    TooMuchToCopy,
    Trial,
    copy_workspace,
    run_in_overlay,
    run_trial,
)

if TYPE_CHECKING:
    from collections.abc import Callable

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
WITHOUT_OVERLAY = """#!/bin/sh
if [ "$4" = run ]; then ways=copy; shift 5; set -- -P -m editd.runs.trial_worker run "$ways" "$@"; fi
exec {} "$@"
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
    """Have the process that would try an overlay first begin with a copy."""
    program = folder / "python"
    program.write_text(WITHOUT_OVERLAY.format(shlex.quote(sys.executable)))
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


LEAVES = """
setsid sh -c 'echo $$ >{note}; exec sleep 600' &
while [ ! -s {note} ]; do sleep 0.02; done
"""


def is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return stat.rpartition(b")")[2].split()[0] != b"Z"


def eventually(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < until, "it does not come about"
        time.sleep(0.02)


@pytest.mark.needs("/proc")
def test_no_process_of_a_command_outlives_it(root: Path, way: str, tmp_path: Path) -> None:
    """Its overlay would stay open, unlocked, while the daemon reuses replaced files."""
    note = tmp_path / "note"
    assert trial(root, way, "sh", "-c", LEAVES.format(note=note)).exit == 0
    assert not is_alive(int(note.read_text()))


@pytest.mark.needs("/proc")
def test_no_process_of_an_isolated_command_outlives_it(root: Path, tmp_path: Path) -> None:
    note, scratch = tmp_path / "note", tmp_path / "scratch"
    scratch.mkdir()
    try:
        status = run_in_overlay(str(root), str(scratch), ["sh", "-c", LEAVES.format(note=note)])
    except NoOverlay:
        pytest.skip("no overlay in a user namespace here")
    assert status == 0
    assert not is_alive(int(note.read_text()))


CLIENT = """
import os, sys
from editd_client.trial import NoOverlay, run_in_overlay, run_trial
root, scratch, command = sys.argv[1], sys.argv[2], ["sh", "-c", sys.argv[3]]
try:
    run_in_overlay(root, scratch, command) if scratch else run_trial(root, [], command)
except NoOverlay:
    os._exit(99)
"""


@pytest.mark.needs("/proc")
@pytest.mark.parametrize("is_isolated", [False, True])
def test_a_killed_client_leaves_no_process_and_no_folder_but_the_work_of_an_isolated_command(
    root: Path, tmp_path: Path, is_isolated: bool
) -> None:
    note, temporary, scratch = tmp_path / "note", tmp_path / "temporary", tmp_path / "scratch"
    temporary.mkdir()
    scratch.mkdir()
    command = f"echo mine >made; {LEAVES.format(note=note)} sleep 600"
    argv = [sys.executable, "-c", CLIENT, str(root), str(scratch) if is_isolated else "", command]
    with subprocess.Popen(argv, env=os.environ | {"TMPDIR": str(temporary)}, cwd=root) as client:
        eventually(lambda: client.poll() is not None or (note.exists() and note.read_text() != ""))
        if client.poll() == 99:
            pytest.skip("no overlay in a user namespace here")
        assert len(os.listdir(temporary)) == (0 if is_isolated else 1)
        client.kill()
    eventually(lambda: not is_alive(int(note.read_text())))
    eventually(lambda: os.listdir(temporary) == [])
    assert not (root / "made").exists()
    assert (scratch / "upper" / "made").exists() is is_isolated


@pytest.mark.needs("/proc")
def test_a_command_ends_once_no_one_reads_its_output(root: Path, tmp_path: Path) -> None:
    """As a command from the page does if the server is killed."""
    note, temporary = tmp_path / "note", tmp_path / "temporary"
    temporary.mkdir()
    argv = [sys.executable, "-c", CLIENT, str(root), "", f"{LEAVES.format(note=note)} sleep 600"]
    environment = os.environ | {"TMPDIR": str(temporary)}
    with subprocess.Popen(
        argv, env=environment, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as client:
        eventually(lambda: note.exists() and note.read_text() != "")
        assert client.stdout is not None
        client.stdout.close()
        assert client.wait(30) != 0
    assert not is_alive(int(note.read_text()))
    assert os.listdir(temporary) == []
