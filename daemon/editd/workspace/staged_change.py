"""Staged changes: the changes of one transaction on their way into the files.

Owns the names of temporaries, the checks before publishing, and the folders that are created for a change:
which changes cannot be published, and why.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from enum import StrEnum, auto
from typing import TYPE_CHECKING

from msgspec import Struct, field

from editd.errors import FileExists, NotAFile, PermissionDenied
from editd.system.filesystem import OpenFolder, write_whole
from editd.system.folded_names import folding_elsewhere
from editd.values.content import SYMLINK
from editd.values.name_key import key_of
from editd.values.path import TEMPORARY_PREFIX, split_path
from editd.workspace.protection import cause_in
from editd.workspace.reader import refusal_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from editd.system.filesystem import Disk, OpenFolder
    from editd.values.content import Change, FileState
    from editd.values.path import WorkspacePath
    from editd.workspace.reader import OpenFile, OpenFiles


_PREFIX = TEMPORARY_PREFIX.encode()


class StagedChange(Struct, eq=False):
    """A change with its target, `name` in `folder`, and its temporary, `temporary` in `temp_dir`."""

    change: Change[FileState]
    folder: bytes
    name: bytes
    temporary: bytes
    temp_dir: bytes  # `folder`, unless that cannot be created yet, or will be deleted
    is_mode_only: bool = False  # see the function
    is_in_place: bool = False  # written without a temporary (`workspace.in_place`)
    is_pooled: bool = False  # the temporary is from the pool, in the daemon's own folder, not in `temp_dir`
    is_linked: bool = False  # the replaced file has a link in the daemon's own folder
    is_taken_back: bool = False  # that link is our own version, after a revert to `before`
    cloned_from: tuple[int, int, int] | None = None  # identity of the file that the metadata was copied from
    open_file: OpenFile | None = None  # the file to be replaced, still open since it was read
    lost_metadata: list[str] = field(default_factory=list)  # names

    @property
    def warning(self) -> str:
        """Return a sentence about the lost metadata; "" if there is none."""
        if not self.lost_metadata:
            return ""
        names = ", ".join(self.lost_metadata)
        if self.change.after is None:
            return f"{self.change.path}: an undo brings back its bytes and its mode, but not {names}."
        return f"{self.change.path}: {names} could not be kept."


def is_mode_only(change: Change[FileState]) -> bool:
    """Return whether only the file's permissions change, which needs no temporary."""
    before, after = change.before, change.after
    if before is None or after is None or before.version != after.version:
        return False
    return change.source is None and SYMLINK not in (before.mode, after.mode)


def item_of(change: Change[FileState], temporary: bytes) -> StagedChange:
    """Return a staged change whose temporary is beside its target."""
    folder, _, name = change.path.raw.rpartition(b"/")
    return StagedChange(change, folder, name, temporary, folder, is_mode_only(change))


def temporary_name(token: str, index: int) -> bytes:
    """Return the name of a temporary, from the transaction's token and the index of the change."""
    return f"{TEMPORARY_PREFIX}{token}-{index}".encode()


def token_of(name: bytes) -> str:
    """Return the token in a temporary's name."""
    return os.fsdecode(name).removeprefix(TEMPORARY_PREFIX).rpartition("-")[0]


def is_temporary(name: bytes) -> bool:
    """Return whether a name is one of editd's temporaries."""
    return name.startswith(_PREFIX)


def folder_that_stays(folder: bytes, created: AbstractSet[str]) -> bytes:
    """Return `folder`, or the nearest above it that stays a folder when the paths `created` become files."""
    names = folder.split(b"/")
    for depth in range(len(names)):
        if os.fsdecode(b"/".join(names[: depth + 1])) in created:
            return b"/".join(names[:depth])
    return folder


class TransactionState(StrEnum):  # its members are hashed as fast as strings
    """The state of a transaction from its staging until its replaced files are gone (`engine.commit`)."""

    STAGED = auto()
    COMMITTED = auto()
    PUBLISHED = auto()
    FINISHED = auto()
    ABORTED = auto()
    BROKEN = auto()


# Any other transition is a bug. So no file is touched before its transaction is durable (C1).
TRANSITIONS: dict[TransactionState, frozenset[TransactionState]] = {
    TransactionState.STAGED: frozenset({TransactionState.COMMITTED, TransactionState.ABORTED}),
    TransactionState.COMMITTED: frozenset(
        {TransactionState.PUBLISHED, TransactionState.ABORTED, TransactionState.BROKEN}
    ),
    TransactionState.PUBLISHED: frozenset({TransactionState.FINISHED}),
    TransactionState.FINISHED: frozenset({TransactionState.FINISHED}),
    TransactionState.ABORTED: frozenset({TransactionState.ABORTED}),
    TransactionState.BROKEN: frozenset(),
}


