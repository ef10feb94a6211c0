"""The places of a workspace: its top folder, its id, its socket and its state folder.

The client and the daemon both use these definitions. The module only reads: it creates no folder,
runs no git and opens no socket. docs/protocol.md ("Transport") has the order of the socket's places.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import stat
from functools import lru_cache

from editd.config.runtime_folder import absolute_in, socket_folder

ID_DIGITS = 16  # hex digits of the SHA-256 of the real path, as the protocol has it
NESTED = "nested"  # a file in the state folder of a workspace that may be inside another
PART = "part"  # a file in the state folder of a repository that the workspace around it covers: its root
REVIEW = ".review.sock"  # the end of the name of a socket of reviewers
MISSED_BYTES_MAX = 64 * 1024  # of the file at `missed_calls_path`
TOP_LEVEL = ".git"  # a folder, or a file in a linked worktree or a submodule
HISTORY = "store.git"  # a folder in the state folder of a workspace whose history has begun
GIT_FILE_BYTES_MAX = 64 * 1024


def workspace_id(root: str) -> str:
    """Return the id of the workspace whose real path is `root`."""
    return hashlib.sha256(os.fsencode(root)).hexdigest()[:ID_DIGITS]


def top_level(folder: str) -> str | None:
    """Return the nearest folder, from `folder` upwards, that is a git top level or a nested workspace."""
    for candidate in upwards(folder):
        if os.path.lexists(os.path.join(candidate, TOP_LEVEL)) or is_nested(candidate):
            return candidate
    return None


def serving_root(folder: str) -> str | None:
    """Return the workspace that serves `folder`; None if it is in no git repository and nothing serves it.

    The nearest folder upwards that is a separate workspace, or has a running daemon. Otherwise it is the
    nearest one with a history, also without git, so that a stopped daemon leaves no folder to another one.
    Otherwise it is the nearest git top level: a submodule or a nested repository that no daemon has served is
    part of the workspace around it.
    """
    nearest: str | None = None
    known: str | None = None
    for candidate in upwards(folder):
        state = state_folder(workspace_id(candidate))
        if is_separate(candidate) or (os.path.exists(os.path.join(state, "lock")) and is_running(state)):
            return candidate
        if nearest is None and os.path.lexists(os.path.join(candidate, TOP_LEVEL)):
            nearest = candidate
        if known is None and has_history(candidate) and not _is_covered(candidate):
            known = candidate
    return nearest if known is None else known


def workspace_root(folder: str) -> str:
    """Return the real path of the workspace that a user means by naming `folder`.

    A repository whose top level is a home folder (for dotfiles) is no workspace, so `folder` itself is.
    """
    named = os.path.realpath(folder)
    if not os.path.isdir(named):
        return named  # the caller refuses it
    root = serving_root(named)
    return named if root is None or is_system_root(root) or is_home(root) else root


# Workspaces inside a workspace. The one rule for clients and daemons: the inner one owns its files.


def is_separate(folder: str) -> bool:
    """Return whether a folder is a separate workspace, also inside another workspace.

    It is a linked worktree, a nested workspace, or a git top level with a history.
    """
    if is_nested(folder):
        return True
    if not os.path.lexists(os.path.join(folder, TOP_LEVEL)):
        return False
    return has_history(folder) or is_linked_worktree(folder)


def has_history(folder: str) -> bool:
    """Return whether a daemon has begun a history of the folder."""
    return os.path.exists(os.path.join(state_of(folder), HISTORY))


def _is_covered(folder: str) -> bool:
    """Return whether a daemon has found that a workspace around the folder covers it, which has a history."""
    outer = _path_in(os.path.join(state_of(folder), PART))
    return bool(outer) and folder.startswith(f"{outer}/") and has_history(outer)


def is_nested(folder: str) -> bool:
    """Return whether a user has made the folder a workspace with `--nested`."""
    return os.path.exists(os.path.join(state_of(folder), NESTED))


def is_part(folder: str, outer: str) -> bool:
    """Return whether a daemon has found that the workspace `outer` covers the files of `folder`."""
    return _path_in(os.path.join(state_of(folder), PART)) == outer


def is_linked_worktree(folder: str) -> bool:
    """Return whether a folder is the top of a linked worktree of git (gitrepository-layout(5)).

    A submodule has a `.git` file, too, but its git folder is in `modules`, or has no `commondir`. The main
    repository may be missing, on a disk that is not mounted.
    """
    git = _named_git_folder(os.path.join(folder, TOP_LEVEL))
    if git is None or os.path.basename(os.path.dirname(git)) != "worktrees":
        return False
    return os.path.exists(os.path.join(git, "commondir")) or not os.path.exists(git)


def _named_git_folder(path: str) -> str | None:
    """Return the folder that a `.git` file names, absolute; None for any other file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        text = os.fsdecode(os.read(descriptor, GIT_FILE_BYTES_MAX))
    except OSError:
        return None
    finally:
        os.close(descriptor)
    if not text.startswith("gitdir: ") or "\0" in text:
        return None
    return os.path.normpath(os.path.join(os.path.dirname(path), text[8:].rstrip("\r\n")))


