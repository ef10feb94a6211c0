"""Random histories of three hosts that exchange: kills at any call, lost replies, and a restored server.

At the end of each, all hosts have the same files, and each acknowledged transaction is once in the log (L1 to
L6 of docs/hosts.md).
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from simulation.__main__ import told
from simulation.network import STEPS, Network, networks, play, steps_of
from support.seeds import drawn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from simulation.network import Networks

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


def test_a_seed_gives_the_same_history_of_all_hosts_each_time(
    made: Networks, monkeypatch: pytest.MonkeyPatch, collecting: Callable[[], object]
) -> None:
    ends: list[object] = []
    end = Network.end

    def keep(self: Network) -> None:
        end(self)
        collecting()
        ends.append((list(self.story), self.server.refs(), [host.world.count for host in self.hosts]))

    monkeypatch.setattr(Network, "end", keep)
    for _ in range(2):
        for seed in (FIRST, FIRST + 1):
            assert play(made, seed, steps_of(seed), range(STEPS)) is None
    assert ends[:2] == ends[2:]


def test_nothing_is_left_of_a_network() -> None:
    with networks() as one:
        folder = Path(one.folder)
        assert folder.exists()
    assert not folder.exists()
