"""The reader: the current content of given paths of the workspace.

Owns reading, and `resolve`, the only place where symlinks are followed; a path that leaves the workspace is
refused. Callers resolve a path before they read, write or remove it.

Never writes, never waits for a FIFO or another program, and keeps nothing in memory. A caller that is about
to replace the files gives `find` an `OpenFiles`, which keeps them open under their leases.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import deque
from typing import TYPE_CHECKING, Literal, NamedTuple

from msgspec import Struct

from editd.errors import InUse, IoError, NotAFile, PathOutside, PermissionDenied, Refused, TooLarge
from editd.system.filesystem import has_lease, read_whole, refresh, take_lease
from editd.values.content import EXECUTABLE, FILE, SYMLINK, FileState, GitMode
from editd.values.name_key import is_same_form
from editd.values.path import TEMPORARY_PREFIX, WorkspacePath, is_protected_name, split_path

if TYPE_CHECKING:
    from editd.system.filesystem import Disk, OpenFolder

LINKS_MAX = 40  # symlinks in one path, as in the kernel (path_resolution(7))
OPEN_MAX = 64  # files kept open by one `OpenFiles`, each with its folder; DESCRIPTORS_KEPT has room for them
CHANGES_MAX = 8  # retries while a name changes between symlink, file and missing
MISSING = frozenset({errno.ENOENT, errno.ENOTDIR})
"""Errors of a path that does not exist because a folder above it does not."""
_BECAME_ANOTHER = frozenset({errno.ENOENT, errno.ELOOP, errno.EINVAL, errno.ENXIO})  # between stat and open


class FileStat(Struct, frozen=True):
    """The lstat result of a path, as far as needed to detect a change."""

    kind: Literal["file", "symlink", "folder", "other"]
    mode: int  # st_mode
    links: int
    identity: tuple[int, int, int, int, int]  # device, inode, size, mtime_ns, ctime_ns

    @property
    def size(self) -> int:
        """In bytes."""
        return self.identity[2]

    @property
    def mtime_ns(self) -> int:
        return self.identity[3]


class FileRead(NamedTuple):
    """The bytes under a name, with git's mode and the permission bits."""

    content: bytes
    mode: GitMode
    permissions: int | None

    def state(self) -> FileState:
        """Return the same as a FileState, which hashes the content for its version."""
        return FileState(self.content, self.mode, self.permissions)


class OpenFile(Struct, frozen=True, eq=False):
    """A regular file that is still open since it was read, under a read lease."""

    folder: OpenFolder
    name: bytes
    descriptor: int
    status: os.stat_result  # taken before the read

    def is_now(self, status: os.stat_result | None) -> bool:
        """Return whether `status` is of this file, which has the content and the mode that was read.

        Nobody can write to the file while its lease holds, so it need not be read again.
        """
        return (
            status is not None
            and (status.st_ino, status.st_dev) == (self.status.st_ino, self.status.st_dev)
            and status.st_mode == self.status.st_mode
            and has_lease(self.descriptor)
        )

    def close(self) -> None:
        os.close(self.descriptor)
        self.folder.close()


class OpenFiles:
    """The files that one batch has read and may replace. Other writers of these files wait until `close`.

    A batch that reads more than `OPEN_MAX` files would make them wait for too long, and keeps no more.
    """

    def __init__(self) -> None:
        self._files: dict[WorkspacePath, OpenFile] = {}
        self._taken: list[OpenFile] = []
        self._is_full = False

    def keep(self, path: WorkspacePath, file: OpenFile) -> bool:
        """Take over an open file; return False if there are too many."""
        self._is_full = self._is_full or len(self._files) + len(self._taken) >= OPEN_MAX
        if self._is_full:
            self._close_untaken()
            return False
        if (earlier := self._files.pop(path, None)) is not None:
            earlier.close()
        self._files[path] = file
        return True

    def get(self, path: WorkspacePath) -> OpenFile | None:
        """Return the file that was read at `path`, if it is open and not taken."""
        return self._files.get(path)

    def take(self, path: WorkspacePath) -> OpenFile | None:
        """Return the file that was read at `path`, once. It stays open until `close`."""
        file = self._files.pop(path, None)
        if file is not None:
            self._taken.append(file)
        return file

    def drop(self, path: WorkspacePath) -> None:
        """Close the file that was read at `path`, which ends its lease."""
        file = self._files.pop(path, None)
        if file is not None:
            file.close()

    @property
    def is_all_taken(self) -> bool:
        return not self._files

    def close(self) -> None:
        """Close all files, which ends their leases."""
        self._close_untaken()
        while self._taken:
            self._taken.pop().close()  # once, also after an exception: its number may be another file's

    def _close_untaken(self) -> None:
        while self._files:
            self._files.popitem()[1].close()


