"""system.overlay_lock: an overlay is open until each process that holds its folder has ended."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from editd.system.overlay_lock import has_overlay, lock_overlay

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.needs("leases")  # Linux, as the lock of an open file

HOLDER = """
import sys
from editd.system.overlay_lock import lock_overlay
lock_overlay(int(sys.argv[1]))
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def asking(tmp_path: Path) -> Iterator[int]:
    """Yield a descriptor of the folder that asks for locks."""
    descriptor = os.open(tmp_path, os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


def test_a_folder_is_locked_until_its_descriptor_is_closed(tmp_path: Path, asking: int) -> None:
    first, second = (os.open(tmp_path, os.O_RDONLY) for _ in range(2))
    assert not has_overlay(asking)
    lock_overlay(first)
    lock_overlay(second)
    os.close(first)
    assert has_overlay(asking)
    os.close(second)
    assert not has_overlay(asking)


def test_a_killed_process_holds_it_no_more_and_its_caller_still_does(tmp_path: Path, asking: int) -> None:
    held = os.open(tmp_path, os.O_RDONLY)
    argv = [sys.executable, "-c", HOLDER, str(held)]
    with subprocess.Popen(argv, pass_fds=[held], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        holder.kill()
        holder.wait()
    assert has_overlay(asking)
    os.close(held)
    assert not has_overlay(asking)


def test_a_descriptor_that_cannot_ask_counts_as_an_overlay(asking: int) -> None:
    closed = os.dup(asking)
    os.close(closed)
    assert has_overlay(closed)
