"""The fast end of a process, which leaves to the kernel the resources that it frees anyway."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from typing import NoReturn


def exit_fast(status: int = 0) -> NoReturn:
    """End the process, with its output flushed; if a thread still works, end as Python does.

    Taking the interpreter and its modules apart costs up to a fifth of a short life.
    """
    here = threading.current_thread()
    if any(thread is not here and not thread.daemon for thread in threading.enumerate()):
        sys.exit(status)
    if "logging" in sys.modules:
        sys.modules["logging"].shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # it has no reader any more, or is closed
            stream.flush()
    os._exit(status)
