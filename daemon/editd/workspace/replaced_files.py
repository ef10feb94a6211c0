"""Replaced files: kept in quarantine for a moment, checked once more, and reused for the next edits.

`Quarantine` has the files that a program may still write to, and `TempFilePool` the empty ones.

Never uses the inode of one path for another path: an overlay, a descriptor that names a file without opening
it, or a file handle may still lead to that inode, and no call shows those.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import Struct

from editd.errors import InUse, Refused
from editd.system.filesystem import (
    attributes_of,
    file_flags,
    free_inodes,
    gives_to_new_files,
    make_apart,
    open_folder,
    read_whole,
    take_lease,
)
from editd.values.content import SYMLINK, version_of
from editd.values.path import WorkspacePath
from editd.workspace.reader import read_name
from editd.workspace.staged_change import stat_directory, temporary_name, token_of

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from editd.system.filesystem import Disk, OpenFolder
    from editd.values.content import FileState, Version
    from editd.workspace.staged_change import StagedChange


# Quarantine: replaced files, kept for a moment because a program may still write to them.
#
# A program inside open(2) may have found the old file without having opened it yet when the file is
# replaced. No lease shows that, and its write goes to a file that was already checked. So the file is kept,
# outside of the workspace, and checked once more before it is removed (C4).

KEPT_SECONDS = 1.0  # a thousand times the duration of an open(2) that does not block
KEPT_SECONDS_MAX = 3.0  # under continuous edits, because the checks take a tenth of their time
KEPT_BYTES_MAX = 256 * 1024 * 1024  # beyond it, the oldest are checked sooner
CHECKS_MAX = 1000  # in one call: some 0.1 s of a thread


class ReplacedFile(Struct):
    """A file that was replaced."""

    name: bytes
    path: WorkspacePath | None = None  # None: left by a killed daemon
    version: Version | None = None  # when it was replaced
    size: int = 0
    since: float | None = None  # not before its replacement; None until `date`
    is_checked: bool = False  # and the result is recorded


class QuarantineCheck(Struct, frozen=True):
    """The result of a check of one file; only `file` if the file was unchanged and is removed."""

    file: ReplacedFile
    state: FileState | None = None  # new content, written after the replacement; the file still exists
    pooled: bytes | None = None  # its name in the pool, if it is reused
    is_busy: bool = False  # a program has it open for writing
    failure: OSError | None = None


class Quarantine:
    """The recently replaced files, in a folder of the daemon's own."""

    def __init__(self, folder: str) -> None:
        """Open `folder`, or create it. Raises OSError."""
        make_apart(folder)
        self._folder = open_folder(folder)
        self.pool = TempFilePool(self._folder)
        self._kept = deque(
            ReplacedFile(name) for name in self._folder.names() if not self._remove_if_empty(name)
        )
        self._bytes = 0
        self._due: list[ReplacedFile] = []  # under check

    def close(self) -> None:
        """Close the folder. The files in it stay for the next start."""
        self._folder.close()

    def keep(self, disk: Disk, item: StagedChange) -> bool:
        """Take over the file that the item replaced; False if it needs no quarantine. Raises OSError."""
        before = item.change.before
        if before is None or before.mode == SYMLINK:
            return False
        if not (item.is_pooled or item.is_linked):  # otherwise it is in this folder already
            with disk.folder(item.temp_dir) as temp_dir:
                temp_dir.move(item.temporary, self._folder, item.temporary)
        state = item.change.after if item.is_taken_back else before
        assert state is not None
        self._kept.append(ReplacedFile(item.temporary, item.change.path, state.version, len(state.content)))
        self._bytes += len(state.content)
        return True

    def __len__(self) -> int:
        return len(self._kept)

    def names(self) -> set[bytes]:
        """Return the names of the files that still have their content."""
        return {file.name for file in (*self._due, *self._kept)}

    def unchecked_files(self) -> list[ReplacedFile]:
        """Return the files that are not checked yet; a check sets `is_checked`."""
        return [file for file in (*self._due, *self._kept) if not file.is_checked]

    def stat(self, name: bytes) -> os.stat_result | None:
        """Return the lstat result of a temporary's name in the quarantine; None if it does not exist."""
        return self._folder.stat(name)

    def read(self, name: bytes, path: WorkspacePath) -> FileState | None:
        """Return the content of a file; None if it does not exist. `path` is its name in errors.

        Raises InUse, and OSError.
        """
        content = read_name(self._folder, name, path, quiet=True)
        return None if content is None else content.state()

    def remove(self, name: bytes) -> None:
        """Remove a file; a missing one is no error."""
        with suppress(FileNotFoundError):
            self._folder.remove(name)

    def due(self, now: float | None, *, is_busy: bool = False) -> list[ReplacedFile]:
        """Return the files that are old enough, to be passed to `check`, and its result to `late_writes`.

        `now` is in seconds of a monotonic clock; None at the daemon's end. `is_busy`: edits come without a
        pause, so wait for one unless the check is urgent.
        """
        if now is not None:
            self.date(now)
        self.pool.expect(len(self._kept))
        due: list[ReplacedFile] = []
        self._due = due
        if is_busy and not self._is_urgent(now):
            return due
        while self._kept and (now is None or len(due) < CHECKS_MAX):
            file = self._kept[0]
            is_old = now is None or file.since is None or now - file.since >= KEPT_SECONDS
            if not is_old and self._bytes <= KEPT_BYTES_MAX:
                break
            due.append(self._kept.popleft())
            self._bytes -= file.size
        return due

    def date(self, now: float) -> None:
        """Begin the time of the files that were kept since the last call."""
        for file in reversed(self._kept):
            if file.since is not None:
                break
            file.since = now

    def seconds_left(self, now: float) -> float | None:
        """Return the seconds until `due` returns files in a pause, or None if there are none."""
        if not self._kept:
            return None
        since = self._kept[0].since
        return 0.0 if since is None or self._bytes > KEPT_BYTES_MAX else KEPT_SECONDS - (now - since)

    def _is_urgent(self, now: float | None) -> bool:
        """Return whether the pool needs files, or the quarantine is too large or its oldest file too old."""
        since = self._kept[0].since if self._kept else None
        is_late = now is not None and since is not None and now - since >= KEPT_SECONDS_MAX
        return is_late or self.pool.is_low or self._bytes > KEPT_BYTES_MAX

    def check(
        self, due: Sequence[ReplacedFile], *, at_the_end: bool = False, is_overlaid: bool = False
    ) -> list[QuarantineCheck]:
        """Check each file; remove or reuse it if it is unchanged. Runs in any thread: the disk is slow.

        With `is_overlaid`, an overlay over the workspace is open and may still show these files: none is
        reused.
        """
        return [self._check_file(file, at_the_end, is_overlaid) for file in due]

    def _check_file(self, file: ReplacedFile, at_the_end: bool, is_overlaid: bool) -> QuarantineCheck:
        if file.path is not None and file.version is not None and not (at_the_end or is_overlaid):
            pooled = self.pool.reuse(file.name, file.version)
            if pooled is not None:
                return QuarantineCheck(file, pooled=pooled)
        try:
            path = file.path or WorkspacePath(os.fsdecode(file.name))
            content = read_name(self._folder, file.name, path, quiet=not at_the_end)
        except InUse:
            return QuarantineCheck(file, is_busy=True)
        except Refused:
            content = None
        except OSError as error:
            return QuarantineCheck(file, failure=error)
        state = None if content is None else content.state()
        if state is not None and state.version != file.version:
            return QuarantineCheck(file, state)
        with suppress(OSError):
            self.remove(file.name)
        return QuarantineCheck(file)

    def late_writes(
        self, checks: Sequence[QuarantineCheck]
    ) -> Generator[tuple[WorkspacePath | None, FileState]]:
        """Yield the path and the content of each file that a program wrote to after it was replaced.

        A file is removed when the next one is requested. If the caller cannot record it, a later check yields
        it again. A file of a killed daemon is yielded without a path, regardless of content. If a file could
        not be read, it is kept for another check, and its OSError is raised at the end.
        """
        for check in checks:
            check.file.is_checked = True
        changed = deque(check for check in checks if check.state is not None)
        for check in checks:
            if check.pooled is not None:
                assert check.file.path is not None
                self.pool.add(check.pooled, check.file.path)
            elif check.is_busy or check.failure is not None:  # the other files do not wait for it
                check.file.since = None  # a program may have it open for days: check once a second
                self._keep(check.file)
        try:
            while changed:
                check = changed[0]
                assert check.state is not None
                yield check.file.path, check.state
                changed.popleft()
                with suppress(OSError):
                    self.remove(check.file.name)
        finally:
            for check in changed:
                self._keep(check.file)
        for check in checks:
            if check.failure is not None:
                raise check.failure

    def _keep(self, file: ReplacedFile) -> None:
        self._kept.append(file)
        self._bytes += file.size

    def _remove_if_empty(self, name: bytes) -> bool:
        """Remove a file if it is empty, such as an unused file of the pool; return whether it was."""
        status = self.stat(name)
        if status is None or status.st_size or not stat.S_ISREG(status.st_mode):
            return False
        self.remove(name)
        return True


