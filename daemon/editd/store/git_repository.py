"""The store: a bare git repository that plain git can read, and that only the daemon writes.

Owns its layout. Folders are 0700 and files 0600, because the history holds the files' content, with secrets.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from editd.store.head import REF
from editd.system.atomic_file import replace_file_durably, sync_path
from editd.system.regular_file import users_git_files, would_block

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pygit2

CONFIG = """[core]
\trepositoryformatversion = 0
\tfilemode = true
\tbare = true
[gc]
\tauto = 0
"""
_DESCRIPTION = "The history that editd keeps of one workspace: one commit for each transaction.\n"
# Each after its parent. No `hooks` folder: the content of the store never makes a program run.
_FOLDERS = ("", "objects", "objects/pack", "objects/info", "refs", "refs/heads")


def open_store(path: str) -> pygit2.Repository:
    """Open the store, without the user's configuration if reading that would block. Raises GitError."""
    import pygit2  # late, because `create_store` needs no libgit2
    from pygit2.enums import ConfigLevel, RepositoryOpenFlag

    if not any(map(would_block, users_git_files())):
        return pygit2.Repository(path, RepositoryOpenFlag.NO_SEARCH)
    # The search path is global to the process, but no other thread opens a user's repository meanwhile.
    search_path = pygit2.settings.search_path
    levels = (ConfigLevel.SYSTEM, ConfigLevel.XDG, ConfigLevel.GLOBAL)
    before = [(level, search_path[level]) for level in levels]
    try:
        for level, _ in before:
            search_path[level] = ""
        return pygit2.Repository(path, RepositoryOpenFlag.NO_SEARCH)
    finally:
        for level, folders in before:
            search_path[level] = folders


def create_store(path: str) -> None:
    """Create the repository, durably; existing parts stay. Raises OSError.

    The parent folder of `path` must exist. HEAD is written last: to git, a folder without it is no
    repository. So after a crash, a second call completes it.
    """
    for folder in _FOLDERS:
        with contextlib.suppress(FileExistsError):
            os.mkdir(os.path.join(path, folder), 0o700)
    for folder in reversed(_FOLDERS):
        sync_path(os.path.join(path, folder))
    sync_path(os.path.dirname(os.path.abspath(path)))
    replace_file_durably(os.path.join(path, "config"), CONFIG.encode())
    replace_file_durably(os.path.join(path, "description"), _DESCRIPTION.encode())
    replace_file_durably(os.path.join(path, "HEAD"), f"ref: {REF}\n".encode())


def borrow(path: str, objects: Sequence[str]) -> None:
    """Let the store read the objects of the user's repositories, given by their `objects` folders.

    The contents that a transaction touches are copied first, so no undo depends on this. The new list
    replaces the old one. Raises OSError.
    """
    lines = [f"{folder}\n" for folder in objects if can_borrow(folder)]
    replace_file_durably(os.path.join(path, "objects/info/alternates"), os.fsencode("".join(lines)))


def can_borrow(folder: str) -> bool:
    """Return whether a line of `alternates` can name this folder (gitrepository-layout(5)): most can."""
    return "\n" not in folder and not folder.startswith(('"', "#"))
