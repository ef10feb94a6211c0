"""A copy of the workspace for a command, if there can be no overlay: the files that git does not ignore.

The copy shares its blocks with the workspace if the file system can (FICLONE).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from typing import TYPE_CHECKING

from editd.runs.limits import COPY_BYTES_MAX
from editd.runs.scratch import write_files
from editd.system.git_command import GitFailed, GitMissing, run_git, work_tree_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from editd.runs.scratch import TrialFile

FICLONE = 0x40049409  # linux/fs.h


class WorkspaceTooLarge(Exception):
    """The workspace's files are larger than COPY_BYTES_MAX."""


def copy_workspace(root: str, to: str, files: Iterable[TrialFile]) -> None:
    """Make the folder `to`, with the files that git does not ignore and the changes of `files`.

    Raises FileExistsError if `to` has anything in it, OSError, and WorkspaceTooLarge.
    """
    os.makedirs(to, exist_ok=True)
    if os.listdir(to):
        raise FileExistsError(f"{to} is not empty")
    total = 0
    for name in _names(root):
        source, target = os.path.join(root, name), os.path.join(to, name)
        with contextlib.suppress(FileNotFoundError):  # it has gone meanwhile
            total += os.lstat(source).st_size
            if total > COPY_BYTES_MAX:
                raise WorkspaceTooLarge
            os.makedirs(os.path.dirname(target), exist_ok=True)
            _copy(source, target)
    write_files(to, files)


def _names(root: str) -> Iterator[str]:
    """Yield the paths of the files in the workspace that git does not ignore; all without git.

    Raises OSError if the repository of the workspace cannot be read.
    """
    listed = ask_git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if listed is None:
        for folder, folders, names in os.walk(root):
            links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
            yield from (os.path.relpath(os.path.join(folder, name), root) for name in (*names, *links))
        return
    yield from dict.fromkeys(os.fsdecode(name) for name in listed.split(b"\0") if _is_inside(name))


def _is_inside(name: bytes) -> bool:
    """Return whether a name of an index is a path in the workspace: anybody may have written the index."""
    return bool(name) and not name.startswith(b"/") and b".." not in name.split(b"/")


def ask_git(root: str, verb: str, *arguments: str, stdin: bytes = b"") -> bytes | None:
    """Return git's answer about the workspace; None without git or a repository. Raises OSError."""
    work_tree = work_tree_of(root)
    if work_tree is None:
        return None
    try:
        return run_git(
            work_tree.git_folder, verb, *arguments, top=work_tree.top, folder=root, stdin=stdin,
            statuses=(0, 1) if verb == "check-ignore" else (0,),
        )  # fmt: skip
    except GitMissing:
        return None
    except GitFailed as failure:
        raise OSError(str(failure)) from failure


def _copy(source: str, target: str) -> None:
    """Copy one file with its mode, or a symlink; share its blocks where the file system can."""
    if os.path.islink(source) or not os.path.isfile(source):
        if os.path.islink(source):
            os.symlink(os.readlink(source), target)
        return
    with open(source, "rb") as old, open(target, "xb") as new:
        try:
            fcntl.ioctl(new.fileno(), FICLONE, old.fileno())
        except OSError:
            shutil.copyfileobj(old, new, 1024 * 1024)
    shutil.copymode(source, target)
