"""The daemon's own files, which outlive a power cut: replaced in one step and synced."""

from __future__ import annotations

import os

from editd.system.filesystem import write_whole


def replace_file_durably(path: str, content: bytes, *, temporary: str = ".new") -> None:
    """Replace the file in one step, and return when the new one outlives a power cut. Raises OSError."""
    replace_file(path, content, temporary=temporary)
    sync_path(os.path.dirname(path))


def replace_file(path: str, content: bytes, *, temporary: str = ".new") -> None:
    """Replace the file: a reader, now or after a crash, sees the old or the new content, whole.

    A crash may leave a file with `temporary` at the end of its name. After a power cut the old content may be
    back, until the folder is synced. Raises OSError.
    """
    descriptor = os.open(path + temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        write_whole(descriptor, content)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.rename(path + temporary, path)


def read_or_empty(path: str) -> bytes:
    """Return the content of the file at `path`, or nothing if there is no file. Raises OSError."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return b""


def sync_path(path: str) -> None:
    """Make the bytes of a file, or the names in a folder, durable. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
