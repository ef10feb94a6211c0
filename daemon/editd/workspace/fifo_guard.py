"""Openable: whether libgit2 can read a repository of the user's without waiting for ever at a FIFO.

libgit2 opens files as they come, and an open of a FIFO never returns. What is exchanged for one between
our look and its open still holds us up: only somebody who means to can do that.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from editd.system.regular_file import git_folder, users_git_files, would_block
from editd.workspace.git_head import common_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

# By gitrepository-layout(5); of a linked work tree some are in its own folder and some in the common one.
_OPENED = (b"HEAD", b"config", b"config.worktree", b"commondir", b"gitdir", b"shallow", b"info/exclude",
           b"info/grafts")  # fmt: skip
_OPENED_FOR_INDEX = (b"index", b"info/attributes", b"objects/info/alternates")


def has_no_fifo(place: bytes, *, for_index: bool = False) -> bool:
    """Whether no file of the repository with its work tree's top at `place` is a FIFO or the like.

    `for_index`: the files too that are read with git's index, and for attributes.
    """
    return not any(map(would_block, opened_files(place, for_index=for_index)))


def opened_files(place: bytes, *, for_index: bool = False) -> Iterator[bytes]:
    """The files that libgit2 opens of such a repository, whether they are there or not."""
    yield from users_git_files()
    yield os.path.join(place, b".git")
    folder = git_folder(os.path.join(place, b".git"))
    if folder is None:
        return
    for where in dict.fromkeys((folder, common_folder(folder))):
        for name in _OPENED + (_OPENED_FOR_INDEX if for_index else ()):
            yield os.path.join(where, name)
