"""Writing in place: the content of one file is changed without another file taking its path.

Only for the files that the configuration names (`in_place`), such as a file that is itself a mount, that is
mounted alone into a container, or that has several names. All of these lead to an inode, and an exchange
would leave them with the old one. The promises are weaker: a reader may see half of an edit, a crash may
leave a half that only recovery repairs, and a write of another program in the same moment may be lost.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from editd.errors import InUse
from editd.system.filesystem import read_whole, write_whole
from editd.values.content import without_privileges
from editd.workspace.temp_files import permissions_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from editd.system.filesystem import OpenFolder
    from editd.values.content import Change, FileState
    from editd.workspace.temp_files import OpenTarget


class OtherContent(Exception):
    """The file has not the expected content. Nothing was written."""


def is_written_in_place(change: Change[FileState]) -> bool:
    """Return whether a change of a named file keeps the inode: one regular file stays one."""
    before, after = change.before, change.after
    if before is None or after is None or before.is_symlink or after.is_symlink:
        return False
    return change.source in (None, change.path)


def overwrite(target: OpenTarget, before: FileState, after: FileState, about_to: Callable[[], None]) -> None:
    """Give the target's file its new content and mode; call `about_to` before the first byte.

    Raises OtherContent if the file is not `before`, InUse, and OSError.
    """
    if not target.target_holds(before):  # under a lease: no other program is writing it
        raise OtherContent
    descriptor = _open(target.folder, target.item.name, target.item.change)
    try:
        status = os.fstat(descriptor)
        if read_whole(descriptor, status.st_size) != before.content:
            raise OtherContent
        about_to()
        _write(descriptor, after)
    finally:
        os.close(descriptor)


def restore(target: OpenTarget, before: FileState, after: FileState) -> None:
    """Write `before` again, unless another program has written newer content. Raises InUse, OSError."""
    descriptor = _open(target.folder, target.item.name, target.item.change)
    try:
        content = read_whole(descriptor, os.fstat(descriptor).st_size)
        if content == after.content or is_partly_written(content, before.content, after.content):
            _write(descriptor, before)
    finally:
        os.close(descriptor)


def is_partly_written(content: bytes, before: bytes, after: bytes) -> bool:
    """Return whether `content` begins as `after` and goes on as `before`, as a killed process leaves it."""
    written = _common_length(content, after)
    return content[written:] == before[written:]


def _common_length(first: bytes, second: bytes) -> int:
    equal, different = 0, min(len(first), len(second)) + 1
    while different - equal > 1:
        middle = (equal + different) // 2
        if first[equal:middle] == second[equal:middle]:
            equal = middle
        else:
            different = middle
    return equal


def _open(folder: OpenFolder, name: bytes, change: Change[FileState]) -> int:
    try:
        return folder.open_to_write(name)
    except BlockingIOError:  # another program's lease
        raise InUse(change.path.text) from None


def _write(descriptor: int, state: FileState) -> None:
    os.lseek(descriptor, 0, os.SEEK_SET)
    write_whole(descriptor, state.content)
    os.ftruncate(descriptor, len(state.content))
    status = os.fstat(descriptor)
    kept = without_privileges(status.st_mode)  # as the kernel does it, but for root
    permissions = permissions_for(kept, executable=state.is_executable)
    if permissions != stat.S_IMODE(status.st_mode):
        os.fchmod(descriptor, permissions)
