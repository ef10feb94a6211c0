"""The head: the ref that names the newest packed transaction, moved durably, by the packing process alone.

A plain loose ref, `refs/heads/history`, so that `git log` in the store just works.
"""

from __future__ import annotations

import os

from editd.errors import HistoryDamaged
from editd.system.atomic_file import replace_file_durably

REF = "refs/heads/history"
_LINE_BYTES = 41  # 40 hex digits and the end of the line


def read_head(store: str) -> bytes | None:
    """Return the id of the commit that the ref names (20 bytes), or None before the first commit.

    Raises HistoryDamaged for any other content.
    """
    path = os.path.join(store, REF)
    try:
        with open(path, "rb") as file:
            content = file.read(_LINE_BYTES + 1)
    except FileNotFoundError:
        return None
    line = content.removesuffix(b"\n")
    if len(content) != _LINE_BYTES or not set(line) <= set(b"0123456789abcdef"):
        raise HistoryDamaged(
            f"The history is damaged: {path} holds no commit's id.",
            hint="No transaction is lost by this. `editctl check --repair` finds the newest one.",
            data={"file": path},
        )
    return bytes.fromhex(line.decode("ascii"))


def move_head(store: str, commit: bytes) -> None:
    """Make the ref name `commit`, whose objects are durable already; durable on return."""
    path = os.path.join(store, REF)
    folder = os.path.dirname(path)
    os.makedirs(folder, 0o700, exist_ok=True)
    # The temporary is git's own lock file, so that git waits for it.
    replace_file_durably(path, commit.hex().encode("ascii") + b"\n", temporary=".lock")
