"""The end of a daemon that was asked for it, waited for by what it is, not by what it was called."""

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

LOOK_SECONDS = 0.01  # between two looks where the kernel has no descriptor for a process
END_SECONDS_MAX = 60.0  # what is under way may be a large transaction, or a repair, on a slow disk


@contextmanager
def wait_for_exit(pid: int) -> Iterator[Callable[[], None]]:
    """What waits for that process to end, which raises Unreachable where it does not.

    To be entered before it is asked to end: from there on the pid is that daemon's, whatever comes after.
    """
    descriptor = _descriptor_of(pid)

    def wait() -> None:
        has_ended = _has_ended_soon(pid) if descriptor is None else _is_readable(descriptor)
        if not has_ended:
            raise Unreachable(f"The daemon (pid {pid}) has not ended in {END_SECONDS_MAX:.0f} s.")

    try:
        yield wait
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _descriptor_of(pid: int) -> int | None:
    """A pidfd; None where the kernel has none, as gVisor, or a sandbox does not let us have one."""
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
    """Look for the process by its number, which is not used again so soon."""
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
    """Whether it has ended, and nobody has taken note of it yet."""
    with suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()[:1] == [b"Z"]
    return False
