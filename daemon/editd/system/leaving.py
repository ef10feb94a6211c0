"""The end of a process that lives for its work: what the kernel frees anyway is not taken apart first."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
from typing import NoReturn


def leave(status: int = 0) -> NoReturn:
    """End the process once its threads have, and all that it said is written.

    To take the interpreter and its modules apart costs as much as a fifth of a short life.
    """
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # nobody reads it any more, or it is closed
            stream.flush()
    os._exit(status)
