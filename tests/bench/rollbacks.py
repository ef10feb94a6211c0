"""How long a rollback of many transactions takes, by one client: its dry run, and all of it.

    python tests/bench/rollbacks.py                     # 1,000 transactions of 1,000 files, five times
    python tests/bench/rollbacks.py --other DIR         # in turn with the daemon of another checkout

Each transaction is of one session, and of one file. The CPU time is that of all threads of the daemon.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

sys.path[:0] = [str(Path(__file__).resolve().parent.parent)]

from bench.pauses import process_seconds
from bench.saves import Connection
from support.workplace import workplace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from support.workplace import Workplace

FILES_EACH = 100  # in a folder
LINES = 200  # of a file, some 10 KB


def text() -> str:
    return "".join(f"{line:04} {secrets.token_hex(20)}\n" for line in range(LINES))


class Rollbacks:
    """The rollbacks of one daemon, with their times in milliseconds."""

    def __init__(self, place: Workplace, number: int) -> None:
        self._place = place
        self._connection = Connection(place.socket)
        self._paths = [f"d{file // FILES_EACH}/f{file}" for file in range(number)]
        self.times: dict[str, list[float]] = {}

    def prepare(self, session: str) -> None:
        """Edit each file in a transaction of its own."""
        edits = [{"op": "write", "path": path, "content": text(), "force": True} for path in self._paths]
        self._connection.pipeline("apply", [{"edits": [edit], "session": session} for edit in edits])
        with self._place.client() as client:
            client.settle()

    def take(self, label: str, session: str, **params: Any) -> None:
        assert self._place.process is not None
        pid = self._place.process.pid
        start, cpu = time.perf_counter(), process_seconds(pid)
        result = self._connection.ask("rollback", session=session, **params)
        self.times.setdefault(label, []).append((time.perf_counter() - start) * 1000)
        self.times.setdefault(f"{label}, CPU", []).append((process_seconds(pid) - cpu) * 1000)
        assert len(result["files"]) == len(self._paths)

    def close(self) -> None:
        self._connection.close()


def run(places: Sequence[Workplace], number: int, rounds: int) -> list[Rollbacks]:
    """Roll back in each workspace in turn. The first round warms up."""
    takers = [Rollbacks(place, number) for place in places]
    for one in range(rounds + 1):
        for taker in takers:
            session = f"session {one}"
            taker.prepare(session)
            taker.take("dry run", session, dry_run=True)
            taker.take("rollback", session)
            if not one:
                taker.times.clear()
    for taker in takers:
        taker.close()
    return takers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--transactions", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--other", metavar="DIR", help="another checkout, measured in turn")
    options = parser.parse_args()
    names = ["here", *([] if options.other is None else [options.other])]
    with contextlib.ExitStack() as stack:
        places = []
        for name in names:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="editd-rollbacks-"))
            place = stack.enter_context(workplace(Path(folder) / "place"))
            place.is_forked = False
            if name != "here":
                paths = [str(Path(name).resolve() / part) for part in ("daemon", "client")]
                place.variables["PYTHONPATH"] = os.pathsep.join(paths)
            with place.start():
                places.append(place)
        for name, taker in zip(names, run(places, options.transactions, options.rounds), strict=True):
            print(
                name,
                *(f"{label}: {median(times):.0f} ms" for label, times in taker.times.items()),
                sep="\n  ",
            )
        for place in places:
            place.stop()


if __name__ == "__main__":
    main()
