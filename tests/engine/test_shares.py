"""Attacks of one client that fills a list of the daemon: others are still served."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import pytest

from editd.engine.shares import COMMANDS, LEASES, SESSIONS, SHARES, Share
from editd.errors import Overloaded
from editd_client import errors
from support.workplace import workplace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from editd_client.client import Client


@pytest.mark.parametrize("share", SHARES, ids=lambda share: share.noun)
def test_a_holder_at_its_limit_is_refused_and_others_are_not(share: Share) -> None:
    assert share.one_max < share.all_max
    holders = ["greedy"] * (share.one_max - 1)
    share.check(holders, "greedy")
    holders.append("greedy")
    with pytest.raises(Overloaded, match=f"of this {share.holder}") as refusal:
        share.check(holders, "greedy")
    assert refusal.value.hint == share.hint
    share.check(holders, "another")
    with pytest.raises(Overloaded, match="of all clients"):
        share.check([str(number) for number in range(share.all_max)], "another")


@pytest.fixture
def clients(tmp_path: Path) -> Iterator[tuple[Client, Client]]:
    with workplace(tmp_path) as place, place.start() as greedy, place.client() as other:
        greedy.session_open("greedy")
        other.session_open("other")
        yield greedy, other


FILLED: dict[Share, Callable[[Client, str], object]] = {
    SESSIONS: lambda client, name: client.session_open(name),
    LEASES: lambda client, name: client.lease_acquire([name], 60.0),
    COMMANDS: lambda client, name: client.exec_begin("make", paths=[name]),
}


@pytest.mark.parametrize("share", FILLED, ids=lambda share: share.noun)
def test_a_client_that_fills_a_list_holds_no_other_client_up(
    clients: tuple[Client, Client], share: Share
) -> None:
    greedy, other = clients
    fill = FILLED[share]
    refusal = first_refusal(fill(greedy, f"greedy-{number}") for number in range(share.all_max))
    assert refusal.name == "overloaded"
    assert refusal.data["limit"] == share.one_max
    fill(other, "other-0")


def first_refusal(results: Iterator[object]) -> errors.EditdError:
    """Return the first refusal of these requests."""
    try:
        deque(results, maxlen=0)
    except errors.EditdError as refusal:
        return refusal
    raise AssertionError("no request was refused")
