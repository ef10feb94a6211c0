"""The process on the other end of a Unix socket, as the kernel reports it."""

from __future__ import annotations

import os
import select
import socket
import struct
from typing import Protocol

from msgspec import Struct

_UCRED = struct.Struct("iII")  # struct ucred of unix(7): pid, uid, gid


class Peer(Struct, frozen=True):
    """The process that connected. `pid` is for logs only: it may have ended, and been used again."""

    pid: int
    uid: int
    gid: int


class Socket(Protocol):
    """The used part of a socket; asyncio's TransportSocket has it too."""

    def getsockopt(self, level: int, option: int, size: int, /) -> bytes: ...
    def fileno(self) -> int: ...


def peer_of(connected: Socket) -> Peer:
    """Return the peer of a connected Unix socket, by SO_PEERCRED. Raises OSError if there is none."""
    return Peer(*_UCRED.unpack(connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)))


def may_connect(peer: Peer) -> bool:
    """Return whether the peer is the user that the daemon runs as, or root."""
    return peer.uid in (os.geteuid(), 0)


def has_hung_up(connected: Socket) -> bool:
    """Return whether the peer neither writes nor reads any more: it has ended, or closed both halves."""
    poll = select.poll()
    poll.register(connected.fileno(), 0)  # POLLHUP is reported without being requested
    return bool(poll.poll(0))
