"""The head: the ref that names the newest packed transaction, moved durably and by nobody else.

A plain loose ref, `refs/heads/history`, so that `git log` in the store just works.
"""

from __future__ import annotations

import os

REF = "refs/heads/history"


def read_head(store: str) -> bytes | None:
    """The id of the commit that the ref names (20 bytes), or None where there is no history yet."""
    try:
        with open(os.path.join(store, REF), "rb") as file:
            return bytes.fromhex(file.read().decode("ascii").strip())
    except FileNotFoundError:
        return None


def move_head(store: str, commit: bytes) -> None:
    """Make the ref name `commit`, whose objects are durable already; durable on return."""
    path = os.path.join(store, REF)
    folder = os.path.dirname(path)
    os.makedirs(folder, 0o700, exist_ok=True)
    temporary = path + ".lock"  # git's own name for it, so that git would wait for us
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, commit.hex().encode("ascii") + b"\n")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.rename(temporary, path)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
