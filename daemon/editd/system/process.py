"""A process of this system, and the line of processes above it: its parent, the parent of that, and so on."""

from __future__ import annotations

import os
from typing import TypeAlias

from msgspec import Struct

from editd.system.native import NATIVE
from editd.system.proc import read_proc

ProcessKey: TypeAlias = tuple[int, int]
"""The number of a process and its start, which no other process has."""


LINE_MAX = 100  # processes above one; a line changes while it is read, and may then seem to have no end


class Process(Struct, frozen=True):
    """A process as /proc shows it. Its number may be used again, but not with the same start."""

    pid: int
    start: int  # clock ticks since the boot
    session: int  # the number of the process that leads its terminal session
    program: str  # the kernel's name for it: at most 15 bytes

    @property
    def key(self) -> ProcessKey:
        """Its number and its start, which no other process has."""
        return self.pid, self.start


def line_above(pid: int) -> tuple[Process, ...]:
    """Return the process and those above it, the nearest first, as far as /proc shows them."""
    line: list[Process] = []
    while pid > 0 and len(line) < LINE_MAX and (step := _process_at(pid)) is not None:
        process, pid = step
        line.append(process)
    return tuple(line)


def process_at(pid: int) -> Process | None:
    """Return the process with this number, or None if /proc does not show it."""
    step = _process_at(pid)
    return None if step is None else step[0]


def sees_processes() -> bool:
    """Return whether this system names the process at the other end of a socket, and shows it."""
    return NATIVE.peer_credentials is not None and process_at(os.getpid()) is not None


def is_in_own_namespace(pid: int) -> bool:
    """Return whether a process is visible, and has the number `pid` in its own pid namespace too.

    A process of a container has further numbers there: `NSpid` of proc_pid_status(5).
    """
    try:
        with open(f"{NATIVE.proc}/{pid}/status", "rb") as file:
            for line in file:
                if line.startswith(b"NSpid:"):
                    return len(line.split()) == 2
    except OSError:
        pass
    return False


def _process_at(pid: int) -> tuple[Process, int] | None:
    """Return a process and the number of its parent, as proc_pid_stat(5) has them."""
    try:
        before, _, after = read_proc(f"{NATIVE.proc}/{pid}/stat").rpartition(b")")
    except OSError:
        return None
    fields = after.split()
    program = before.partition(b"(")[2].decode("utf-8", "replace")
    return Process(pid, int(fields[19]), int(fields[3]), program), int(fields[1])
