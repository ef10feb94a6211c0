"""The programs of seccomp(2) that hold the system calls of a confined process.

Each refuses sockets, or all but those of some families, and what reaches other programs of the user beside
files: limits and priorities of other processes, the memory, semaphores and queues of System V, the queues of
POSIX, and the keys of the kernel. Landlock already holds what ptrace(2) may do: the memory and the
descriptors of another process (process_vm_readv, pidfd_getfd, kcmp).

Each also refuses leases on files (F_SETLEASE). A program that may only read a file could otherwise hold up
every program that opens the file, the daemon too, for 45 seconds.

A program sees numbers alone. So a process may name itself as 0, or by the number that it had when it was
confined, and no other number: a number may be another process later.
"""

from __future__ import annotations

import errno
import socket
import struct
import sys
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class CallNumbers(Struct, frozen=True):
    """The numbers of the calls that the programs name, on one machine."""

    audit: int
    """The name of the machine in linux/audit.h."""
    socket: int
    pair: int
    """The number of socketpair(2)."""
    limits: int
    """The number of prlimit(2)."""
    priority: int
    """The number of setpriority(2)."""
    disk_priority: int
    """The number of ioprio_set(2)."""
    scheduling: Sequence[int]
    """The numbers of sched_setparam(2), sched_setscheduler(2), sched_setaffinity(2) and sched_setattr(2)."""
    control: int
    """The number of fcntl(2)."""
    shared: Sequence[int]
    """The numbers of the calls for memory, semaphores, queues and keys that programs of a user share."""


_SPLIT_IPC = range(392, 403)  # System V, on machines where ipc(2) was the only form of it
_GENERIC = CallNumbers(
    0, 198, 199, 261, 140, 30, (118, 119, 122, 274), 25, (180, 181, *range(186, 198), 217, 218, 219)
)  # fmt: skip
MACHINES: Final[Mapping[str, CallNumbers]] = {
    "x86_64": CallNumbers(
        0xC000003E, 41, 53, 302, 141, 251, (142, 144, 203, 314), 72,
        (29, 30, 31, *range(64, 72), 220, 240, 241, 248, 249, 250),
    ),
    "aarch64": replace(_GENERIC, audit=0xC00000B7),
    "riscv64": replace(_GENERIC, audit=0xC00000F3),
    "ppc64le": CallNumbers(
        0xC0000015, 326, 333, 325, 97, 273, (154, 156, 222, 355), 55,
        (117, *_SPLIT_IPC, 262, 263, 269, 270, 271),
    ),
    "s390x": CallNumbers(
        0x80000016, 359, 360, 334, 97, 282, (154, 156, 239, 345), 55,
        (117, *_SPLIT_IPC, 271, 272, 278, 279, 280),
    ),
}  # fmt: skip

_IO_URING_SETUP = 425
_X32_BIT = 0x40000000  # a second set of numbers on x86_64
_LOAD, _IF_EQUAL, _IF_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06  # linux/bpf_common.h
_AND, _TYPE_MASK = 0x54, 0xF
_NUMBER_AT, _MACHINE_AT = 0, 4  # in struct seccomp_data
_ARGUMENTS_AT = 16 if sys.byteorder == "little" else 20  # the lower half of the first one
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | errno.EACCES
_PROCESS, _DISK_PROCESS = 0, 1  # PRIO_PROCESS, IOPRIO_WHO_PROCESS: the second argument is a process
_SET_LEASE = 1024  # F_SETLEASE of linux/fcntl.h: the second argument of fcntl(2)
_TO_END = -1  # a jump to the last step, which refuses

_Step = tuple[int, int, int, int]  # struct sock_filter: the code, two jumps over so many steps, an operand


def socket_filter(calls: CallNumbers, own: int) -> bytes:
    """Return the program that refuses all sockets. `own` is the number of the confined process."""
    return _program(
        calls,
        own,
        (_IF_EQUAL, 1, 0, calls.socket),
        (_RETURN, 0, 0, _ALLOW),
    )


