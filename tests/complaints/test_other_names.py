"""What people complain of when a tool replaces a file that others reach by another name.

The numbers are of public issues: repository and number. `in_place` is the way out of each.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from editd_client.errors import PermissionDenied
from support.reviewers import configure
from support.workplace import write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.workplace import Workplace

OUTSIDE = "outside.conf"


@contextlib.contextmanager
def bound(source: Path, target: Path) -> Iterator[None]:
    """Mount one file over another."""
    target.touch()
    if os.geteuid() or subprocess.run(["mount", "--bind", source, target], check=False).returncode:
        pytest.skip("no mounting here")
    try:
        yield
    finally:
        subprocess.run(["umount", target], check=True)


def test_a_file_that_is_itself_a_mount_is_refused_with_that_reason(place: Workplace, tmp_path: Path) -> None:
    """moby/moby #22627: in a container, `sed -i` of a mounted file ends with "Device or resource busy"."""
    (tmp_path / OUTSIDE).write_text("1\n")
    with bound(tmp_path / OUTSIDE, place.root / "conf"), place.start() as client:
        with pytest.raises(PermissionDenied, match="conf is itself a mount") as refusal:
            client.apply([write("conf", "2\n", force=True)])
        assert "in_place" in refusal.value.hint
        assert (tmp_path / OUTSIDE).read_text() == "1\n"
        place.stop()


def test_a_named_file_that_is_itself_a_mount_is_edited_and_undone(place: Workplace, tmp_path: Path) -> None:
    (tmp_path / OUTSIDE).write_text("1\n")
    configure(place, 'in_place = ["conf"]\n')
    with bound(tmp_path / OUTSIDE, place.root / "conf"), place.start() as client:
        client.apply([write("conf", "two\n", force=True)])
        assert (tmp_path / OUTSIDE).read_text() == "two\n"
        client.undo()
        assert (tmp_path / OUTSIDE).read_text() == "1\n"
        place.stop()


def test_a_named_file_that_is_mounted_alone_elsewhere_shows_the_edit_there(
    place: Workplace, tmp_path: Path
) -> None:
    """anthropics/claude-code #25438, moby/moby #15793: a container keeps the old content after an edit."""
    place.write({"conf": "1\n", "plain": "1\n"})
    configure(place, 'in_place = ["conf"]\n')
    with (
        bound(place.root / "conf", tmp_path / "conf"),
        bound(place.root / "plain", tmp_path / "plain"),
        place.start() as client,
    ):
        client.apply([write("conf", "2\n", force=True), write("plain", "2\n", force=True)])
        assert (tmp_path / "conf").read_text() == "2\n"
        assert (tmp_path / "plain").read_text() == "1\n"
        assert [line for line in client.status().weaker if line.startswith("conf: such a file is written in")]
        place.stop()


def test_a_named_file_with_several_names_is_edited_under_all_of_them(place: Workplace) -> None:
    """anthropics/claude-code #31290: an edit breaks the hard link, and nothing says so."""
    place.write({"a": "1\n", "plain": "1\n"})
    os.link(place.root / "a", place.root / "b")
    os.link(place.root / "plain", place.root / "other")
    configure(place, 'in_place = ["a"]\n')
    with place.start() as client:
        client.settle()
        client.apply([write("a", "2\n", force=True)])
        client.settle()
        assert client.read("b", at=client.status().head).content == "2\n"
        with pytest.raises(PermissionDenied, match="plain is hard-linked") as refusal:
            client.apply([write("plain", "2\n", force=True)])
        assert "in_place" in refusal.value.hint
