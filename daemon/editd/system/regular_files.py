"""Regular files of other programs, opened without blocking on a FIFO or a terminal."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from io import BufferedReader

_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NULL = os.stat(os.devnull).st_rdev  # users link to it for an empty file


def open_regular(path: str | bytes) -> BufferedReader:
    """Open a regular file for reading, symbolic links followed. Raises OSError for other kinds."""
    descriptor = os.open(path, _FLAGS)
    try:
        if not _is_plain(os.fstat(descriptor)):
            raise OSError(errno.EINVAL, "not a regular file", path)
    except BaseException:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "rb")


def would_block(path: str | bytes) -> bool:
    """Return whether opening it for reading may wait, as for a FIFO: it is no regular file and no folder."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return False
    return not (_is_plain(status) or stat.S_ISDIR(status.st_mode))


def _is_plain(status: os.stat_result) -> bool:
    return stat.S_ISREG(status.st_mode) or (stat.S_ISCHR(status.st_mode) and status.st_rdev == _NULL)
