"""The facts of proc(5) about this boot and this process."""

from __future__ import annotations

import contextlib
import os
from functools import cache

from editd.system.native import NATIVE

_PROC_BYTES = 1024 * 1024  # of one read


@cache
def boot_name() -> str:
    """Return the UUID of this boot of the machine, within which a process's start counts; "" if unknown."""
    try:
        return read_proc(f"{NATIVE.proc}/sys/kernel/random/boot_id").decode("ascii").strip()
    except OSError:
        return ""


def boot_id() -> bytes:
    """Return the 16 bytes of `boot_name`; b"" if unknown.

    After another boot, files that were not synced may be torn.
    """
    return bytes.fromhex(boot_name().replace("-", ""))


def read_proc(path: str) -> bytes:
    """Return the bytes of a file of proc(5). Raises OSError.

    `open` makes twice as many system calls, and each of them waits for Python's lock if a thread is busy.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts: list[bytes] = []
        while part := os.read(descriptor, _PROC_BYTES):
            parts.append(part)
    finally:
        os.close(descriptor)
    return b"".join(parts)


@cache
def creation_mask() -> int:
    """Return the umask of this process, which never changes it."""
    with contextlib.suppress(OSError), open("/proc/self/status", encoding="ascii") as file:
        for line in file:
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    mask = os.umask(0o077)  # a kernel without the file; a new file of another thread is private meanwhile
    os.umask(mask)
    return mask
