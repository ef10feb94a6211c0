"""Delays that a person would see on a machine that is not busy with anything else.

Linux counts the time in which a thread could run and had to wait for a processor. A delay is measured without
that of the processes that it goes through, so a bound on it holds beside other tests, too.
Elsewhere it is the whole time.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

SERIES = 3
NANOSECONDS = 1e9


class Delays:
    """Series of delays through some processes."""

    def __init__(self, pids: Iterable[int], rounds: int, series: int = SERIES) -> None:
        self._pids, self._rounds, self._series = tuple(pids), rounds, series
        self._began = self._waited = 0.0
        self._seconds: list[float] = []

    def begin(self) -> None:
        """Begin a delay."""
        self._waited, self._began = sum(map(waited_seconds, self._pids)), time.monotonic()

    def end(self, at: float | None = None) -> None:
        """End the delay, now or `at` a time of the monotonic clock."""
        delay = (time.monotonic() if at is None else at) - self._began
        self._seconds.append(delay - (sum(map(waited_seconds, self._pids)) - self._waited))

    @property
    def is_enough(self) -> bool:
        return len(self._seconds) >= self._series * self._rounds

    def check(self, seconds_max: float) -> None:
        """Check that the median of every series is below the bound."""
        rounds = self._rounds
        series = [self._seconds[at * rounds : (at + 1) * rounds] for at in range(self._series)]
        assert all(statistics.median(one) < seconds_max for one in series), series


def waited_seconds(pid: int) -> float:
    """Return the time that the threads of a process have waited for a processor, 0 if nothing counts it."""
    waited, threads = 0, Path(f"/proc/{pid}/task")
    for thread in threads.iterdir() if threads.exists() else ():
        try:
            waited += int((thread / "schedstat").read_text().split()[1])
        except (FileNotFoundError, ProcessLookupError):  # it has ended
            continue
    return waited / NANOSECONDS