class WorkspaceReader:
    """Reads the workspace's files, one path at a time."""

    def __init__(self, disk: Disk, *, file_bytes_max: int) -> None:
        self._disk = disk
        self._file_bytes_max = file_bytes_max

    def read(self, path: WorkspacePath, *, quiet: bool = False) -> FileState | None:
        """Return the content of `path`, without following a final symlink; None if it does not exist.

        `quiet`: read only while no program has the file open for writing, so that the content is never half
        of a save. Raises NotAFile for a folder, FIFO, socket or device, TooLarge, InUse (only with `quiet`),
        PathOutside if a folder above is a symlink (`resolve` first), PermissionDenied and IoError.
        """
        content = self.find(path, quiet=quiet)
        return None if content is None else content.state()

    def find(
        self, path: WorkspacePath, *, quiet: bool = False, kept: OpenFiles | None = None
    ) -> FileRead | None:
        """Read as `read` does, without computing the version. A leased file stays open in `kept`."""
        try:
            parent, _, name = path.raw.rpartition(b"/")
            folder = self._disk.folder(parent)
            try:
                return read_name(folder, name, path, quiet=quiet, bytes_max=self._file_bytes_max, kept=kept)
            finally:
                file = None if kept is None else kept.get(path)
                if file is None or file.folder is not folder:
                    folder.close()
        except OSError as error:
            if error.errno in MISSING:
                return None
            raise refusal_of(error, path, "could not be read") from error

    def entry(self, path: WorkspacePath) -> FileStat | None:
        """Return the lstat result of `path`; None if it does not exist. Raises as `read` does."""
        try:
            parent, name = split_path(path.raw)
            with self._disk.folder(parent) as folder:
                status = folder.stat(name)
        except OSError as error:
            if error.errno in MISSING:
                return None
            raise refusal_of(error, path, "could not be accessed") from error
        return None if status is None else stat_result_of(status)

    def names(self, path: WorkspacePath | None) -> list[str] | None:
        """Return the sorted names in a folder (None: the root), folders with a final `/`; None for no folder.

        `.git` and editd's own temporary files are left out.
        """
        try:
            with self._disk.folder(b"" if path is None else path.raw) as folder:
                shown: list[str] = []
                for name in folder.names():
                    text = os.fsdecode(name)
                    status = (
                        None
                        if is_protected_name(text) or text.startswith(TEMPORARY_PREFIX)
                        else folder.stat(name)
                    )
                    if status is not None:
                        shown.append(text + "/" if stat.S_ISDIR(status.st_mode) else text)
                return sorted(shown)
        except OSError as error:
            if error.errno in MISSING:
                return None
            raise refusal_of(error, path or WorkspacePath("."), "could not be listed") from error

    def resolve(self, path: WorkspacePath) -> WorkspacePath:
        """Return `path` with every symlink followed, including a final one.

        A symlink to a missing target resolves to that target's path. Raises PathOutside if the path leaves
        the workspace or has a cycle of symlinks, PathProtected if it resolves to a protected path.
        """
        return self._resolve(path, through_last=True)

    def resolve_folder(self, path: WorkspacePath) -> WorkspacePath:
        """Return `path` with every symlink above its final name followed. Raises as `resolve` does."""
        return self._resolve(path, through_last=False)

    def _resolve(self, path: WorkspacePath, *, through_last: bool) -> WorkspacePath:
        if not self._disk.is_folding:
            return self._resolve_once(path, through_last=through_last)
        for _ in range(LINKS_MAX):
            spelled = WorkspacePath.parse(os.fsdecode(self._spelling_of(path)))
            resolved = self._resolve_once(spelled, through_last=through_last)
            if resolved == path:
                return path
            path = resolved  # a link's target may be spelled in another way, and lead to another link
        raise _unresolvable(path, errno.ELOOP)

    def _spelling_of(self, path: WorkspacePath) -> bytes:
        try:
            return self._disk.spelling_of(path.raw)
        except OSError as error:
            raise refusal_of(error, path, "could not be resolved") from error

    def _resolve_once(self, path: WorkspacePath, *, through_last: bool) -> WorkspacePath:
        try:
            parent, name = split_path(path.raw)
            with self._disk.folder(parent) as folder:
                if not through_last and path.text.isascii():
                    return path
                status = folder.stat(name)
                if status is None:
                    return self._in_stored_form(path)
                if not through_last or not stat.S_ISLNK(status.st_mode):
                    return path
        except OSError as error:
            if error.errno in MISSING:
                return self._in_stored_form(path)  # The kernel found no symlink before the missing name.
            if error.errno != errno.ELOOP:
                raise refusal_of(error, path, "could not be resolved") from error
        try:
            return self._follow(path, through_last=through_last)
        except OSError as error:
            raise refusal_of(error, path, "could not be resolved") from error

    def _in_stored_form(self, path: WorkspacePath) -> WorkspacePath:
        """Return a missing path with each name that the disk has in another Unicode form as it is there."""
        if path.text.isascii():
            return path
        stored: list[str] = []
        for name in path.text.split("/"):
            above = WorkspacePath.parse("/".join(stored)) if stored else None
            listed = [one.removesuffix("/") for one in self.names(above) or ()]
            forms = [one for one in listed if is_same_form(one, name)]
            stored.append(forms[0] if name not in listed and len(forms) == 1 else name)
        return WorkspacePath.parse("/".join(stored))

    def _follow(self, path: WorkspacePath, *, through_last: bool) -> WorkspacePath:
        """Follow the path name by name, as in path_resolution(7), never above the root."""
        pending = deque(path.raw.split(b"/"))
        resolved: list[bytes] = []  # without symlinks, so that `..` removes the last name
        links = 0
        while pending:
            name = pending.popleft()
            if name in (b"", b"."):
                continue
            if name == b"..":
                if not resolved:
                    raise _outside(path)
                resolved.pop()
                continue
            target = self._link_at(resolved, name) if pending or through_last else None
            if target is None:
                resolved.append(name)
                continue
            links += 1
            if links > LINKS_MAX:
                raise _unresolvable(path, errno.ELOOP)
            if target.startswith(b"/"):
                target = self.inside(target, path)
                resolved.clear()
            pending.extendleft(reversed(target.split(b"/")))
        if not resolved:
            raise NotAFile(
                f"{path} leads to the workspace's root.",
                hint="Give the path of a file.",
                data={"path": path.text},
            )
        return WorkspacePath.parse(os.fsdecode(b"/".join(resolved)))

    def _link_at(self, folders: list[bytes], name: bytes) -> bytes | None:
        """Return the target of the symlink `name`; None if it is missing or no symlink."""
        try:
            with self._disk.folder(b"/".join(folders)) as folder:
                status = folder.stat(name)
                is_link = status is not None and stat.S_ISLNK(status.st_mode)
                return folder.link_target(name) if is_link else None
        except OSError as error:
            if error.errno in MISSING:
                return None
            raise

    def inside(self, target: bytes, path: WorkspacePath) -> bytes:
        """Return the part of an absolute symlink's target below the root. Raises PathOutside."""
        root = self._disk.root.rstrip(b"/") + b"/"
        if not (target + b"/").startswith(root):
            raise _outside(path)
        return target[len(root) :]


