"""The messages between a caller and its fork: tuples of plain values, with descriptors beside them.

Both sides are of one user, one version and one interpreter, and have compared their states before. So
`marshal` is enough, which is built in. One message is one packet of the socket, and a larger one is not sent.
"""

from __future__ import annotations

import _socket
import marshal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

MESSAGE_BYTES_MAX = 1 << 21
DESCRIPTORS_MAX = 8
CREDENTIALS_BYTES = 12  # struct ucred: pid, uid and gid, each an int
INT = 4

# The requests of a fork to its caller, and the end of both.
CONNECT, START, PIN, EXIT = "connect", "start", "pin", "exit"


def socket() -> _socket.socket:
    """Return a new socket for whole packets."""
    return _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)


def send(stream: _socket.socket, message: tuple[Any, ...], descriptors: Sequence[int] = ()) -> None:
    """Send a message. Raises OSError, also for one that is too large."""
    packed = b"".join(number.to_bytes(INT, sys.byteorder) for number in descriptors)
    beside = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, packed)] if packed else []
    stream.sendmsg([marshal.dumps(message)], beside)


def receive(stream: _socket.socket) -> tuple[tuple[Any, ...], list[int], int]:
    """Return a message, its descriptors, and the process that sent it (0 if that was not asked).

    Raises ConnectionError at the end, and OSError.
    """
    room = _socket.CMSG_SPACE(DESCRIPTORS_MAX * INT) + _socket.CMSG_SPACE(CREDENTIALS_BYTES)
    packet, beside, _, _ = stream.recvmsg(MESSAGE_BYTES_MAX, room, _socket.MSG_CMSG_CLOEXEC)
    if not packet:
        raise ConnectionResetError("the other side has ended")
    descriptors: list[int] = []
    sender = 0
    for _, kind, content in beside:
        numbers = [
            int.from_bytes(content[at : at + INT], sys.byteorder) for at in range(0, len(content), INT)
        ]
        if kind == _socket.SCM_RIGHTS:
            descriptors += numbers
        else:
            sender = numbers[0]
    return marshal.loads(packet), descriptors, sender  # noqa: S302  # of the same user and state


def peer_of(stream: _socket.socket) -> tuple[int, int]:
    """Return the process and the user that connected or listened, as the kernel has them."""
    raw = stream.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, CREDENTIALS_BYTES)
    return int.from_bytes(raw[:INT], sys.byteorder), int.from_bytes(raw[INT : 2 * INT], sys.byteorder)
