"""The state of a process that a caller and its helper must share, as /proc shows it.

The helper runs commands for a caller. If it could do more than the caller, a sandbox would have a way out. If
it could do less, the command would fail. So both sides compare the whole state, and any difference means
that the call runs in a process of its own.
"""

from __future__ import annotations

import os

NAMESPACES = (
    "cgroup", "ipc", "mnt", "net", "pid", "pid_for_children", "time", "time_for_children", "user", "uts",
)  # fmt: skip
FIELDS = (
    b"Uid", b"Gid", b"Groups", b"CapInh", b"CapPrm", b"CapEff", b"CapBnd", b"CapAmb", b"NoNewPrivs",
    b"Seccomp", b"Seccomp_filters", b"Cpus_allowed", b"Mems_allowed",
)  # fmt: skip
FILES = ("cgroup", "limits", "personality", "oom_score_adj", "loginuid", "sessionid", "attr/current")
FILE_BYTES_MAX = 1 << 16

State = tuple[object, ...]


class Unknown(Exception):
    """The state of the process cannot be read."""


def state_of(pid: int) -> State:
    """Return the state of a process. Raises Unknown, and for one that may be in a hidden sandbox.

    A process without new privileges may have rules of Landlock, which /proc does not show.
    """
    process = f"/proc/{pid}"
    try:
        status = status_of(pid)
        root = os.stat(f"{process}/root")
        places = tuple(_link(f"{process}/ns/{name}") for name in NAMESPACES)
        priority = os.getpriority(os.PRIO_PROCESS, pid)
    except OSError as error:
        raise Unknown(f"the state of process {pid} cannot be read") from error
    if status.get(b"NoNewPrivs") != b"0":
        raise Unknown("a process without new privileges")
    fields = tuple(status.get(name) for name in FIELDS)
    files = tuple(_content(f"{process}/{name}") for name in FILES)
    return (fields, places, files, root.st_dev, root.st_ino, priority)


def status_of(pid: int) -> dict[bytes, bytes]:
    """Return the fields of proc_pid_status(5). Raises OSError."""
    lines = _read(f"/proc/{pid}/status").split(b"\n")
    return {name: value.strip() for name, _, value in (line.partition(b":") for line in lines)}


def _link(path: str) -> str | None:
    """Return a namespace; None for a kind that this kernel does not have. Raises PermissionError."""
    try:
        return os.readlink(path)
    except FileNotFoundError:
        return None


def _content(path: str) -> bytes | None:
    """Return the content of a file of /proc, or None on a kernel that has no such file."""
    try:
        return _read(path)
    except OSError:
        return None


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        content = b""
        while more := os.read(descriptor, FILE_BYTES_MAX):
            content += more
        return content
    finally:
        os.close(descriptor)
