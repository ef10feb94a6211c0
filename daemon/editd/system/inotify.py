"""inotify(7): its three calls, and the typed events of its queue.

watchdog has its own binding, in a private module whose queue drops events of unknown watches. This one
is small enough to be read whole. Linux only.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from typing import TYPE_CHECKING, NamedTuple

from editd.system.native import NATIVE

if TYPE_CHECKING:
    from collections.abc import Iterator

MODIFY, ATTRIB, CLOSE_WRITE = 0x002, 0x004, 0x008
MOVED_FROM, MOVED_TO, CREATE, DELETE = 0x040, 0x080, 0x100, 0x200
DELETE_SELF, MOVE_SELF = 0x400, 0x800
UNMOUNT, OVERFLOW, IGNORED = 0x2000, 0x4000, 0x8000
IS_FOLDER = 0x4000_0000

_ONLY_FOLDERS, _NO_FOLLOW, _NOT_UNLINKED, _AS_WELL = 0x0100_0000, 0x0200_0000, 0x0400_0000, 0x2000_0000
ANY_NAME = MOVED_FROM | MOVED_TO | CREATE | DELETE
_SAFE = _ONLY_FOLDERS | _NOT_UNLINKED
FOLDER = ANY_NAME | MODIFY | ATTRIB | CLOSE_WRITE | DELETE_SELF | MOVE_SELF | _SAFE | _NO_FOLLOW
"""The events of a folder, without readers' events, because our own reading would fill the queue."""
NAMES = ANY_NAME | _SAFE | _AS_WELL
"""The events of coming and going names, added to the other events of a folder."""

QUEUE_BYTES = 256 * 1024  # for one read
_HEAD = struct.Struct("iIII")  # watch, mask, cookie, length of the name

_libc = ctypes.CDLL(None, use_errno=True)


class InotifyEvent(NamedTuple):
    watch: int
    mask: int
    name: bytes  # in the watched folder; empty for the folder itself


def open_queue() -> int:
    """Open a queue that does not block. Raises OSError: EMFILE if the user has too many of them."""
    if not NATIVE.has_inotify:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    return _check(_libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK))


def add_watch(queue: int, path: bytes, mask: int) -> int:
    """Watch a folder; return the same number for the same inode. Raises OSError: ENOSPC at the limit."""
    return _check(_libc.inotify_add_watch(queue, path, ctypes.c_uint32(mask)))


def remove_watch(queue: int, watch: int) -> None:
    """Stop watching a folder. Raises OSError if the kernel has already dropped the watch."""
    _check(_libc.inotify_rm_watch(queue, watch))


def events_in(data: bytes) -> Iterator[InotifyEvent]:
    """Yield the events of one read of the queue, oldest first."""
    offset = 0
    while offset < len(data):
        watch, mask, _, length = _HEAD.unpack_from(data, offset)
        offset += _HEAD.size
        yield InotifyEvent(watch, mask, data[offset : offset + length].rstrip(b"\0"))
        offset += length


def _check(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return int(result)
