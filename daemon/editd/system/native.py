"""The calls of this system that POSIX does not have, and the choice of the system.

A `NativeCalls` names them, each None or False on a system without it. `LINUX` has them all. `PORTABLE` has
none, and runs on any POSIX system, so it is tested on Linux. `NATIVE` is the chosen one: `PORTABLE` on other
systems than Linux, and with EDITD_SYSTEM=portable. The choice is made once, when this module is imported.

The rest of this package has a substitute for each of them, and tries a call before it relies on it, because
a kernel, a sandbox or a file system may refuse it. No other package asks for the platform. Imports the
standard library alone, because a person waits for the start of a process that does so.

macOS would be a third value: its renameatx_np(2) takes the arguments of renameat2(2), with other flags.
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

VARIABLE = "EDITD_SYSTEM"
SYSTEMS = ("linux", "portable")
NOWHERE = "/dev/null/proc"  # no path begins with a device


class NativeCalls(NamedTuple):
    """The calls of one system beyond POSIX. The functions of libc return -1, and set `errno`."""

    system: str
    folder_flags: int = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    """The flags that open a folder for the names in it."""
    path_flags: int | None = None
    """The flags that open any name, a socket too, without reading it."""
    has_fdatasync: bool = hasattr(os, "fdatasync")
    """Whether os.fdatasync exists: it is POSIX, but an option, which macOS lacks."""
    proc: str = NOWHERE
    """The folder of proc(5), or a path that can never exist."""
    has_leases: bool = False
    """Whether fcntl(2) has F_SETLEASE."""
    has_inotify: bool = False
    synced_write_flag: int = 0
    """The flag of pwritev2(2) that makes a write durable."""
    peer_credentials: int | None = None
    """The socket option with the process at the other end."""
    lists_attributes: Callable[[int], list[str]] | None = None
    """Return the names of the extended attributes of an open file."""
    exchange_flag: int = 0
    free_name_flag: int = 0
    openat2: Callable[..., int] | None = None  # syscall(2), whose first argument is the call's number
    renameat2: Callable[..., int] | None = None
    syncfs: Callable[..., int] | None = None
    statx: Callable[..., int] | None = None
    sync_file_range: Callable[..., int] | None = None
    faccessat: Callable[..., int] | None = None
    prctl: Callable[..., int] | None = None
    pidfd_open: Callable[[int], int] | None = None


def _of_libc(libc: ctypes.CDLL, name: str, *arguments: Any) -> Callable[..., int] | None:
    """Return a function of libc; None if it has none, as an old glibc has no renameat2."""
    function = getattr(libc, name, None)
    if function is not None:
        function.argtypes = list(arguments)
    return function


def _linux() -> NativeCalls:
    libc = ctypes.CDLL(None, use_errno=True)
    number, name, word, offset = ctypes.c_int, ctypes.c_char_p, ctypes.c_uint, ctypes.c_int64
    syscall = _of_libc(libc, "syscall", ctypes.c_long, number, name, name, ctypes.c_size_t)
    if syscall is not None:
        syscall.restype = ctypes.c_long  # type: ignore[attr-defined]
    return NativeCalls(
        system="linux",
        folder_flags=os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC,
        path_flags=os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC,
        proc="/proc",
        has_leases=True,
        has_inotify=True,
        synced_write_flag=os.RWF_DSYNC,
        peer_credentials=17,  # SO_PEERCRED
        lists_attributes=os.listxattr,
        exchange_flag=2,  # RENAME_EXCHANGE
        free_name_flag=1,  # RENAME_NOREPLACE
        openat2=syscall,
        renameat2=_of_libc(libc, "renameat2", number, name, number, name, word),
        syncfs=_of_libc(libc, "syncfs", number),
        statx=_of_libc(libc, "statx", number, name, number, word, name),
        sync_file_range=_of_libc(libc, "sync_file_range", number, offset, offset, word),
        faccessat=_of_libc(libc, "faccessat", number, name, number, number),
        prctl=_of_libc(libc, "prctl", number, *[ctypes.c_ulong] * 4),
        pidfd_open=getattr(os, "pidfd_open", None),
    )


PORTABLE = NativeCalls(system="portable")


NATIVE = PORTABLE if os.environ.get(VARIABLE) == "portable" or sys.platform != "linux" else _linux()
