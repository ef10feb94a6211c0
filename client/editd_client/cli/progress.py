"""The progress line for a slow answer: the request that is waited for, and the elapsed seconds.

Shown only on a terminal, on standard error, and cleared when the answer arrives.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, TypeVar

from editd.wire.messages import ReviewUnlock
from editd_client.caller import ask_pin
from editd_client.cli.output import print_error
from editd_client.client import Client
from editd_client.connect import SAY_SECONDS, connect, connect_reviewer
from editd_client.errors import EditdError, Unreachable
from editd_client.requests import review_unlock

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator

    from editd_client.prepared_call import PreparedCall

Result = TypeVar("Result")

ASKED_BY_PAGES = frozenset({"show"})  # while a pager has the terminal
PROGRESS_SECONDS_MAX = 0.4  # for the count of the first scan
COLUMNS = 80  # of a terminal that does not know its width
CLEAR = "\r\x1b[K"  # to the line's beginning, and the rest of it empty (ECMA-48, EL)


class PatientClient(Client):
    """A client that shows on the terminal the request it waits for. `path` is its daemon's socket.

    It goes on at the reviewers' socket if the daemon takes a request only there. If the daemon takes it only
    with the PIN, it asks for the PIN on the terminal.
    """

    def __init__(self, at: str | socket.socket, path: str, *, reconnect: bool = True) -> None:
        super().__init__(at, reconnect=reconnect)
        self._path = path

    def ask(self, asked: PreparedCall[Result]) -> Result:
        try:
            return self._ask_patiently(asked)
        except EditdError as refusal:
            if refusal.data.get("needs_review_socket") is not True:
                return self._ask_with_pin(asked, refusal)
            if not self.go_to_reviewers():
                raise
        try:
            return self._ask_patiently(asked)
        except EditdError as refusal:
            return self._ask_with_pin(asked, refusal)

    def go_to_reviewers(self) -> bool:
        """Go on at the reviewers' own socket; return False if there is none. Raises Unreachable."""
        own = connect_reviewer(self._path)
        if own is not None:
            self._move_to(own)
        return own is not None

    def _ask_with_pin(self, asked: PreparedCall[Result], refusal: EditdError) -> Result:
        """Ask for the PIN on the terminal, and send the request again. Raises `refusal` if it is no cure."""
        is_curable = refusal.data.get("needs_pin") is True and not isinstance(asked.params, ReviewUnlock)
        if not is_curable or not sys.stdin.isatty():
            raise refusal
        print_error(refusal.fact)
        if not (pin := ask_pin()):
            raise refusal
        self._ask_patiently(review_unlock(pin))
        return self._ask_patiently(asked)

    def _ask_patiently(self, asked: PreparedCall[Result]) -> Result:
        method = asked.params.method
        if method in ASKED_BY_PAGES:
            return super().ask(asked)
        with waiting(f"waiting for `{method}`", self._progress):
            return super().ask(asked)

    def _progress(self) -> str | None:
        """Return the progress of the first scan or of a `forget`; None if none is running."""
        try:
            stream = connect(self._path)
            if stream is None:
                return None
            with stream:
                stream.settimeout(PROGRESS_SECONDS_MAX)  # a stuck daemon does not answer this request either
                stream.sendall(b'{"id": 1, "method": "status"}\n')
                with stream.makefile("rb") as answers:
                    status = json.loads(answers.readline())["result"]
        except (Unreachable, OSError, ValueError, LookupError):
            return None
        if status["state"] == "scanning":
            return f"first scan of the workspace: {status['watcher'].get('files', 0):,} files"
        step = status["history"].get("forgetting")
        return None if step is None else f"forgetting: {step}"


@contextlib.contextmanager
def waiting(what: str, progress: Callable[[], str | None] | None = None) -> Iterator[None]:
    """Show `what`, or its `progress` if known, and the seconds on a terminal during the block."""
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield
        return
    is_over = threading.Event()
    teller = threading.Thread(target=_tell, args=(what, progress, is_over), daemon=True)
    teller.start()
    try:
        yield
    finally:
        is_over.set()
        teller.join()


def _tell(what: str, progress: Callable[[], str | None] | None, is_over: threading.Event) -> None:
    began = time.monotonic()
    said = ""
    while not is_over.wait(SAY_SECONDS):
        said = CLEAR
        passed = f"… {time.monotonic() - began:.0f} s"
        columns = os.get_terminal_size(sys.stderr.fileno()).columns or COLUMNS
        shown = (progress() if progress is not None else None) or what
        sys.stderr.write(CLEAR + f"editctl: {shown} "[: columns - 1 - len(passed)] + passed)
        sys.stderr.flush()
    sys.stderr.write(said)
    sys.stderr.flush()
