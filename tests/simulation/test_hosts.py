"""Random histories of three hosts that exchange: kills at any call, lost replies, and a restored server.

At the end of each, all hosts have the same files, and each acknowledged transaction is once in the log (L1 to
L6 of docs/hosts.md).
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from simulation.__main__ import told
from simulation.network import STEPS, networks, play, steps_of
from support.seeds import drawn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from simulation.network import Networks

TESTS = Path(__file__).resolve().parent.parent
HISTORIES, HISTORIES_LONG = 5, 2000
FIRST = 1  # of the long form; the short form plays some of these


@pytest.fixture
def made() -> Iterator[Networks]:
    logging.disable(logging.CRITICAL)  # each failure of the server is logged
    try:
        with networks() as one:
            yield one
    finally:
        logging.disable(logging.NOTSET)


@pytest.mark.timeout(3600)
def test_all_hosts_agree_and_each_transaction_is_once_in_the_log(made: Networks, is_long: bool) -> None:
    seeds = range(FIRST, FIRST + HISTORIES_LONG) if is_long else drawn(HISTORIES_LONG, HISTORIES)
    print(f"seeds {seeds[0]} to {seeds[-1]}")
    for seed in seeds:
        failure = play(made, seed, steps_of(seed), range(STEPS))
        assert failure is None, told(failure, "--hosts ")


@pytest.mark.long
def test_a_seed_gives_the_same_history_of_all_hosts_each_time() -> None:
    """In a process of its own, and on a quiet machine: beside much load, a start may take five calls more."""
    program = [sys.executable, "-m", "simulation.twice", str(FIRST), str(FIRST + 1)]
    played = subprocess.run(program, cwd=TESTS, capture_output=True, text=True, check=True)
    ends = json.loads(played.stdout)
    assert len(ends) == 4
    assert ends[:2] == ends[2:]


def test_nothing_is_left_of_a_network() -> None:
    with networks() as one:
        folder = Path(one.folder)
        assert folder.exists()
    assert not folder.exists()
