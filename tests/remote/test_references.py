"""Transactions by the number of their entry, and undo across hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from editd_client.errors import EditdError
from support.hosts import exchange, hosts
from support.workplace import replace, write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from editd_client.client import Client
    from support.workplace import Workplace

LINES = "".join(f"line {number}\n" for number in range(1, 10))
Two = tuple[list["Workplace"], list["Client"], "Path"]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    """Two hosts, for all tests of this module. Each test has a file of its own."""
    with hosts(tmp_path_factory.mktemp("two"), 2, {"a.txt": LINES, "b.txt": LINES}) as started:
        yield started


def seq_of(client: Client, path: str) -> int:
    """Apply an edit, and return its number on this host."""
    made = client.apply([write(path, f"{path}\n")]).transaction
    assert made is not None
    return made.seq


def test_a_transaction_of_any_host_is_named_by_its_entry_and_by_its_id(two: Two) -> None:
    _, (one, other), _ = two
    made = one.apply([write("named.txt", "1\n")], message="named").transaction
    assert made is not None
    entry = one.remote_land(made.seq)
    assert (entry.seq, entry.outcome) == (made.seq, "applied")
    exchange(one, other)
    for client in (one, other):
        for reference in (f"@{entry.number}", made.id):
            assert client.show(reference).transaction.message == "named"
        assert client.log(limit=1).transactions[0].number == entry.number
    with pytest.raises(EditdError) as caught:
        one.show("@9999")
    assert caught.value.name == "unknown_transaction"


def test_an_undo_on_another_host_is_one_here(two: Two) -> None:
    places, (one, other), _ = two
    seq_of(one, "undone.txt")
    exchange(one, other)
    other.undo("@" + str(one.remote_land().number))
    exchange(one, other)
    assert "undone.txt" not in places[0].files()
    (undo, undone) = one.log(limit=2).transactions
    assert (undo.kind, undo.undoes, undone.undone_by) == ("undo", [undone.seq], undo.seq)
    one.redo()
    exchange(one, other)
    assert "undone.txt" in places[1].files()


@pytest.mark.parametrize("redoer", [0, 1])
def test_of_two_undos_at_once_one_redo_suffices(two: Two, redoer: int) -> None:
    places, clients, _ = two
    path = f"twice{redoer}.txt"
    seq_of(clients[0], path)
    number = clients[0].remote_land().number
    exchange(*clients)
    for client in clients:
        client.remote_pause()
        client.undo(f"@{number}")
    for client in clients:
        client.remote_resume()
    exchange(*clients)
    clients[redoer].redo()
    exchange(*clients)
    for place, client in zip(places, clients, strict=True):
        assert path in place.files()
        made = client.show(f"@{number}").transaction
        assert made.undone_by is None
    clients[1 - redoer].undo(f"@{number}")
    exchange(*clients)
    assert [path in place.files() for place in places] == [False, False]


def test_a_session_of_another_host_is_rolled_back_by_its_name(two: Two) -> None:
    places, (one, other), _ = two
    one.session_open("types")
    for number in (1, 5):
        one.apply([replace("a.txt", f"line {number}\n", f"{number}\n")])
    one.session_close()
    exchange(one, other)
    other.apply([replace("a.txt", "line 9\n", "nine\n")])
    other.rollback("types@host0")
    exchange(one, other)
    assert {place.files()["a.txt"] for place in places} == {LINES.replace("line 9", "nine").encode()}


def test_a_subscriber_hears_that_a_transaction_has_landed(two: Two) -> None:
    places, (one, _), _ = two
    with places[0].client() as listener, listener.subscribe(events=["landed"]) as events:
        seq = seq_of(one, "heard.txt")
        event = events.wait(10)
        assert event is not None
        assert (event.data["seq"], event.data["outcome"]) == (seq, "applied")


def test_a_transaction_that_cannot_land_in_time_is_a_timeout(two: Two) -> None:
    _, (one, other), _ = two
    one.remote_pause()
    seq_of(one, "late.txt")
    with pytest.raises(EditdError) as caught:
        one.remote_land(timeout=0.2)
    assert caught.value.name == "timeout"
    one.remote_resume()
    exchange(one, other)


def test_without_a_transaction_since_the_joining_none_lands(tmp_path: Path) -> None:
    with hosts(tmp_path, 2, {"a.txt": LINES}) as (_, (one, other), _):
        with pytest.raises(EditdError) as caught:
            other.remote_land(timeout=5)
        assert caught.value.name == "invalid_params"
        one.remote_pause()
        seq_of(one, "b.txt")
        assert (one.remote_status().state, one.remote_status().tentative) == ("paused", 1)
        one.remote_resume()
        assert one.remote_land().number == 1
