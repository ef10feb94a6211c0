"""The files of git's own that it reads for a repository: its folder, and those of the user."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from editd.system.regular_files import open_regular

if TYPE_CHECKING:
    from collections.abc import Iterator


def git_folder(path: bytes) -> bytes | None:
    """Return git's own folder, absolute: a `.git` or the folder that it names (gitrepository-layout(5))."""
    if os.path.isdir(path):
        return path
    try:
        with open_regular(path) as file:
            text = file.read(65536)
    except (OSError, ValueError):
        return None
    if not text.startswith(b"gitdir: ") or b"\0" in text:
        return None
    return os.path.normpath(os.path.join(os.path.dirname(path), text[8:].rstrip(b"\r\n")))


def users_git_files() -> Iterator[bytes]:
    """Yield the files that git reads with every repository of a user (git-config(1) and gitignore(5))."""
    home = os.fsencode(os.path.expanduser("~"))
    yield os.path.join(home, b".gitconfig")
    folder = os.environb.get(b"XDG_CONFIG_HOME") or os.path.join(home, b".config")
    for name in (b"config", b"ignore", b"attributes"):
        yield os.path.join(folder, b"git", name)
