"""What a file has beside its bytes, given on to the file that takes its place.

Owns owner, permission bits, ACLs and extended attributes. Works on open descriptors only.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

from msgspec import Struct

from editd.errors import PermissionDenied

if TYPE_CHECKING:
    from editd.system.filesystem import OpenFolder
    from editd.values.path import WorkspacePath

_MUST_BE_KEPT = ("user.", "system.posix_acl_access")
_GIVEN_BY_THE_SYSTEM = ("security.selinux",)  # to every new file, as its policy says
_NOT_TO_BE_HAD = (errno.ENOTSUP, errno.EPERM, errno.EACCES, errno.ENODATA)


class Metadata(Struct, frozen=True):
    """An open file whose metadata another is to have."""

    descriptor: int
    there: os.stat_result  # taken before anything else is asked of it: what changes later shows in its ctime

    @classmethod
    def of(cls, descriptor: int) -> Metadata:
        return cls(descriptor, os.fstat(descriptor))


def clone_metadata(
    model: Metadata, target: int, path: WorkspacePath, *, executable: bool, have_attributes: bool = True
) -> tuple[os.stat_result, list[str]]:
    """Give the file open as `target` all that `model` has, but its content and times.

    The x bits are set or cleared as `executable` says. `have_attributes`: False where it is known that
    neither has any. Returns what the target was before, and the names of what the system does not let us
    keep. Raises PermissionDenied where the owner cannot be kept, and OSError. `path` is what to call it.
    """
    there, here = model.there, os.fstat(target)
    is_of_another = (there.st_uid, there.st_gid) != (here.st_uid, here.st_gid)
    if is_of_another:
        _keep_owner(target, there, path)
    # After the owner, for chown(2) takes setuid bits and capabilities away; before the permissions, since an
    # ACL sets them too.
    lost = _clone_attributes(model.descriptor, target) if have_attributes else []
    permissions = permissions_for(there.st_mode, executable=executable)
    # An owner or an ACL may have changed them.
    now = os.fstat(target) if is_of_another or have_attributes else here
    if permissions != stat.S_IMODE(now.st_mode):
        os.fchmod(target, permissions)
    if permissions & stat.S_ISGID and not os.fstat(target).st_mode & stat.S_ISGID:  # as chmod(2) says
        lost.append("setgid")
    return here, lost


def unpreserved_metadata(folder: OpenFolder, descriptor: int) -> list[str]:
    """What an open file in `folder` has that no history holds, nor a new file would have: in words."""
    found, above = os.fstat(descriptor), folder.stat(b".")
    inherits = above is not None and above.st_mode & stat.S_ISGID
    group = above.st_gid if above is not None and inherits else os.getegid()
    owner = (found.st_uid, found.st_gid)
    named = [name for name in attributes_of(descriptor) if name not in _GIVEN_BY_THE_SYSTEM]
    return ([] if owner == (os.geteuid(), group) else [f"owner {owner[0]}:{owner[1]}"]) + named


def permissions_for(mode: int, *, executable: bool) -> int:
    """The permission bits of `mode`, with x set where r is, or cleared, as git does on checkout."""
    permissions = stat.S_IMODE(mode)
    if bool(permissions & stat.S_IXUSR) == executable:
        return permissions
    if not executable:
        return permissions & ~0o111
    return permissions | (permissions & 0o444) >> 2 | stat.S_IXUSR


def _keep_owner(target: int, there: os.stat_result, path: WorkspacePath) -> None:
    try:
        os.fchown(target, there.st_uid, there.st_gid)
    except PermissionError as error:
        raise PermissionDenied(
            f"{path} belongs to user {there.st_uid}, group {there.st_gid}, and could not be kept so.",
            hint="Edit it as its owner, or change its owner to the user who runs editd.",
            data={"path": path.text, "errno": error.errno, "errno_name": "EPERM"},
        ) from None


def _clone_attributes(source: int, target: int) -> list[str]:
    lost: list[str] = []
    there, here = attributes_of(source), attributes_of(target)
    for name in here:
        if name not in there and name.startswith(_MUST_BE_KEPT):  # such as the ACL of the folder's default
            os.removexattr(target, name)
    for name in there:
        try:
            os.setxattr(target, name, os.getxattr(source, name))
        except OSError as error:
            # What the system keeps for itself (security., trusted., a network's ACLs) may not be ours to set.
            if name.startswith(_MUST_BE_KEPT) or error.errno not in _NOT_TO_BE_HAD:
                raise
            lost.append(name)
    return lost


def attributes_of(descriptor: int) -> list[str]:
    """The names of the extended attributes, ACLs among them; none where the file system has none."""
    try:
        return os.listxattr(descriptor)
    except OSError as error:
        if error.errno != errno.ENOTSUP:
            raise
        return []
