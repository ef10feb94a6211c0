"""Mistakes of `tests/mutants` in the commit protocol, the journal and packing: random histories find each.

A mistake is found within so many histories, which take less than ten seconds of a processor.
"""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from mutants.__main__ import load, mistaken_copy

HISTORIES_MAX = 200
FOUND = ("J01", "J02", "J03", "J23", "HD1", "PK2", "HI6", "N08", "C02")
MUTANTS = {mutant.id: mutant for mutant in load()}


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", FOUND)
def test_random_histories_find_a_mistake(name: str) -> None:
    argv = [sys.executable, "-m", "tests.simulation", "--seeds", str(HISTORIES_MAX), "--stop"]
    with mistaken_copy(MUTANTS[name]) as (copy, _file, environment):
        run = subprocess.run(argv, cwd=copy, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 1, run.stdout[-2000:] + run.stderr[-2000:]
    assert re.search(r"^\d+ histories, 1 failed", run.stdout, re.MULTILINE), run.stderr[-2000:]
