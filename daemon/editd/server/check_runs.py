"""The runs of checks that have begun, and those that wait for a turn.

`server.check_runner` begins and ends them. The methods on proposals show them.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    import asyncio

    from editd.review.checks import ReviewCheck
    from editd.values.content import Change, FileState

Key = tuple[int, str]  # a proposal and a check


class CheckJob(Struct, frozen=True):
    """A check to run on a view of a proposal."""

    number: int
    check: ReviewCheck
    view: str
    changes: tuple[Change[FileState], ...]


class BegunCheck(Struct):
    """A run that has begun."""

    task: asyncio.Task[None]
    job: CheckJob | None = None
    began: float = 0.0  # the loop's time, once it has a job


class CheckRuns:
    """All runs of a workspace's checks."""

    def __init__(self) -> None:
        self.pending: dict[Key, None] = {}  # in their order
        self.begun: dict[Key, BegunCheck] = {}

    def under_way(self, number: int) -> list[tuple[str, float | None]]:
        """Return the checks of a proposal that run, with the seconds since then, or that wait for a turn."""
        now = time.monotonic()  # in the engine's thread there is no loop
        runs = {name: run for (of, name), run in self.begun.items() if of == number}
        begun = [(name, now - run.began if run.job is not None else None) for name, run in runs.items()]
        waiting = [name for of, name in self.pending if of == number and name not in runs]
        return [*begun, *((name, None) for name in waiting)]
