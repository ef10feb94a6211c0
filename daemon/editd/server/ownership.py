"""The ownership of a workspace: its daemon's paths, its socket, and the locks that keep other daemons out."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import shlex
import socket
import stat
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from editd.advice import Advice, command_term
from editd.config import paths
from editd.errors import IoError, PermissionDenied
from editd.system import inotify
from editd.system.filesystem import Disk
from editd.system.flock import NO_LOCKS, holder_of, take, take_folder
from editd.system.folded_names import FoldingDisk, folding_of, keeps_spelling
from editd.system.native import NATIVE
from editd.values.name_key import raw_key_of, set_folding
from editd.values.path import WorkspacePath
from editd.workspace.scope import WorkspaceScope

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from editd.system.flock import Flock


log = logging.getLogger(__name__)


HANDOVER_SECONDS = 30.0  # for another daemon to see that its socket is gone, and to end
EXEC_SECONDS = 2.0  # for the last child of a killed daemon to exec


class AlreadyRunning(Exception):
    """Another daemon has this workspace."""


class PartOfOuter(PermissionDenied):
    """The folder's files belong to the workspace around it."""


class WorkspacePaths(Struct, frozen=True):
    """The paths of a workspace's daemon."""

    root: str
    name: str  # the workspace's id
    state: str
    socket: str

    @classmethod
    def of(cls, workspace: str, *, exact: bool = False) -> WorkspacePaths:
        """Return the paths of the workspace that serves `workspace`; with `exact`, of that very folder.

        Raises PermissionDenied for `/`, a home folder, and a folder that overlaps the folder of histories.
        """
        root = os.path.realpath(workspace) if exact else paths.workspace_root(workspace)
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
        socket = paths.daemon_socket_path(paths.socket_path(name))  # a reviewer's editor may start us
        return cls(root, name, paths.state_folder(name), socket)

    def other_path(self) -> str:
        """Return the path of this folder at another running daemon of this user; "" for none."""
        with suppress(OSError):
            for name in os.listdir(os.path.dirname(self.state)):
                state = paths.state_folder(name)
                if state != self.state and paths.is_running(state):
                    root = paths.root_of(state)
                    if os.path.samefile(root, self.root):
                        return root
        return ""

    def allow_nesting(self) -> None:
        """Record that this workspace may be inside another workspace, for later starts too."""
        Path(self.state, paths.NESTED).touch(0o600)

    def outer(self) -> str:
        """Return the nearest workspace around this one, with a running daemon or a history; "" for none."""
        for outer in paths.upwards(self.root)[1:]:
            if paths.is_separate(outer) or paths.is_running(paths.state_of(outer)):
                return outer
        return ""

    def check_not_part(self) -> None:
        """Refuse a workspace whose files belong to the one around it. Raises PartOfOuter.

        A folder that the outer workspace ignores is not its own, nor is a separate workspace.
        """
        outer = self.outer()
        if not outer or paths.is_separate(self.root):
            return
        inside = WorkspacePath.parse(os.path.join(os.path.relpath(self.root, outer), "file"))
        if WorkspaceScope(outer).is_in(inside):
            Path(self.state, paths.PART).write_bytes(
                os.fsencode(outer) + b"\n"
            )  # spares a client the next try
            raise PartOfOuter(
                f"{self.root} is part of the workspace {outer}.",
                hint=Advice(
                    "Use that workspace (",
                    command_term(f"-C {shlex.quote(outer)}"),
                    "), or pass `--nested` for one inside it.",
                ),
            )

    def separate_inner(self) -> None:
        """Make nested workspaces of the folders below that another daemon serves now: they stay its own."""
        for inner in paths.served_below(self.root):
            state = paths.state_of(inner)
            if paths.is_running(state) and not paths.is_separate(inner):
                Path(state, paths.NESTED).touch(0o600)


