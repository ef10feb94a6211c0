"""The paths that the baseline left out because of its budget: not recorded until an edit touches them."""

from __future__ import annotations

import os

from editd.system.files import replace_file_durably

_UNCAPTURED_FILE = "uncovered"


def load_uncovered(folder: str) -> frozenset[bytes]:
    """Return the paths saved in the state folder `folder`."""
    try:
        with open(os.path.join(folder, _UNCAPTURED_FILE), "rb") as file:
            return frozenset(file.read().split(b"\0")) - {b""}
    except FileNotFoundError:
        return frozenset()


def save_uncovered(folder: str, paths: frozenset[bytes]) -> None:
    """Save the paths durably, so that such a file is never recorded as newly created. Raises OSError."""
    replace_file_durably(os.path.join(folder, _UNCAPTURED_FILE), b"\0".join(sorted(paths)))
