"""Runs a program for which openat2(2) does not exist, as under systemd's RestrictSUIDSGID.

`python without_openat2.py PROGRAM ARGUMENT...`: by seccomp(2), so that nothing in the program can tell.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys

OPENAT2 = 437
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06  # classic BPF
ALLOW, ERRNO = 0x7FFF0000, 0x00050000


def forbid_openat2() -> None:
    """Let openat2 answer ENOSYS in this process and in all that it becomes. Raises OSError."""
    filter_ = b"".join(
        struct.pack("HBBI", *step)
        for step in (
            (LOAD, 0, 0, 0),  # the number of the call
            (JUMP_IF_EQUAL, 0, 1, OPENAT2),
            (RETURN, 0, 0, ERRNO | errno.ENOSYS),
            (RETURN, 0, 0, ALLOW),
        )
    )
    steps = ctypes.create_string_buffer(filter_)
    program = struct.pack("HP", len(filter_) // 8, ctypes.addressof(steps))  # struct sock_fprog
    libc = ctypes.CDLL(None, use_errno=True)
    for arguments in ((PR_SET_NO_NEW_PRIVS, 1, 0), (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program)):
        if libc.prctl(*arguments, 0, 0):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))


if __name__ == "__main__":
    forbid_openat2()
    os.execvp(sys.argv[1], sys.argv[1:])
