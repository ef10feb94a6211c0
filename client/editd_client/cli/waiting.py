"""What a person is told while an answer takes long: what is waited for, and for how long by now.

On a terminal only, on standard error, and gone when the answer is there.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, TypeVar

from editd_client.client import Client
from editd_client.connect import SAY_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd_client.requests import Asked

Result = TypeVar("Result")

ASKED_BY_PAGES = frozenset({"show"})  # while a pager has the terminal
COLUMNS = 80  # of a terminal that does not know its width
CLEAR = "\r\x1b[K"  # to the line's beginning, and the rest of it empty (ECMA-48, EL)


class PatientClient(Client):
    """A client that tells whoever sits at the terminal what it waits for."""

    def ask(self, asked: Asked[Result]) -> Result:
        method = asked.params.method
        if method in ASKED_BY_PAGES:
            return super().ask(asked)
        with waiting(f"waiting for `{method}`"):
            return super().ask(asked)


@contextlib.contextmanager
def waiting(what: str) -> Iterator[None]:
    """While this lasts, say `what` and the seconds, again each `SAY_SECONDS`; nothing where nobody looks."""
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield
        return
    is_over = threading.Event()
    teller = threading.Thread(target=_tell, args=(what, is_over), daemon=True)
    teller.start()
    try:
        yield
    finally:
        is_over.set()
        teller.join()


def _tell(what: str, is_over: threading.Event) -> None:
    began = time.monotonic()
    said = ""
    while not is_over.wait(SAY_SECONDS):
        said = CLEAR
        passed = f"… {time.monotonic() - began:.0f} s"
        columns = os.get_terminal_size(sys.stderr.fileno()).columns or COLUMNS
        sys.stderr.write(CLEAR + f"editctl: {what} "[: columns - 1 - len(passed)] + passed)
        sys.stderr.flush()
    sys.stderr.write(said)
    sys.stderr.flush()
