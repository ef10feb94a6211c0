"""Undo is the same everywhere: its links survive a leave, and a part that stays on a host is named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec import UNSET

from support.hosts import bare_repository, exchange, hosts, name_host, until
from support.log_checker import log_of
from support.workplace import replace, write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from editd.wire.messages import Transaction
    from editd_client.client import Client
    from support.hosts import Hosts

LINES = "".join(f"line {number}\n" for number in range(1, 10))
FILES = {"a.txt": LINES, "b.txt": LINES}
NAMES = ("undone", "redone", "aside")  # a file of each test that shares the hosts


def made(client: Client, path: str, old: str, new: str) -> Transaction:
    transaction = client.apply([replace(path, old, new, guard="text")]).transaction
    assert transaction is not None
    return transaction


def shown(client: Client) -> list[tuple[object, ...]]:
    """Return the history of a host, with the links of its undos and its numbers in the log."""
    log = client.log(limit=100).transactions
    return [(one.seq, one.kind, one.number, one.host, one.undone_by, tuple(one.undoes)) for one in log]


def is_undone(client: Client, reference: int | str) -> bool:
    return client.show(reference).transaction.undone_by is not None


def test_the_links_of_undos_survive_a_leave_and_a_join_of_the_same_log(tmp_path: Path) -> None:
    with hosts(tmp_path, 2, FILES) as (places, (one, other), server):
        mine = made(one, "a.txt", "line 1\n", "1\n")
        undone = made(one, "a.txt", "line 3\n", "3\n")
        exchange(one, other)
        theirs = made(other, "b.txt", "line 1\n", "1\n")
        exchange(one, other)
        back = one.undo(undone.seq).transaction
        assert back is not None
        exchange(one, other)
        before = shown(one)
        one.remote_leave()
        one.remote_join(str(server))
        exchange(one, other)
        assert shown(one) == before

        other.undo(f"@{one.show(mine.seq).transaction.number}")
        exchange(one, other)
        assert is_undone(one, mine.seq), "an undo elsewhere does not reach the transaction"
        one.undo(one.show(theirs.id).transaction.seq)
        exchange(one, other)
        assert is_undone(other, theirs.seq), "an undo here does not reach the others"
        other.undo(back.id)
        exchange(one, other)
        assert not is_undone(one, undone.seq), "a redo elsewhere does not reach the transaction"
        assert places[0].files() == places[1].files()

        one.close()
        places[0].stop()
        with places[0].start() as again:
            other.undo(other.show(mine.id).transaction.undone_by)
            exchange(again, other)
            assert not is_undone(again, mine.seq), "a restart has lost the links"
            assert again.check().problems == []


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """Two hosts, the first of which keeps files of `mine/` to itself."""
    folder = tmp_path_factory.mktemp("pair")
    with hosts(folder, 2, join=False) as (places, clients, _):
        clients[0].remote_leave()
        name_host(places[0], "host0", 'exclude = ["mine/"]\n')
        clients[0].config_reload()
        clients[0].apply([write(f"{name}.txt", LINES) for name in NAMES])
        log = bare_repository(folder / "log.git")
        clients[0].remote_init(str(log))
        clients[1].remote_join(str(log))
        yield places, clients, log


@pytest.fixture
def pair(started: Hosts) -> Iterator[Hosts]:
    """The two hosts, which have the same files and sound histories after each test."""
    places, clients, _ = started
    yield started
    exchange(*clients)
    assert places[0].files().items() >= places[1].files().items()
    assert [client.check().problems for client in clients] == [[], []]


def both(client: Client, name: str) -> Transaction:
    """Change a file of both hosts, and a file that stays, in one transaction."""
    change = replace(f"{name}.txt", "line 1\n", "1\n", guard="text")
    transaction = client.apply([change, write(f"mine/{name}.txt", "stays\n")]).transaction
    assert transaction is not None
    return transaction


def test_an_undo_elsewhere_takes_back_the_part_that_the_log_has(pair: Hosts) -> None:
    places, (one, other), server = pair
    mixed = both(one, "undone")
    exchange(one, other)
    there = other.show(mixed.id).transaction
    assert (there.rest_on, [file.path for file in there.files]) == ("host0", ["undone.txt"])
    assert one.show(mixed.seq).transaction.rest_on is UNSET
    undone = other.undo(there.seq)
    assert undone.warnings == [
        f"Undone in part: host0 keeps further files of {there.seq}, and an undo there takes them back."
    ]
    exchange(one, other)
    here = one.show(mixed.seq).transaction
    assert here.undone_by is None
    assert {file.path: file.undone_by is UNSET for file in here.files} == {
        "undone.txt": False, "mine/undone.txt": True
    }  # fmt: skip
    until(lambda: one.remote_status().in_part == [mixed.seq], "the status does not name it")
    assert "undone in part by" in places[0].editctl("log").stdout
    assert f"{mixed.seq}: undone elsewhere" in places[0].editctl("remote", "status").stdout
    assert "undone in part by" in places[1].editctl("show", str(there.seq)).stdout

    rest = one.undo(mixed.seq)
    assert [file.path for file in rest.files] == ["mine/undone.txt"]
    exchange(one, other)
    assert is_undone(one, mixed.seq)
    until(lambda: one.remote_status().in_part == [], "the status still names it")
    assert b"mine" not in b"".join(entry.commit.raw_message for entry in log_of(server))


def test_a_redo_elsewhere_brings_back_the_part_that_the_log_has(pair: Hosts) -> None:
    _, (one, other), _ = pair
    mixed = both(one, "redone")
    whole = one.undo(mixed.seq).transaction
    assert whole is not None
    exchange(one, other)
    other.undo(whole.id)
    exchange(one, other)
    here = one.show(mixed.seq).transaction
    assert here.undone_by is None
    assert {file.path: file.undone_by for file in here.files} == {
        "redone.txt": UNSET, "mine/redone.txt": whole.seq
    }  # fmt: skip
    one.undo(whole.seq)
    exchange(one, other)
    assert [file.undone_by for file in one.show(mixed.seq).transaction.files] == [UNSET, UNSET]


def test_a_transaction_that_is_set_aside_keeps_the_part_that_stays(pair: Hosts) -> None:
    places, (one, other), _ = pair
    one.remote_pause()
    mixed = both(one, "aside")
    other.apply([replace("aside.txt", "line 1\n", "ONE\n", guard="text")])
    exchange(other)
    one.remote_resume()
    exchange(one, other)
    until(lambda: one.proposal_list().proposals != [], "it is not set aside")
    here = one.show(mixed.seq).transaction
    assert here.undone_by is None
    assert [file.path for file in here.files if file.undone_by is UNSET] == ["mine/aside.txt"]
    assert places[0].files()["mine/aside.txt"] == b"stays\n"
    one.undo(mixed.seq)
    assert "mine/aside.txt" not in places[0].files()
    exchange(one, other)
