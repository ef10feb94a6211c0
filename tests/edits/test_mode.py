"""Tests of `edits.mode`."""

from __future__ import annotations

from editd.edits.mode import with_mode
from editd.values.content import EXECUTABLE, FILE, SYMLINK, FileState


def test_executable_means_x_where_r_is_and_other_bits_are_kept() -> None:
    state = with_mode(FileState(b"x", FILE, 0o2640), EXECUTABLE)
    assert (state.mode, state.permissions) == (EXECUTABLE, 0o2750)
    assert with_mode(state, FILE).permissions == 0o2640


def test_the_same_mode_is_the_same_state() -> None:
    state = FileState(b"x", EXECUTABLE, 0o700)
    assert with_mode(state, EXECUTABLE) is state


def test_a_link_has_no_permissions() -> None:
    assert with_mode(FileState(b"x", FILE, 0o644), SYMLINK).permissions is None
    assert with_mode(FileState(b"x"), EXECUTABLE).permissions is None
