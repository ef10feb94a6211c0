"""The process that runs a command: this one, or the caller of the resident process that has forked this one.

The daemon judges a connection by the process that made it, and a program belongs to its parent. So a fork of
the resident process asks its caller to connect, to start a daemon, and to ask for the PIN at the terminal.
Imports next to nothing, because `editd-hook` uses it.
"""

from __future__ import annotations

import _socket
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping, Sequence
    from typing import Protocol

    class Caller(Protocol):
        """The caller of a fork."""

        parent: int
        helper: int

        def connect(self, path: str, seconds: float) -> int:
            """Return the descriptor of a socket that the caller has connected. Raises OSError."""
            ...

        def start(self, argv: Sequence[str], environment: Mapping[str, str], ready: int | None) -> None:
            """Start a program in a session of its own. Raises OSError."""

        def ask_pin(self) -> str:
            """Return the PIN that a person types. Raises EOFError and KeyboardInterrupt."""
            ...


SUN_PATH_MAX = 107  # bytes in sockaddr_un, less the NUL

caller: Caller | None = None  # of this fork; None in an ordinary process
reason = "not the script `editctl`"  # why this process is an ordinary one


def use(other: Caller) -> None:
    """Let another process do what this one cannot do in its place."""
    global caller  # noqa: PLW0603  # a fork has one caller, for its whole life
    caller = other


def note_reason(text: str) -> None:
    """Keep why the command runs in a process of its own, for `status`."""
    global reason  # noqa: PLW0603  # of this process
    reason = text


def description() -> str:
    """Return where this command runs, for a person."""
    if caller is not None:
        return f"by the resident process {caller.helper}"
    return f"each in a process of its own: {reason}"


def parent_pid() -> int:
    """Return the process that has started the command."""
    return os.getppid() if caller is None else caller.parent


def connect(path: str, seconds: float = 0.0) -> int:
    """Return the descriptor of a socket connected to `path` within `seconds`. Raises OSError."""
    return connected(path, seconds) if caller is None else caller.connect(path, seconds)


def start(
    argv: Sequence[str], environment: Mapping[str, str], ready: int | None = None
) -> subprocess.Popen[bytes] | None:
    """Start a program in a session of its own; return it if it is a child of this process. Raises OSError.

    With `ready`, the program gets that descriptor, and its number after `--ready-fd`.
    """
    if caller is None:
        return started(argv, environment, ready)
    caller.start(argv, environment, ready)
    return None


def ask_pin() -> str:
    """Return the PIN that a person types at the terminal. Raises EOFError and KeyboardInterrupt."""
    import getpass

    return getpass.getpass("PIN: ") if caller is None else caller.ask_pin()


# The same in this process, for itself or for its fork.


def connected(path: str, seconds: float) -> int:
    """Connect in this process, as `connect` does."""
    stream = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        stream.settimeout(seconds)
        if len(os.fsencode(path)) <= SUN_PATH_MAX:
            stream.connect(path)
        else:
            _connect_through_folder(stream, path)
    except OSError:
        stream.close()
        raise
    return stream.detach()


def started(
    argv: Sequence[str], environment: Mapping[str, str], ready: int | None
) -> subprocess.Popen[bytes]:
    """Start a program as a child of this process, as `start` does."""
    import subprocess  # late: 10 ms, and needed once a day

    descriptors = () if ready is None else (ready,)
    return subprocess.Popen(
        [*argv, *(() if ready is None else ("--ready-fd", str(ready)))], env=environment,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True, pass_fds=descriptors,
    )  # fmt: skip


def _connect_through_folder(stream: _socket.socket, path: str) -> None:
    """Connect to a path that is too long for an address, through a descriptor of its folder."""
    folder, name = os.path.split(path)
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        stream.connect(f"/proc/self/fd/{descriptor}/{name}")
    finally:
        os.close(descriptor)
