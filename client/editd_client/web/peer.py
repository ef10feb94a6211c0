"""The user at the other end of a TCP connection on this machine, by the kernel's table of sockets.

TCP has no SO_PEERCRED. But both ends of a loopback connection are in `/proc/net/tcp`, each with the user id
of its socket (proc_net(5)). An IPv6 socket that connects to an IPv4 address is in `/proc/net/tcp6`.

Only an established connection counts: the kernel shows a closed socket as root's.
"""

from __future__ import annotations

import os
import select
import socket
import sys
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
MAPPED = "0000000000000000FFFF0000"  # the head of an IPv4 address in the table of IPv6
ESTABLISHED = "01"  # include/net/tcp_states.h
UID_COLUMN = 7


class Address(NamedTuple):
    """An IPv4 address and a port."""

    host: str
    port: int


class Stream(Protocol):
    """The used part of a socket. asyncio's TransportSocket has it too."""

    def fileno(self) -> int: ...


def is_known() -> bool:
    """Return whether this system has a table of sockets that this process can read."""
    return any(os.access(table, os.R_OK) for table in TABLES)


def may_enter(owner: int | None) -> bool:
    """Return whether the owner of a connection is the user of this process, or root."""
    return owner in (os.geteuid(), 0)


def has_left(stream: Stream) -> bool:
    """Return whether the remote end is closed already: the kernel shows no owner of such an end."""
    poll = select.poll()
    poll.register(stream.fileno(), select.POLLRDHUP)
    return bool(poll.poll(0))


def owner_of(local: Address, remote: Address) -> int | None:
    """Return the user id of the remote end, or None if the kernel does not show that end."""
    for table in TABLES:
        try:
            with open(table, encoding="ascii") as lines:
                owner = owner_in(lines, local, remote)
        except OSError:
            continue  # without IPv6, or without /proc: an unknown owner is refused
        if owner is not None:
            return owner
    return None


def owner_in(lines: Iterable[str], local: Address, remote: Address) -> int | None:
    """Return the user id of the remote end in a table of sockets, whose lines see that end as local."""
    ends = _column(remote), _column(local)
    for line in lines:
        columns = line.split()
        if len(columns) <= UID_COLUMN or columns[3] != ESTABLISHED:
            continue
        if tuple(one.removeprefix(MAPPED) for one in columns[1:3]) == ends:
            return int(columns[UID_COLUMN])
    return None


def _column(address: Address) -> str:
    """Return an address as the table has it: the bytes of the network, read as a number of this machine."""
    number = int.from_bytes(socket.inet_aton(address.host), sys.byteorder)
    return f"{number:08X}:{address.port:04X}"
