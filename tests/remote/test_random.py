"""Three hosts at random, with kills, cuts and a lost server: nothing acknowledged is lost, and all agree."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from random_hosts import play
from support.seeds import seed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from random_hosts import Run

TRANSACTIONS, LONG_TRANSACTIONS = 25, 400
DISTURBED_SHARE = 0.2  # of the requests: with crafted entries, restored servers, and hosts that leave


def test_three_hosts_agree_and_lose_nothing(tmp_path: Path) -> None:
    play(tmp_path, seed(), 3, has(TRANSACTIONS), disturbed_share=DISTURBED_SHARE)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("number", [3, 5])
def test_many_hosts_agree_and_lose_nothing(tmp_path: Path, number: int) -> None:
    play(tmp_path, seed(), number, has(LONG_TRANSACTIONS), disturbed_share=DISTURBED_SHARE)


def has(transactions: int) -> Callable[[Run], bool]:
    """Return a predicate: whether a run has so many acknowledged transactions."""
    return lambda run: len(run.acknowledged) >= transactions
