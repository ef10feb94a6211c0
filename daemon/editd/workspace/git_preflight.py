"""A check that libgit2 can open a user's repository without blocking at a FIFO.

libgit2 opens files unchecked, and open(2) of a FIFO without a writer never returns. A file that becomes a
FIFO between this check and libgit2's open still blocks the daemon: no program does that by accident.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from editd.system.git_paths import git_folder, users_git_files
from editd.system.regular_files import would_block
from editd.workspace.git_files import common_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

# See gitrepository-layout(5). A linked work tree has some in its own folder, and some in the common one.
_OPENED = (b"HEAD", b"config", b"config.worktree", b"commondir", b"gitdir", b"shallow", b"info/exclude",
           b"info/grafts")  # fmt: skip
_OPENED_FOR_INDEX = (b"index", b"info/attributes", b"objects/info/alternates")


def has_no_fifo(worktree: bytes, *, for_index: bool = False) -> bool:
    """Return whether no file of the repository at the top of `worktree` is a FIFO or similar.

    `for_index`: check also the files that libgit2 reads for the index and for attributes.
    """
    return not any(map(would_block, opened_files(worktree, for_index=for_index)))


def opened_files(worktree: bytes, *, for_index: bool = False) -> Iterator[bytes]:
    """Yield the paths of the files that libgit2 opens in this repository, existing or not."""
    yield from users_git_files()
    yield os.path.join(worktree, b".git")
    folder = git_folder(os.path.join(worktree, b".git"))
    if folder is None:
        return
    for git_dir in dict.fromkeys((folder, common_folder(folder))):
        for name in _OPENED + (_OPENED_FOR_INDEX if for_index else ()):
            yield os.path.join(git_dir, name)
