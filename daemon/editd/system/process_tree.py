"""The process tree: all processes that a process has started, directly or not.

A subreaper becomes the parent of orphans below it, so none of them can escape by forking twice or by a new
session.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from collections import defaultdict

from editd.system.native import NATIVE

PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
PR_SET_PDEATHSIG = 1
KILL_SECONDS = 5.0  # then processes that fork as fast as they are killed, or that we may not kill, are left
PAUSE_SECONDS = 0.002


def set_subreaper() -> bool:
    """Make this process the parent of all orphans below it; return False if that is impossible."""
    return NATIVE.prctl is not None and NATIVE.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


def die_with_parent() -> None:
    """Have the kernel, if it can, kill this process when its parent dies. Call it just before the exec."""
    if NATIVE.prctl is not None:
        NATIVE.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def kill_descendants() -> bool:
    """Kill all processes that this process has started, directly or not; return False if some are left.

    Call it when no child's exit status is needed any more.
    """
    until = time.monotonic() + KILL_SECONDS
    while not _is_childless():
        if time.monotonic() > until or not os.path.isdir(
            f"{NATIVE.proc}/self"
        ):  # without /proc none can be found
            return False
        for pid in _below(os.getpid()):
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue  # it has ended, or is another user's: then the time runs out
        time.sleep(PAUSE_SECONDS)
    return True


def _is_childless() -> bool:
    """Reap the children that have ended; return whether no others are left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            continue
    except ChildProcessError:
        return True
    return False


def _below(top: int) -> list[int]:
    """Return all processes below one, by their parents in /proc."""
    children: dict[int, list[int]] = defaultdict(list)
    for name in os.listdir(NATIVE.proc):
        if name.isdigit():
            try:
                with open(f"{NATIVE.proc}/{name}/stat", "rb") as file:
                    parent = int(file.read().rpartition(b")")[2].split()[1])
            except (OSError, IndexError):
                continue  # it has ended meanwhile
            children[parent].append(int(name))
    processes: list[int] = []
    todo = [top]
    while todo:
        todo += (below := children[todo.pop()])
        processes += below
    return processes


def open_process(pid: int) -> int:
    """Return a descriptor that can be read when the process has ended. Raises OSError."""
    if NATIVE.pidfd_open is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    return NATIVE.pidfd_open(pid)
