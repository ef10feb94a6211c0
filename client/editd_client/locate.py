"""Where things lie: the workspace around a folder, its id, its socket and its state folder.

Looks, and changes nothing: it makes no folder, runs no git and opens no socket. The order of the
places for the socket is the protocol's ("Transport"), and the daemon's own.
"""

from __future__ import annotations

import hashlib
import os
import pwd
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from editd_client.errors import refusal

if TYPE_CHECKING:
    from collections.abc import Iterator

ID_DIGITS = 16  # hex digits of the SHA-256 of the real path, as the protocol says


@dataclass(frozen=True, slots=True)
class Workspace:
    """A folder that editd may own: its real path, and how it was found."""

    root: str
    found: Literal["named", "socket", "git", "here"]

    @property
    def id(self) -> str:
        """The name that the socket and the state folder go by."""
        return hashlib.sha256(os.fsencode(self.root)).hexdigest()[:ID_DIGITS]

    @property
    def socket_path(self) -> str:
        """Where the daemon of this workspace listens, whether or not there is one."""
        given = os.environ.get("EDITD_SOCKET")
        if given:
            return given if os.path.isabs(given) else os.path.normpath(os.path.join(current_folder(), given))
        return os.path.join(socket_folder(), f"{self.id}.sock")

    @property
    def state_folder(self) -> str:
        """Where the daemon keeps the history, the journal and its log."""
        state = _folder_of("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
        return os.path.join(state, "editd", self.id)


def find_workspace(named: str | None = None, start: str | None = None) -> Workspace:
    """Return the workspace: `named`, else EDITD_WORKSPACE, else the git top level above, else `start`.

    `start` is the current folder, where it is not given.

    Raises EditdError (`file_missing`, `not_a_file`, `permission_denied`) for what is no folder, and
    for a folder that editd will not own.
    """
    named = named or os.environ.get("EDITD_WORKSPACE") or None
    if named is not None:
        return _checked(Workspace(os.path.realpath(named), "named"))
    here = os.path.realpath(current_folder() if start is None else start)
    for folder in _upwards(here):
        if os.path.lexists(os.path.join(folder, ".git")):  # a file, in a linked worktree or submodule
            return _checked(Workspace(folder, "git"))
    return _checked(Workspace(here, "here"))


def current_folder() -> str:
    """The current folder's path; EditdError (`file_missing`) where it was removed."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise refusal("file_missing", "The current folder does not exist any more.") from None


def socket_folder() -> str:
    """The folder of the user's sockets, in the protocol's order."""
    if runtime := _folder_of("XDG_RUNTIME_DIR"):
        return os.path.join(runtime, "editd")
    if os.path.isdir(runtime := f"/run/user/{os.getuid()}"):
        return os.path.join(runtime, "editd")
    temporary = os.environ.get("TMPDIR") or "/tmp"  # noqa: S108  # connect checks whose socket it is
    return os.path.join(temporary, f"editd-{os.getuid()}")


def _folder_of(variable: str) -> str | None:
    """The folder that the environment names; a relative one is to be ignored, says the XDG specification."""
    given = os.environ.get(variable, "")
    return given if os.path.isabs(given) else None


def _upwards(folder: str) -> Iterator[str]:
    while True:
        yield folder
        parent = os.path.dirname(folder)
        if parent == folder:
            return
        folder = parent


def _checked(workspace: Workspace) -> Workspace:
    root = workspace.root
    if not os.path.exists(root):
        raise refusal("file_missing", f"{root} does not exist.")
    if not os.path.isdir(root):
        raise refusal("not_a_file", f"{root} is not a folder, so it cannot be a workspace.")
    if root == "/" or root in _homes(os.stat(root).st_uid):
        what = "the root of the file system" if root == "/" else "a home folder"
        raise refusal(
            "permission_denied",
            f"{root} is {what}, and editd will not own it.",
            hint="Go to a project's folder, or name one with --workspace DIR.",
        )
    return workspace


def _homes(owner: int) -> set[str]:
    """The real paths of our home folders and of the home of `owner`, who may be another user."""
    homes = {os.environ.get("HOME", "")}
    for uid in {os.getuid(), os.geteuid(), owner}:
        try:
            homes.add(pwd.getpwuid(uid).pw_dir)
        except KeyError:
            continue  # a user without an entry, as in a container, has no home to protect
    return {os.path.realpath(home) for home in homes if home}
