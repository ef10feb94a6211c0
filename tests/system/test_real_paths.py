"""real_paths: links and mounts hide no folder, and no path leads through another process."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from editd.system.native import NATIVE
from editd.system.real_paths import ThroughProcess, is_within, real_path

has_proc = pytest.mark.skipif(not os.path.isdir(NATIVE.proc), reason="without /proc")


def test_a_path_is_resolved_as_the_kernel_does(tmp_path: Path) -> None:
    top = tmp_path.resolve()
    (top / "a/b").mkdir(parents=True)
    (top / "link").symlink_to("a/b")
    (top / "far").symlink_to(top / "link")
    for path in ("a/b", "link", "far", "link/..", "far/../b/.", "a//b/", "missing/x", "link/missing"):
        assert real_path(f"{top}/{path}") == os.path.realpath(top / path), path


def test_a_circle_of_links_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "one").symlink_to("other")
    (tmp_path / "other").symlink_to("one")
    with pytest.raises(OSError, match="symbolic links"):
        real_path(str(tmp_path / "one"))


@has_proc
@pytest.mark.parametrize("path", ["/proc/self/root/etc", "/dev/fd/0", "/proc/1/cwd", "/tmp/../proc/self/exe"])
def test_no_path_leads_through_a_process(path: str) -> None:
    with pytest.raises(ThroughProcess):
        real_path(path)


@has_proc
def test_a_link_into_a_process_is_one_too(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(f"/proc/{os.getpid()}/root{tmp_path}")
    with pytest.raises(ThroughProcess):
        real_path(str(tmp_path / "link/x"))


def test_a_folder_has_what_is_in_it_by_any_name(tmp_path: Path) -> None:
    top = tmp_path.resolve()
    folder, other = top / "folder", top / "folder-2"
    (folder / "a/b").mkdir(parents=True)
    other.mkdir()
    for path, expected in ((folder, True), (folder / "a/b", True), (folder / "new", True), (other, False)):
        assert is_within(str(path), str(folder)) is expected
    assert is_within(str(top), str(folder)) is False
    (top / "name").symlink_to(folder)
    assert is_within(str(folder / "a"), str(top / "name")), "the folder itself may be named by a link"


BIND = """
mount --bind "$1/folder" "$1/whole" && mount --bind "$1/folder/a" "$1/part"
exec "$2" -c 'import sys; from editd.system.real_paths import is_within
top, names = sys.argv[1], ("whole/a", "part/b", "part", "other/b")
print([is_within(f"{top}/{name}", f"{top}/folder") for name in names])' "$1"
"""


def test_a_folder_that_is_mounted_elsewhere_is_known(tmp_path: Path) -> None:
    top = tmp_path.resolve()
    for name in ("folder/a/b", "whole", "part", "other/b"):
        (top / name).mkdir(parents=True)
    python = Path(__file__).resolve().parents[2] / ".venv/bin/python"
    done = subprocess.run(
        ["unshare", "--mount", "--map-root-user", "sh", "-c", BIND, "sh", str(top), str(python)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        pytest.skip(f"no mounts here: {done.stderr}")
    assert done.stdout.strip() == "[True, True, True, False]"


OVERLAY = """
layers="lowerdir=$1/folder/a:$1/other,upperdir=$1/up,workdir=$1/work"
mount -t overlay overlay -o "$layers" "$1/merged"
mount -t overlay overlay -o "lowerdir=$1/merged/b:$1/other" "$1/twice"
exec "$2" -c 'import sys; from editd.system.real_paths import is_within
top = sys.argv[1]
pairs = [("merged/b", "folder"), ("twice/c", "folder"), ("merged/b", "up"), ("up", "merged"),
         ("other", "folder"), ("merged/b", "elsewhere")]
print([is_within(f"{top}/{path}", f"{top}/{folder}") for path, folder in pairs])' "$1"
"""


def test_a_folder_that_is_a_layer_of_an_overlay_is_known(tmp_path: Path) -> None:
    top = tmp_path.resolve()
    for name in ("folder/a/b/c", "other", "up", "work", "merged", "twice", "elsewhere"):
        (top / name).mkdir(parents=True)
    python = Path(__file__).resolve().parents[2] / ".venv/bin/python"
    done = subprocess.run(
        ["unshare", "--mount", "--map-root-user", "sh", "-c", OVERLAY, "sh", str(top), str(python)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode or done.stderr:
        pytest.skip(f"no overlays here: {done.stderr}")
    assert done.stdout.strip() == "[True, True, True, True, False, False]"
