"""What an edit costs with a pause until the next, as agents and people edit: CPU time and wake-ups.

    python tests/bench/pauses.py                             # 20 edits, each with 2.5 s until the next
    python tests/bench/pauses.py --seconds 0.5 --edits 50    # another rhythm
    python tests/bench/pauses.py --other DIR                 # the daemon of another checkout at the same time

A daemon of its own serves a workspace with one file, which is written again and again through the socket.
The CPU time is that of the daemon with all of its threads, and of its child processes, from one edit to the
next. A wake-up is a voluntary context switch of the daemon's main thread: each ends a sleep.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

sys.path[:0] = [str(Path(__file__).resolve().parent.parent)]

from bench.calls import Writer, workspace_of_one_file
from bench.footprint import tree

if TYPE_CHECKING:
    from support.workplace import Workplace

WARM_EDITS, WARM_SECONDS = 3, 8.0  # the work after a start, and after the edits that warm the daemon up


class Costs(Struct):
    """CPU time in milliseconds, and wake-ups: the sums of one daemon until now, or a share of them."""

    main: float  # CPU time of the daemon's main thread
    daemon: float  # of all of its threads
    children: float
    wakes: float

    def since(self, before: Costs, edits: int) -> Costs:
        """Return what each of so many edits has cost since `before`."""
        return Costs(
            (self.main - before.main) / edits,
            (self.daemon - before.daemon) / edits,
            (self.children - before.children) / edits,
            (self.wakes - before.wakes) / edits,
        )

    def __str__(self) -> str:
        return (
            f"{self.daemon + self.children:.1f} ms of CPU in all processes for an edit ({self.main:.1f} in "
            f"the main thread, {self.daemon - self.main:.1f} in others, {self.children:.1f} in child "
            f"processes), {self.wakes:.1f} wake-ups"
        )


def sums_of(place: Workplace) -> Costs:
    assert place.process is not None
    pid = place.process.pid
    children = [child for child in tree(pid) if child != pid]
    main = Path(f"/proc/{pid}/task/{pid}")
    switches = next(
        line for line in (main / "status").read_text().splitlines() if line.startswith("voluntary")
    )
    return Costs(
        int((main / "schedstat").read_text().split()[0]) / 1e6,
        1000 * process_seconds(pid),
        1000 * (sum(map(process_seconds, children)) + reaped_seconds(pid)),
        int(switches.split()[1]),
    )


def process_seconds(pid: int) -> float:
    """Return the CPU time of a process, with that of its ended threads: see clock_getcpuclockid(3)."""
    return time.clock_gettime(~pid << 3 | 2)


def reaped_seconds(pid: int) -> float:
    """Return the CPU time of the child processes that have ended, in ticks of 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")


def costs(places: list[Workplace], edits: int, seconds: float) -> list[Costs]:
    """Edit in each workspace every so many seconds, and return the costs of an edit there."""
    writers = [Writer(place.socket) for place in places]
    for _ in range(WARM_EDITS):
        for writer in writers:
            writer.write()
    time.sleep(WARM_SECONDS)
    before = list(map(sums_of, places))
    for _ in range(edits):
        for writer in writers:
            writer.write()
            time.sleep(seconds / len(writers))
    after = list(map(sums_of, places))
    for writer in writers:
        writer.close()
    return [now.since(then, edits) for then, now in zip(before, after, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.5, help="from one edit to the next")
    parser.add_argument("--edits", type=int, default=20)
    parser.add_argument("--other", metavar="DIR", help="another checkout, measured at the same time")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        places = [
            stack.enter_context(workspace_of_one_file()) for _ in range(1 if options.other is None else 2)
        ]
        for place in places:
            place.is_forked = False
        if options.other is not None:
            paths = [str(Path(options.other).resolve() / name) for name in ("daemon", "client")]
            places[1].variables["PYTHONPATH"] = os.pathsep.join(paths)
        for place in places:
            with place.start():
                pass
        names = ("here", options.other)
        for name, cost in zip(names, costs(places, options.edits, options.seconds), strict=False):
            print(f"{name}: {cost}")
        for place in places:
            place.stop()


if __name__ == "__main__":
    main()
