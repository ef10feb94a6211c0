"""Temporaries: new content beside its target, with the metadata of the file that it will replace.

`OpenTarget` has a target and its temporary with their folders open. No other program uses the names of
temporaries. Nothing is synced.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import Struct

from editd.errors import InUse, NotAFile, PermissionDenied, TooLarge
from editd.system.filesystem import attributes_of, copy_attribute, remove_attribute, write_whole
from editd.values.content import EXECUTABLE, PRIVILEGE_BITS, PRIVILEGES, SYMLINK, without_privileges
from editd.values.path import split_path
from editd.workspace.reader import read_name, refusal_of
from editd.workspace.staged_change import UNREACHABLE, make_folders, nearest_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from editd.system.filesystem import Disk, OpenFolder
    from editd.values.content import Change, FileState
    from editd.values.path import WorkspacePath
    from editd.workspace.replaced_files import TempFilePool
    from editd.workspace.staged_change import StagedChange


# The metadata of a file, copied to the file that replaces it.
#
# Covers owner, permission bits, ACLs and extended attributes. Works on open descriptors only.

_REQUIRED = ("user.", "system.posix_acl_access")
_CAPABILITY = "security.capability"  # a privilege of the content, as setuid is: see capabilities(7)
_SET_BY_THE_SYSTEM = ("security.selinux",)  # on every new file, by policy
_UNAVAILABLE = (errno.ENOTSUP, errno.EPERM, errno.EACCES, errno.ENODATA)


class Metadata(Struct, frozen=True):
    """An open file as the source of metadata for another."""

    descriptor: int
    status: os.stat_result  # taken first, so that any later change shows in the ctime


def clone_metadata(
    model: Metadata,
    target: int,
    path: WorkspacePath,
    *,
    executable: bool,
    keeps_content: bool,
    have_attributes: bool = True,
    previous: os.stat_result | None = None,
) -> tuple[os.stat_result, list[str]]:
    """Copy the metadata of `model`, except times, to the file open as `target`.

    Pass `keeps_content` if both have the same content, as in a move. Other content does not get the setuid
    and setgid bits and the capabilities of the old one, as after write(2).

    The x bits are set or cleared by `executable`. Pass `have_attributes=False` if neither file has extended
    attributes, and `previous` if the stat result of `target` is known. Returns that stat result, and the
    names of attributes that the system does not let us copy. Raises PermissionDenied if the owner cannot be
    kept, and OSError. `path` is the file's name in errors.
    """
    wanted = model.status
    if previous is None:
        previous = os.fstat(target)
    has_other_owner = (wanted.st_uid, wanted.st_gid) != (previous.st_uid, previous.st_gid)
    if has_other_owner:
        _keep_owner(target, wanted, path)
    # After the owner, because chown(2) clears setuid bits and capabilities. Before the permissions, because
    # an ACL sets them, too.
    lost = _clone_attributes(model.descriptor, target, keeps_content) if have_attributes else []
    permissions = permissions_for(wanted.st_mode, executable=executable)
    if not keeps_content and permissions & PRIVILEGE_BITS:
        lost += [name for bit, name in PRIVILEGES.items() if permissions & bit]
        permissions = without_privileges(permissions)
    # The new owner or an ACL may have changed the permissions.
    now = os.fstat(target) if has_other_owner or have_attributes else previous
    if permissions != stat.S_IMODE(now.st_mode):
        os.fchmod(target, permissions)
    if permissions & stat.S_ISGID and not os.fstat(target).st_mode & stat.S_ISGID:  # chmod(2) may clear it
        lost.append("setgid")
    return previous, lost


def unpreserved_metadata(folder: OpenFolder, descriptor: int) -> list[str]:
    """Return names of the metadata of an open file that neither the history nor a new file there has."""
    status, parent = os.fstat(descriptor), folder.stat(b".")
    inherits = parent is not None and parent.st_mode & stat.S_ISGID
    group = parent.st_gid if parent is not None and inherits else os.getegid()
    owner = (status.st_uid, status.st_gid)
    attributes = [name for name in attributes_of(descriptor) if name not in _SET_BY_THE_SYSTEM]
    bits = [name for bit, name in PRIVILEGES.items() if status.st_mode & bit]
    return ([] if owner == (os.geteuid(), group) else [f"owner {owner[0]}:{owner[1]}"]) + bits + attributes


def permissions_for(mode: int, *, executable: bool) -> int:
    """Return the permission bits of `mode`, with x set beside each r, or cleared, as in git's checkout."""
    permissions = stat.S_IMODE(mode)
    if bool(permissions & stat.S_IXUSR) == executable:
        return permissions
    if not executable:
        return permissions & ~0o111
    return permissions | (permissions & 0o444) >> 2 | stat.S_IXUSR