class StagedFiles(Struct, eq=False):
    """One transaction's changes on their way into the files; none if the files have the changes already."""

    token: str = ""
    items: list[StagedChange] = field(default_factory=list)
    folders_made: list[bytes] = field(default_factory=list)
    state: TransactionState = TransactionState.STAGED
    warnings: tuple[str, ...] = ()  # about the metadata that files lose, or that an undo cannot restore

    @property
    def is_visible(self) -> bool:
        """Whether temporaries are in the workspace, or folders to be removed. Spares are elsewhere."""
        for item in self.items:  # noqa: SIM110  # an expression costs two more calls an edit
            if not item.is_pooled:
                return True
        return False

    def enter(self, state: TransactionState) -> None:
        """Enter the next state; an assertion fails if the table does not allow it."""
        assert state in TRANSITIONS[self.state], f"{self.state} → {state}"
        self.state = state


# Checks before publishing: which changes cannot be published, and why.
#
# Policy: editd does not break a hard link, does not write a read-only file although a rename could, and
# replaces nothing but files and symlinks.


def check_publishable(
    disk: Disk,
    changes: Sequence[Change[FileState]],
    pending: Iterable[Change[FileState]] = (),
    kept: OpenFiles | None = None,
    yield_turn: Callable[[], None] | None = None,
    keeps_inode: Callable[[Change[FileState]], bool] = lambda _change: False,
) -> None:
    """Refuse changes that cannot be published after those in `pending`. See `WorkspaceWriter.check`.

    `keeps_inode` returns whether a change is written in place.
    """
    deleted: set[bytes] = set()
    pending_paths: set[WorkspacePath] = set()
    for change in pending:
        pending_paths.add(change.path)
        (deleted.add if change.after is None else deleted.discard)(change.path.raw)
    for change in changes:
        (deleted.add if change.after is None else deleted.discard)(change.path.raw)
    if disk.is_folding:
        check_one_spelling(changes)
    checker = _Checker(disk, deleted, keeps_inode)
    for change in changes if yield_turn is None else in_slices(changes, yield_turn):
        if change.path in pending_paths:
            continue  # By then the file at this path is our own.
        try:
            file = None if kept is None else kept.get(change.path)
            if file is None or file.status.st_dev != disk.device:
                checker.check(change)
            else:
                checker.check_target(change, file.name, file.status, file.folder)
        except OSError as error:
            raise refusal_of(error, change.path, "could not be accessed") from error


def check_one_spelling(changes: Iterable[Change[FileState]]) -> None:
    """Refuse two names that would be one file or one folder. Raises FileExists."""
    spellings: dict[str, str] = {}
    for change in changes:
        names = change.path.text.split("/") if change.after is not None else []
        for depth in range(1, len(names) + 1):
            path = "/".join(names[:depth])
            other = spellings.setdefault(key_of(path), path)
            if other != path:
                raise _one_file(path, other)


def in_slices(
    changes: Iterable[Change[FileState]], yield_turn: Callable[[], None]
) -> Iterator[Change[FileState]]:
    """Yield the changes, and call `yield_turn` before each."""
    for change in changes:
        yield_turn()
        yield change


def is_kept_out(disk: Disk, path: WorkspacePath) -> bool:
    """Return whether `path` is on a mount that ignores case or Unicode form in names. Raises Refused."""
    try:
        with open_nearest(disk, split_path(path.raw)[0]) as folder:
            return bool(folding_elsewhere(folder, disk.device))
    except OSError as error:
        if error.errno in UNREACHABLE:  # A folder has just been deleted or replaced by a symlink.
            return False
        raise refusal_of(error, path, "could not be accessed") from error


