"""The daemon's log: a file that is rotated, in which a repeated message is written a few times, then counted.

A client can make the daemon complain as often as it likes, and must not push everything else out of the
log. Messages are alike if their text before formatting is the same.
"""

from __future__ import annotations

import logging
import logging.handlers
import os
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

ALIKE_MAX = 100  # in one period: a traceback of a child comes line by line
PERIOD_SECONDS = 60.0
LOG_BYTES = 1024 * 1024
LOG_FILES = 3


class RateLimitFilter(logging.Filter):
    """Lets `ALIKE_MAX` alike messages pass in each period; the next one has the number of those dropped."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._monotonic = monotonic
        self._said: dict[tuple[str, str], tuple[float, int]] = {}  # begin of its period, count since then

    def filter(self, record: logging.LogRecord) -> bool:
        alike = (record.name, str(record.msg))
        now = self._monotonic()
        began, count = self._said.get(alike, (now, 0))
        if now - began >= PERIOD_SECONDS:
            if count > ALIKE_MAX:
                record.msg = f"{record.msg} (and {count - ALIKE_MAX} more like it, not logged)"
            began, count = now, 0
        self._said[alike] = (began, count + 1)
        return count < ALIKE_MAX


def set_up_log(path: str | None) -> None:
    """Log to a file that is rotated, or to stderr."""
    handler: logging.Handler
    if path is None:
        handler = logging.StreamHandler()
    else:
        handler = logging.handlers.RotatingFileHandler(
            path, maxBytes=LOG_BYTES, backupCount=LOG_FILES, encoding="utf-8", errors="backslashreplace"
        )  # names need not be UTF-8
        os.chmod(path, 0o600)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    handler.addFilter(RateLimitFilter())
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.INFO)
