"""Faults that are put into the daemon on purpose are found by random runs of several hosts."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from mutants.__main__ import load, mistaken_copy
from support.crash_checks import in_the_long_form

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

RULES = {
    "LF01": "L1", "LF02": "L2", "LF03": "L4", "LF04": "L3", "LF05": "L5", "LF06": "L7", "LF07": "L1",
    "RM02": "L4",  # the file that must stay is none of the transaction's own
}  # fmt: skip
RUNS_MAX = 8  # of a fault: what the daemons do meanwhile is up to chance
TRANSACTIONS = 200
PATIENCE_SECONDS = 30  # until the hosts agree, which most faults prevent


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("fault", [*map(in_the_long_form, sorted(RULES))])
def test_a_fault_of_the_daemon_is_found_by_a_random_run(fault: str) -> None:
    (mutant,) = [mutant for mutant in load() if mutant.id == fault]
    with mistaken_copy(mutant) as (copy, _, environment):
        runs = (found_by_a_run(copy, environment, seed) for seed in range(RUNS_MAX))
        found = next(filter(None, runs), "")
    print(f"{mutant.mistake}: {found}")
    assert found.startswith(f"AssertionError: {RULES[fault]}: ")


def found_by_a_run(copy: Path, environment: Mapping[str, str], seed: int) -> str:
    """Make one run, and return the first failure that it prints; empty if there is none."""
    argv = [sys.executable, "tests/remote/random_hosts.py", "--seeds", "1", "--first", str(seed)]
    argv += ["--transactions", str(TRANSACTIONS), "--patience", str(PATIENCE_SECONDS)]
    run = subprocess.run(
        argv,
        cwd=copy,
        env={**environment, "TMPDIR": str(copy)},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    errors = [line for line in run.stdout.splitlines() if line.startswith("AssertionError: ")]
    return errors[-1][:120] if errors else ""