def _keep_owner(target: int, wanted: os.stat_result, path: WorkspacePath) -> None:
    try:
        os.fchown(target, wanted.st_uid, wanted.st_gid)
    except PermissionError as error:
        raise PermissionDenied(
            f"{path} belongs to user {wanted.st_uid}, group {wanted.st_gid}, and editd cannot keep that.",
            hint="Edit it as its owner, or change its owner to the user who runs editd.",
            data={"path": path.text, "errno": error.errno, "errno_name": "EPERM"},
        ) from None


def _clone_attributes(source: int, target: int, keeps_content: bool) -> list[str]:
    lost: list[str] = []
    wanted, existing = attributes_of(source), attributes_of(target)
    if not keeps_content and _CAPABILITY in wanted:
        wanted.remove(_CAPABILITY)
        lost.append(_CAPABILITY)
    for name in existing:
        if name not in wanted and name.startswith(_REQUIRED):  # such as an ACL by the folder's default
            remove_attribute(target, name)
    for name in wanted:
        try:
            copy_attribute(source, target, name)
        except OSError as error:
            # The system's own attributes (security., trusted., ACLs of NFS) may need a privilege.
            if name.startswith(_REQUIRED) or error.errno not in _UNAVAILABLE:
                raise
            lost.append(name)
    return lost


# A target and its temporary with their folders open, so that a moved folder cannot redirect a rename.
#
# Owns the check that a name has exactly the expected content, with no program writing it.

SETTLE_TRIES, SETTLE_SECONDS = 200, 0.001
"""How often, and how many seconds apart, to swap two files until no program is writing either.

The limit is reached only if two programs keep two versions of one file open. A fifth of a second is longer
than any observed save.
"""


class OpenTarget(Struct, frozen=True):
    """A staged change with its folders open. An error of the file system is raised as its OSError."""

    item: StagedChange
    folder: OpenFolder
    temp_dir: OpenFolder

    def exchange(self) -> None:
        """Swap target and temporary; FileNotFoundError if one is missing.

        In this order of arguments, a watcher of the folder gets the event of the new target last.
        """
        self.folder.exchange(self.item.name, self.temp_dir, self.item.temporary)

    def insert(self) -> None:
        """Rename the temporary to its target; FileExistsError if the target exists."""
        self.folder.receive(self.item.name, self.temp_dir, self.item.temporary)

    def extract(self) -> None:
        """Rename the target to its temporary."""
        self.folder.move(self.item.name, self.temp_dir, self.item.temporary)

    def replace(self) -> None:
        """Rename the temporary over the target."""
        self.temp_dir.replace(self.item.temporary, self.folder, self.item.name)

    def target_holds(self, state: FileState | None) -> bool:
        """Return whether the target is exactly `state`."""
        return holds(self.folder, self.item.name, self.item.change.path, state)

    def temporary_holds(self, state: FileState | None) -> bool:
        """Return whether the temporary is exactly `state`."""
        return holds(self.temp_dir, self.item.temporary, self.item.change.path, state)

    def quarantine(self) -> FileState | None:
        """Keep the file under the temporary's name; return its content unless it is `before` or `after`.

        While a program is writing it, swap it with the target. Raises InUse if that never ends.
        """
        change = self.item.change
        for _ in range(SETTLE_TRIES):
            try:
                content = read_name(self.temp_dir, self.item.temporary, change.path, quiet=True)
            except (InUse, NotAFile):
                try:
                    self.exchange()
                except FileNotFoundError:
                    self.insert()  # The target is gone: the program writing this file gets it back.
                    return None
                time.sleep(SETTLE_SECONDS)
                continue
            state = None if content is None else content.state()
            return None if state in (change.before, change.after) else state
        raise InUse(change.path.text)


