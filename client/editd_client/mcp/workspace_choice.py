"""The workspace of an MCP connection: from the command line, the client's root, or the current folder."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from editd_client.errors import EditdError
from editd_client.locate import Workspace, find_workspace

if TYPE_CHECKING:
    from collections.abc import Sequence


def is_named(named: str | None) -> bool:
    """Whether the command line or the environment names it, so that the client's roots do not matter."""
    return bool(named or os.environ.get("EDITD_WORKSPACE"))


def choose_workspace(named: str | None, roots: Sequence[str]) -> Workspace:
    """Return the named workspace, otherwise that of the client's root, otherwise of the current folder.

    With several roots, choose the current folder's workspace if it holds one of them, otherwise the first
    root's. Raises EditdError for a folder that editd refuses to own.
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
    """Return the folder that a root's URI names; None if that is no folder on this machine."""
    parts = urlsplit(uri)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        return None
    path = os.fsdecode(unquote(parts.path, errors="surrogateescape").encode("utf-8", "surrogateescape"))
    return path if os.path.isdir(path) else None
