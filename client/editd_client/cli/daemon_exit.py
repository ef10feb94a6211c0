"""Waiting for the exit of a daemon, by its process and not by its name or socket."""

from __future__ import annotations

import errno
import os
import select
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from editd_client.errors import Unreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LOOK_SECONDS = 0.01  # between two checks, if the kernel has no pidfd
END_SECONDS_MAX = 60.0  # a large transaction, or a repair, on a slow disk may be running


@contextmanager
def wait_for_exit(pid: int) -> Iterator[Callable[[], None]]:
    """Yield a function that waits for the exit of that process, and raises Unreachable after a minute.

    Enter it before the request to exit: the pidfd then refers to this daemon even if the pid is reused.
    """
    descriptor = _descriptor_of(pid)

    def wait() -> None:
        has_ended = _has_ended_soon(pid) if descriptor is None else _is_readable(descriptor)
        if not has_ended:
            raise Unreachable(f"The daemon (pid {pid}) did not exit within {END_SECONDS_MAX:.0f} s.")

    try:
        yield wait
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _descriptor_of(pid: int) -> int | None:
    """Return a pidfd, or None if the kernel (gVisor) has none or a sandbox forbids it."""
    try:
        return os.pidfd_open(pid)
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.EPERM, errno.EACCES):
            raise
        return None


def _is_readable(descriptor: int) -> bool:
    gone = select.poll()  # not select(2), which takes no descriptor beyond 1023
    gone.register(descriptor, select.POLLIN)
    return bool(gone.poll(END_SECONDS_MAX * 1000))


def _has_ended_soon(pid: int) -> bool:
    """Poll for the process by its pid, which the kernel does not reuse that soon."""
    until = time.monotonic() + END_SECONDS_MAX
    while time.monotonic() < until:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        if _is_zombie(pid):
            return True
        time.sleep(LOOK_SECONDS)
    return False


def _is_zombie(pid: int) -> bool:
    """Whether the process has exited, but its parent has not collected its status yet."""
    with suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()[:1] == [b"Z"]
    return False
