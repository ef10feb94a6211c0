"""The causes of a refusal by the file system: flags of `chattr`, and another owner."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, NamedTuple

from editd.errors import PermissionDenied
from editd.system.filesystem import file_flags
from editd.workspace.reader import refusal_of

if TYPE_CHECKING:
    from editd.errors import Refused
    from editd.system.filesystem import Disk, OpenFolder
    from editd.values.path import WorkspacePath

FLAGS = {0x10: ("immutable", "-i"), 0x20: ("append-only", "-a")}  # FS_IMMUTABLE_FL, FS_APPEND_FL


class Cause(NamedTuple):
    fact: str
    hint: str


def denial(disk: Disk, path: WorkspacePath, error: OSError, failure: str) -> Refused:
    """Return the refusal for `error`, with its cause if that is known; `failure` is "could not be …"."""
    refusal = refusal_of(error, path, failure)
    if isinstance(refusal, PermissionDenied):
        parent, _, name = path.raw.rpartition(b"/")
        with contextlib.suppress(OSError), disk.folder(parent) as folder:
            if (cause := cause_in(folder, name)) is not None:
                return refusal.revise(message=f"{path} {failure}: {cause.fact}.", hint=cause.hint)
    return refusal


def cause_in(folder: OpenFolder, name: bytes) -> Cause | None:
    """Return why a file of the folder cannot be replaced; None if no cause is known. Raises OSError."""
    descriptor = folder.open_itself()
    try:
        flagged = _flag_cause(descriptor, "its folder")
        above = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    status = folder.stat(name)
    if flagged is None and status is not None:
        with contextlib.suppress(OSError):  # a symlink, or a file that we may not read
            descriptor = folder.open(name)
            try:
                flagged = _flag_cause(descriptor, "it")
            finally:
                os.close(descriptor)
    if flagged is not None:
        return flagged
    for subject, owned in (("it", status), ("its folder", above)):
        if owned is not None and owned.st_uid != os.geteuid() != 0:
            return Cause(
                f"{subject} belongs to user {owned.st_uid}, who has not made it writable for you",
                "Edit it as that user, or have that user make it writable for you (chmod, setfacl).",
            )
    return None


def _flag_cause(descriptor: int, subject: str) -> Cause | None:
    flags = file_flags(descriptor)
    for flag, (word, option) in FLAGS.items():
        if flags & flag:
            hint = (
                f"Remove the flag as root (chattr {option}), if an edit should change it. `lsattr` shows it."
            )
            return Cause(f"{subject} is {word}", hint)
    return None