def read_name(
    folder: OpenFolder,
    name: bytes,
    path: WorkspacePath,
    *,
    quiet: bool,
    bytes_max: int | None = None,
    kept: OpenFiles | None = None,
) -> FileRead | None:
    """Return the content of `name` in an open folder; None if it does not exist.

    Raises as `WorkspaceReader.read` does. `path` is the file's name in errors. If the file got into `kept`,
    `folder` belongs to it.
    """
    for _ in range(CHANGES_MAX):
        try:
            status = folder.stat(name)
            if status is None:
                return None
            if stat.S_ISLNK(status.st_mode):
                return FileRead(folder.link_target(name), SYMLINK, None)
            if not stat.S_ISREG(status.st_mode):  # before the open, because opening a device may have effects
                raise _not_a_file(status, path)
            try:
                descriptor = folder.open(name)
            except BlockingIOError:  # another program's write lease
                raise InUse(path.text) from None
            is_kept = False
            try:
                read, status, is_leased = _read_open(descriptor, path, quiet=quiet, bytes_max=bytes_max)
                if kept is not None and is_leased:
                    is_kept = kept.keep(path, OpenFile(folder, name, descriptor, status))
                return read
            finally:
                if not is_kept:
                    os.close(descriptor)
        except OSError as error:
            if error.errno not in _BECAME_ANOTHER:
                raise
    raise InUse(path.text)


