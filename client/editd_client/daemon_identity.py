"""Whose daemon answers: EDITD_SOCKET may have been set for another workspace."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from editd.wire.messages import Status
from editd_client.errors import EditdError, refusal
from editd_client.requests import Request

if TYPE_CHECKING:
    from editd_client.client import Client
    from editd_client.locate import Workspace


def is_elsewhere(root: str, workspace: Workspace) -> bool:
    """Whether a daemon's folder is another than this workspace's.

    A folder that is not here is that of a daemon in a container, whose socket was handed out.
    """
    return os.path.isdir(root) and not os.path.samefile(root, workspace.root)


def root_elsewhere(client: Client, workspace: Workspace) -> str | None:
    """The folder of the client's daemon, where EDITD_SOCKET has led to that of another workspace."""
    if not os.environ.get("EDITD_SOCKET"):
        return None
    root: str = client.ask(Request(Status(), lambda told: told["root"]))
    return root if is_elsewhere(root, workspace) else None


def elsewhere(workspace: Workspace, root: str) -> EditdError:
    """The refusal (`path_outside`) to speak for this workspace to the daemon of the folder `root`."""
    return refusal(
        "path_outside",
        f"The daemon at {workspace.socket_path} has {root}, and not {workspace.root}.",
        hint="Unset EDITD_SOCKET, or name that workspace: --workspace DIR.",
    )
