"""The places of a workspace: its top folder, its id, its socket and its state folder.

The client and the daemon both use these definitions. The module only reads: it creates no folder,
runs no git and opens no socket. docs/protocol.md ("Transport") has the order of the socket's places.
"""

from __future__ import annotations

import hashlib
import os
import pwd

ID_DIGITS = 16  # hex digits of the SHA-256 of the real path, as the protocol has it
NESTED = "nested"  # a file in the state folder of a workspace that may be inside another one
REVIEW = ".review.sock"  # the end of the name of a socket of reviewers
TOP_LEVEL = ".git"  # a folder, or a file in a linked worktree or a submodule


def workspace_id(root: str) -> str:
    """Return the id of the workspace whose real path is `root`."""
    return hashlib.sha256(os.fsencode(root)).hexdigest()[:ID_DIGITS]


def top_level(folder: str) -> str | None:
    """Return the nearest folder, from `folder` upwards, that is a git top level or a nested workspace."""
    for candidate in upwards(folder):
        if os.path.lexists(os.path.join(candidate, TOP_LEVEL)):
            return candidate
        if os.path.exists(os.path.join(state_folder(workspace_id(candidate)), NESTED)):
            return candidate
    return None


def workspace_root(folder: str) -> str:
    """Return the real path of the workspace that a user means by naming `folder`.

    A repository whose top level is a home folder (for dotfiles) is no workspace, so `folder` itself is.
    """
    named = os.path.realpath(folder)
    if not os.path.isdir(named):
        return named  # the caller refuses it
    root = top_level(named)
    return named if root is None or is_system_root(root) or is_home(root) else root


def upwards(folder: str) -> list[str]:
    """Return `folder` and the folders above it, the root of the file system last."""
    folders = [folder]
    while (parent := os.path.dirname(folders[-1])) != folders[-1]:
        folders.append(parent)
    return folders


def is_system_root(root: str) -> bool:
    return root == "/"


def is_home(root: str) -> bool:
    """Return whether the real path `root` is a home folder: ours, root's, or that of the folder's owner.

    The home of a system user that owns it, such as /var/lib/postgresql, counts. A folder of root's that
    only serves as the home of a system user, such as /var/www, does not.
    """
    homes = {"/root", os.environ.get("HOME", "")}
    uids = {os.getuid(), os.geteuid()}
    try:
        uids.add(os.stat(root).st_uid)
    except OSError:
        return False  # nothing is at that path
    for uid in uids:
        try:
            homes.add(pwd.getpwuid(uid).pw_dir)
        except KeyError:
            continue  # a user without an entry, as in a container, has no home to protect
    if os.path.dirname(root) == "/home":
        homes.add(_home_of(os.path.basename(root)))  # its owner may be another user, as in a container
    return root in {os.path.realpath(home) for home in homes if home}


def socket_path(workspace: str) -> str:
    """Return the path of the socket of the workspace with this id, whether or not a daemon listens.

    Raises FileNotFoundError for a relative EDITD_SOCKET if the current folder was removed.
    """
    if given := os.environ.get("EDITD_SOCKET"):
        return os.path.abspath(given)
    return os.path.join(socket_folder(), f"{workspace}.sock")


def review_socket_path(socket: str) -> str:
    """Return the path of the reviewers' own socket, beside the daemon's at `socket`."""
    return f"{socket.removesuffix('.sock')}{REVIEW}"


def daemon_socket_path(socket: str) -> str:
    """Return the path of the daemon's socket, also if `socket` is that of its reviewers."""
    return f"{socket.removesuffix(REVIEW)}.sock" if socket.endswith(REVIEW) else socket


def socket_folder() -> str:
    """Return the folder of the user's sockets, in the protocol's order."""
    if runtime := _absolute("XDG_RUNTIME_DIR"):
        return os.path.join(runtime, "editd")
    if os.path.isdir(runtime := f"/run/user/{os.getuid()}"):
        return os.path.join(runtime, "editd")
    temporary = os.environ.get("TMPDIR") or "/tmp"  # noqa: S108  # both sides check the folder's owner
    return os.path.join(temporary, f"editd-{os.getuid()}")


def state_folder(workspace: str) -> str:
    """Return the folder of the history, the journal and the log of the workspace with this id."""
    return os.path.join(histories_folder(), workspace)


def histories_folder() -> str:
    """Return the folder that holds the state folders of all workspaces of this user."""
    state = _absolute("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return os.path.join(state, "editd")


def is_running(state: str) -> bool:
    """Return whether a daemon holds the workspace with this state folder.

    The lock is read from /proc, because taking it would make a daemon that starts now give up.
    """
    try:
        inode = os.stat(os.path.join(state, "lock")).st_ino
        with open("/proc/locks", encoding="ascii") as locks:
            return any(" FLOCK " in line and f":{inode} " in line for line in locks)
    except OSError:
        return False


def _absolute(variable: str) -> str | None:
    """Return the folder that the environment names; the XDG specification says to ignore a relative one."""
    given = os.environ.get(variable, "")
    return given if os.path.isabs(given) else None


def _home_of(name: str) -> str:
    try:
        return pwd.getpwnam(name).pw_dir
    except KeyError:
        return ""