@lru_cache(4096)  # an edit checks each folder on its path
def _id_of(root: str) -> str:
    return workspace_id(root)


def state_of(root: str) -> str:
    """Return the state folder of the workspace whose real path is `root`, whether or not it exists."""
    return state_folder(_id_of(root))


def served_below(root: str) -> list[str]:
    """Return the folders below `root` that a daemon of this user has ever served, or tried to."""
    histories = histories_folder()
    try:
        states = os.listdir(histories)
    except OSError:
        return []
    roots = (root_of(os.path.join(histories, state)) for state in states)
    return sorted(inner for inner in roots if inner.startswith(f"{root}/"))


def root_of(state: str) -> str:
    """Return the workspace of a state folder; "" if no daemon has served one."""
    return _path_in(os.path.join(state, "root"))


def _path_in(path: str) -> str:
    """Return the path that a file of a state folder has in its only line; "" without the file."""
    try:
        with open(path, "rb") as file:
            return os.fsdecode(file.read().removesuffix(b"\n"))
    except OSError:
        return ""


def upwards(folder: str) -> list[str]:
    """Return `folder` and the folders above it, the root of the file system last."""
    folders = [folder]
    while (parent := os.path.dirname(folders[-1])) != folders[-1]:
        folders.append(parent)
    return folders


def is_system_root(root: str) -> bool:
    return root == "/"


def is_home(root: str) -> bool:
    """Return whether the real path `root` is a home folder: ours, root's, or its owner's.

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
    if path := os.environ.get("EDITD_SOCKET"):
        return os.path.abspath(path)
    return os.path.join(socket_folder(), f"{workspace}.sock")


def review_socket_path(socket: str) -> str:
    """Return the path of the reviewers' own socket, beside the daemon's at `socket`."""
    return f"{socket.removesuffix('.sock')}{REVIEW}"


def missed_calls_path(socket: str) -> str:
    """Return the path of the hooks' file of calls that the daemon at `socket` did not answer."""
    return f"{socket}.missed"


def daemon_socket_path(socket: str) -> str:
    """Return the path of the daemon's socket, also if `socket` is its reviewers' socket."""
    return f"{socket.removesuffix(REVIEW)}.sock" if socket.endswith(REVIEW) else socket


def state_folder(workspace: str) -> str:
    """Return the folder of the history, the journal and the log of the workspace with this id."""
    return os.path.join(histories_folder(), workspace)


def histories_folder() -> str:
    """Return the folder that holds the state folders of all workspaces of this user."""
    state = absolute_in("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
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


def _home_of(name: str) -> str:
    try:
        return pwd.getpwnam(name).pw_dir
    except KeyError:
        return ""
