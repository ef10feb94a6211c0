"""The process on the other end of a Unix socket, as the kernel reports it."""

from __future__ import annotations

import os
import select
import socket
import struct
from typing import Protocol

from msgspec import Struct

from editd.system.native import NATIVE

_UCRED = struct.Struct("iII")  # struct ucred of unix(7): pid, uid, gid


class Peer(Struct, frozen=True):
    """The process that connected. `pid` is for logs only: it may have ended, and been used again.

    It is 0 if the system does not name the process.
    """

    pid: int
    uid: int
    gid: int


class Socket(Protocol):
    """The used part of a socket; asyncio's TransportSocket has it too."""

    def getsockopt(self, level: int, option: int, size: int, /) -> bytes: ...
    def fileno(self) -> int: ...


def peer_of(connected: Socket) -> Peer:
    """Return the peer of a connected Unix socket. Raises OSError if there is none.

    Without a system that names it, it counts as ours: the permissions of the socket keep others out.
    """
    if NATIVE.peer_credentials is None:
        return Peer(0, os.geteuid(), os.getegid())
    credentials = connected.getsockopt(socket.SOL_SOCKET, NATIVE.peer_credentials, _UCRED.size)
    return Peer(*_UCRED.unpack(credentials))


def may_connect(peer: Peer) -> bool:
    """Return whether the peer is the user that the daemon runs as, or root."""
    return peer.uid in (os.geteuid(), 0)


def has_hung_up(connected: Socket) -> bool:
    """Return whether the peer neither writes nor reads any more: it has ended, or closed both halves."""
    poll = select.poll()
    poll.register(connected.fileno(), 0)  # POLLHUP is reported without being requested
    return bool(poll.poll(0))