@contextmanager
def owned(workspace: WorkspacePaths, listener: str | None) -> Iterator[None]:
    """Own a workspace while this lasts. `listener` is the address of a socket that systemd has made.

    Raises AlreadyRunning, PermissionDenied or OSError if the workspace cannot be taken.
    """
    flock = _take(workspace, listener)
    root: Flock | None = None
    try:
        root = _take_root(workspace)
        workspace.check_not_part()
        workspace.separate_inner()
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
    """Lock the workspace's folder itself, which has the same inode by every path.

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
        raise _lock_refusal(workspace)
    return taken


def _lock_refusal(workspace: WorkspacePaths) -> PermissionDenied:
    root, other = workspace.root, workspace.other_path()
    holder = holder_of(root)
    by = f"Process {holder[0]} ({holder[1]})" if holder else "Another daemon or program"
    hint = (
        Advice("Use that daemon: ", command_term(f"-C {shlex.quote(other)}"), ".")
        if other
        else "Stop it first. A daemon may be another user's, or keep its state elsewhere. "
        "Another program should lock a file in the folder instead."
    )
    return PermissionDenied(f"{by} has locked {root}{f' as {other}' if other else ''}.", hint=hint)


def open_disk(root: str) -> Disk:
    """Open the workspace's disk, and set what its file system ignores in names.

    Raises OSError, and PermissionDenied for a file system that changes the spelling of names: paths in the
    history would never match the files.
    """
    disk = Disk(root)
    with disk.folder(b"") as folder:
        folding = folding_of(folder)
        is_kept = not folding or keeps_spelling(folder)
    set_folding(folding)
    if not folding:
        return disk
    disk.close()
    if not is_kept:
        raise PermissionDenied(
            f"{root} is on a file system that changes the spelling of names.",
            hint="Move the project to a file system that keeps names as they are, such as ext4 or exFAT.",
        )
    return FoldingDisk(root, raw_key_of)


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


# The listening socket: bound without a race, visible to its owner only, never taken from a live daemon.
#
# The folder is 0700 and the socket 0600 from the first moment. It is bound and listening under another name
# before it is renamed into place, so that every client that finds it is answered. The caller holds the
# workspace's flock. Therefore a socket that does not answer belongs to a dead daemon, and is replaced.
# (asyncio's own `path=` takes over a live socket silently.)

SUN_PATH_MAX = 107  # bytes in sockaddr_un, less the NUL
MOMENTARY_BYTES = 16  # more in the temporary name than in the socket's
BACKLOG = 128  # clients that connect while a long transaction holds the loop


def bind(path: str) -> socket.socket:
    """Return a socket that listens at `path`, of any length.

    Raises PermissionDenied if another process listens there, if the folder is not ours alone, or if the path
    is no socket, and IoError if the system fails.
    """
    folder, name = os.path.split(os.path.abspath(path))
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.setblocking(False)
    try:
        with _own_folder(folder) as descriptor:
            _refuse_if_not_stale(descriptor, path)
            os.fchmod(listener.fileno(), 0o600)  # before it has a name: no umask, no moment at 0755
            _listen_under(listener, descriptor, folder, name)
    except OSError as error:
        listener.close()
        raise IoError(error, f"The socket {path} cannot be made") from error
    except PermissionDenied:
        listener.close()
        raise
    return listener


def unbind(path: str) -> None:
    """Remove the socket of a dead daemon at `path`. Raises PermissionDenied if a process listens there."""
    folder, name = os.path.split(os.path.abspath(path))
    if os.path.lexists(path):
        with _own_folder(folder) as descriptor:
            _refuse_if_not_stale(descriptor, path)
            os.unlink(name, dir_fd=descriptor)


async def serve(listener: socket.socket, make: Callable[[], asyncio.BaseProtocol]) -> asyncio.Server:
    """Accept connections on `listener`, each with a protocol from `make`."""
    loop = asyncio.get_running_loop()
    if sys.version_info >= (3, 13):
        # The loop must not remove the name: it may be systemd's, or by now another daemon's.
        return await loop.create_unix_server(make, sock=listener, backlog=BACKLOG, cleanup_socket=False)
    return await loop.create_unix_server(make, sock=listener, backlog=BACKLOG)


@contextlib.contextmanager
def watching_name(path: str | None, call: Callable[[], None]) -> Iterator[bool]:
    """Call `call` when `path` may lead to another file; yield whether the system can notify of that.

    Watches its folder and those above it, because a folder can be moved away as a whole.
    """
    queue = _names_queue(path) if path is not None else None
    if queue is None:
        yield path is None
        return
    loop = asyncio.get_running_loop()

    def changed() -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(queue, inotify.QUEUE_BYTES)
        call()

    loop.add_reader(queue, changed)
    try:
        yield True
    finally:
        loop.remove_reader(queue)
        os.close(queue)


def _names_queue(path: str) -> int | None:
    """Return an inotify queue for the names on the way to `path`; None if the system gives none."""
    try:
        queue = inotify.open_queue()
    except OSError:
        return None
    folder = os.path.dirname(os.path.abspath(os.fsencode(path)))
    try:
        inotify.add_watch(queue, folder, inotify.NAMES | inotify.DELETE_SELF | inotify.MOVE_SELF)
    except OSError:
        os.close(queue)
        return None
    while (above := os.path.dirname(folder)) != folder:
        folder = above
        with contextlib.suppress(OSError):  # a folder that we may not read is unlikely to move
            inotify.add_watch(queue, folder, inotify.DELETE_SELF | inotify.MOVE_SELF)
    return queue


def inode_of(path: str) -> tuple[int, int] | None:
    """Return the device and inode of the file at `path`, symlinks not followed; None if there is none."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