def family_filter(calls: CallNumbers, own: int, families: Sequence[int]) -> bytes:
    """Return the program that refuses sockets of other families than these.

    A pair of Unix sockets is connected for good and stays free. A pair of datagram sockets can send anywhere,
    so it needs AF_UNIX among the families. `own` is the number of the confined process.
    """
    count = len(families)
    datagrams = 0 if socket.AF_UNIX in families else _TO_END
    return _program(
        calls,
        own,
        (_IF_EQUAL, 2, 0, calls.socket),
        (_IF_EQUAL, count + 3, 0, calls.pair),
        (_RETURN, 0, 0, _ALLOW),
        (_LOAD, 0, 0, _argument_at(0)),  # of socket(2): the domain
        *((_IF_EQUAL, count - index + 5, 0, family) for index, family in enumerate(families)),
        (_RETURN, 0, 0, _REFUSE),
        (_LOAD, 0, 0, _argument_at(0)),  # of socketpair(2): the domain, and the type with flags
        (_IF_EQUAL, 0, 4, socket.AF_UNIX),
        (_LOAD, 0, 0, _argument_at(1)),
        (_AND, 0, 0, _TYPE_MASK),
        (_IF_EQUAL, datagrams, 0, socket.SOCK_DGRAM),
        (_RETURN, 0, 0, _ALLOW),
    )


def _program(calls: CallNumbers, own: int, *rest: _Step) -> bytes:
    """Return a program that looks at the number of the call in `rest`, after which it refuses.

    It first refuses calls of another machine's kind, an io_uring, which can make sockets, leases, and the
    calls that reach other programs.
    """
    steps: list[_Step] = [
        (_LOAD, 0, 0, _MACHINE_AT),
        (_IF_EQUAL, 0, _TO_END, calls.audit),
        (_LOAD, 0, 0, _NUMBER_AT),
        (_IF_AT_LEAST, _TO_END, 0, _X32_BIT),
        *((_IF_EQUAL, _TO_END, 0, number) for number in (_IO_URING_SETUP, *calls.shared)),
    ]
    for number in (calls.limits, *calls.scheduling):
        steps += _if_call(number, _require(0, 0, own))
    steps += _if_call(calls.priority, _require(0, _PROCESS) + _require(1, 0, own))
    steps += _if_call(calls.disk_priority, _require(0, _DISK_PROCESS) + _require(1, 0, own))
    steps += _if_call(calls.control, _forbid(1, _SET_LEASE))
    steps += [*rest, (_RETURN, 0, 0, _REFUSE)]
    to_end = [len(steps) - position - 2 for position in range(len(steps))]
    return b"".join(
        struct.pack("=HBBI", code, *(end if jump == _TO_END else jump for jump in jumps), operand)
        for end, (code, *jumps, operand) in zip(to_end, steps, strict=True)
    )


def _if_call(number: int, requirements: Sequence[_Step]) -> list[_Step]:
    """Return the steps that allow a call if it meets the requirements. They leave other calls alone."""
    return [
        (_IF_EQUAL, 0, len(requirements) + 1, number),
        *requirements,
        (_RETURN, 0, 0, _ALLOW),
    ]


def _require(argument: int, *values: int) -> list[_Step]:
    """Return the steps that refuse a call whose argument has none of these values."""
    last = len(values) - 1
    others = [(_IF_EQUAL, last - index, 0, value) for index, value in enumerate(values[:-1])]
    return [(_LOAD, 0, 0, _argument_at(argument)), *others, (_IF_EQUAL, 0, _TO_END, values[-1])]


def _forbid(argument: int, value: int) -> list[_Step]:
    """Return the steps that refuse a call whose argument has this value."""
    return [(_LOAD, 0, 0, _argument_at(argument)), (_IF_EQUAL, _TO_END, 0, value)]


def _argument_at(position: int) -> int:
    """Return the place of an argument's lower half. The kernel takes an int from it."""
    return _ARGUMENTS_AT + 8 * position
