"""The tree: what given paths of the workspace hold now.

Owns reading, and the one place where symbolic links are followed (`resolve`), staying inside the
workspace by text and in fact. Whoever reads, writes or removes a path has resolved it before.

Never writes, never waits for a fifo or for another program, never remembers what it saw.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import deque
from typing import TYPE_CHECKING, Literal, NamedTuple

from msgspec import Struct

from editd.errors import InUse, IoError, NotAFile, PathOutside, PermissionDenied, Refused, TooLarge
from editd.system.filesystem import read_whole, refresh, take_lease
from editd.values.content import FileState, GitMode, mode_of
from editd.values.path import TEMPORARY_PREFIX, WorkspacePath, is_protected_name
from editd.workspace.staged_change import split

if TYPE_CHECKING:
    from editd.system.filesystem import Disk, OpenFolder

LINKS_MAX = 40  # symlinks on one way, as in the kernel (path_resolution(7))
CHANGES_MAX = 8  # how often a name may become a link, a file, nothing while it is read, before we give up
NOWHERE = frozenset({errno.ENOENT, errno.ENOTDIR})
"""What the disk says where a path does not exist, because a folder above it does not."""
_BECAME_ANOTHER = frozenset({errno.ENOENT, errno.ELOOP, errno.EINVAL, errno.ENXIO})  # between stat and open


class FileStat(Struct, frozen=True):
    """What lstat says of a path, enough to tell whether it is still what it was."""

    kind: Literal["file", "symlink", "folder", "other"]
    mode: int  # st_mode
    links: int
    identity: tuple[int, int, int, int, int]  # device, inode, size, mtime_ns, ctime_ns

    @property
    def size(self) -> int:
        """In bytes."""
        return self.identity[2]


class FileRead(NamedTuple):
    """The bytes under a name, and git's mode and the permission bits that go with them."""

    content: bytes
    mode: GitMode
    permissions: int | None

    def state(self) -> FileState:
        """The same as a value, which costs its version's hashing."""
        return FileState(self.content, self.mode, self.permissions)


class WorkspaceReader:
    """The workspace's files, read one path at a time."""

    def __init__(self, disk: Disk, *, file_bytes_max: int) -> None:
        self._disk = disk
        self._file_bytes_max = file_bytes_max

    def read(self, path: WorkspacePath, *, quiet: bool = False) -> FileState | None:
        """Return what `path` itself holds, a final symlink not followed; None if there is no such file.

        `quiet` reads while nobody has the file open for writing, so that it is never half of
        somebody's save. Raises NotAFile for a folder, fifo, socket or device, TooLarge, InUse (only
        when `quiet`), PathOutside where a folder above is a symlink (`resolve` first),
        PermissionDenied and IoError as the file system says.
        """
        found = self.find(path, quiet=quiet)
        return None if found is None else found.state()

    def find(self, path: WorkspacePath, *, quiet: bool = False) -> FileRead | None:
        """As `read`, without working out the version."""
        try:
            above, name = split(path.raw)
            with self._disk.folder(above) as folder:
                return read_name(folder, name, path, quiet=quiet, bytes_max=self._file_bytes_max)
        except OSError as error:
            if error.errno in NOWHERE:
                return None
            raise refusal_of(error, path, "could not be read") from error

    def entry(self, path: WorkspacePath) -> FileStat | None:
        """Return what lstat says of `path`; None if there is no such thing. Raises as `read` does."""
        try:
            above, name = split(path.raw)
            with self._disk.folder(above) as folder:
                found = folder.stat(name)
        except OSError as error:
            if error.errno in NOWHERE:
                return None
            raise refusal_of(error, path, "could not be looked at") from error
        return None if found is None else stat_result_of(found)

    def names(self, path: WorkspacePath | None) -> list[str] | None:
        """The names in a folder (None: the root), sorted, folders with a final `/`; None for no folder.

        `.git` and editd's own temporary files are left out.
        """
        try:
            with self._disk.folder(b"" if path is None else path.raw) as folder:
                shown: list[str] = []
                for name in folder.names():
                    text = os.fsdecode(name)
                    found = (
                        None
                        if is_protected_name(text) or text.startswith(TEMPORARY_PREFIX)
                        else folder.stat(name)
                    )
                    if found is not None:
                        shown.append(text + "/" if stat.S_ISDIR(found.st_mode) else text)
                return sorted(shown)
        except OSError as error:
            if error.errno in NOWHERE:
                return None
            raise refusal_of(error, path or WorkspacePath("."), "could not be listed") from error

    def resolve(self, path: WorkspacePath) -> WorkspacePath:
        """Return the path that `path` leads to, every symlink followed, the final one too.

        A symlink whose target is not there leads to that target's path. Raises PathOutside where the
        way leaves the workspace or goes in a circle, PathProtected where it leads to what is protected.
        """
        return self._resolve(path, through_last=True)

    def resolve_folder(self, path: WorkspacePath) -> WorkspacePath:
        """Return `path` with every symlink above it followed; the final name is kept. As `resolve`."""
        return self._resolve(path, through_last=False)

    def _resolve(self, path: WorkspacePath, *, through_last: bool) -> WorkspacePath:
        try:
            above, name = split(path.raw)
            with self._disk.folder(above) as folder:
                if not through_last:
                    return path
                found = folder.stat(name)
                if found is None or not stat.S_ISLNK(found.st_mode):
                    return path
        except OSError as error:
            if error.errno in NOWHERE:
                return path  # The kernel met no symlink up to the name that is missing.
            if error.errno != errno.ELOOP:
                raise refusal_of(error, path, "could not be resolved") from error
        try:
            return self._follow(path, through_last=through_last)
        except OSError as error:
            raise refusal_of(error, path, "could not be resolved") from error

    def _follow(self, path: WorkspacePath, *, through_last: bool) -> WorkspacePath:
        """Walk the path name by name, as path_resolution(7) says, never above the root."""
        ahead = deque(path.raw.split(b"/"))
        behind: list[bytes] = []  # no symlink among them, so that `..` is the name before
        links = 0
        while ahead:
            name = ahead.popleft()
            if name in (b"", b"."):
                continue
            if name == b"..":
                if not behind:
                    raise _outside(path)
                behind.pop()
                continue
            target = self._link_at(behind, name) if ahead or through_last else None
            if target is None:
                behind.append(name)
                continue
            links += 1
            if links > LINKS_MAX:
                raise _unresolvable(path, errno.ELOOP)
            if target.startswith(b"/"):
                target = self.inside(target, path)
                behind.clear()
            ahead.extendleft(reversed(target.split(b"/")))
        if not behind:
            raise NotAFile(
                f"{path} leads to the workspace's root.",
                hint="Give the path of a file.",
                data={"path": path.text},
            )
        return WorkspacePath.parse(os.fsdecode(b"/".join(behind)))

    def _link_at(self, behind: list[bytes], name: bytes) -> bytes | None:
        """Return the target of the symlink `name`; None if it is anything else or nothing."""
        try:
            with self._disk.folder(b"/".join(behind)) as folder:
                found = folder.stat(name)
                is_link = found is not None and stat.S_ISLNK(found.st_mode)
                return folder.link_target(name) if is_link else None
        except OSError as error:
            if error.errno in NOWHERE:
                return None
            raise

    def inside(self, target: bytes, path: WorkspacePath) -> bytes:
        """Return the part of an absolute symlink's target that lies below the root."""
        root = self._disk.root.rstrip(b"/") + b"/"
        if not (target + b"/").startswith(root):
            raise _outside(path)
        return target[len(root) :]


