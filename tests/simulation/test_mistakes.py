"""Mistakes of `tests/mutants` in the commit protocol, the journal, packing, the queue and the exchange.

Random histories find each within so many histories, which take less than ten seconds of a processor.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from mutants.__main__ import load, mistaken_copy

HISTORIES_MAX, HOSTS_MAX = 200, 30
FOUND = ("J01", "J02", "J03", "J23", "HD1", "PK2", "HI6", "N08", "C02")
FOUND_BY_HOSTS = {
    "LF01": "L1: ", "LF02": "L2: ", "LF03": "L4: ", "LF04": "L3: ", "LF05": "L5: ", "LF06": "L7: ",
    "LF07": "L1: ", "RM01": "were lost: ", "RM05": "do not agree", "LP01": "do not agree", "RM11": "L5: ",
    "M37": "entered by two",
}  # fmt: skip
MUTANTS = {mutant.id: mutant for mutant in load()}


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", FOUND)
def test_random_histories_find_a_mistake(name: str) -> None:
    assert "histories, 1 failed" in played(name, "--seeds", str(HISTORIES_MAX))


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", FOUND_BY_HOSTS)
def test_random_histories_of_several_hosts_find_a_mistake(name: str) -> None:
    assert FOUND_BY_HOSTS[name] in played(name, "--hosts", "--seeds", str(HOSTS_MAX))


def played(name: str, *words: str) -> str:
    """Play histories with a mistake up to the first that fails, and return all that is printed."""
    argv = [sys.executable, "-m", "tests.simulation", *words, "--stop"]
    with mistaken_copy(MUTANTS[name]) as (copy, _file, environment):
        run = subprocess.run(argv, cwd=copy, env=environment, capture_output=True, text=True, check=False)
    said = run.stdout[-3000:] + run.stderr[-3000:]
    assert run.returncode == 1, said
    return said
