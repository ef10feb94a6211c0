"""The end of a process that lives for its work: what the kernel frees anyway is not taken apart first."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from typing import NoReturn


def exit_fast(status: int = 0) -> NoReturn:
    """End the process, with all that it said written; where a thread still works, as Python does it.

    To take the interpreter and its modules apart costs as much as a fifth of a short life.
    """
    here = threading.current_thread()
    if any(thread is not here and not thread.daemon for thread in threading.enumerate()):
        sys.exit(status)
    if "logging" in sys.modules:
        sys.modules["logging"].shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # nobody reads it any more, or it is closed
            stream.flush()
    os._exit(status)
