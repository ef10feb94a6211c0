"""The order of the log holds for all hosts: authors of lines, files of an entry, and what is in force."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pygit2
import pytest

from editd_client.errors import EditdError
from support.hosts import exchange, hosts, until
from support.log_checker import log_of
from support.workplace import replace, write

if TYPE_CHECKING:
    from pathlib import Path

    from editd.wire.messages import Transaction
    from editd_client.client import Client
    from support.hosts import Hosts
    from support.log_checker import Entry

LINES = "".join(f"line {number}\n" for number in range(1, 10))
NAMES = ("same", "waits", "entry", "undone", "redone", "covered")
FILES = {f"{name}.txt": LINES for name in NAMES}


def landed(clients: list[Client], place: int, path: str) -> int:
    """Have a host change line 5 of a file, and all hosts know it. Return its entry."""
    entry = clients[place].remote_land(made(clients[place], path, "line 5\n", "five\n").seq)
    exchange(*clients)
    assert entry.number is not None
    return entry.number


def pause(clients: list[Client]) -> None:
    for client in clients:
        client.remote_pause()


def in_turn(clients: list[Client], order: tuple[int, ...]) -> None:
    """Let the paused hosts land their work one after the other."""
    for place in order:
        clients[place].remote_resume()
        clients[place].remote_land(timeout=60)
    for client in clients:
        client.remote_resume()
    exchange(*clients)


def authors(client: Client, path: str) -> list[object]:
    """Return the entry and the author of each line."""
    return [(line.number, line.actor, line.time) for line in client.blame(path).lines]


def files_in(entry: Entry) -> dict[str, bytes]:
    blobs = [found for found in entry.commit.tree if isinstance(found, pygit2.Blob)]  # all are at the top
    return {str(blob.name): blob.data for blob in blobs}


def made(client: Client, path: str, old: str, new: str) -> Transaction:
    client.read(path)
    transaction = client.apply([replace(path, old, new)]).transaction
    assert transaction is not None
    return transaction


def test_all_hosts_name_the_same_entry_for_each_line(three: Hosts) -> None:
    _, clients, server = three
    pause(clients)
    for place, client in enumerate(clients):  # all add one line in common, and change one of their own
        made(client, "same.txt", f"line {2 * place + 1}\n", f"{place}\n")
        made(client, "same.txt", "line 8\n", "line 8\nin common\n")
    in_turn(clients, (2, 0, 1))
    shown = [authors(client, "same.txt") for client in clients]
    assert shown[0] == shown[1] == shown[2]
    hosts_of = {entry.number: entry.trailers["Host"] for entry in log_of(server)}
    lines = clients[0].blame("same.txt").lines
    found = [line.number if line.number == 0 else hosts_of.get(int(str(line.number))) for line in lines]
    assert found == ["host0", 0, "host1", 0, "host2", 0, 0, 0, "host2", 0]
    for client in clients:
        line = client.blame("same.txt").lines[4]
        assert client.show(line.seq).transaction.number == line.number


@pytest.mark.long
def test_a_line_that_waits_comes_after_the_log(three: Hosts) -> None:
    places, clients, _ = three
    clients[0].remote_pause()
    made(clients[0], "waits.txt", "line 2\n", "two\n")
    landed = made(clients[1], "waits.txt", "line 8\n", "eight\n")
    number = clients[1].remote_land(landed.seq).number
    clients[0].remote_resume()
    until(lambda: b"eight" in places[0].files()["waits.txt"], "it does not arrive")
    exchange(*clients)
    clients[0].remote_pause()
    waiting = made(clients[0], "waits.txt", "line 4\n", "four\n")
    lines = clients[0].blame("waits.txt").lines
    assert (lines[7].number, lines[3].seq) == (number, waiting.seq)
    assert not isinstance(lines[3].number, int)
    in_turn(clients, (0,))
    shown = [authors(client, "waits.txt") for client in clients]
    assert shown[0] == shown[1] == shown[2]


def test_the_files_of_an_entry_are_those_of_the_log_on_every_host(three: Hosts) -> None:
    places, clients, server = three
    pause(clients)
    for place, client in enumerate(clients):
        made(client, "entry.txt", f"line {2 * place + 1}\n", f"{place}\n")
        client.apply([write(f"new{place}.txt", f"{place}\n")])
    in_turn(clients, (1, 2, 0))
    log = log_of(server)
    clients[2].remote_pause()
    made(clients[2], "entry.txt", "line 9\n", "it waits\n")
    first, last = log[-6], log[-3]
    diffs = [client.diff(f"@{first.number}", f"@{last.number}").diff for client in clients]
    assert diffs[0] == diffs[1] == diffs[2]
    assert "+++ b/new1.txt" in diffs[0]
    since = clients[2].diff(f"@{last.number}").diff
    assert "+it waits\n" in since
    in_turn(clients, (2,))
    for client, entry in zip(clients, log[-4:-1], strict=True):
        client.restore(f"@{entry.number}")
        exchange(*clients)
        assert [place.files() for place in places] == [files_in(entry)] * 3
    assert clients[0].diff(f"@{log[-2].number}").files == []
    restored = clients[0].restore(f"@{log[-1].number}", paths=["new0.txt"]).transaction
    assert restored is not None
    assert [file.path for file in restored.files] == ["new0.txt"]
    assert restored.message == f"Restore entry @{log[-1].number}"
    exchange(*clients)


def test_an_entry_that_is_not_there_is_unknown(three: Hosts) -> None:
    _, clients, _ = three
    for ask in (lambda: clients[1].diff("@9999"), lambda: clients[1].restore("@9999")):
        with pytest.raises(EditdError) as caught:
            ask()
        assert caught.value.name == "unknown_transaction"


@pytest.mark.long
def test_a_host_that_joins_later_knows_the_entries_before(three: Hosts, tmp_path: Path) -> None:
    places, clients, server = three
    first = made(clients[0], "entry.txt", "line 8\n", "before the joining\n")
    number = clients[0].remote_land(first.seq).number
    with hosts(tmp_path, 1) as (_, (late,), _):
        late.remote_leave()
        late.remote_join(str(server), take="log")
        exchange(*clients, late)
        assert authors(late, "entry.txt") == authors(clients[1], "entry.txt")
        assert late.diff("@0", f"@{number}").diff == clients[0].diff("@0", f"@{number}").diff
        late.restore(f"@{number - 1}")
        exchange(*clients, late)
        assert places[0].files() == files_in(log_of(server)[number - 1])


def undone(clients: list[Client], number: int) -> set[bool]:
    """Return by each host whether an entry is undone."""
    return {client.show(f"@{number}").transaction.undone_by is not None for client in clients}


def test_an_undo_without_an_effect_elsewhere_is_one_on_all_hosts(three: Hosts) -> None:
    _, clients, _ = three
    number = landed(clients, 0, "covered.txt")
    pause(clients)
    made(clients[0], "covered.txt", "five\n", "line 5\n")  # as the undo leaves it
    clients[1].undo(f"@{number}")
    in_turn(clients, (0, 1))
    assert undone(clients, number) == {True}
    clients[1].undo(clients[1].log(kind="undo", limit=1).transactions[0].seq)
    exchange(*clients)
    assert undone(clients, number) == {False}
    for client in clients:
        assert client.check().problems == []


def test_an_undo_that_is_set_aside_leaves_that_of_another_host(three: Hosts) -> None:
    _, clients, _ = three
    number = landed(clients, 0, "undone.txt")
    pause(clients)
    clients[0].undo(f"@{number}")
    made(clients[0], "undone.txt", "line 5\n", "another\n")
    clients[1].undo(f"@{number}")
    in_turn(clients, (0, 1))
    assert undone(clients, number) == {True}
    assert {client.blame("undone.txt").lines[4].actor for client in clients} == {
        clients[0].blame("undone.txt").lines[4].actor
    }


@pytest.mark.long
def test_the_command_names_entries(three: Hosts) -> None:
    places, clients, _ = three
    number = landed(clients, 1, "redone.txt")
    for place in places:
        assert "+five\n" in place.editctl("diff", f"@{number - 1}..@{number}", "redone.txt").stdout
        shown = place.editctl("blame", "redone.txt").stdout.splitlines()
        assert [line.split()[0] for line in shown] == [*["@0"] * 4, f"@{number}", *["@0"] * 4]
