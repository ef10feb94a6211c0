"""Random runs against the model, a few of them here; by hand any number of them, see run.py."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from shrinking import shrunk

RUN = Path(__file__).with_name("run.py")
SEEDS, STEPS = 2, 80
SECONDS_LONG, STEPS_LONG = 4 * 3600, 500


@pytest.mark.timeout(SECONDS_LONG + 3600)
def test_whatever_is_done_the_daemon_and_the_model_agree(is_long: bool) -> None:
    argv = ["--first", "1", "--seeds", str(SEEDS), "--steps", str(STEPS)]
    if is_long:
        first = str(random.randrange(1 << 32))
        argv = ["--first", first, "--seconds", str(SECONDS_LONG), "--steps", str(STEPS_LONG)]
    done = subprocess.run([sys.executable, str(RUN), *argv], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-4000:]
    print(done.stdout.splitlines()[-1])


def test_a_failing_run_is_shrunk_to_the_steps_that_it_needs() -> None:
    asked = list[int]()

    def fails(numbers: list[int]) -> bool:
        asked.append(len(numbers))
        return {17, 203, 204}.issubset(numbers)

    assert shrunk(range(500), fails) == [17, 203, 204]
    assert len(asked) < 200


def test_a_run_of_a_seed_begins_as_a_shorter_one_does() -> None:
    argv = [sys.executable, str(RUN), "--seed", "3", "--list", "--steps"]
    short, long = (subprocess.check_output([*argv, count], text=True).splitlines() for count in ("20", "90"))
    assert long[:20] == short
    assert len(long) == 90
