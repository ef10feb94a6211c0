"""The end of a daemon that was asked for it, waited for by what it is, not by what it was called."""

from __future__ import annotations

import os
import select
from contextlib import contextmanager
from typing import TYPE_CHECKING

from editd_client.errors import Unreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

END_SECONDS_MAX = 60.0  # what is under way may be a large transaction, or a repair, on a slow disk


@contextmanager
def ending(pid: int) -> Iterator[Callable[[], None]]:
    """What waits for that process to end, which raises Unreachable where it does not.

    To be entered before it is asked to end: from there on the pid is that daemon's, whatever comes after.
    """
    descriptor = os.pidfd_open(pid)

    def wait() -> None:
        gone = select.poll()  # not select(2), which takes no descriptor beyond 1023
        gone.register(descriptor, select.POLLIN)
        if not gone.poll(END_SECONDS_MAX * 1000):
            raise Unreachable(f"The daemon (pid {pid}) has not ended in {END_SECONDS_MAX:.0f} s.")

    try:
        yield wait
    finally:
        os.close(descriptor)