@contextlib.contextmanager
def _own_folder(folder: str) -> Iterator[int]:
    """Yield a descriptor of `folder`, which is made 0700 if missing, and must be ours alone."""
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    try:
        descriptor = os.open(folder, NATIVE.folder_flags | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno not in (errno.ENOTDIR, errno.ELOOP):
            raise
        raise PermissionDenied(
            f"{folder} is not a folder, or a symbolic link.",
            hint="Remove it, or name another socket in EDITD_SOCKET.",
        ) from None
    try:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid():
            raise PermissionDenied(
                f"{folder} belongs to user {status.st_uid}.",
                hint="Name a socket in a folder of your own in EDITD_SOCKET.",
            )
        if status.st_mode & 0o077:
            raise PermissionDenied(
                f"{folder} is open to others (mode {stat.S_IMODE(status.st_mode):04o}).",
                hint=_advice(folder, status),
            )
        yield descriptor
    finally:
        os.close(descriptor)


def _advice(folder: str, status: os.stat_result) -> str:
    """Return a hint for a folder of ours that is open to others. A sticky folder, made for all, stays so."""
    if folder == "/" or status.st_mode & stat.S_ISVTX:
        return "Name a socket in a folder of your own in EDITD_SOCKET."
    return f"Run `chmod 700 {folder}`, or name a socket in another folder in EDITD_SOCKET."


def _refuse_if_not_stale(folder: int, path: str) -> None:
    """Refuse a `path` in an open folder of ours if another process listens there, or if it is no socket."""
    name = os.path.basename(path)
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(status.st_mode):
        raise PermissionDenied(
            f"{path} exists and is not a socket.", hint="Remove it, or name another in EDITD_SOCKET."
        )
    if _answers(folder, path):
        raise PermissionDenied(
            f"Another process already listens on {path}.",
            hint="Stop that daemon first, or name another socket in EDITD_SOCKET.",
        )


def _answers(folder: int, path: str) -> bool:
    """Return whether the socket `path`, in an open folder, has a listener, as a full backlog shows."""
    parent, name = os.path.split(path)
    with contextlib.ExitStack() as opened:
        address = _address(folder, parent, name)
        if len(os.fsencode(address)) > SUN_PATH_MAX and NATIVE.path_flags is not None:
            descriptor = os.open(name, NATIVE.path_flags, dir_fd=folder)
            opened.callback(os.close, descriptor)
            address = f"{NATIVE.proc}/self/fd/{descriptor}"
        probe = opened.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        probe.setblocking(False)
        try:
            probe.connect(address)
        except ConnectionRefusedError:
            return False
        except BlockingIOError:
            return True
    return True


def _address(folder: int, path: str, name: str) -> str:
    """Return the address of the socket `name` in an open folder; `path` is the folder's path.

    The address goes through the descriptor, because an address holds at most 107 bytes. Without /proc it
    is the path. Raises PermissionDenied if that is too long.
    """
    through = f"{NATIVE.proc}/self/fd/{folder}"
    if os.path.lexists(through):
        return os.path.join(through, name)
    path = os.path.join(path, name)
    if len(os.fsencode(path)) > SUN_PATH_MAX:
        raise PermissionDenied(
            f"The path {path} is too long for a socket without /proc.",
            hint=f"Mount /proc, or name a socket of at most {SUN_PATH_MAX - MOMENTARY_BYTES} bytes "
            "in EDITD_SOCKET.",
        )
    return path


def _listen_under(listener: socket.socket, folder: int, path: str, name: str) -> None:
    """Bind and listen under a temporary name, then take the real one. `path` is the folder's."""
    momentary = f".new-{os.getpid()}"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(momentary, dir_fd=folder)  # left by a process with our number that was killed here
    listener.bind(_address(folder, path, momentary))
    try:
        listener.listen(BACKLOG)
        os.rename(momentary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        os.unlink(momentary, dir_fd=folder)
        raise
