"""The caller's side: hands a call over to the helper, and does for its fork what only this process can do.

Before the request is sent, any trouble means that the command runs in this process. After that the fork may
have done anything, so a lost fork is reported, and the command is not repeated.

Imports next to nothing: this is the whole of `editctl` for a call that the helper serves.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` without its 3 ms of enumerations
import os
import sys

from editd_client import caller
from editd_client.resident import channel, place
from editd_client.resident.state import Unknown, state_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket
    from collections.abc import Sequence
    from types import FrameType
    from typing import Any, NoReturn

LOST, INTERRUPTED = 3, 130
LOST_TEXT = (
    "editctl: The resident command process ended before it had answered.\n"
    "hint: The command may or may not have been carried out. EDITD_RESIDENT=no does without the process.\n"
)


class Unserved(Exception):
    """The helper does not serve this call, and has received nothing of it."""


def hand_over(program: str, words: Sequence[str], *, seconds: float, lost: int = LOST) -> str:
    """Let the helper serve the call, and end with its exit status. Return why it does not.

    The command runs in this process if the helper does not answer within `seconds`. With `lost` 0, a lost
    fork is passed over in silence: a hook must not harm its agent.
    """
    try:
        key = place.key()
        stream, helper = _connected(key, seconds)
        fork = _greeted(stream)
        link = _Link(stream, fork)
        link.send_request(program, words, helper)
    except (Unserved, Unknown) as reason:
        return str(reason)
    return link.serve(lost)


def _connected(key: place.HelperKey, seconds: float) -> tuple[_socket.socket, int]:
    """Return a connection to the helper, and its process. Raises Unserved.

    Starts a helper if none listens.
    """
    path = key.path
    stream = channel.socket()
    stream.settimeout(seconds)
    try:
        place.check(path)
        stream.connect(path)
    except (FileNotFoundError, ConnectionRefusedError):
        place.start_helper(key)
        raise Unserved("the resident process has just been started") from None
    except OSError as error:
        raise Unserved(f"{path}: {error.strerror or error}") from None
    pid, uid = channel.peer_of(stream)
    if uid != os.geteuid() or pid == 0:
        raise Unserved("the resident process is not this user's")
    if state_of(pid) != key.state:
        raise Unserved("the resident process is in another sandbox")
    return stream, pid


def _greeted(stream: _socket.socket) -> int:
    """Return the process of the fork, which has checked this process. Raises Unserved."""
    try:
        (fork,), _, _ = channel.receive(stream)
    except (OSError, ValueError, EOFError, TypeError):
        raise Unserved("the resident process does not answer") from None
    stream.settimeout(None)
    assert isinstance(fork, int), fork
    return fork


class _Link:
    """The connection to the fork, and the fork itself."""

    def __init__(self, stream: _socket.socket, fork: int) -> None:
        self._stream = stream
        try:
            self._fork = os.pidfd_open(fork)
        except OSError as error:
            raise Unserved(f"no signal reaches the resident process: {error.strerror}") from None
        self._is_interrupted = False

    def send_request(self, program: str, words: Sequence[str], helper: int) -> None:
        """Send the call, with the standard streams and the current folder.

        A pipe beside them ends with this process. Raises Unserved for a call that is too large.
        """
        try:
            folder = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            life, self._life = os.pipe()  # the write end closes when this process ends, however it ends
            call = (program, sys.argv[0], list(words), dict(os.environb), helper)
            self._catch_signals()
            channel.send(self._stream, call, (0, 1, 2, folder, life))
        except OSError as error:
            self._release_signals()
            raise Unserved(f"the call cannot be handed over: {error.strerror}") from None
        os.close(folder)
        os.close(life)

    def serve(self, lost: int) -> NoReturn:
        """Do what the fork asks for, and end with its exit status."""
        while True:
            try:
                (kind, *values), descriptors, _ = channel.receive(self._stream)
                if kind == channel.EXIT:
                    break
                self._answer(str(kind), values, descriptors)
            except (OSError, ValueError, EOFError, TypeError):
                if lost:
                    os.write(2, LOST_TEXT.encode())
                os._exit(lost)
        os._exit(int(values[0]))

    def _answer(self, kind: str, values: list[Any], descriptors: list[int]) -> None:
        """Carry out one request of the fork, and send its result."""
        try:
            result, beside = self._carried_out(kind, values, descriptors)
        except OSError as error:
            result, beside = ("error", error.errno, error.strerror), None
        for descriptor in descriptors:
            os.close(descriptor)
        channel.send(self._stream, result, () if beside is None else (beside,))
        if beside is not None:
            os.close(beside)

    def _carried_out(
        self, kind: str, values: list[Any], descriptors: list[int]
    ) -> tuple[tuple[object, ...], int | None]:
        match kind:
            case channel.CONNECT:
                path, seconds = values
                return ("connected",), caller.connected(path, seconds)
            case channel.START:
                argv, environment = values
                caller.started(argv, environment, descriptors[0] if descriptors else None)
                return ("started",), None
            case channel.PIN:
                return (self._pin(),), None
        raise ValueError(kind)

    def _pin(self) -> str | None:
        """Ask for the PIN at the terminal. None: its input ended. Ctrl-C ends this process as well."""
        self._release_signals()
        try:
            return caller.ask_pin()
        except EOFError:
            return None
        except KeyboardInterrupt:
            os._exit(INTERRUPTED)
        finally:
            self._catch_signals()

    # ── Signals of the terminal ───────────────────────────────────────────────────────────────────

    def _catch_signals(self) -> None:
        """Pass Ctrl-C and Ctrl-Z on to the fork. Any other signal ends this process, and so the fork."""
        for number, handler in ((_signal.SIGINT, self._interrupt), (_signal.SIGTSTP, self._stop)):
            if _signal.getsignal(number) != _signal.SIG_IGN:
                _signal.signal(number, handler)

    def _release_signals(self) -> None:
        for number, handler in (
            (_signal.SIGINT, _signal.default_int_handler),
            (_signal.SIGTSTP, _signal.SIG_DFL),
        ):
            if _signal.getsignal(number) != _signal.SIG_IGN:
                _signal.signal(number, handler)

    def _interrupt(self, number: int, _frame: FrameType | None) -> None:
        """Interrupt the fork. A second Ctrl-C ends this process as well, for a fork that does not react."""
        if self._is_interrupted:
            os._exit(INTERRUPTED)
        self._is_interrupted = True
        self._signal(number)

    def _stop(self, number: int, _frame: FrameType | None) -> None:
        """Stop the fork and then this process, until the shell continues both."""
        self._signal(_signal.SIGSTOP)
        _signal.signal(number, _signal.SIG_DFL)
        os.kill(os.getpid(), number)  # returns when the process is continued
        _signal.signal(number, self._stop)
        self._signal(_signal.SIGCONT)

    def _signal(self, number: int) -> None:
        try:
            _signal.pidfd_send_signal(self._fork, number)
        except ProcessLookupError:
            return  # its answer is on the way