# The temporary file pool: empty files created ahead, each ready to be exchanged with another file.
#
# Creating a file is the slowest step of staging (ext4 skips every recently deleted inode one by one). So an
# edit of an existing file creates none: it writes into a pooled file, and exchanges it with the target. If
# a request has more files than the pool, the others are made in the pool's folder, too. The replaced file
# becomes a pooled file, too: it is emptied after its time in the quarantine, if no program has it open and
# its content is in the history.
#
# A used pooled file is for its own path only. A lease shows open files, and neither the cached names of an
# overlay, nor descriptors that only name a file, nor file handles. Each of them leads to the old inode, so
# its reader must find no other path's content in it. While an overlay of editd is open
# (`system.overlay_lock`), its reader must not find the emptied file either, because its changes are
# applied: no file is reused then.
#
# A pooled file is named like a temporary. The transaction that takes the file also takes the token in its
# name, which saves a rename. After a crash, pooled files are found by that name, like every temporary.

AHEAD = 1024  # at least: edits of one client in a second, at full speed; then replaced files return
BATCH = 64  # created in one call: 10 ms of a thread if many files were removed lately, otherwise 2 ms
FEW = 256  # edits of eight clients while the next batch is requested and created
POOL_FILES_MAX = 4096  # fresh, and used: edits of eight clients in two seconds, which return in a pause
SHARE = 100  # of each kind at most one of so many free inodes; the others are not ours to take
PERMISSIONS = 0o644  # as of most files, which then need no change