def holds(folder: OpenFolder, name: bytes, path: WorkspacePath, state: FileState | None) -> bool:
    """Return whether a name has exactly `state` (actual and git's mode), with no program writing it.

    `state` None: whether the name does not exist. Reads at most as many bytes as `state` has.
    """
    bytes_max = 0 if state is None else len(state.content)
    try:
        actual = read_name(folder, name, path, quiet=True, bytes_max=bytes_max)
    except (InUse, NotAFile, TooLarge):
        return False
    if actual is None or state is None:
        return actual is None and state is None
    return (actual.mode, actual.content) == (state.mode, state.content)


def has_state(disk: Disk, path: WorkspacePath, state: FileState | None) -> bool:
    """Return whether `path` has this state, also None if no folder leads to it. Raises Refused."""
    parent, name = split_path(path.raw)
    try:
        with disk.folder(parent) as folder:
            return holds(folder, name, path, state)
    except OSError as error:
        if error.errno not in UNREACHABLE:
            raise refusal_of(error, path, "could not be accessed") from error
        return state is None


def find_temporary(disk: Disk, path: bytes, temporary: bytes) -> bytes | None:
    """Return the path of this temporary in the nearest folder above `path` that has it, or None."""
    while path:
        path, _ = split_path(path)
        with suppress(OSError), disk.folder(path) as folder:
            if folder.stat(temporary) is not None:
                return path + b"/" + temporary if path else temporary
    return None


def open_regular(folder: OpenFolder, name: bytes) -> int | None:
    """Open a regular file for reading; None if the name is missing or anything else."""
    status = folder.stat(name)
    return folder.open(name) if status is not None and stat.S_ISREG(status.st_mode) else None


def identity_of(status: os.stat_result) -> tuple[int, int, int]:
    """Return device, inode and ctime_ns: equal only if neither the file nor its metadata have changed."""
    return status.st_dev, status.st_ino, status.st_ctime_ns


def open_temp_dir(
    disk: Disk,
    item: StagedChange,
    made: Callable[[bytes], None],
    about_to: Callable[[Sequence[bytes]], None] | None = None,
) -> OpenFolder:
    """Open the folder for the item's temporary, and store its path in the item.

    It is the target's folder, so that default ACLs and setgid bits apply. Missing folders are created:
    `about_to` gets them all before, `made` each one after. If another kind of file is in the folder's place,
    to be deleted by this transaction or an earlier one, it is the nearest folder above. Raises OSError.
    """
    try:
        return disk.folder(item.folder)
    except OSError as error:
        if error.errno not in UNREACHABLE:
            raise
    try:
        make_folders(disk, item.folder, made, about_to)
    except OSError as error:
        if error.errno not in (errno.ENOTDIR, errno.ELOOP):
            raise
        item.temp_dir = nearest_folder(disk, item.folder)
    return disk.folder(item.temp_dir)


def write_temporary(
    disk: Disk, temp_dir: OpenFolder, item: StagedChange, state: FileState, pool: TempFilePool | None = None
) -> int | None:
    """Write `state` into the item's temporary; return the temporary's device, None for a symlink.

    The file gets the metadata of the file that it replaces (for a move, of the source), stored in
    `item.cloned_from`. A new file gets the permissions of its state, otherwise from the umask and the
    folder. A symlink has no metadata to keep. A pooled file replaces a plain file if there is one.
    Raises PermissionDenied, and OSError.
    """
    if state.mode == SYMLINK:
        temp_dir.make_link(item.temporary, state.content)
        return None
    is_executable = state.mode == EXECUTABLE
    fresh = 0o777 if is_executable else 0o666
    opened = None
    if item.open_file is not None:
        model: Metadata | None = Metadata(item.open_file.descriptor, item.open_file.status)
    else:
        opened = _open_model(disk, item, temp_dir)
        model = None if opened is None else Metadata(opened, os.fstat(opened))
    try:
        descriptor = None if pool is None else _take_pooled(item, model, temp_dir, pool)
        if descriptor is None:
            # Until it has its owner and permissions, no other user may read it.
            descriptor = temp_dir.create(item.temporary, fresh if model is None else 0o600)
        try:
            write_whole(descriptor, state.content)
            if model is not None:
                known = None if pool is None or not item.is_pooled else pool.status
                previous, item.lost_metadata = clone_metadata(
                    model, descriptor, item.change.path, executable=is_executable,
                    keeps_content=item.change.source is not None and _keeps_content(model, state),
                    have_attributes=not item.is_pooled, previous=known,
                )  # fmt: skip
                item.cloned_from = identity_of(model.status)
                return previous.st_dev
            permissions = _known_permissions(item.change, state)
            if permissions is None and pool is not None and item.is_pooled:
                permissions = fresh & pool.granted
            if permissions is not None:
                kept = without_privileges(permissions)  # this file has no content yet that had them
                os.fchmod(descriptor, permissions_for(kept, executable=is_executable))
            return os.fstat(descriptor).st_dev
        finally:
            os.close(descriptor)
    finally:
        if opened is not None:
            os.close(opened)