def read_name(
    folder: OpenFolder, name: bytes, path: WorkspacePath, *, quiet: bool, bytes_max: int | None = None
) -> FileRead | None:
    """Return what `name` in an open folder holds; None if it is not there. Raises as `Tree.read`.

    `path` is what to call it in a refusal.
    """
    for _ in range(CHANGES_MAX):
        try:
            return _read_once(folder, name, path, quiet=quiet, bytes_max=bytes_max)
        except OSError as error:
            if error.errno not in _BECAME_ANOTHER:
                raise
    raise InUse(path.text)


def stat_result_of(found: os.stat_result) -> FileStat:
    """The facts of a stat result that tell whether a path is what it was."""
    identity = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    return FileStat(_kind_of(found.st_mode), found.st_mode, found.st_nlink, identity)


def refusal_of(error: OSError, path: WorkspacePath, what: str) -> Refused:
    """Say what the file system said: PathOutside, PermissionDenied or IoError. `what` "could not be …"."""
    if error.errno == errno.ELOOP:
        return _unresolvable(path, errno.ELOOP)
    if error.errno in (errno.EACCES, errno.EPERM):
        return PermissionDenied(
            f"{path} {what}: the file system does not allow it.",
            hint="Check the owner and the permissions of the file and of its folder.",
            data={"path": path.text, "errno": error.errno, "errno_name": errno.errorcode[error.errno]},
        )
    return IoError(error, f"{path} {what}")


def _read_once(
    folder: OpenFolder, name: bytes, path: WorkspacePath, *, quiet: bool, bytes_max: int | None
) -> FileRead | None:
    looked = folder.stat(name)
    if looked is None:
        return None
    if stat.S_ISLNK(looked.st_mode):
        return FileRead(folder.link_target(name), mode_of(looked.st_mode), None)
    if not stat.S_ISREG(looked.st_mode):  # found out before it is opened: opening a device may do something
        raise _not_a_file(looked, path)
    try:
        descriptor = folder.open(name)
    except BlockingIOError:  # another program's write lease
        raise InUse(path.text) from None
    try:
        return _read_open(descriptor, path, quiet=quiet, bytes_max=bytes_max)
    finally:
        os.close(descriptor)


def _read_open(descriptor: int, path: WorkspacePath, *, quiet: bool, bytes_max: int | None) -> FileRead:
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
    return FileRead(content, mode_of(before.st_mode), stat.S_IMODE(before.st_mode))


def _kind_of(mode: int) -> Literal["file", "symlink", "folder", "other"]:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISLNK(mode):
        return "symlink"
    return "folder" if stat.S_ISDIR(mode) else "other"


def _not_a_file(found: os.stat_result, path: WorkspacePath) -> NotAFile:
    kind = "a folder" if stat.S_ISDIR(found.st_mode) else "a fifo, a socket or a device"
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
        hint="Only what lies in the workspace can be read or edited.",
        data={"path": path.text},
    )


def _unresolvable(path: WorkspacePath, number: int) -> PathOutside:
    return PathOutside(
        f"{path} goes through symbolic links that lead nowhere (ELOOP).",
        hint="Give the path that the link leads to, or remove the circle.",
        data={"path": path.text, "errno": number, "errno_name": errno.errorcode[number]},
    )
