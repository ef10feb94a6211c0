"""The workspace of the answering daemon: EDITD_SOCKET may have been set for another one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from editd.wire.messages import Status
from editd_client.errors import EditdError, refusal
from editd_client.requests import PreparedCall

if TYPE_CHECKING:
    from editd_client.client import Client
    from editd_client.locate import Workspace


def is_elsewhere(root: str, workspace: Workspace) -> bool:
    """Whether a daemon's folder is not that of this workspace.

    A folder that does not exist on this machine belongs to a daemon in a container with a shared socket.
    """
    return os.path.isdir(root) and not os.path.samefile(root, workspace.root)


def root_elsewhere(client: Client, workspace: Workspace) -> str | None:
    """Return the folder of the client's daemon, if EDITD_SOCKET leads to another workspace."""
    if not os.environ.get("EDITD_SOCKET"):
        return None
    root: str = client.ask(PreparedCall(Status(), lambda status: status["root"]))
    return root if is_elsewhere(root, workspace) else None


def elsewhere(workspace: Workspace, root: str) -> EditdError:
    """Return the refusal (`path_outside`) to use the daemon of the folder `root` for this workspace."""
    return refusal(
        "path_outside",
        f"The daemon at {workspace.socket_path} serves {root}, not {workspace.root}.",
        hint="Unset EDITD_SOCKET, or name that workspace: --workspace DIR.",
    )
