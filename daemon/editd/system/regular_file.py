"""Regular files of other programs, opened without blocking on a FIFO or a terminal."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import BufferedReader

_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NULL = os.makedev(1, 3)  # /dev/null: users link to it for an empty file


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
        found = os.stat(path)
    except (OSError, ValueError):
        return False
    return not (_is_plain(found) or stat.S_ISDIR(found.st_mode))


def git_folder(path: bytes) -> bytes | None:
    """Return git's own folder, absolute: a `.git` or the one that it names (gitrepository-layout(5))."""
    if os.path.isdir(path):
        return path
    try:
        with open_regular(path) as file:
            text = file.read(65536)
    except (OSError, ValueError):
        return None
    if not text.startswith(b"gitdir: ") or b"\0" in text:
        return None
    return os.path.normpath(os.path.join(os.path.dirname(path), text[8:].rstrip(b"\r\n")))


def users_git_files() -> Iterator[bytes]:
    """Yield the files that git reads with every repository of a user (git-config(1) and gitignore(5))."""
    home = os.fsencode(os.path.expanduser("~"))
    yield os.path.join(home, b".gitconfig")
    folder = os.environb.get(b"XDG_CONFIG_HOME") or os.path.join(home, b".config")
    for name in (b"config", b"ignore", b"attributes"):
        yield os.path.join(folder, b"git", name)


def _is_plain(found: os.stat_result) -> bool:
    return stat.S_ISREG(found.st_mode) or (stat.S_ISCHR(found.st_mode) and found.st_rdev == _NULL)
