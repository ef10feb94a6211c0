"""The fork's side: verifies the caller, becomes like it, and runs its command.

The caller stays the process that the command belongs to: it opens the connections, starts the programs and
gets the signals of the terminal. A pipe from it ends this process when the caller ends.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import socket
import sys
import time
from typing import TYPE_CHECKING, Any, NoReturn

from editd_client import caller
from editd_client.resident import channel
from editd_client.resident.state import Unknown, state_of, status_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from editd_client.resident.state import State

GREETING_SECONDS_MAX = 5  # for the request of a caller
SIGNALS = (
    signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGALRM, signal.SIGCHLD,
    signal.SIGIO, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGUSR1, signal.SIGUSR2,
)  # fmt: skip
FAILED = 1  # the exit status after an exception of Python


class CallerLink:
    """The caller of this fork, by its connection. For any thread: one request at a time."""

    def __init__(self, stream: socket.socket, parent: int) -> None:
        import threading

        self._stream = stream
        self._lock = threading.Lock()
        self.parent = parent
        self.helper = 0

    def connect(self, path: str, seconds: float) -> int:
        """Return the descriptor of a socket that the caller has connected. Raises OSError."""
        _, descriptors = self._asked(channel.CONNECT, path, seconds)
        return descriptors[0]

    def start(self, argv: Sequence[str], environment: Mapping[str, str], ready: int | None) -> None:
        """Have the caller start a program. Raises OSError."""
        self._asked(
            channel.START, list(argv), dict(environment), descriptors=() if ready is None else (ready,)
        )

    def ask_pin(self) -> str:
        """Have the caller ask for the PIN. Raises EOFError."""
        (pin,), _ = self._asked(channel.PIN)
        if pin is None:
            raise EOFError
        return str(pin)

    def _asked(self, *request: object, descriptors: Sequence[int] = ()) -> tuple[tuple[Any, ...], list[int]]:
        with self._lock:
            channel.send(self._stream, request, descriptors)
            result, received, _ = channel.receive(self._stream)
        if result[0] == "error":
            raise OSError(result[1], result[2])
        return result, received


def run(connection: socket.socket, state: State) -> NoReturn:
    """Serve one caller, and end this process."""
    code = FAILED
    try:
        signal.alarm(GREETING_SECONDS_MAX)
        parent = verified(connection, state)
        if parent is not None:
            code = command(connection, *parent)
    except OSError:
        code = FAILED  # the caller has ended
    finally:
        os._exit(code)


def verified(connection: socket.socket, state: State) -> tuple[int, Mapping[bytes, bytes]] | None:
    """Return the process of a caller in the same state as the helper, and its status; otherwise None."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    pid, uid = channel.peer_of(connection)
    if uid != os.geteuid() or pid <= 0:
        return None
    try:
        return (pid, status_of(pid)) if state_of(pid) == state else None
    except (OSError, Unknown):
        return None


def command(connection: socket.socket, pid: int, status: Mapping[bytes, bytes]) -> int:
    """Greet the caller, become like it, and run its command. Return the exit status, which it gets, too."""
    parent = int(status[b"PPid"])
    channel.send(connection, (os.getpid(),))
    # The packet names its sender. It is the process that was verified, and no later one with its number: that
    # process sends this packet after the look at its state.
    call, descriptors, sender = channel.receive(connection)
    if sender != pid:
        return FAILED
    signal.alarm(0)
    program, script, words, variables, helper = call
    *streams, folder, life = descriptors
    end_with(life)
    take_streams(streams)
    os.fchdir(folder)
    os.close(folder)
    become(status, variables)
    sys.argv = [script, *words]
    link = CallerLink(connection, parent)
    link.helper = helper
    caller.use(link)
    code = exit_status(program, words)
    channel.send(connection, (channel.EXIT, code))
    return code


def end_with(life: int) -> None:
    """End this process when the caller ends, which has the other end of this pipe."""
    signal.signal(signal.SIGIO, signal.SIG_DFL)  # its default ends the process
    fcntl.fcntl(life, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(life, fcntl.F_SETFL, os.O_ASYNC)
    ends = select.poll()
    ends.register(life, 0)  # POLLHUP is reported without being requested
    if ends.poll(0):
        os._exit(FAILED)


def take_streams(streams: Sequence[int]) -> None:
    """Make the caller's standard streams those of this process, in the form that Python gives them."""
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number, inheritable=True)
        os.close(descriptor)
    own = sys.stdin, sys.stdout, sys.stderr
    sys.stdin = open(0, encoding=own[0].encoding, errors=own[0].errors, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding=own[1].encoding, errors=own[1].errors, closefd=False)  # noqa: SIM115
    sys.stderr = open(  # noqa: SIM115
        2, "w", buffering=1, encoding=own[2].encoding, errors=own[2].errors, closefd=False
    )
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr  # type: ignore[misc]


def become(status: Mapping[bytes, bytes], variables: Mapping[bytes, bytes]) -> None:
    """Take the caller's environment, time zone, umask and ignored signals."""
    from editd_client.cli import output

    os.environ.clear()
    os.environb.update(variables)
    time.tzset()
    os.umask(int(status[b"Umask"], 8))
    ignored = int(status[b"SigIgn"], 16)
    for number in SIGNALS:
        if number != signal.SIGIO and ignored >> (number - 1) & 1:
            signal.signal(number, signal.SIG_IGN)
    if not ignored >> (signal.SIGINT - 1) & 1:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    output.MARK = output.new_mark()


def exit_status(program: str, words: Sequence[str]) -> int:
    """Run a program of `entry`, and return its exit status, as Python would at its end."""
    try:
        code = run_program(program, words)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001  # the traceback that Python would print
        import traceback

        traceback.print_exc()
        code = FAILED
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            continue  # `run` has printed it
    return code


def run_program(program: str, words: Sequence[str]) -> int:
    from editd_client.resident.entry import HOOK

    if program == HOOK:
        from editd_client.agents.hook import main

        main()
        return 0
    from editd_client.cli import run as run_editctl

    return run_editctl(words)
