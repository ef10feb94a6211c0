"""system.files: one daemon for each workspace."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from editd.system import flock

if TYPE_CHECKING:
    from pathlib import Path


def test_what_one_has_taken_another_is_refused_until_it_is_released(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    first = flock.take(path)
    assert first is not None
    assert flock.take(path) is None
    first.release()
    first.release()
    second = flock.take(path)
    assert second is not None
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


def test_an_execed_child_does_not_keep_it(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    taken = flock.take(path)
    assert taken is not None
    argv = [sys.executable, "-c", "print('up', flush=True); input()"]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, close_fds=False) as child:
        assert child.stdout is not None
        child.stdout.readline()  # exec closes descriptors a moment after it has let the parent go on
        taken.release()
        assert flock.take(path) is not None
        child.communicate(b"\n")


def test_it_ends_with_the_process_that_took_it(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    program = f"from editd.system import flock; t = flock.take({path!r}); print('taken', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"taken\n"
        assert flock.take(path) is None
        child.kill()
        child.wait()
    assert flock.take(path) is not None


def test_a_symlink_in_its_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        flock.take(str(tmp_path / "lock"))
    assert not (tmp_path / "elsewhere").exists()
