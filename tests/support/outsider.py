"""A program that is not editd and writes to the same file, or turns a folder into a symlink and back.

Run as a process of its own. What `write` prints at the end are those of its versions that it replaced
itself, told exactly: a save exchanges and reads what came out; what is written in place is known by its
inode, which is kept open so that it is not used again. A version that is neither there nor known to the
daemon was lost.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

SIZE = 64
KEPT_MAX = 16
OPEN_TRIES = 100
AT_FDCWD = -100
rename = ctypes.CDLL(None).renameat2


def exchange(path: str, other: str) -> None:
    rename(AT_FDCWD, os.fsencode(path), AT_FDCWD, os.fsencode(other), 2)  # RENAME_EXCHANGE


def version(number: int) -> bytes:
    return b"theirs %d" % number + b" " * (SIZE - len(b"theirs %d" % number))


def save(path: str, content: bytes) -> str:
    """Write a temporary and let it take the file's place; return what was there."""
    temporary = f"{path}.theirs"
    Path(temporary).write_bytes(content)
    exchange(temporary, path)
    replaced = Path(temporary).read_bytes()
    Path(temporary).unlink()
    return replaced.decode().strip()


class InPlace:
    """Write into the file as it is, in one of three ways."""

    def __init__(self, kind: str) -> None:
        self.flags = os.O_WRONLY | (os.O_TRUNC if kind == "truncate" else 0)
        self.seconds = 0.0002 if kind == "hold" else 0.0
        # The text in each file written to, by inode, newest last: while the daemon puts things back, two of
        # ours may take turns at the path.
        self.written: dict[int, tuple[int, str]] = {}

    def write(self, path: str, content: bytes) -> str:
        """Return the version that this replaced, if it was one of ours, else nothing."""
        descriptor = self.open(path)
        time.sleep(random.uniform(0, self.seconds))
        os.pwrite(descriptor, content, 0)
        os.ftruncate(descriptor, len(content))
        inode = os.fstat(descriptor).st_ino
        kept, replaced = self.written.pop(inode, (-1, ""))
        if kept < 0:
            kept = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY)
        self.written[inode] = kept, content.decode().strip()
        os.close(descriptor)
        if len(self.written) > KEPT_MAX:
            os.close(self.written.pop(next(iter(self.written)))[0])
        return replaced

    def open(self, path: str) -> int:
        """Open the file. FUSE says ENOENT if the file that it found has been removed by then."""
        for _ in range(OPEN_TRIES):
            with suppress(FileNotFoundError):
                return os.open(path, self.flags)
        return os.open(path, self.flags)


KINDS = ("save", "truncate", "overwrite", "hold")
PAUSE_SECONDS_MAX = 0.0003  # between two versions; they come at random up to so far apart


def write(kind: str, path: str, rounds: int, pause_seconds_max: float = PAUSE_SECONDS_MAX) -> None:
    writer = save if kind == "save" else InPlace(kind).write
    replaced = set()
    for number in range(rounds):
        replaced.add(writer(path, version(number)))
        time.sleep(random.uniform(0, pause_seconds_max))
    print(json.dumps(sorted(replaced)))


def flip(path: str, other: str) -> None:
    """Let a folder and a symlink change places until killed."""
    while True:
        exchange(path, other)


@contextmanager
def flipping(path: Path, other: Path) -> Iterator[None]:
    """Let a program of its own call `flip`."""
    process = subprocess.Popen([sys.executable, __file__, "flip", str(path), str(other)])
    try:
        yield
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    if sys.argv[1] == "flip":
        flip(sys.argv[2], sys.argv[3])
    write(sys.argv[1], sys.argv[2], int(sys.argv[3]), *map(float, sys.argv[4:]))
