"""Runs a program where a feature of Linux is missing, as in a sandbox or on another system.

`python without.py FEATURE[,FEATURE...] PROGRAM ARGUMENT...`: system calls answer with an error by seccomp(2),
so that nothing in the program or its children can tell. `proc` puts an empty file system over /proc.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

NUMBERS = {  # of system calls; those since Linux 5.1 are the same everywhere
    "x86_64": {"renameat2": 316, "fcntl": 72, "inotify_init1": 294, "syncfs": 306, "statx": 332},
    "aarch64": {"renameat2": 276, "fcntl": 25, "inotify_init1": 26, "syncfs": 267, "statx": 291},
}
NUMBERS_EVERYWHERE = {"openat2": 437, "pidfd_open": 434}
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06  # classic BPF
ALLOW, ERRNO = 0x7FFF0000, 0x00050000
FIRST_ARGUMENT = 16  # offset in struct seccomp_data; each takes 8 bytes
F_SETLEASE, RENAME_NOREPLACE, RENAME_EXCHANGE = 1024, 1, 2
CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x20000, 0x4000, 0x40000

Rule = tuple[str, tuple[int, int] | None, int]  # a call, one argument's index and value, the error's number
FEATURES: dict[str, list[Rule]] = {
    "openat2": [("openat2", None, errno.ENOSYS)],
    "openat2-eperm": [("openat2", None, errno.EPERM)],
    "openat2-eacces": [("openat2", None, errno.EACCES)],
    "exchange": [("renameat2", (4, RENAME_EXCHANGE), errno.EINVAL)],
    "renameat2-flags": [
        ("renameat2", (4, RENAME_EXCHANGE), errno.EINVAL),
        ("renameat2", (4, RENAME_NOREPLACE), errno.EINVAL),
    ],
    "renameat2": [("renameat2", None, errno.ENOSYS)],
    "renameat2-eperm": [("renameat2", None, errno.EPERM)],
    "leases": [("fcntl", (1, F_SETLEASE), errno.EINVAL)],
    "inotify": [("inotify_init1", None, errno.ENOSYS)],
    "inotify-eperm": [("inotify_init1", None, errno.EPERM)],
    "pidfd": [("pidfd_open", None, errno.ENOSYS)],
    "syncfs": [("syncfs", None, errno.ENOSYS)],
    "syncfs-eperm": [("syncfs", None, errno.EPERM)],
    "statx": [("statx", None, errno.ENOSYS)],
    "proc": [],
}


@cache
def missing() -> str | None:
    """Why nothing can be taken away here; None where it can."""
    if platform.machine() not in NUMBERS:
        return f"the system calls of {platform.machine()} are not known here"
    return None


def missing_for(feature: str) -> str | None:
    """Why this feature cannot be taken away here; None where it can."""
    if "proc" in feature.split(",") and os.geteuid() != 0:
        return "only root may mount"
    return missing()


def launcher(feature: str) -> tuple[str, ...]:
    """The words to put before a program so that it runs without this feature."""
    return sys.executable, __file__, feature


def feature_of(words: Sequence[str]) -> str | None:
    """Return the feature that these words of a `launcher` take away, if a forked process can do without it.

    A fork server that has /proc cannot fork a process without it.
    """
    if tuple(words[:2]) != (sys.executable, __file__) or "proc" in words[2].split(","):
        return None
    return words[2]


def take_away(features: list[str]) -> None:
    """Let these features be missing in this process and in all that it becomes. Raises OSError."""
    numbers = NUMBERS[platform.machine()] | NUMBERS_EVERYWHERE
    steps: list[tuple[int, int, int, int]] = []
    for call, argument, error in [rule for feature in features for rule in FEATURES[feature]]:
        answer = (RETURN, 0, 0, ERRNO | error)
        steps += [(LOAD, 0, 0, 0)]  # the number of the call
        if argument is None:
            steps += [(JUMP_IF_EQUAL, 0, 1, numbers[call]), answer]
        else:
            index, value = argument
            steps += [
                (JUMP_IF_EQUAL, 0, 3, numbers[call]),
                (LOAD, 0, 0, FIRST_ARGUMENT + 8 * index),
                (JUMP_IF_EQUAL, 0, 1, value),
                answer,
            ]
    steps += [(RETURN, 0, 0, ALLOW)]
    filter_ = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = struct.pack("HP", len(steps), ctypes.addressof(filter_))  # struct sock_fprog
    libc = ctypes.CDLL(None, use_errno=True)
    for arguments in ((PR_SET_NO_NEW_PRIVS, 1, 0), (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program)):
        if libc.prctl(*arguments, 0, 0):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))


def hide_proc() -> None:
    """Mount an empty file system over /proc, for this process and its children alone. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if (
        libc.unshare(CLONE_NEWNS)
        or libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None)
        or libc.mount(b"none", b"/proc", b"tmpfs", 0, None)
    ):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


if __name__ == "__main__":
    wanted = sys.argv[1].split(",")
    if "proc" in wanted:
        hide_proc()
    take_away(wanted)
    os.execvp(sys.argv[2], sys.argv[2:])
