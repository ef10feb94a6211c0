"""The lock of an overlay: shows the daemon that an overlay of editd over its workspace is open.

An overlay keeps the inodes of the files that its programs have looked up, and no call shows that. So the
process that opens an overlay first locks the workspace's folder for reading, and the daemon asks for such a
lock. The lock belongs to an open file, which the process shares with its caller. It ends when both have
closed it or were killed, whether or not a daemon ran meanwhile.

A folder can be locked for reading only (fcntl(2)), so the lock never waits and keeps no other program from
anything. Imports nothing of editd, because a person waits for the start of the process that locks.
"""

from __future__ import annotations

import fcntl
import struct

_FLOCK = "hhqqi"  # struct flock64: type, whence, start, length, process
_WHOLE = (0, 0, 0, 0)  # from the beginning to the end, by no process: F_OFD_SETLK wants 0


def lock_overlay(descriptor: int) -> None:
    """Lock a folder that is open for reading, until its descriptor is closed everywhere. Raises OSError."""
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, struct.pack(_FLOCK, fcntl.F_RDLCK, *_WHOLE))


def has_overlay(descriptor: int) -> bool:
    """Return whether another descriptor of this folder is locked; True if the system cannot answer."""
    request = getattr(fcntl, "F_OFD_GETLK", None)
    if request is None:
        return True
    try:
        answer = fcntl.fcntl(descriptor, request, struct.pack(_FLOCK, fcntl.F_WRLCK, *_WHOLE))
    except OSError:
        return True
    kind: int = struct.unpack_from(_FLOCK, answer)[0]
    return kind != fcntl.F_UNLCK
