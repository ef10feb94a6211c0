"""Progeny: all that a process has started, however it has left its parent behind.

A process that is a subreaper gets the orphans of those below it, so that none of them can get away by
forking twice or by a session of its own.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections import defaultdict

_libc = ctypes.CDLL(None, use_errno=True)
PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
PR_SET_PDEATHSIG = 1
KILL_SECONDS = 5.0  # what forks as fast as it is killed, or is not ours to kill, is left then
PAUSE_SECONDS = 0.002


def set_subreaper() -> bool:
    """Have the orphans of all that this process starts become its children; False where that cannot be."""
    return bool(_libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def die_with_parent() -> None:
    """Have this process, just forked and about to run its program, killed when its parent dies."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def kill_descendants() -> bool:
    """Kill all that this process has started, and all that those have; False where some are left.

    To be called when no child's exit status is needed any more.
    """
    until = time.monotonic() + KILL_SECONDS
    while not _is_childless():
        if time.monotonic() > until or not os.path.isdir("/proc/self"):  # without /proc nobody can be found
            return False
        for pid in _below(os.getpid()):
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue  # it is gone, or another user's: then the time runs out
        time.sleep(PAUSE_SECONDS)
    return True


def _is_childless() -> bool:
    """Take leave of the children that have ended; are there others?"""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            continue
    except ChildProcessError:
        return True
    return False


def _below(top: int) -> list[int]:
    """All processes below one, by what /proc says of their parents."""
    children: dict[int, list[int]] = defaultdict(list)
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    parent = int(file.read().rpartition(b")")[2].split()[1])
            except (OSError, IndexError):
                continue  # it has ended meanwhile
            children[parent].append(int(name))
    found: list[int] = []
    todo = [top]
    while todo:
        todo += (below := children[todo.pop()])
        found += below
    return found
