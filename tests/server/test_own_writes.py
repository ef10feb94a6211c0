"""server.own_writes: a notice of our own write needs no look, and any other does."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from editd.server.own_writes import OwnWrites

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def own(tmp_path: Path) -> OwnWrites:
    """Return the writes after one of our own, at `a`."""
    (tmp_path / "a").write_text("ours\n")
    known = OwnWrites(os.fsencode(tmp_path))
    note(known, 1)
    return known


def note(own: OwnWrites, moves: int) -> None:
    """Do as `WorkspaceWatcher.recorded`."""
    own.by_path[b"a"] = time.monotonic(), moves, os.lstat(os.path.join(own.root, b"a"))


def replaced(path: Path) -> None:
    (path.parent / "other").write_text("ours\n")
    os.replace(path.parent / "other", path)


def longer(path: Path) -> None:
    with path.open("a") as file:
        file.write("theirs\n")


def test_our_own_move_is_known_once(own: OwnWrites) -> None:
    assert own.is_own(b"a", 1)
    assert not own.is_own(b"a", 1)


def test_several_moves_are_counted(own: OwnWrites) -> None:
    note(own, 2)
    assert own.is_own(b"a", 2)
    note(own, 1)
    assert not own.is_own(b"a", 2)


@pytest.mark.parametrize("change", [replaced, longer, os.unlink])
def test_a_file_that_another_program_changed_is_not_ours(
    own: OwnWrites, tmp_path: Path, change: Callable[[Path], object]
) -> None:
    change(tmp_path / "a")
    assert not own.is_own(b"a", 1)


def test_other_paths_and_files_that_were_not_looked_at_are_not_ours(own: OwnWrites) -> None:
    assert not own.is_own(b"b", 1)
    own.by_path[b"a"] = time.monotonic(), 1, None
    assert not own.is_own(b"a", 1)


def test_ignore_rules_are_always_looked_at(own: OwnWrites, tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("a\n")
    own.by_path[b".gitignore"] = time.monotonic(), 1, os.lstat(tmp_path / ".gitignore")
    assert not own.is_own(b".gitignore", 1)


def test_old_writes_are_forgotten(own: OwnWrites) -> None:
    at, moves, status = own.by_path[b"a"]
    own.by_path[b"old"] = at - 1000.0, moves, status
    own.forget_old()
    assert own.by_path.keys() == {b"a"}
