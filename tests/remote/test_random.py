"""Three hosts at random, with kills, cuts and a lost server: nothing acknowledged is lost, and all agree."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from random_hosts import play

if TYPE_CHECKING:
    from pathlib import Path

TRANSACTIONS, LONG_TRANSACTIONS = 40, 400


def test_three_hosts_agree_and_lose_nothing(tmp_path: Path) -> None:
    seed = random.SystemRandom().getrandbits(32)
    play(tmp_path, seed, 3, lambda run: len(run.acknowledged) >= TRANSACTIONS)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("number", [3, 5])
def test_many_hosts_agree_and_lose_nothing(tmp_path: Path, number: int) -> None:
    seed = random.SystemRandom().getrandbits(32)
    play(tmp_path, seed, number, lambda run: len(run.acknowledged) >= LONG_TRANSACTIONS)
