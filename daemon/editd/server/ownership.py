"""The ownership of a workspace: the paths of its daemon, and the locks that keep other daemons out."""

from __future__ import annotations

import logging
import os
import shlex
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from editd.config import paths
from editd.errors import PermissionDenied
from editd.system.files import NO_LOCKS, holder_of, take, take_folder
from editd.system.mounts import folding_of
from editd.values.path import WorkspacePath
from editd.workspace.scope import WorkspaceScope

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from editd.system.files import Flock
    from editd.system.filesystem import RealDisk

log = logging.getLogger(__name__)

HANDOVER_SECONDS = 30.0  # for another daemon to see that its socket is gone, and to end
EXEC_SECONDS = 2.0  # for the last child of a killed daemon to exec


class AlreadyRunning(Exception):
    """Another daemon has this workspace."""


class WorkspacePaths(Struct, frozen=True):
    """The paths of a workspace's daemon."""

    root: str
    name: str  # the workspace's id
    state: str
    socket: str

    @classmethod
    def of(cls, workspace: str, *, nested: bool = False) -> WorkspacePaths:
        """Return the paths of the workspace that contains `workspace`; with `nested`, of that very folder.

        Raises PermissionDenied for `/`, a home folder, and a folder that contains its own history or
        is inside another one.
        """
        root = os.path.realpath(workspace) if nested else paths.workspace_root(workspace)
        if not os.path.isdir(root):
            raise PermissionDenied(f"{workspace} is not a folder.", hint="Give the workspace's top folder.")
        if paths.is_system_root(root) or paths.is_home(root):
            raise PermissionDenied(
                f"{root} is too much to own: editd does not take the root or a home folder.",
                hint="Choose the folder of one project.",
            )
        states = os.path.realpath(paths.histories_folder())
        if os.path.commonpath([root, states]) in (root, states):
            raise PermissionDenied(
                f"{root} and {states}, the folder of editd's histories, overlap.",
                hint="Choose another folder, or another folder for the histories: XDG_STATE_HOME.",
            )
        name = paths.workspace_id(root)
        return cls(root, name, paths.state_folder(name), paths.socket_path(name))

    def other_path(self) -> str:
        """Return the path by which another running daemon of this user has this folder; "" for none."""
        with suppress(OSError):
            for name in os.listdir(os.path.dirname(self.state)):
                state = paths.state_folder(name)
                if state != self.state and paths.is_running(state):
                    root = os.fsdecode(Path(state, "root").read_bytes().removesuffix(b"\n"))
                    if os.path.samefile(root, self.root):
                        return root
        return ""

    def allow_nesting(self) -> None:
        """Record that this workspace may be inside another one, for later starts too."""
        Path(self.state, paths.NESTED).touch(0o600)

    def check_not_nested(self) -> None:
        """Refuse a workspace whose files a running daemon owns as part of a folder above.

        Raises PermissionDenied. A folder that the outer workspace ignores is not its own.
        """
        if os.path.exists(os.path.join(self.state, paths.NESTED)):
            return
        for outer in paths.upwards(self.root)[1:]:
            if not paths.is_running(paths.state_folder(paths.workspace_id(outer))):
                continue
            inside = WorkspacePath.parse(os.path.join(os.path.relpath(self.root, outer), "file"))
            if WorkspaceScope(outer).is_in(inside):
                raise PermissionDenied(
                    f"A running daemon owns {outer}, and {self.root} is part of it.",
                    hint=f"Use that workspace (`editctl -C {outer}`), or pass `--nested` for one inside it.",
                )


@contextmanager
def owned(workspace: WorkspacePaths, listener: str | None) -> Iterator[None]:
    """Own a workspace while this lasts. `listener` is the address of a socket that systemd has made.

    Raises AlreadyRunning, PermissionDenied or OSError if the workspace cannot be taken.
    """
    flock = _take(workspace, listener)
    root: Flock | None = None
    try:
        root = _take_root(workspace)
        workspace.check_not_nested()
        yield
    finally:
        if root is not None:
            root.release()
        flock.release()


def _take(workspace: WorkspacePaths, listener: str | None) -> Flock:
    path = os.path.join(workspace.state, "lock")
    flock = take(path)
    if flock is None and listener is not None:
        # systemd sends all clients to us, so the other daemon has lost its socket, and ends.
        flock = _wait_for(path, HANDOVER_SECONDS)
    elif flock is None:
        # The last child of a killed daemon holds the lock until its exec closes the descriptor.
        flock = _wait_for(path, EXEC_SECONDS, is_over=lambda: _is_written_by_living(path))
    if flock is None:
        raise AlreadyRunning(workspace.root)
    address = workspace.socket if listener is None else listener
    with open(path, "wb", opener=_private) as file:  # for clients that use another socket path
        file.write(f"{os.getpid()} ".encode() + os.fsencode(address) + b"\n")
    with open(os.path.join(workspace.state, "root"), "wb", opener=_private) as file:
        file.write(os.fsencode(workspace.root) + b"\n")
    return flock


def _take_root(workspace: WorkspacePaths) -> Flock | None:
    """Lock the workspace's folder itself, which has one inode by whatever path it is reached.

    Returns None if its file system has no locks on folders. Raises PermissionDenied.
    """
    try:
        taken = take_folder(workspace.root)
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        log.warning("%s cannot be locked: %s", workspace.root, error)
        return None
    if taken is None:
        raise _locked(workspace)
    return taken


def _locked(workspace: WorkspacePaths) -> PermissionDenied:
    root, other = workspace.root, workspace.other_path()
    holder = holder_of(root)
    by = f"Process {holder[0]} ({holder[1]})" if holder else "Another daemon or program"
    hint = (
        f"Use that daemon: `editctl -C {shlex.quote(other)}`."
        if other
        else "Stop it first. A daemon may be another user's, or keep its state elsewhere. "
        "Another program should lock a file in the folder instead."
    )
    return PermissionDenied(f"{by} has locked {root}{f' as {other}' if other else ''}.", hint=hint)


def refuse_folding(disk: RealDisk) -> None:
    """Refuse a file system on which two spellings are one file: leases, undo and `protect` go by the path.

    Raises PermissionDenied.
    """
    with disk.folder(b"") as root:
        folding = folding_of(root)
    if folding:
        shown = {"case": "README.md and readme.md", "form": "é as one character and as e with an accent"}
        raise PermissionDenied(
            f"{os.fsdecode(disk.root)} is on a file system that ignores {folding} in names, "
            f"so that {shown.get(folding, shown['case'])} are one file.",
            hint="Move the project to a file system that tells such names apart, such as ext4. "
            "In WSL or a virtual machine, use its own disk and no shared folder.",
        )


def _wait_for(path: str, seconds: float, is_over: Callable[[], bool] = lambda: False) -> Flock | None:
    """Return the lock at `path` once its holder has released it; None after this time, or when `is_over`."""
    until = time.monotonic() + seconds
    while (flock := take(path)) is None and not is_over() and time.monotonic() < until:
        time.sleep(0.02)
    return flock


def _is_written_by_living(path: str) -> bool:
    """Return whether the process whose id is in the lock file still runs."""
    try:
        with open(path, "rb") as file:
            os.kill(int(file.read().split(b" ")[0]), 0)
    except (ProcessLookupError, ValueError):  # or the holder has yet to write it
        return False
    except OSError:
        return True
    return True


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)
