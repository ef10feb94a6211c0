"""The store: a bare repository of the daemon's own, that plain git reads and nothing else writes."""

from __future__ import annotations

import os
from collections.abc import Sequence

from editd.store.head import REF

_CONFIG = """[core]
\trepositoryformatversion = 0
\tfilemode = true
\tbare = true
[gc]
\tauto = 0
"""
_DESCRIPTION = "The history that editd keeps of one workspace: one commit for each transaction.\n"


def create_store(path: str) -> None:
    """Make the repository where there is none yet. Folders are 0700 and files 0600. Raises OSError.

    HEAD comes last: git takes a folder without one for no repository, and so a crash in between is mended
    by doing this again.
    """
    for folder in ("objects/pack", "objects/info", "refs/heads"):
        os.makedirs(os.path.join(path, folder), 0o700, exist_ok=True)
    _write(os.path.join(path, "config"), _CONFIG)
    _write(os.path.join(path, "description"), _DESCRIPTION)
    _write(os.path.join(path, "HEAD"), f"ref: {REF}\n")


def borrow(path: str, objects: Sequence[str]) -> None:
    """Let the store read the objects of the user's repositories, given by their `objects` folders.

    What a transaction touches is copied before, so nothing that can be undone rests on this.
    """
    usable = [folder for folder in objects if "\n" not in folder and not folder.startswith(('"', "#"))]
    _write(os.path.join(path, "objects/info/alternates"), "".join(f"{folder}\n" for folder in usable))


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(os.fsencode(text))
        file.flush()
        os.fsync(file.fileno())
