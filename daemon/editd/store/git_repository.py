"""The store: a bare repository of the daemon's own, that plain git reads and nothing else writes.

Owns its layout. Folders are 0700 and files 0600: the history holds what the files hold, secrets included.
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
# Each after the one that it is in. No `hooks`: nothing runs because of what the store holds.
_FOLDERS = ("", "objects", "objects/pack", "objects/info", "refs", "refs/heads")


def open_store(path: str) -> pygit2.Repository:
    """Open it, without the user's configuration, of no use here, where that would wait. Raises GitError."""
    import pygit2  # late: who makes the store has no need of libgit2
    from pygit2.enums import ConfigLevel, RepositoryOpenFlag

    if not any(map(would_block, users_git_files())):
        return pygit2.Repository(path, RepositoryOpenFlag.NO_SEARCH)
    # One for the process, in which nobody opens a repository of the user's meanwhile, as long as it is so.
    places = pygit2.settings.search_path
    before = [(level, places[level]) for level in (ConfigLevel.SYSTEM, ConfigLevel.XDG, ConfigLevel.GLOBAL)]
    try:
        for level, _ in before:
            places[level] = ""
        return pygit2.Repository(path, RepositoryOpenFlag.NO_SEARCH)
    finally:
        for level, place in before:
            places[level] = place


def create_store(path: str) -> None:
    """Make the repository where there is none yet, durably; what is there already stays. Raises OSError.

    The folder that `path` is in must be there. HEAD comes last: git takes a folder without one for no
    repository, and so a crash in between is mended by doing this again.
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

    What a transaction touches is copied before, so nothing that can be undone rests on this. All that
    was borrowed before and is not named again is given back. Raises OSError.
    """
    lines = [f"{folder}\n" for folder in objects if can_borrow(folder)]
    replace_file_durably(os.path.join(path, "objects/info/alternates"), os.fsencode("".join(lines)))


def can_borrow(folder: str) -> bool:
    """Whether a line of `alternates` can name this folder (gitrepository-layout(5)): most can."""
    return "\n" not in folder and not folder.startswith(('"', "#"))
