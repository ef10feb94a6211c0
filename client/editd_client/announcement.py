"""The address of a running `editctl web`, for other programs of the user.

A file in the workspace's state folder has it, without the token: with the address alone, only a
browser that has been there before gets in. The running server holds a lock on the file, so a file that a
killed server has left is not mistaken for a server.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME = "web"  # the file in the state folder
ADDRESS_BYTES_MAX = 200
LOCK_TRIES = 10
LOCK_AGAIN_SECONDS = 0.02


@contextlib.contextmanager
def announced(state_folder: str, address: str) -> Iterator[None]:
    """Announce the address during the block. Of two servers for a workspace, the first stays announced."""
    path = os.path.join(state_folder, NAME)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        if not _is_locked(descriptor):
            yield
            return
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, address.encode(), 0)
        try:
            yield
        finally:
            os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def _is_locked(descriptor: int) -> bool:
    """Lock the file. A reader has the lock for a moment, another server for long."""
    for _ in range(LOCK_TRIES):
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        time.sleep(LOCK_AGAIN_SECONDS)
    return False


def web_address(state_folder: str) -> str | None:
    """Return the address of the workspace's running page, such as `http://127.0.0.1:4711`, or None."""
    try:
        descriptor = os.open(os.path.join(state_folder, NAME), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.read(descriptor, ADDRESS_BYTES_MAX).decode("ascii", "replace") or None
    finally:
        os.close(descriptor)
    return None  # no process holds it
