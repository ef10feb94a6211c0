"""The daemon's log under attack: what is said again and again is said a few times, then counted.

A client can make the daemon complain as often as it likes; what else there is to read in the log must
outlive that. Messages are alike where their text before the values are put in is.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

ALIKE_MAX = 100  # in one period: a traceback of a child comes line by line
PERIOD_SECONDS = 60.0


class RateLimitFilter(logging.Filter):
    """Lets `ALIKE_MAX` messages that are alike pass in each period; the next tells of the others."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._monotonic = monotonic
        self._said: dict[tuple[str, str], tuple[float, int]] = {}  # when its period began, how often since

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
