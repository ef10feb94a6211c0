"""The namespaces of a command: an overlay over a folder, and a network with a loopback only.

Linux lets a process enter them without a privilege (5.11 for the overlay): in a user namespace, in which it
keeps its own user id. Only this process and its children see the change.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
from typing import TYPE_CHECKING

from editd.system.overlay_lock import lock_overlay

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWNET = 0x00020000, 0x10000000, 0x40000000  # sched.h
MS_REC, MS_PRIVATE = 0x4000, 0x40000  # sys/mount.h
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1  # netdevice(7)


def enter_overlay(
    root: str, scratch: str, fill: Callable[[], None], held: int, *, has_network: bool = True
) -> None:
    """Mount an overlay over `root` that only this process and its children see; `fill` writes into it first.

    What is written there stays in the folder `scratch`. `held` is `root`, open for reading. While the caller
    keeps it open, the daemon reuses no replaced file. A command does not inherit it, because it leads past
    the overlay. Without a network, the process has the loopback of its own network. Raises OSError.
    """
    lock_overlay(held)
    os.set_inheritable(held, False)
    user, group = os.getuid(), os.getgid()
    libc = ctypes.CDLL(None, use_errno=True)
    flags = CLONE_NEWUSER | CLONE_NEWNS | (0 if has_network else CLONE_NEWNET)
    _unshare(libc, flags, f"0 {user} 1", f"0 {group} 1")
    if not has_network:
        _raise_loopback()
    _mount(libc, None, "/", None, MS_REC | MS_PRIVATE, None)
    upper, work = (os.path.join(scratch, name) for name in ("upper", "work"))
    os.mkdir(upper, os.stat(root).st_mode & 0o777)
    os.mkdir(work)
    options = f"lowerdir={_escape(root)},upperdir={_escape(upper)},workdir={_escape(work)},userxattr"
    _mount(libc, "overlay", root, "overlay", 0, options)
    os.chdir(root)
    fill()
    _unshare(libc, CLONE_NEWUSER, f"{user} 0 1", f"{group} 0 1")  # it keeps its own user id


def leave_network() -> None:
    """Enter a new network, which has the loopback only. Raises OSError."""
    user, group = os.getuid(), os.getgid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET):  # without the privilege for it, in a user namespace that keeps the ids
        _unshare(libc, CLONE_NEWUSER | CLONE_NEWNET, f"{user} {user} 1", f"{group} {group} 1")
    _raise_loopback()


def can_leave_network() -> bool:
    """Return whether this system lets a process have its own network. Call it with one thread."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            leave_network()
            status = 0
        finally:
            os._exit(status)  # also after an error: this is a copy of the whole process
    return os.waitpid(pid, 0)[1] == 0


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        answer = fcntl.ioctl(control, SIOCGIFFLAGS, struct.pack("16sh14x", b"lo", 0))
        flags = struct.unpack("16sh14x", answer)[1] | IFF_UP
        fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags))


def _unshare(libc: ctypes.CDLL, flags: int, users: str, groups: str) -> None:
    if libc.unshare(flags):
        raise OSError(ctypes.get_errno(), "unshare")
    maps: Mapping[str, str] = {"setgroups": "deny", "uid_map": users, "gid_map": groups}
    for name, text in maps.items():
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)


def _mount(
    libc: ctypes.CDLL, source: str | None, target: str, kind: str | None, flags: int, options: str | None
) -> None:
    arguments = (None if text is None else os.fsencode(text) for text in (source, target, kind))
    data = None if options is None else os.fsencode(options)
    if libc.mount(*arguments, ctypes.c_ulong(flags), data):
        raise OSError(ctypes.get_errno(), "mount")


def _escape(path: str) -> str:
    """Return a path as the options of an overlay take it."""
    for character in "\\:,":
        path = path.replace(character, "\\" + character)
    return path
