"""A bulk change by another program, such as an install, leaves room and time for the edits beside it."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from editd.engine.external_changes import OUTSIDE_PORTION
from support.crash_checks import in_the_long_form, packer, wait_until
from support.workplace import workplace, write

if TYPE_CHECKING:
    from support.workplace import Workplace

INSTALLED = 28_928  # files of a common web project
SECONDS_MAX = 0.150  # the promise, for 99 of 100 edits, on a machine that is not busy
KIBIBYTES_MAX = 128 * 1024
MAKE = """
import os, random, sys
rng, root, count = random.Random(1), sys.argv[1], int(sys.argv[2])
block = rng.randbytes(1 << 20).hex()
for number in range(count):
    folder = f"{root}/node_modules/p{number // 24}/{'lib' if number % 3 else 'dist'}"
    os.makedirs(folder, exist_ok=True)
    size, at = min(60000, int(rng.lognormvariate(7.6, 1.2))), rng.randrange(len(block) - 60001)
    with open(f"{folder}/f{number}.js", "w") as file:
        file.write(f"// {number}\\n{block[at:at + size]}")
"""
FILL_BYTES = 4 << 20
FILL_FILES = 40  # together more than the journal takes


def repository(place: Workplace) -> None:
    """Make a repository, in which `node_modules` is like any folder."""
    place.git("init", "-q")
    place.git("add", "-A")
    place.git("commit", "-q", "-m", "first")


def resident_kibibytes(pid: int) -> int:
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if "VmRSS" in line)
    return int(line.split()[1])


@pytest.mark.parametrize("count", [2_000, in_the_long_form(INSTALLED)])
def test_no_edit_is_refused_or_held_up_beside_an_install(tmp_path: Path, count: int) -> None:
    with workplace(tmp_path, {"a.txt": "0\n"}) as place:
        place.is_forked = False
        repository(place)
        with place.start() as client:
            client.settle()
            seconds: list[float] = []
            until = float("inf")
            with subprocess.Popen([sys.executable, "-c", MAKE, place.root, str(count)]) as making:
                while time.monotonic() < until:
                    began = time.perf_counter()
                    client.apply([write("a.txt", f"{len(seconds)}\n", force=True)])
                    seconds.append(time.perf_counter() - began)
                    time.sleep(0.01)  # an agent, not a race
                    if making.poll() is not None and until == float("inf"):
                        until = time.monotonic() + (5 if count == INSTALLED else 1)
            client.settle()
            made = client.log(limit=1000, kind="outside").transactions
            assert sum(len(entry.files) for entry in made) == count
            assert max(len(entry.files) for entry in made) <= OUTSIDE_PORTION.files
            slowest = sorted(seconds)[len(seconds) * 99 // 100]
            print(f"{count} files, {len(seconds)} edits: 99 of 100 within {slowest * 1000:.0f} ms")
            if count == INSTALLED:
                assert slowest < SECONDS_MAX
            assert place.process is not None
            pid = place.process.pid
            wait_until(lambda: resident_kibibytes(pid) < KIBIBYTES_MAX, "the memory is not given back")
        place.stop()


def test_outside_changes_leave_room_in_the_journal_for_edits(tmp_path: Path) -> None:
    with workplace(tmp_path, {"a.txt": "0\n"}) as place, place.start() as client:
        client.apply([write("a.txt", "1\n", force=True)])
        wait_until(lambda: client.status().journal["unpacked"] == 0, "it is not packed")
        packing = packer(place)
        os.kill(packing, signal.SIGSTOP)
        try:
            content = random.Random(1).randbytes(FILL_BYTES)
            for number in range(FILL_FILES):
                (place.root / f"f{number}").write_bytes(b"%d\n" % number + content)
            wait_until(lambda: client.status().head > 1, "nothing is recorded")
            for number in range(100):  # for longer than the record of all files takes
                client.apply([write("a.txt", f"{number + 2}\n", force=True)])
                time.sleep(0.1)
        finally:
            os.kill(packing, signal.SIGCONT)
        client.settle()
        recorded = {file.path for entry in client.log(limit=1000).transactions for file in entry.files}
        assert recorded >= {f"f{number}" for number in range(FILL_FILES)}
