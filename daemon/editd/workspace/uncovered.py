"""Which files the baseline left out for its budget: they are nobody's until an edit touches them."""

from __future__ import annotations

import os

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
    path = os.path.join(folder, _NAME)
    descriptor = os.open(path + ".tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(b"\0".join(sorted(paths)))
        file.flush()
        os.fsync(file.fileno())
    os.rename(path + ".tmp", path)
