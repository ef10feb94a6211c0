"""Who and where: the author, and the workspace around a folder with its id, socket and state folder.

Changes nothing: makes no folder, runs no git and opens no socket. The order of the candidate folders
for the socket is the protocol's ("Transport"), as in the daemon.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

from editd.config import paths
from editd_client.errors import EditdError, refusal


@dataclass(frozen=True, slots=True)
class Workspace:
    """A folder that editd may own, by its real path.

    With `is_nested`, a daemon may be started for it inside a workspace of another daemon.
    With `is_exact`, a daemon takes this very folder, unless it is part of the workspace around it.
    """

    root: str
    found: Literal["named", "socket", "git", "here"]
    is_nested: bool = False
    is_exact: bool = False
    tree: str = ""  # the repository inside that has the folder of the client, relative to the root

    @property
    def id(self) -> str:
        """The workspace's part in the names of the socket and the state folder."""
        return paths.workspace_id(self.root)

    @property
    def socket_path(self) -> str:
        """The path of the daemon's socket, even if no daemon runs."""
        try:
            return paths.socket_path(self.id)
        except FileNotFoundError:
            raise _no_current_folder() from None

    @property
    def state_folder(self) -> str:
        """The folder with the daemon's history, journal and log."""
        return paths.state_folder(self.id)


def find_workspace(named: str | None = None, start: str | None = None, *, nested: bool = False) -> Workspace:
    """Return the workspace of `named`, then EDITD_WORKSPACE, then `start`, then the current folder.

    That is the workspace that serves the folder (`paths.serving_root`), or otherwise the folder itself. With
    `nested` it is always the folder itself.
    Raises EditdError (`file_missing`, `not_a_file`, `permission_denied`) for a folder that does not exist,
    for a file, and for a folder that editd refuses to own.
    """
    named = named or os.environ.get("EDITD_WORKSPACE") or None
    here = os.path.realpath(named or start or current_folder())
    if nested:
        return _check(Workspace(here, "named", is_nested=True))
    if named is not None:
        root = paths.workspace_root(here)
        return _check(Workspace(root, "named", tree=_tree_in(root, here)))
    serving = paths.serving_root(here)
    if serving is None:
        return _check(Workspace(here, "here"))
    return _check(Workspace(serving, "git", tree=_tree_in(serving, here)))


def _tree_in(root: str, folder: str) -> str:
    """Return the git top level of a folder below `root`, relative to it; "" if that is not inside."""
    top = paths.top_level(folder)
    return os.path.relpath(top, root) if top is not None and top.startswith(f"{root}/") else ""


def inner_repository(served: Workspace, start: str | None, *, again: bool = False) -> Workspace | None:
    """Return the git top level of a folder, if `served` is a workspace around it and may not cover it.

    Git may ignore the folder there, which a daemon finds out at its start. With `again`, also if a daemon has
    found that `served` covers it.
    """
    here = os.path.realpath(start or current_folder())
    top = paths.top_level(here)
    if (
        top is None
        or not top.startswith(f"{served.root}/")
        or (not again and paths.is_part(top, served.root))
    ):
        return None
    return Workspace(top, "git", is_exact=True)


def current_folder() -> str:
    """Return the current folder. Raises EditdError (`file_missing`) if it was removed."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise _no_current_folder() from None


def _no_current_folder() -> EditdError:
    return refusal("file_missing", "The current folder no longer exists.")


def _check(workspace: Workspace) -> Workspace:
    root = workspace.root
    if not os.path.exists(root):
        raise refusal("file_missing", f"{root} does not exist.")
    if not os.path.isdir(root):
        raise refusal("not_a_file", f"{root} is not a folder, so it cannot be a workspace.")
    is_everything = paths.is_system_root(root)
    if is_everything or paths.is_home(root):
        kind = "the root of the file system" if is_everything else "a home folder"
        raise refusal(
            "permission_denied",
            f"editd does not own {root}, because it is {kind}.",
            hint="Go to a project's folder, or name one with --workspace DIR.",
        )
    return workspace


def current_actor() -> str:
    """Return the name to sign with: EDITD_ACTOR, otherwise the login name."""
    return os.environ.get("EDITD_ACTOR") or login_name()


def login_name() -> str:
    """Return the name of the user, or their number if the system has no entry, as in a container."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.geteuid()}"
