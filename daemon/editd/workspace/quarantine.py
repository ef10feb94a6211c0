"""What was replaced, kept for a moment: somebody may write to it yet.

Whoever is in the middle of open(2) when a file is replaced may have found the old one and not opened it
yet: no lease shows that, and what is then written goes to a file that has been looked at already. So that
file is kept, out of the workspace, and looked at once more before it is removed (C4).
"""

from __future__ import annotations

import os
import stat
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import Struct

from editd.errors import InUse, Refused
from editd.system.filesystem import open_folder
from editd.values.path import WorkspacePath
from editd.workspace.reader import read_name
from editd.workspace.temp_file_pool import TempFilePool

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from editd.system.filesystem import Disk
    from editd.values.content import FileState, Version
    from editd.workspace.staged_change import StagedChange

KEPT_SECONDS = 1.0  # a thousand times what an open takes that waits for nothing
KEPT_SECONDS_MAX = 3.0  # while edits come without a pause: a look in a thread takes a tenth of their time
KEPT_BYTES_MAX = 256 * 1024 * 1024  # beyond it the oldest go sooner
LOOKS_MAX = 1000  # in one go: some 0.1 s of a thread


class ReplacedFile(Struct):
    """A file that was replaced."""

    name: bytes
    path: WorkspacePath | None = None  # None: a daemon that was killed has left it
    version: Version | None = None  # that it was looked at with
    size: int = 0
    since: float | None = None  # when it was first seen here
    was_looked_at: bool = False  # and what was found is recorded


class QuarantineCheck(Struct, frozen=True):
    """What a look at one of them has shown: nothing, where it is just gone."""

    kept: ReplacedFile
    state: FileState | None = None  # what somebody has written into it: it is still there
    spare: bytes | None = None  # the name of the spare that it has become
    is_busy: bool = False  # it is being written right now
    failure: OSError | None = None


class Quarantine:
    """The files that were replaced lately, in a folder of the daemon's own."""

    def __init__(self, folder: str) -> None:
        """Raises OSError where the folder cannot be made."""
        os.makedirs(folder, 0o700, exist_ok=True)
        self._folder = open_folder(folder)
        self.spares = TempFilePool(self._folder)
        self._kept = deque(ReplacedFile(name) for name in self._folder.names() if not self._was_empty(name))
        self._bytes = 0
        self._due: list[ReplacedFile] = []  # what is being looked at

    def keep(self, disk: Disk, item: StagedChange) -> bool:
        """Take in what the item has replaced; False where that cannot be, and it is to be removed."""
        before = item.change.before
        if before is None or before.is_symlink:
            return False
        try:
            if not (item.is_spare or item.is_linked):  # else it has gone there when it was replaced
                with disk.folder(item.aside) as aside:
                    aside.move(item.temporary, self._folder, item.temporary)
        except OSError:
            return False
        held = item.change.after if item.is_taken_back else before
        assert held is not None
        self._keep(ReplacedFile(item.temporary, item.change.path, held.version, len(held.content)))
        return True

    def __len__(self) -> int:
        return len(self._kept)

    def unlooked(self) -> list[ReplacedFile]:
        """What is kept and was not looked at yet; each tells by itself when that is done."""
        return [kept for kept in (*self._due, *self._kept) if not kept.was_looked_at]

    def stat(self, name: bytes) -> os.stat_result | None:
        """What lies here under the name of a temporary; None if nothing does."""
        return self._folder.stat(name)

    def read(self, name: bytes, path: WorkspacePath) -> FileState | None:
        """What it holds, to be called `path` in a refusal; None if it is gone. Raises InUse, and OSError."""
        found = read_name(self._folder, name, path, quiet=True)
        return None if found is None else found.state()

    def remove(self, name: bytes) -> None:
        """Remove it; it is no error that it is gone."""
        with suppress(FileNotFoundError):
            self._folder.remove(name)

    def due(self, now: float | None, *, is_busy: bool = False) -> list[ReplacedFile]:
        """What has been kept for long enough, to be looked at with `look`, and then given to `written`.

        `now` is in seconds of any clock that never goes back; None is the end of it all. `is_busy`: edits
        come without a pause, so that it waits for one, unless it is pressing.
        """
        for kept in reversed(self._kept):
            if kept.since is not None:
                break
            kept.since = now
        due: list[ReplacedFile] = []
        self._due = due
        if is_busy and not self._is_pressing(now):
            return due
        while self._kept and (now is None or len(due) < LOOKS_MAX):
            kept = self._kept[0]
            is_old = now is None or kept.since is None or now - kept.since >= KEPT_SECONDS
            if not is_old and self._bytes <= KEPT_BYTES_MAX:
                break
            due.append(self._kept.popleft())
            self._bytes -= kept.size
        return due

    def _is_pressing(self, now: float | None) -> bool:
        """Whether what is kept is needed for spares, or is too much, or has been kept for too long."""
        since = self._kept[0].since if self._kept else None
        is_late = now is not None and since is not None and now - since >= KEPT_SECONDS_MAX
        return is_late or self.spares.is_low or self._bytes > KEPT_BYTES_MAX

    def look(self, due: Sequence[ReplacedFile], *, at_the_end: bool = False) -> list[QuarantineCheck]:
        """Look at each, and let it go where nobody has written into it. In any thread: the disk is slow."""
        return [self._look(kept, at_the_end) for kept in due]

    def _look(self, kept: ReplacedFile, at_the_end: bool) -> QuarantineCheck:
        if kept.version is not None and not at_the_end:
            spare = self.spares.reuse(kept.name, kept.version)
            if spare is not None:
                return QuarantineCheck(kept, spare=spare)
        try:
            called = kept.path or WorkspacePath(os.fsdecode(kept.name))
            found = read_name(self._folder, kept.name, called, quiet=not at_the_end)
        except InUse:
            return QuarantineCheck(kept, is_busy=True)
        except Refused:
            found = None
        except OSError as error:
            return QuarantineCheck(kept, failure=error)
        state = None if found is None else found.state()
        if state is not None and state.version != kept.version:
            return QuarantineCheck(kept, state)
        with suppress(OSError):
            self.remove(kept.name)
        return QuarantineCheck(kept)

    def written(self, looks: Sequence[QuarantineCheck]) -> Generator[tuple[WorkspacePath | None, FileState]]:
        """Tell what somebody wrote into what was looked at.

        What is told is removed when the next is asked for: whoever cannot record it is told again later. What
        a killed daemon has left is told without a path, whatever it holds. Raises OSError where one could not
        be read, after the others; it is looked at again.
        """
        for look in looks:
            look.kept.was_looked_at = True
        told = deque(look for look in looks if look.state is not None)
        for look in looks:
            if look.spare is not None:
                self.spares.add(look.spare)
            elif look.is_busy or look.failure is not None:  # the others need not wait for that
                look.kept.since = None  # a program may have it open for days: it is looked at once a second
                self._keep(look.kept)
        try:
            while told:
                look = told[0]
                assert look.state is not None
                yield look.kept.path, look.state
                told.popleft()
                with suppress(OSError):
                    self.remove(look.kept.name)
        finally:
            for look in told:
                self._keep(look.kept)
        for look in looks:
            if look.failure is not None:
                raise look.failure

    def _keep(self, kept: ReplacedFile) -> None:
        self._kept.append(kept)
        self._bytes += kept.size

    def _was_empty(self, name: bytes) -> bool:
        """Whether it was a spare, or as good as one; then it is gone now."""
        found = self.stat(name)
        if found is None or found.st_size or not stat.S_ISREG(found.st_mode):
            return False
        self.remove(name)
        return True
