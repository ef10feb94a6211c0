"""The helper: `python -m editd_client.resident.helper SOCKET`. It listens, and forks for each call.

It reads nothing of a call, and knows nothing of an earlier one. It ends when nobody has called for a while,
when its socket is gone, and when a module that it has loaded is another file by now.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import importlib
import os
import signal
import socket
import sys
import time
from typing import TYPE_CHECKING

import msgspec

from editd.wire import messages
from editd_client.agents import NAMES
from editd_client.cli import MODULES
from editd_client.resident import fork, place
from editd_client.resident.routes import ROUTES
from editd_client.resident.state import Unknown, state_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd_client.resident.state import State

IDLE_SECONDS = 600.0
LOOK_SECONDS = 20.0  # between two looks at the socket's own path
FORKS_MAX = 64  # at once; a further call runs in a process of its own
BACKLOG = 64
LOCK = ".lock"  # the end of the name of the file that the helper of a socket holds locked
LOADED = (  # further modules of the routes, which import them on first use
    "click.shell_completion", "difflib", "editd.wire.codec", "editd_client.agents.hook",
    "editd_client.cli.completion", "editd_client.cli.progress", "editd_client.client", "editd_client.connect",
    "editd_client.conversations.reversal", "editd_client.handles", "editd_client.resident.entry",
    "editd_client.review.actions", "editd_client.session_state", "getpass", "msgspec.json", "traceback",
)  # fmt: skip
STANDARD_LIBRARY = os.path.dirname(os.__file__)


def main() -> None:
    """Serve the socket that the command line names, until nobody needs this process."""
    detach()
    path = sys.argv[1]
    try:
        state = state_of(os.getpid())
        lock = claimed(path)
    except (OSError, Unknown):
        return  # calls run in processes of their own
    if lock is None:
        return
    try:
        remove_abandoned(path)
        load()
        serve(path, state)
    finally:
        for name in (path, path + LOCK):
            with contextlib.suppress(OSError):
                os.unlink(name)


def detach() -> None:
    """Keep nothing of the process that has started this one, but its state."""
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.chdir("/")
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for number in fork.SIGNALS:
        signal.signal(number, signal.SIG_DFL)


def claimed(path: str) -> int | None:
    """Return the locked file of a socket; None if another helper has it. Raises OSError."""
    folder = os.path.dirname(path)
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    place.check_folder(folder)
    lock = os.open(path + LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_present = os.path.samestat(os.fstat(lock), os.lstat(path + LOCK))
    except OSError:
        is_present = False
    if is_present:
        return lock
    os.close(lock)
    return None


def remove_abandoned(path: str) -> None:
    """Remove the sockets of helpers that were killed."""
    folder = os.path.dirname(path)
    for name in os.listdir(folder):
        other = os.path.join(folder, name)
        if not name.startswith(place.PREFIX) or not name.endswith(LOCK) or other == path + LOCK:
            continue
        with contextlib.suppress(OSError):
            lock = claimed(other.removesuffix(LOCK))
            if lock is not None:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(other.removesuffix(LOCK))
                os.unlink(other)
                os.close(lock)


def load() -> None:
    """Import the modules of every verb that has a route, and of every agent."""
    verbs = {module for module, names in MODULES.items() if ROUTES.keys() & set(names)}
    for name in (
        *(f"editd_client.cli.{verb}" for verb in sorted(verbs)),
        *(f"editd_client.agents.{agent}" for agent in NAMES),
        *LOADED,
    ):
        importlib.import_module(name)
    for name, value in vars(messages).items():
        if name.endswith("Result") and isinstance(value, type):
            msgspec.json.Decoder(value)  # resolves the annotations of its fields, which takes 2 ms
    gc.collect()
    gc.freeze()  # the collector of a fork would copy every page otherwise


def serve(path: str, state: State) -> None:
    """Fork for each connection."""
    files = dict(loaded_files())
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)  # of a helper that was killed: this one has the lock
        os.umask(0o177)  # a fork takes its caller's
        listener.bind(path)
        own = os.lstat(path)
        listener.listen(BACKLOG)
        listener.settimeout(LOOK_SECONDS)
        forks: set[int] = set()
        last = time.monotonic()
        while time.monotonic() < last + IDLE_SECONDS:
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                connection = None
            forks -= set(ended(forks))
            if connection is None:
                if not is_at(path, own) and not forks:
                    return
                last = time.monotonic() if forks else last
                continue
            with connection:
                if not is_at(path, own) or files != dict(loaded_files()):
                    return
                last = time.monotonic()
                if len(forks) >= FORKS_MAX:
                    continue
                child = os.fork()
                if child == 0:
                    listener.close()
                    fork.run(connection, state)
                forks.add(child)


def ended(forks: set[int]) -> Iterator[int]:
    """Yield the forks that have ended."""
    for child in tuple(forks):
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(child, os.WNOHANG)[0] == 0:
                continue
        yield child


def is_at(path: str, own: os.stat_result) -> bool:
    """Return whether the socket is still this process's own."""
    try:
        return os.path.samestat(os.lstat(path), own)
    except OSError:
        return False


def loaded_files() -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield the files of the loaded modules outside of the standard library, as they are now."""
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or _is_standard(file):
            continue
        try:
            status = os.stat(file)
        except OSError:
            continue
        yield file, (status.st_mtime_ns, status.st_ino)


def _is_standard(file: str) -> bool:
    """Return whether a file is Python's own."""
    return file.startswith(STANDARD_LIBRARY + os.sep) and f"{os.sep}site-packages{os.sep}" not in file


if __name__ == "__main__":
    main()