def _take_pooled(
    item: StagedChange, model: Metadata | None, temp_dir: OpenFolder, pool: TempFilePool
) -> int | None:
    """Take a pooled file for the item. It has no extended attributes, so the replaced file may have none."""
    change = item.change
    if change.source is not None or item.temp_dir != item.folder:
        return None
    if model is not None:
        if attributes_of(model.descriptor):
            return None
        descriptor = pool.take(item.temporary, model.status.st_dev, change.path, item.folder)
    elif change.before is None:
        descriptor = pool.take_for_new(item.temporary, change.path, temp_dir, item.folder)
    else:
        return None
    item.is_pooled = descriptor is not None
    return descriptor


def refresh_metadata(target: OpenTarget) -> None:
    """Copy the metadata again if the file to be replaced, or its metadata, has changed since."""
    change, item = target.item.change, target.item
    status = target.folder.stat(item.name)
    if status is None or not stat.S_ISREG(status.st_mode) or identity_of(status) == item.cloned_from:
        return
    if change.after is None or change.after.is_symlink or change.source is not None:
        return
    opened = target.folder.open(item.name)
    try:
        ours = target.temp_dir.open(item.temporary)
        try:
            clone_metadata(
                Metadata(opened, os.fstat(opened)), ours, change.path,
                executable=change.after.is_executable, keeps_content=False,
            )  # fmt: skip
        finally:
            os.close(ours)
    finally:
        os.close(opened)


def note_unpreserved(disk: Disk, item: StagedChange) -> None:
    """Store in the item of a deletion the metadata that an undo cannot restore."""
    with suppress(OSError), disk.folder(item.folder) as folder:  # Publishing reports the error.
        descriptor = open_regular(folder, item.name)
        if descriptor is None:
            return
        try:
            item.lost_metadata = unpreserved_metadata(folder, descriptor)
        finally:
            os.close(descriptor)


def remove_temporary(disk: Disk, item: StagedChange, pool: TempFilePool | None = None) -> bool:
    """Remove the item's temporary; return whether it is gone. Otherwise a later scan finds it."""
    try:
        if item.is_pooled:
            assert pool is not None
            pool.folder.remove(item.temporary)
            return True
        with disk.folder(item.temp_dir) as temp_dir:
            temp_dir.remove(item.temporary)
    except OSError as error:
        return error.errno in UNREACHABLE
    return True


def _open_model(disk: Disk, item: StagedChange, temp_dir: OpenFolder) -> int | None:
    """Open the regular file whose metadata are to be copied; None if there is none (yet)."""
    change = item.change
    if change.source is None and change.before is None:
        return None
    if change.source is None and item.temp_dir == item.folder:
        return open_regular(temp_dir, item.name)
    parent, name = split_path((change.source or change.path).raw)
    try:
        with disk.folder(parent) as folder:
            return open_regular(folder, name)
    except OSError as error:
        if error.errno not in UNREACHABLE:
            raise
        return None


def _keeps_content(model: Metadata, state: FileState) -> bool:
    """Return whether a moved file has this content. Reads it only if its content has privileges."""
    if not any(model.status.st_mode & bit for bit in PRIVILEGES) and not attributes_of(model.descriptor):
        return True
    return model.status.st_size == len(state.content) and state.content == os.pread(
        model.descriptor, len(state.content) + 1, 0
    )


def _known_permissions(change: Change[FileState], state: FileState) -> int | None:
    if state.permissions is not None or change.before is None:
        return state.permissions
    return change.before.permissions