class TempFilePool:
    """The empty files in a folder of the daemon's own, which no other program uses."""

    def __init__(self, folder: OpenFolder) -> None:
        self.folder = folder
        self._fresh: list[bytes] = []  # for any path; each `temporary_name(token, 0)`
        self._used: dict[WorkspacePath, list[bytes]] = {}  # by their paths, the longest unused first
        self._used_count = 0
        status = stat_directory(folder, b".")
        self._device, self._owner = status.st_dev, (os.geteuid(), os.getegid())
        self._flags: int | None = None  # inode flags of a new file
        self._is_labelled = False  # a new file has attributes, such as a label by its folder
        self.granted = 0  # the permissions that the umask leaves to a new file
        self.status: os.stat_result | None = None  # of any pooled file, whose owner and permissions all have
        self._foreign: set[bytes] = set()  # folders on other mounts, out of reach of a rename
        self._size_max = POOL_FILES_MAX  # or fewer if inodes are scarce
        self._ahead = AHEAD  # or the largest number of edits whose files were in the quarantine at once

    @property
    def is_low(self) -> bool:
        """Return whether continuous edits would soon use up the pool."""
        return len(self) < FEW

    def __len__(self) -> int:
        return len(self._fresh) + self._used_count

    def expect(self, edits: int) -> None:
        """Prepare for bursts of so many edits before their replaced files return."""
        self._ahead = max(self._ahead, min(edits, POOL_FILES_MAX))

    def count_to_make(self) -> int:
        """Return how many files to `make` next, as edits need them, or our share if inodes are scarce.

        Used pooled files do not count, because an edit of another path cannot take them.
        """
        if len(self._fresh) >= self._ahead:
            return 0
        free = free_inodes(self.folder)
        self._size_max = POOL_FILES_MAX if free is None else min(POOL_FILES_MAX, free // SHARE)
        return max(0, min(BATCH, self._ahead - len(self._fresh), self._size_max - len(self._fresh)))

    def make(self, count: int) -> list[bytes]:
        """Create up to `count` files, for `add`. For any thread. Raises OSError if it created none."""
        made: list[bytes] = []
        try:
            made.extend(self._make() for _ in range(count))
        except OSError:
            if not made:
                raise
        return made

    def _make(self) -> bytes:
        name = _fresh_name()
        descriptor = self.folder.create(name, 0o777)  # no other user enters this folder
        try:
            self.granted = stat.S_IMODE(os.fstat(descriptor).st_mode)
            os.fchmod(descriptor, PERMISSIONS)
            self._flags = file_flags(descriptor)
            self._is_labelled = bool(attributes_of(descriptor))
            status = os.fstat(descriptor)
            self.status = status if (status.st_uid, status.st_gid) == self._owner else None
        finally:
            os.close(descriptor)
        return name

    def token(self, path: WorkspacePath) -> str:
        """Return an unused token for a transaction: the next pooled file's for `path`, if there is one.

        Call `keep` after staging.
        """
        names = self._names_for(path)
        return token_of(names[-1]) if names else secrets.token_hex(8)

    def keep(self, token: str, path: WorkspacePath) -> None:
        """Rename the pooled file that provided this token for `path` if it was not taken. Raises OSError."""
        names = self._names_for(path)
        if names and names[-1] == temporary_name(token, 0):
            name = _fresh_name()
            self.folder.move(names[-1], self.folder, name)
            names[-1] = name

    def take(self, name: bytes, device: int, path: WorkspacePath, folder: bytes) -> int | None:
        """Rename a pooled file to `name`, or make one; return it open for writing, or None if none fits.

        The file to be replaced is at `path`, on `device`, in this `folder` of the workspace. Raises OSError.
        """
        if device != self._device or folder in self._foreign:
            return None
        while names := self._names_for(path):
            pooled = self._pop(names, path)
            if pooled != name:
                self.folder.move(pooled, self.folder, name)
            try:
                return self.folder.open_to_write(name)
            except BlockingIOError:  # another program's lease: its holder may keep the file
                self.folder.remove(name)
        return self._make_now(name)

    def _make_now(self, name: bytes) -> int | None:
        """Create one more pooled file, because a request has more files than the pool; None if none fits."""
        if self.status is None or not self._size_max:
            return None
        descriptor = self.folder.create(name, PERMISSIONS)
        try:
            os.fchmod(descriptor, PERMISSIONS)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def take_for_new(self, name: bytes, path: WorkspacePath, target: OpenFolder, folder: bytes) -> int | None:
        """Take a pooled file for a new file at `path`, in the open folder `target`; None without one.

        A watcher of that folder then sees one event, and no temporary. A file gets its group, its ACL and
        some flags from the folder that it is made in: then it must be made there. Raises OSError.
        """
        descriptor = target.open_itself()
        try:
            device = os.fstat(descriptor).st_dev
            if self.status is None or self._is_labelled or gives_to_new_files(descriptor):
                return None
        finally:
            os.close(descriptor)
        return self.take(name, device, path, folder)

    def _names_for(self, path: WorkspacePath) -> list[bytes]:
        """Return the list whose last file is the next for `path`: the files used there, or the fresh ones."""
        return self._used.get(path) or self._fresh

    def _pop(self, names: list[bytes], path: WorkspacePath) -> bytes:
        pooled = names.pop()
        if names is not self._fresh:
            self._used_count -= 1
            if not names:
                del self._used[path]
        return pooled

    def refuse_all(self) -> None:
        """Stay empty, because this file system cannot exchange files."""
        self._size_max = 0

    def clear(self) -> None:
        """Remove all pooled files."""
        names = [*self._fresh, *(name for used in self._used.values() for name in used)]
        self._fresh.clear()
        self._used.clear()
        self._used_count = 0
        for name in names:
            with suppress(OSError):
                self.folder.remove(name)

    def refuse(self, folder: bytes) -> None:
        """Give no more pooled files for this folder: it is on another mount (EXDEV)."""
        self._foreign.add(folder)

    def reuse(self, name: bytes, version: Version) -> bytes | None:
        """Turn a replaced file into a pooled file if it has this version; return its new name, for `add`.

        None if that is not possible, and the file is unchanged or gone. No other program may have it open,
        not even for reading. It must be like a new file: one link, our owner, no attributes. For any thread.
        """
        if not self._size_max:
            return None
        try:
            descriptor = self.folder.open_to_write(name)
        except OSError:
            return None
        try:
            status = os.fstat(descriptor)
            if not self._is_like_new(descriptor, status):
                return None
            if version_of(read_whole(descriptor, status.st_size)) != version:
                return None
            return self._empty(name, descriptor, status)
        except OSError:
            return None
        finally:
            # A later write must not use this descriptor: ext4 would flush it, because of the truncation.
            os.close(descriptor)

    def _empty(self, name: bytes, descriptor: int, status: os.stat_result) -> bytes:
        """Rename the file to a pooled file, then empty it; return the new name.

        In this order, a crash leaves no empty file that looks as if a program had truncated it.
        """
        pooled = _fresh_name()
        self.folder.move(name, self.folder, pooled)
        try:
            os.ftruncate(descriptor, 0)
            if stat.S_IMODE(status.st_mode) != PERMISSIONS:
                os.fchmod(descriptor, PERMISSIONS)
        except OSError:
            with suppress(OSError):
                self.folder.remove(pooled)
            raise
        return pooled

    def add(self, pooled: bytes, path: WorkspacePath | None = None) -> None:
        """Add a file from `make`, or one from `reuse` that was at `path`.

        Beyond the limit, the used pooled file whose path was idle for longest is removed.
        """
        if path is None:
            self._fresh.append(pooled)
            return
        names = self._used.pop(path, [])
        names.append(pooled)
        self._used[path] = names  # the last in order
        self._used_count += 1
        while self._used_count > self._size_max:
            oldest = next(iter(self._used))
            with suppress(OSError):
                self.folder.remove(self._pop(self._used[oldest], oldest))

    def _is_like_new(self, descriptor: int, status: os.stat_result) -> bool:
        """Return whether only content and permissions differ from a new file.

        Takes a lease, so that no other program opens the file before it is closed here.
        """
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
            return False
        if (status.st_uid, status.st_gid) != self._owner or file_flags(descriptor) != self._flags:
            return False
        return not attributes_of(descriptor) and take_lease(descriptor, alone=True)


def _fresh_name() -> bytes:
    return temporary_name(secrets.token_hex(8), 0)
