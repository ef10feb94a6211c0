"""A command that tries what a hook or a check may reach: files, a server, its parent, its own loopback."""

from __future__ import annotations

import platform
from typing import Any

from editd.system.call_filter import MACHINES
from editd.system.confinement import SIGNALS_SINCE, has_filter, landlock_version

_CALLS = MACHINES.get(platform.machine(), MACHINES["x86_64"])
_KCMP = {"x86_64": 312, "ppc64le": 354, "s390x": 343}.get(platform.machine(), 272)

_NUMBERS = f"""
IOPRIO_SET, KEYCTL, KCMP = {_CALLS.disk_priority}, {_CALLS.shared[-1]}, {_KCMP}
PIDFD_OPEN, PIDFD_GETFD = 434, 438
"""
REACH = (
    _NUMBERS
    + """
import ctypes, fcntl, json, os, resource, socket, sys
port, outside = int(sys.argv[1]), sys.argv[2]
def attempt(call):
    try:
        call()
    except OSError as error:
        return type(error).__name__
    return "done"
def loopback():
    with socket.create_server(("127.0.0.1", 0)) as own:
        socket.create_connection(own.getsockname(), 5).close()
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *arguments):
    function = getattr(libc, name)
    if function(*map(ctypes.c_long, arguments)) == -1:
        raise OSError(ctypes.get_errno(), name)
def set_limits(process):
    return [attempt(one) for one in (
        lambda: resource.prlimit(process, resource.RLIMIT_CPU, resource.getrlimit(resource.RLIMIT_CPU)),
        lambda: os.setpriority(os.PRIO_PROCESS, process, os.getpriority(os.PRIO_PROCESS, 0)),
        lambda: os.sched_setaffinity(process, os.sched_getaffinity(0)),
        lambda: os.sched_setscheduler(process, os.SCHED_OTHER, os.sched_param(0)),
        lambda: os.sched_setparam(process, os.sched_param(0)),
        lambda: call("syscall", IOPRIO_SET, 1, process, 0),
    )]
def set_limits_of_others():
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    group = [attempt(lambda: os.setpriority(os.PRIO_PGRP, os.getpgid(os.getppid()), nice))]
    return sorted({*set_limits(os.getppid()), *group})
def read_memory():
    parent = os.getppid()
    kept = ctypes.create_string_buffer(8)
    vector = (ctypes.c_void_p * 2)(ctypes.addressof(kept), 8)
    nowhere = (ctypes.c_void_p * 2)(None, 8)
    at, there = ctypes.addressof(vector), ctypes.addressof(nowhere)
    descriptor = libc.syscall(PIDFD_OPEN, parent, 0)
    return sorted({attempt(one) for one in (
        lambda: call("syscall", KCMP, parent, os.getpid(), 0, 0, 0),
        lambda: call("syscall", PIDFD_GETFD, descriptor, 0, 0),
        lambda: call("process_vm_readv", parent, at, 1, there, 1, 0),
        lambda: call("process_vm_writev", parent, at, 1, there, 1, 0),
    )})
def share():
    # No program has the identifier -1: a call that is not refused changes nothing.
    return sorted({attempt(one) for one in (
        lambda: call("shmctl", -1, 0, 0), lambda: call("shmat", -1, 0, 0), lambda: call("shmget", 1, 0, 0),
        lambda: call("msgctl", -1, 0, 0), lambda: call("msgrcv", -1, 0, 0, 0, 0),
        lambda: call("msgget", 1, 0), lambda: call("semctl", -1, 0, 0), lambda: call("semop", -1, 0, 0),
        lambda: call("semget", 1, 0, 0), lambda: call("syscall", KEYCTL, 0, -4, 0),
    )})
def lease():
    descriptor = os.open(os.path.join(outside, "leased"), os.O_RDONLY)
    fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
print(json.dumps({
    "lease": attempt(lease),
    "own limits": sorted({*set_limits(0), *set_limits(os.getpid())}),
    "limits": set_limits_of_others(),
    "memory": read_memory(),
    "shared": share(),
    "outside": attempt(lambda: open(os.path.join(outside, "by-hook"), "w")),
    "scratch": attempt(lambda: open("here", "w")),
    "temporary": attempt(lambda: open(os.environ["TMPDIR"] + "/here", "w")),
    "network": attempt(lambda: socket.create_connection(("127.0.0.1", port), 5).close()),
    "loopback": attempt(loopback),
    "signal": attempt(lambda: os.kill(os.getppid(), 0)),
    "unix": attempt(lambda: socket.socket(socket.AF_UNIX).close()),
}))
"""
)
SIGNAL = "PermissionError" if landlock_version() >= SIGNALS_SINCE else "done"  # of a confined command
HELD = {"scratch": "done", "temporary": "done", "loopback": "done", "own limits": ["done"]}


def others_of(answers: dict[str, Any], *, is_confined: bool) -> dict[str, Any]:
    """Return the expected answers about other processes. The system decides what a free command may do."""
    held = {name: ["PermissionError"] for name in ("limits", "memory", "shared")}
    if is_confined and has_filter():
        return held | {"lease": "PermissionError"}
    return {name: answers[name] for name in held} | {"limits": ["done"], "lease": "done"}
