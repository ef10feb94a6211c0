"""trial_tree: what is not proposed is as it was, and a link leads no write out of the tree."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from editd.workspace import trial_tree
from editd.workspace.trial_tree import TrialFile, copy_workspace, remove_tree, write_files


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


ALONE = """
import codecs, ctypes, os, socket, sys
codecs.lookup("ascii"), codecs.lookup("idna")  # before the files of Python are out of reach
sys.path.insert(0, sys.argv[1])
from editd.workspace.trial_tree import can_leave_network, leave_network
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE: otherwise its files in /proc are root's
user = os.getuid()
if not can_leave_network():
    sys.exit("not here")
leave_network()
assert os.getuid() == user
with socket.create_server(("127.0.0.1", 0)) as own:
    socket.create_connection(own.getsockname(), 5).close()
try:
    socket.create_connection(("127.0.0.1", int(sys.argv[2])), 5)
except ConnectionRefusedError:
    print("alone")
"""


@pytest.mark.needs("/proc")
def test_a_process_without_a_privilege_leaves_the_network_and_keeps_its_user_and_a_loopback() -> None:
    folder = str(Path(trial_tree.__file__).parents[2])
    with socket.create_server(("127.0.0.1", 0)) as listener:
        argv = [sys.executable, "-I", "-c", ALONE, folder, str(listener.getsockname()[1])]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd="/")
    if done.stderr == "not here\n":
        pytest.skip("this system lets no process have a network of its own")
    assert (done.stdout, done.stderr) == ("alone\n", "")
