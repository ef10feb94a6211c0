"""The clock as an argument, so that a test can give its own."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """The time of day, and a time that only rises."""

    def now_us(self) -> int:
        """Return microseconds since the epoch, UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds that only rise."""
        ...


class RealClock:
    def now_us(self) -> int:
        return time.time_ns() // 1000

    monotonic = staticmethod(time.monotonic)
