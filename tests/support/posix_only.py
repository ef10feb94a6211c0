"""A system that has nothing beyond POSIX, for a daemon and all its processes.

`variables` has an environment in which each interpreter first takes away the names of Python that only Linux
has, and refuses each access to /proc.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import socket
import sys
from pathlib import Path
from typing import Any

LINUX_ONLY = {
    os: (
        "O_PATH", "O_TMPFILE", "RWF_DSYNC", "fdatasync", "listxattr", "getxattr", "setxattr", "removexattr",
        "pidfd_open", "memfd_create", "copy_file_range", "splice", "eventfd", "unshare", "setns",
    ),
    socket: ("SOCK_NONBLOCK", "SOCK_CLOEXEC", "SO_PEERCRED", "SO_PASSCRED"),
    fcntl: ("F_SETLEASE", "F_GETLEASE", "F_NOTIFY"),
}  # fmt: skip
OF_LIBC = {
    "syscall", "renameat2", "syncfs", "statx", "sync_file_range", "prctl", "inotify_init1", "unshare",
    "mount",
}  # fmt: skip


class Libc(ctypes.CDLL):
    """The functions of libc that other systems have, too."""

    def __getattr__(self, name: str) -> Any:
        if name in OF_LIBC:
            raise AttributeError(name)
        return super().__getattr__(name)


def refuse_proc(event: str, arguments: tuple[Any, ...]) -> None:
    if event in ("open", "os.listdir", "os.scandir") and arguments and isinstance(arguments[0], (str, bytes)):
        path = os.fsdecode(arguments[0])
        if path == "/proc" or path.startswith("/proc/"):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def take_linux_away() -> None:
    """Leave this interpreter nothing beyond POSIX."""
    for module, names in LINUX_ONLY.items():
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    ctypes.CDLL = Libc  # type: ignore[misc]
    sys.addaudithook(refuse_proc)


def variables(folder: Path, python_path: str) -> dict[str, str]:
    """Return the environment of such a system. `folder` gets a module that each interpreter imports first."""
    folder.mkdir()
    first = "from support.posix_only import take_linux_away\n\ntake_linux_away()\n"
    (folder / "sitecustomize.py").write_text(first)
    paths = [str(folder), str(Path(__file__).parents[1]), python_path]
    return {"PYTHONPATH": os.pathsep.join(paths), "EDITD_SYSTEM": "portable"}