class _Checker(Struct, frozen=True):
    disk: Disk
    deleted: AbstractSet[bytes]  # paths that will be deleted by then
    keeps_inode: Callable[[Change[FileState]], bool]

    def check(self, change: Change[FileState]) -> None:
        parent, _, name = change.path.raw.rpartition(b"/")
        try:
            with self.disk.folder(parent) as folder:
                if os.fstat(folder.descriptor).st_dev != self.disk.device:
                    self._check_folding(change.path, folder)
                status = folder.stat(name)
                if status is None and change.after is not None and self.disk.is_folding:
                    self._check_spelling(change.path.raw, folder, name)
                if status is not None:
                    self.check_target(change, name, status, folder)
        except OSError as error:
            if error.errno not in UNREACHABLE:
                raise
            if change.after is not None:
                self._check_parents(change.path)

    def check_target(
        self, change: Change[FileState], name: bytes, status: os.stat_result, folder: OpenFolder
    ) -> None:
        """Check a change of the file `name` in `folder`."""
        path, is_deleted = change.path, change.after is None
        if stat.S_ISDIR(status.st_mode):
            if is_deleted or not self._is_emptied(path.raw):
                raise _not_a_file(path, "is a folder that is not empty")
            return
        is_file = stat.S_ISREG(status.st_mode)
        if not (is_file or stat.S_ISLNK(status.st_mode)):
            raise _not_a_file(path, "is a fifo, a socket or a device")
        if is_deleted and not folder.is_writable():
            cause = cause_in(folder, name)
            fact = "is in a folder that editd may not write to"
            raise _denial(path, fact, "Make the folder writable." if cause is None else cause.hint)
        if not is_file:
            return
        if status.st_nlink > 1 and not is_deleted and not self.keeps_inode(change):
            raise _denial(
                path,
                f"is hard-linked: {status.st_nlink} names share it, and replacing one would break the link",
                "Break the link first (copy the file, and move the copy over it), edit it outside, or name "
                "it in `in_place` of the configuration.",
            )
        if is_mode_only(change):
            if os.geteuid() not in (0, status.st_uid):
                raise _denial(path, "belongs to another user", "Only its owner can change its mode.")
        elif not status.st_mode & stat.S_IWUSR or not folder.is_writable(name):
            cause = cause_in(folder, name)
            if cause is not None:
                raise _denial(path, f"cannot be changed: {cause.fact}", cause.hint)
            raise _denial(
                path, "is read-only", "Make it writable first (chmod u+w), if an edit should change it."
            )

    def _check_parents(self, path: WorkspacePath) -> None:
        """Refuse if a name above `path` is not a folder and will not be deleted."""
        names = path.raw.split(b"/")[:-1]
        for depth, name in enumerate(names):
            ancestor = b"/".join(names[: depth + 1])
            with self.disk.folder(b"/".join(names[:depth])) as folder:
                self._check_folding(path, folder)
                status = folder.stat(name)
                if status is None and self.disk.is_folding:
                    self._check_spelling(ancestor, folder, name)
            if status is None or ancestor in self.deleted:
                return
            if not stat.S_ISDIR(status.st_mode):
                folder_name = os.fsdecode(ancestor)
                raise _not_a_file(path, f"cannot be in {folder_name}, which is not a folder", folder_name)

    def _check_spelling(self, path: bytes, folder: OpenFolder, name: bytes) -> None:
        """Refuse a new name that the disk already has in another spelling."""
        if folder.has_other_spelling(name):
            other = self.disk.spelling_of(path)
            if other != path and other not in self.deleted:
                raise _one_file(os.fsdecode(path), os.fsdecode(other))

    def _check_folding(self, path: WorkspacePath, folder: OpenFolder) -> None:
        """Refuse if two spellings are one file: leases, undo and `protect` compare paths.

        They never are on the root's own file system.
        """
        if folding := folding_elsewhere(folder, self.disk.device):
            raise _denial(
                path,
                f"is on a file system that ignores {folding} in names",
                "Edit it outside of editd, or move it to a file system that distinguishes all names.",
            )

    def _is_emptied(self, top: bytes) -> bool:
        """Return whether the folder `top` will contain nothing but empty folders."""
        for path in folders_below(self.disk, top):
            with self.disk.folder(path) as folder:
                for name in folder.names():
                    is_folder = stat.S_ISDIR(stat_directory(folder, name).st_mode)
                    if not (is_folder or path + b"/" + name in self.deleted or is_temporary(name)):
                        return False
        return True


def mount_refusal(path: WorkspacePath) -> PermissionDenied:
    """Return the refusal of a change at a path that is itself a mount: the kernel replaces none."""
    return _denial(
        path,
        "is itself a mount, and a mount cannot be replaced",
        "Name it in `in_place` of the configuration, so that its content is changed in place.",
    )


def _one_file(path: str, other: str) -> FileExists:
    return FileExists(
        f"{path} cannot be made: on this file system it is the same name as {other}.",
        hint=f"Use the name {other}, or move it in the same changeset.",
        data={"path": path, "other": other},
    )


def _denial(path: WorkspacePath, fact: str, hint: str) -> PermissionDenied:
    return PermissionDenied(f"{path} {fact}.", hint=hint, data={"path": path.text})


def _not_a_file(path: WorkspacePath, fact: str, obstacle: str | None = None) -> NotAFile:
    return NotAFile(
        f"{path} {fact}.",
        hint="Choose another path, or move the obstacle away in the same changeset.",
        data={"path": path.text, "obstacle": obstacle or path.text},
    )


# Folders: created above a staged file, recorded for the case of a crash, and removed when empty.
#
# The functions take a disk and a path. An error of the file system is raised as its OSError.

