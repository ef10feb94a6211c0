"""Which files the baseline left out for its budget: they are nobody's until an edit touches them."""

from __future__ import annotations

import os

from editd.system.atomic_file import replace_file_durably

_NAME = "uncovered"


def load_uncovered(folder: str) -> frozenset[bytes]:
    """The paths that are kept in the state folder `folder`."""
    try:
        with open(os.path.join(folder, _NAME), "rb") as file:
            return frozenset(file.read().split(b"\0")) - {b""}
    except FileNotFoundError:
        return frozenset()


def save_uncovered(folder: str, paths: frozenset[bytes]) -> None:
    """Keep them, durably: a file that was left out must not come in as somebody's new one. Raises OSError."""
    replace_file_durably(os.path.join(folder, _NAME), b"\0".join(sorted(paths)))
