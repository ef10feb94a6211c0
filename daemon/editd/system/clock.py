"""Time as an argument: its users are given a clock, so that a test can give its own."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
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


def boot_id() -> bytes:
    """Return 16 bytes that identify this boot of the machine; b"" if unknown.

    After another boot, files that were not synced may be torn.
    """
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return bytes.fromhex(file.read().strip().replace("-", ""))
    except OSError:
        return b""
