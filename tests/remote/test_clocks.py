"""Hosts whose clocks are a day apart: the time is shown, and nothing depends on it (L8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.hosts import CLOCK_LIBRARY, exchange, forget_clocks, hosts, set_clock
from support.log_checker import log_of
from support.workplace import replace

if TYPE_CHECKING:
    from pathlib import Path

LINES = "".join(f"line {number}\n" for number in range(1, 10))
DAYS = {0: 0, 1: 1, 2: -1}  # of each host's clock


@pytest.mark.long
@pytest.mark.skipif(not CLOCK_LIBRARY.exists(), reason="libfaketime is not installed")
def test_clocks_that_are_a_day_apart_change_no_order_and_no_outcome(tmp_path: Path) -> None:
    with hosts(tmp_path, 3, {"a.txt": LINES}) as (places, clients, server):
        for number, place in enumerate(places):
            if DAYS[number]:
                clients[number].close()
                place.stop()
                set_clock(place, DAYS[number])
                clients[number] = place.start()
        made = []
        lines = {line: f"line {line}" for line in (2, 5, 8)}
        for number, line in ((1, 2), (2, 5), (0, 8), (2, 2), (1, 5)):
            token = f"host{number} {line}"
            edit = replace("a.txt", f"{lines[line]}\n", f"{token}\n")
            clients[number].read("a.txt")
            made.append(clients[number].apply([edit]).transaction)
            lines[line] = token
            exchange(*clients)
            oldest = clients[number].remote_status().oldest
            assert oldest is None or oldest >= 0
        assert [entry.origin for entry in log_of(server)[1:]] == [one.id for one in made if one is not None]
        assert all(entry.is_applied for entry in log_of(server)[1:])
        expected = LINES
        for line, token in lines.items():
            expected = expected.replace(f"line {line}", token)
        assert {place.files()["a.txt"] for place in places} == {expected.encode()}
        # The same transaction has the time of its own host everywhere.
        shown = clients[0].show("@1").transaction
        assert str(shown.made) > shown.time, "the clock of the host that made it is a day ahead"
        clients[0].undo("@5")
        exchange(*clients)
        assert {place.files()["a.txt"] for place in places} == {
            expected.replace("host1 5", "host2 5").encode()
        }
        for client in clients:
            assert client.check().problems == []
            client.close()
    forget_clocks()
