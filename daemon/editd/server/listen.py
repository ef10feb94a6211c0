"""The listening socket: bound without a race, visible to its owner only, never taken from a live daemon.

The folder is 0700 and the socket 0600 from the first moment. It is bound and listening under another name
before it is renamed into place, so that every client that finds it is answered. The caller holds the
workspace's flock. Therefore a socket that does not answer belongs to a dead daemon, and is replaced.
(asyncio's own `path=` takes over a live socket silently.)
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
import sys
from typing import TYPE_CHECKING

from editd.errors import IoError, PermissionDenied
from editd.system import inotify

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SUN_PATH_MAX = 107  # bytes in sockaddr_un, less the NUL
MOMENTARY_BYTES = 16  # by which the temporary name may be longer than the socket's own
BACKLOG = 128  # clients that connect while a long transaction holds the loop


class AlreadyListening(PermissionDenied):
    """Another process already listens on the socket, and it is not ours to take."""


def bind(path: str) -> socket.socket:
    """Return a socket that listens at `path`, of any length.

    Raises AlreadyListening if another process listens there, PermissionDenied if the folder is not ours
    alone or the path is no socket, IoError if the system fails.
    """
    folder, name = os.path.split(os.path.abspath(path))
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        with _own_folder(folder) as descriptor:
            _refuse_if_not_stale(descriptor, name, path)
            os.fchmod(listener.fileno(), 0o600)  # before it has a name: no umask, no moment at 0755
            _listen_under(listener, descriptor, folder, name)
    except OSError as error:
        listener.close()
        raise IoError(error, f"The socket {path} cannot be made") from error
    except PermissionDenied:
        listener.close()
        raise
    return listener


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
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


@contextlib.contextmanager
def _own_folder(folder: str) -> Iterator[int]:
    """Yield a descriptor of `folder`, which is made 0700 if missing, and must be ours alone."""
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    try:
        descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except NotADirectoryError:
        raise PermissionDenied(
            f"{folder} is not a folder, or a symbolic link.",
            hint="Remove it, or name another socket in EDITD_SOCKET.",
        ) from None
    try:
        found = os.fstat(descriptor)
        if found.st_uid != os.geteuid():
            raise PermissionDenied(
                f"{folder} belongs to user {found.st_uid}.",
                hint="Name a socket in a folder of your own in EDITD_SOCKET.",
            )
        if found.st_mode & 0o077:
            raise PermissionDenied(
                f"{folder} is open to others (mode {stat.S_IMODE(found.st_mode):04o}).",
                hint=_advice(folder, found),
            )
        yield descriptor
    finally:
        os.close(descriptor)


def _advice(folder: str, found: os.stat_result) -> str:
    """Return a hint for a folder of ours that is open to others. A sticky folder, made for all, stays so."""
    if folder == "/" or found.st_mode & stat.S_ISVTX:
        return "Name a socket in a folder of your own in EDITD_SOCKET."
    return f"Run `chmod 700 {folder}`, or name a socket in another folder in EDITD_SOCKET."


def _refuse_if_not_stale(folder: int, name: str, path: str) -> None:
    try:
        descriptor = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    except FileNotFoundError:
        return
    try:
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            raise PermissionDenied(
                f"{path} exists and is not a socket.", hint="Remove it, or name another in EDITD_SOCKET."
            )
        if _answers(descriptor, path):
            raise AlreadyListening(
                f"Another process already listens on {path}.",
                hint="Stop that daemon first, or name another socket in EDITD_SOCKET.",
            )
    finally:
        os.close(descriptor)


def _answers(descriptor: int, path: str) -> bool:
    """Return whether a socket, open as a path, has a listener. A full backlog means that it has one."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
        try:
            probe.connect(_address(descriptor, path))
        except ConnectionRefusedError:
            return False
        except BlockingIOError:
            return True
    return True


def _address(descriptor: int, path: str, name: str = "") -> str:
    """Return the address of an open socket, or of `name` in an open folder; `path` is its path.

    The address goes through the descriptor, because an address holds at most 107 bytes. Without /proc it
    is the path. Raises PermissionDenied if that is too long.
    """
    through = f"/proc/self/fd/{descriptor}"
    if os.path.lexists(through):
        return os.path.join(through, name) if name else through
    path = os.path.join(path, name) if name else path
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
