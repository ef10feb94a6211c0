"""A client that asks for the status while another client keeps the daemon busy, and its time limits."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from support.socket_attacks import start_canary

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.workplace import Workplace

STATUS_SECONDS_MAX = 0.2  # in the long form, on a quiet machine
BUSY_SECONDS_MAX = 2.0  # beside the other tests of the gate: the fault took 12 to 120 seconds
LOADED = 3  # times the 99th percentile of an idle run in turn, on a busy machine
QUIET = "EDITD_TEST_QUIET"
ROUNDS = 4  # what blocks the daemon blocks it in each of them, and a busy machine does not
IDLE_SECONDS = 0.5


class Canary:
    """A client in a process of its own that asks for the status again and again."""

    def __init__(self, place: Workplace) -> None:
        self.seconds: list[float] = []
        self._has_answer = threading.Event()
        self._process, self._printed = start_canary(place)
        assert self._printed.readline() == "ready\n"
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def _listen(self) -> None:
        with self._printed:
            for line in self._printed:
                self.seconds.append(float(line))
                self._has_answer.set()

    def end(self) -> list[float]:
        """Stop it after an answer at least. Return how long each answer took, the shortest first."""
        assert self._has_answer.wait(60), "the daemon answered no status at all"
        self._process.terminate()
        self._process.wait(30)
        self._thread.join(30)
        return sorted(self.seconds)


def times_during(place: Workplace, work: Callable[[], object]) -> list[float]:
    canary = Canary(place)
    try:
        work()
    finally:
        times = canary.end()
    return times


def check_answered(place: Workplace, name: str, work: Callable[[], object]) -> None:
    """`status` is answered in time beside `work`, which may be done again."""
    seconds_max = STATUS_SECONDS_MAX if place.variables.get(QUIET) else BUSY_SECONDS_MAX
    if times_during(place, work)[-1] <= seconds_max:
        return
    worst = []
    for _ in range(ROUNDS - 1):
        idle = times_during(place, lambda: time.sleep(IDLE_SECONDS))
        limit = max(seconds_max, LOADED * idle[len(idle) * 99 // 100])
        worst.append((times_during(place, work)[-1], limit))
        if worst[-1][0] <= limit:
            return
    raise AssertionError(f"{name} held the status of another client up (seconds, limit): {worst}")