def stat_result_of(status: os.stat_result) -> FileStat:
    """Return the facts of a stat result that show whether the file has changed."""
    identity = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return FileStat(_kind_of(status.st_mode), status.st_mode, status.st_nlink, identity)


def refusal_of(error: OSError, path: WorkspacePath, failure: str) -> Refused:
    """Return PathOutside, PermissionDenied or IoError for `error`; `failure` is "could not be …"."""
    if error.errno == errno.ELOOP:
        return _unresolvable(path, errno.ELOOP)
    if error.errno in (errno.EACCES, errno.EPERM):
        return PermissionDenied(
            f"{path} {failure}: the file system does not allow it.",
            hint="Check the owner and the permissions of the file and of its folder.",
            data={"path": path.text, "errno": error.errno, "errno_name": errno.errorcode[error.errno]},
        )
    return IoError(error, f"{path} {failure}")


def _read_open(
    descriptor: int, path: WorkspacePath, *, quiet: bool, bytes_max: int | None
) -> tuple[FileRead, os.stat_result, bool]:
    """Return the content, the earlier stat result, and whether a lease is held."""
    refresh(descriptor)
    before = os.fstat(descriptor)
    if not stat.S_ISREG(before.st_mode):
        raise _not_a_file(before, path)
    is_leased = False
    if quiet:
        try:
            is_leased = take_lease(descriptor)
        except BlockingIOError:
            raise InUse(path.text) from None
    if bytes_max is not None and before.st_size > bytes_max:
        raise _too_large(path, bytes_max)
    content = read_whole(descriptor, before.st_size, bytes_max)
    if bytes_max is not None and len(content) > bytes_max:
        raise _too_large(path, bytes_max)
    if quiet and not is_leased and stat_result_of(os.fstat(descriptor)) != stat_result_of(before):
        raise InUse(path.text)
    mode = EXECUTABLE if before.st_mode & stat.S_IXUSR else FILE  # the owner's x bit decides, as in git
    return FileRead(content, mode, stat.S_IMODE(before.st_mode)), before, is_leased


def _kind_of(mode: int) -> Literal["file", "symlink", "folder", "other"]:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISLNK(mode):
        return "symlink"
    return "folder" if stat.S_ISDIR(mode) else "other"


def _not_a_file(status: os.stat_result, path: WorkspacePath) -> NotAFile:
    kind = "a folder" if stat.S_ISDIR(status.st_mode) else "a fifo, a socket or a device"
    return NotAFile(
        f"{path} is {kind}.",
        hint="Give the path of a file or a symlink.",
        data={"path": path.text},
    )


def _too_large(path: WorkspacePath, bytes_max: int) -> TooLarge:
    return TooLarge(
        f"{path} is larger than the {bytes_max} bytes that editd takes of one file.",
        hint="Edit it outside, or raise the limit in the configuration.",
        data={"path": path.text, "bytes_max": bytes_max},
    )


def _outside(path: WorkspacePath) -> PathOutside:
    return PathOutside(
        f"{path} leads out of the workspace through a symbolic link.",
        hint="Give a path that stays inside the workspace.",
        data={"path": path.text},
    )


def _unresolvable(path: WorkspacePath, number: int) -> PathOutside:
    return PathOutside(
        f"{path} goes through a cycle of symbolic links, or through too many of them (ELOOP).",
        hint="Give the path that the link leads to, or remove the cycle.",
        data={"path": path.text, "errno": number, "errno_name": errno.errorcode[number]},
    )
