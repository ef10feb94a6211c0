"""The confinement of this process: what it may write and read from now on, and that it has no network.

For the processes of the daemon that work on the content of others, and for commands that promise not to
write. It holds for this thread and for what it starts, and nothing takes it back.

Landlock (landlock(7), Linux 5.13) holds reads and writes. It leaves changes of permissions, owners, times and
attributes alone, and before Linux 6.2 truncate(2). From Linux 6.12 on it holds signals to processes outside.
A filter of seccomp(2) (`call_filter`) holds the network: no socket can be made, or only sockets of the
internet. Landlock has no rule for a connection to a path, and no namespace holds the sockets of a virtual
machine (vsock). The filter also holds leases, the limits and priorities of other processes, and System V IPC.

A kernel or a sandbox may lack either. Then `missing` names the loss, and the rest is in force.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import socket
import stat
import struct
import sys
from enum import IntFlag
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from editd.system.call_filter import MACHINES, family_filter, socket_filter
from editd.system.native import NATIVE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from editd.system.call_filter import CallNumbers


class FileAccess(IntFlag):
    """The rights of linux/landlock.h. A kernel has each from some version of Landlock on."""

    EXECUTE = 1 << 0
    WRITE_FILE = 1 << 1
    READ_FILE = 1 << 2
    READ_DIR = 1 << 3
    REMOVE_DIR = 1 << 4
    REMOVE_FILE = 1 << 5
    MAKE_CHAR = 1 << 6
    MAKE_DIR = 1 << 7
    MAKE_REG = 1 << 8
    MAKE_SOCK = 1 << 9
    MAKE_FIFO = 1 << 10
    MAKE_BLOCK = 1 << 11
    MAKE_SYM = 1 << 12
    REFER = 1 << 13  # a rename or a link into another folder
    TRUNCATE = 1 << 14


READING = FileAccess.EXECUTE | FileAccess.READ_FILE | FileAccess.READ_DIR
WRITING = FileAccess(~int(READING) & (1 << 15) - 1)
OF_A_FILE = FileAccess.EXECUTE | FileAccess.WRITE_FILE | FileAccess.READ_FILE | FileAccess.TRUNCATE
SINCE = {FileAccess.REFER: 2, FileAccess.TRUNCATE: 3}  # versions of Landlock; the others are in the first
TRUNCATE_SINCE = SINCE[FileAccess.TRUNCATE]
SIGNALS_SINCE = 6  # the version of Landlock that holds signals
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/tty")  # anybody may write to them

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on all machines
_CREATE_VERSION, _RULE_PATH_BENEATH, _SCOPE_SIGNAL = 1, 1, 1 << 1
_CLONE_NEWUSER = 0x10000000  # sched.h
_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _MODE_FILTER = 22, 38, 2  # linux/prctl.h, linux/seccomp.h


class PathRule(NamedTuple):
    """The rights to a path and to all below it."""

    path: str
    rights: FileAccess


def rules_of(
    writable: Iterable[str], readable: Iterable[str] | None, version: int
) -> tuple[FileAccess, list[PathRule]]:
    """Return the rights that Landlock is to hold, and the paths that keep some of them.

    Without `readable`, reading stays free. A version that does not know a right leaves it alone.
    """
    known = FileAccess(0)
    for right in FileAccess:
        if SINCE.get(right, 1) <= version:
            known |= right
    held = known & (WRITING if readable is None else WRITING | READING)
    rules = [PathRule(path, held) for path in writable]
    rules += [PathRule(path, held & READING) for path in readable or ()]
    rules += [PathRule(path, held & OF_A_FILE) for path in DEVICES]
    return held, rules


def confine(
    writable: Sequence[str],
    *,
    readable: Sequence[str] | None = None,
    network: bool = False,
    unix_sockets: bool = False,
) -> list[str]:
    """Confine this process to these paths. Return the names of what this system cannot hold.

    Without `network` it makes no socket. With it, it makes sockets of the internet and of netlink, and with
    `unix_sockets` Unix sockets. It signals only processes that have the same confinement, sets limits and
    priorities of itself alone, takes no lease on a file, and shares no memory, queue or key with other
    programs. Missing paths are left out. Without `readable`, reading stays free. Raises OSError if a part
    that this system has cannot be put in force.
    """
    lost: list[str] = []
    _give_up_new_privileges()
    if landlock_version():
        _restrict_files(writable, readable)
    else:
        lost.append("files")
    if not network and not _filter_calls(socket_filter):
        lost.append("network")
    if network and not _filter_calls(_family_filter_of(unix_sockets)):
        lost.append("unix_sockets")
    return lost


@cache
def landlock_version() -> int:
    """Return the version of Landlock, or 0 if this kernel or sandbox has none."""
    if NATIVE.openat2 is None or NATIVE.prctl is None:
        return 0
    return max(0, _syscall(_CREATE_RULESET, None, 0, _CREATE_VERSION))


@cache
def has_filter() -> bool:
    """Return whether this system has a filter for system calls, and this module knows the machine."""
    if NATIVE.prctl is None or _machine() is None:
        return False
    # An address that cannot be read: EFAULT says that there is a filter, EINVAL that there is none.
    NATIVE.prctl(_PR_SET_SECCOMP, _MODE_FILTER, 0, 0, 0)
    return ctypes.get_errno() == errno.EFAULT


def missing() -> list[str]:
    """Return a sentence for each part that this system lacks."""
    sentences: list[str] = []
    version = landlock_version()
    if not version:
        sentences.append(
            "This system has no Landlock: the processes that run regular expressions, pack and verify "
            "could read and write files as you can, and `writable` of hooks and checks holds nothing."
        )
    elif version < TRUNCATE_SINCE:
        sentences.append(
            "The Landlock of this kernel does not hold truncate(2): a confined process could empty files."
        )
    if version < SIGNALS_SINCE:
        sentences.append(
            "This kernel does not hold signals: a confined process could end the daemon and other programs."
        )
    if not has_filter():
        sentences.append(
            "This system has no seccomp filter: the processes that run regular expressions, pack and "
            "verify could reach the network, and `unix_sockets` of hooks and checks holds nothing. All of "
            "them could end the daemon by its limits."
        )
    return sentences


def forbidden() -> list[str]:
    """Return the names of what a filter around this process forbids: `internet`, `namespaces`."""
    names: list[str] = []
    try:
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close()
    except OSError:
        names.append("internet")
    # No such descriptor: EBADF says that nothing forbids the call. It changes nothing either way.
    if NATIVE.prctl is not None:
        ctypes.CDLL(None, use_errno=True).setns(-1, _CLONE_NEWUSER)
        if ctypes.get_errno() == errno.EPERM:
            names.append("namespaces")
    return names


def python_paths() -> list[str]:
    """Return the paths that Python and its libraries are read from."""
    own = {sys.prefix, sys.base_prefix, sys.exec_prefix, *filter(os.path.isabs, sys.path)}
    return sorted(own | {"/usr/lib", "/usr/lib64", "/usr/local/lib", "/lib", "/lib64", "/etc/ld.so.cache"})


def _give_up_new_privileges() -> None:
    """Have no later program gain a privilege, as both calls require."""
    if NATIVE.prctl is not None and NATIVE.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise _error()


def _restrict_files(writable: Sequence[str], readable: Sequence[str] | None) -> None:
    held, rules = rules_of(writable, readable, landlock_version())
    attributes = _ruleset_attributes(held, landlock_version())
    ruleset = _syscall(_CREATE_RULESET, attributes, len(attributes), 0)
    if ruleset < 0:
        raise _error()
    try:
        for path, rights in rules:
            _allow(ruleset, path, rights)
        if _syscall(_RESTRICT_SELF, ruleset, 0, 0) != 0:
            raise _error()
    finally:
        os.close(ruleset)


def _ruleset_attributes(held: FileAccess, version: int) -> bytes:
    """Return struct landlock_ruleset_attr, as long as this version of Landlock takes it."""
    if version < SIGNALS_SINCE:
        return struct.pack("=Q", held)
    no_ports = 0  # rules for the ports of TCP, which the filter of sockets makes unneeded
    return struct.pack("=QQQ", held, no_ports, _SCOPE_SIGNAL)


def _allow(ruleset: int, path: str, rights: FileAccess) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # what is missing needs no rule
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            rights &= OF_A_FILE
        beneath = struct.pack("=Qi", rights, descriptor)
        if rights and _syscall(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, beneath, 0) != 0:
            raise _error()
    finally:
        os.close(descriptor)


def _family_filter_of(unix_sockets: bool) -> Callable[[CallNumbers, int], bytes]:
    families = [socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK]
    if unix_sockets:
        families.append(socket.AF_UNIX)
    return lambda calls, own: family_filter(calls, own, families)


def _machine() -> CallNumbers | None:
    return MACHINES.get(platform.machine()) if sys.maxsize > 2**32 else None


def _filter_calls(filter_of: Callable[[CallNumbers, int], bytes]) -> bool:
    """Put a filter in force from now on. Return False if this system has none."""
    machine = _machine()
    if machine is None or NATIVE.prctl is None:
        return False
    program = filter_of(machine, os.getpid())
    steps = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("@HP", len(program) // 8, ctypes.addressof(steps))
    held = ctypes.create_string_buffer(header, len(header))
    if NATIVE.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.addressof(held), 0, 0) == 0:
        return True
    if ctypes.get_errno() in (errno.EINVAL, errno.ENOSYS, errno.EPERM):
        return False
    raise _error()


def _syscall(number: int, *arguments: int | bytes | None) -> int:
    """Call the kernel; on failure return -1, with errno set."""
    library = ctypes.CDLL(None, use_errno=True)
    library.syscall.restype = ctypes.c_long
    values = [ctypes.c_long(one) if isinstance(one, int) else ctypes.c_char_p(one) for one in arguments]
    return int(library.syscall(ctypes.c_long(number), *values))


def _error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
