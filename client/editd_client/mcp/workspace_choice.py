"""Which workspace a connection is about: what the command line says, else the client's root, else here."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from editd_client.errors import EditdError
from editd_client.locate import Workspace, find_workspace

if TYPE_CHECKING:
    from collections.abc import Sequence


def is_named(named: str | None) -> bool:
    """Does somebody say which it is, so that the client's roots do not matter?"""
    return bool(named or os.environ.get("EDITD_WORKSPACE"))


def choose_workspace(named: str | None, roots: Sequence[str]) -> Workspace:
    """The workspace that is named, else of the client's only root, else of the current folder.

    Of several roots the current folder's workspace is the one that is meant where it holds one of
    them, else the first root's. Raises EditdError where that is a folder that editd will not own.
    """
    if is_named(named):
        return find_workspace(named)
    folders = [folder for root in roots if (folder := _folder(root)) is not None]
    if not folders:
        return find_workspace()
    meant = [find_workspace(start=folder) for folder in folders]
    try:
        here = find_workspace()
    except EditdError:
        return meant[0]
    return here if len(meant) > 1 and any(place.root == here.root for place in meant) else meant[0]


def _folder(uri: str) -> str | None:
    """The folder that a root's URI names; None for what is no folder on this machine."""
    parts = urlsplit(uri)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        return None
    path = os.fsdecode(unquote(parts.path, errors="surrogateescape").encode("utf-8", "surrogateescape"))
    return path if os.path.isdir(path) else None