UNREACHABLE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
"""Errors of a path with a missing folder, or with something other than a folder in its place."""
_STAYS = UNREACHABLE | {errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY, errno.EACCES, errno.EPERM, errno.EROFS}
"""Errors after which a retry is pointless: the folder is gone, not empty, a mount, or not ours to remove."""


def is_folder(disk: Disk, path: bytes) -> bool:
    """Return whether `path` is a folder. Raises NotADirectoryError or ELOOP if it is another kind of file."""
    try:
        with disk.folder(path):
            return True
    except FileNotFoundError:
        return False


def make_folders(
    disk: Disk,
    path: bytes,
    made: Callable[[bytes], None],
    about_to: Callable[[Sequence[bytes]], None] | None = None,
) -> None:
    """Create the folder `path` and the missing ones above it; call `made` with each, topmost first.

    `about_to` is called with all of them before the first is created.
    """
    missing: list[bytes] = []
    while path and not is_folder(disk, path):
        missing.append(path)
        path, _ = split_path(path)
    if missing and about_to is not None:
        about_to(missing)
    for folder_path in reversed(missing):
        above, name = split_path(folder_path)
        with disk.folder(above) as folder:
            try:
                folder.make_folder(name)
            except FileExistsError:
                continue  # Another program was faster. If this is no folder, the next step fails.
        made(folder_path)


def nearest_folder(disk: Disk, path: bytes) -> bytes:
    """Return `path` if it is a folder, otherwise the nearest folder above it."""
    while path:
        with suppress(OSError), disk.folder(path):
            return path
        path, _ = split_path(path)
    return path


def open_nearest(disk: Disk, path: bytes) -> OpenFolder:
    """Open `path` if it is a folder, otherwise the nearest folder above it. Raises OSError."""
    while path:
        with suppress(OSError):
            return disk.folder(path)
        path, _ = split_path(path)
    return disk.folder(path)


def folders_below(disk: Disk, top: bytes) -> list[bytes]:
    """Return `top` and all folders in it, each before those in it. Symlinks are not followed."""
    paths = [top]
    for path in paths:
        with disk.folder(path) as folder:
            for name in folder.names():
                status = folder.stat(name)
                if status is not None and stat.S_ISDIR(status.st_mode):
                    paths.append(path + b"/" + name)
    return paths


def remove_folder(disk: Disk, path: bytes) -> os.stat_result:
    """Remove an empty folder; return its lstat result."""
    above, name = split_path(path)
    with disk.folder(above) as folder:
        status = stat_directory(folder, name)
        folder.remove_folder(name)
    return status


def prune(disk: Disk, paths: Iterable[bytes]) -> set[bytes]:
    """Remove these folders if they are empty, then each folder above that has become empty, except the root.

    Return the folders to retry later, because the disk failed.
    """
    failed: set[bytes] = set()
    for start in sorted(paths, key=len, reverse=True):
        path = start
        try:
            while path:
                remove_folder(disk, path)
                path, _ = split_path(path)
        except OSError as error:
            if error.errno not in _STAYS:
                failed.add(path)
    return failed


def stat_directory(folder: OpenFolder, name: bytes) -> os.stat_result:
    """Return the lstat result of a name. Raises FileNotFoundError."""
    status = folder.stat(name)
    if status is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
    return status


# Folders created for staged files. They are recorded first, so that a crash leaves no empty folders behind.
#
# Each record is a path, in a file of the daemon's own. That file is not synced: a power cut may lose
# records, and then empty folders stay. Only missing folders are recorded, and only empty folders are
# removed.


class CreatedDirs:
    def __init__(self, path: str) -> None:
        """Open the file with the notes at `path`, or create it. Raises OSError."""
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        with open(path, "rb") as file:
            *complete, _torn = file.read().split(b"\0")  # a torn path: its folder was not created
        self._leftovers = complete
        self.is_noted = bool(complete)  # whether there are notes to `forget`

    def close(self) -> None:
        os.close(self._descriptor)

    def note(self, paths: Sequence[bytes]) -> None:
        """Record missing folders that will be created next. Raises OSError."""
        self.is_noted = True
        write_whole(self._descriptor, b"".join(path + b"\0" for path in paths))

    def forget(self) -> None:
        """Clear the notes while nothing is staged.

        Each noted folder has files by then, or is gone.
        """
        if self.is_noted and not self._leftovers:
            with suppress(OSError):  # A note kept too long costs one check at the next start.
                os.ftruncate(self._descriptor, 0)
                self.is_noted = False

    def remove_left(self, disk: Disk) -> None:
        """Remove the folders that an earlier daemon created, if they are empty."""
        for path in sorted(self._leftovers, key=len, reverse=True):
            with suppress(OSError):  # The folder is not empty, or gone.
                remove_folder(disk, path)
        self._leftovers = []
