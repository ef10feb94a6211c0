"""Spares: empty files made ahead, each ready to be written and to change places with what it replaces.

Making a file is the dearest step of staging (ext4 passes over every inode that was deleted lately), so an
edit of a file that is there already makes none: it writes into a spare, and what it replaces becomes one,
emptied, when it has been kept for long enough, nobody has it open, and it still holds what the history has.

A spare's name is that of a temporary: the transaction that takes it takes its token too, so that nothing is
renamed on the way. What a crash leaves of them is found by that name, like any temporary.
"""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

from editd.system.filesystem import file_flags, free_inodes, read_whole, take_lease
from editd.values.content import version_of
from editd.workspace.directories import stat_directory
from editd.workspace.metadata import attributes_of
from editd.workspace.staged_change import temporary_name, token_of

if TYPE_CHECKING:
    from editd.system.filesystem import RealFolder
    from editd.values.content import Version

AHEAD = 1024  # what one client writes in a second as fast as it can: then what it has replaced comes back
BATCH = 64  # made in one go: 10 ms of a thread where many files were removed lately, else 2
FEW = 256  # what eight clients take while the next are asked for and looked at
SPARES_MAX = 4096  # what eight clients replace in two seconds: so many come back when they pause
SHARE = 100  # one of so many files that there is room for, at most: the others are not ours to take
PERMISSIONS = 0o644  # what most files have: then they need not be set again


class TempFilePool:
    """The empty files in a folder of the daemon's own that nobody else reaches."""

    def __init__(self, folder: RealFolder) -> None:
        self.folder = folder
        self._names: list[bytes] = []  # each `temporary_name(token, 0)`
        there = stat_directory(folder, b".")
        self._device, self._owner = there.st_dev, (os.geteuid(), os.getegid())
        self._flags: int | None = None  # of a file as the file system makes it
        self._foreign: set[bytes] = set()  # folders of the workspace that no file can be moved to from here
        self._most = SPARES_MAX  # or fewer, where room for files is scarce

    @property
    def is_low(self) -> bool:
        """Whether more are needed soon, if edits go on as fast as they can."""
        return len(self._names) < FEW

    def needed(self) -> int:
        """How many to `make` next, up to `AHEAD`, or to our share where room for files is scarce."""
        if len(self._names) >= AHEAD:
            return 0
        left = free_inodes(self.folder)
        self._most = SPARES_MAX if left is None else min(SPARES_MAX, left // SHARE)
        return max(0, min(BATCH, AHEAD - len(self._names), self._most - len(self._names)))

    def make(self, count: int) -> list[bytes]:
        """Make so many, to be given to `add`, or fewer. In any thread. Raises OSError where it is not one."""
        made: list[bytes] = []
        try:
            made.extend(self._make() for _ in range(count))
        except OSError:
            if not made:
                raise
        return made

    def _make(self) -> bytes:
        name = _fresh_name()
        descriptor = self.folder.create(name, 0o600)
        try:
            os.fchmod(descriptor, PERMISSIONS)
            self._flags = file_flags(descriptor)
        finally:
            os.close(descriptor)
        return name

    def token(self) -> str:
        """A token for a transaction, never used before: the next spare's, where there is one.

        When it is staged, `keep` says so.
        """
        return token_of(self._names[-1]) if self._names else secrets.token_hex(8)

    def keep(self, token: str) -> None:
        """Give the spare that has lent its token, and was not taken, another name. Raises OSError."""
        if self._names and self._names[-1] == temporary_name(token, 0):
            name = _fresh_name()
            self.folder.move(self._names.pop(), self.folder, name)
            self._names.append(name)

    def take(self, name: bytes, device: int, folder: bytes) -> int | None:
        """Call a spare `name` and return its descriptor to write to; None where there is none for it.

        It is to change places with a file of that device in that folder of the workspace. Raises OSError.
        """
        if not self._names or device != self._device or folder in self._foreign:
            return None
        spare = self._names.pop()
        if spare != name:
            self.folder.move(spare, self.folder, name)
        return self.folder.open_to_write(name)

    def refuse_all(self) -> None:
        """Have none: nothing can change places with a spare."""
        self._most = 0

    def clear(self) -> None:
        """Remove those that are left."""
        while self._names:
            with suppress(OSError):
                self.folder.remove(self._names.pop())

    def refuse(self, folder: bytes) -> None:
        """No file can be moved from here to that folder: it is another mount (EXDEV)."""
        self._foreign.add(folder)

    def reuse(self, name: bytes, version: Version) -> bytes | None:
        """Make a spare of a file in the folder that still holds this version, and return what to `add`.

        None where that cannot be, and the file is as it was, or gone: nobody else may have it open, be it
        only to read, and it must be as a new file would be: one name, our own, no attributes. In any thread.
        """
        if len(self._names) >= self._most:
            return None
        try:
            descriptor = self.folder.open_to_write(name)
        except OSError:
            return None
        try:
            found = os.fstat(descriptor)
            if not self._is_like_new(descriptor, found):
                return None
            if version_of(read_whole(descriptor, found.st_size)) != version:
                return None
            return self._emptied(name, descriptor, found)
        except OSError:
            return None
        finally:
            os.close(descriptor)  # ext4 would flush what is written after a truncation by this descriptor

    def _emptied(self, name: bytes, descriptor: int, found: os.stat_result) -> bytes:
        """Its name as a spare, which it has before it is emptied: nobody shall take it for written to."""
        spare = _fresh_name()
        self.folder.move(name, self.folder, spare)
        try:
            os.ftruncate(descriptor, 0)
            if stat.S_IMODE(found.st_mode) != PERMISSIONS:
                os.fchmod(descriptor, PERMISSIONS)
        except OSError:
            with suppress(OSError):
                self.folder.remove(spare)
            raise
        return spare

    def add(self, spare: bytes) -> None:
        """Take in what a thread has made; beyond what we may have, which it may pass by, it goes."""
        if len(self._names) < self._most:
            self._names.append(spare)
            return
        with suppress(OSError):
            self.folder.remove(spare)

    def _is_like_new(self, descriptor: int, found: os.stat_result) -> bool:
        """Whether it differs from a new file in what it holds and in its permissions at most.

        Until it is closed, nobody else opens it then.
        """
        if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
            return False
        if (found.st_uid, found.st_gid) != self._owner or file_flags(descriptor) != self._flags:
            return False
        return not attributes_of(descriptor) and take_lease(descriptor, alone=True)


def _fresh_name() -> bytes:
    return temporary_name(secrets.token_hex(8), 0)
