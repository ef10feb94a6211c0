"""Entries that somebody wrote into the log by hand: no odd mode, kind of object or trailer harms a host."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from editd.server.convert import mode_of
from editd.values.content import FileState
from hostile_log import MORE_TRAILERS, TRAILERS, HostileLog
from support.hosts import bare_repository, exchange, hosts, name_host, until
from support.log_checker import log_of
from support.workplace import replace, workplace, write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from editd_client.client import Client
    from support.hosts import Hosts

FILES = {"a.txt": "a\n", "b.txt": "b\n", "sub/c.txt": "c\n"}
TRIED_SECONDS = 0.5  # some rounds of the exchange, which the entry stops
KINDS = (
    (b"b.txt", b"100644", "tree"),
    (b"b.txt", b"100644", "commit"),
    (b"b.txt", b"120000", "tree"),
    (b"new", b"100755", "commit"),
    (b"sub", b"40000", "blob"),
    (b"sub", b"40000", "commit"),
)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """Two hosts for the tests that leave them well."""
    with hosts(tmp_path_factory.mktemp("two"), 2, FILES) as made:
        yield made
        for client in made[1]:
            client.close()


def count(client: Client) -> int:
    """Return the number of transactions of a host, by its log, which is never an internal error."""
    return len(client.log(limit=200).transactions)


def settle_down(client: Client) -> tuple[int, str]:
    """Exchange a few times, and return the number of transactions and the state."""
    states = [client.remote_now(timeout=5).state for _ in range(3)]
    return count(client), str(states[-1])


def test_only_gits_modes_come_out_of_a_log(tmp_path: Path) -> None:
    modes = {b"104755": "100755", b"100664": "100644", b"140000": None}
    with hosts(tmp_path, 2, FILES) as (places, (one, other), server):
        log = HostileLog(server)
        new = log.object("blob", b"new\n")
        for mode in modes:
            log.add({mode: (mode, new)})
        log.add({b"b.txt": (b"100644", log.object("blob", b"behind\n"))})
        exchange(one, other)
        for place, client in zip(places, (one, other), strict=True):
            assert place.files()["b.txt"] == b"behind\n"
            shown = [file for made in client.log(limit=9).transactions for file in made.files or ()]
            for mode, expected in modes.items():
                name = mode.decode()
                assert place.files().get(name) == (b"new\n" if expected else None)
                assert [file.mode for file in shown if file.path == name] == ([expected] if expected else [])
        one.apply([replace("a.txt", "a\n", "A\n")])
        exchange(one, other)
        before = settle_down(one)
        assert before[1] == "current"
        for mode in modes:
            log.add({mode: (b"100" + mode[-3:], new)})
        exchange(one, other)
        assert count(one) == before[0] + 1, "the same file is no change, but for the one that was none"
        assert places[0].files() == places[1].files()
        one.remote_leave(lose=True)
        assert count(one) == before[0] + 1


def test_what_comes_out_of_a_log_has_no_set_user_id_bit_and_the_umask(two: Hosts) -> None:
    places, clients, server = two
    log = HostileLog(server)
    blob = log.object("blob", b"new\n")
    log.add({b"program": (b"100755", blob)}, "Permissions: 6711 program\n")
    log.add({b"open": (b"100644", blob)}, "Permissions: 7666 open\n")
    exchange(*clients)
    for place in places:
        assert (place.root / "program").stat().st_mode & 0o7777 == 0o711
        assert (place.root / "open").stat().st_mode & 0o7777 == 0o644


def test_a_submodule_comes_out_as_nothing(tmp_path: Path) -> None:
    with hosts(tmp_path, 1, FILES) as (places, (one,), server):
        log = HostileLog(server)
        log.add({b"module": (b"160000", log.head), b"b.txt": (b"160000", log.head)})
        exchange(one)
        assert places[0].files() == {"a.txt": b"a\n", "sub/c.txt": b"c\n"}, "b.txt is gone from the log"
        one.apply([write("module", "mine\n")])
        exchange(one)
        assert settle_down(one) == (3, "current")
        assert places[0].files()["module"] == b"mine\n"
        assert log.names()[b"module"][0] == b"100644", "the file has replaced it"


def test_the_next_entries_keep_a_submodule_that_somebody_pushed(tmp_path: Path) -> None:
    with hosts(tmp_path, 2, FILES) as (places, (one, other), server):
        log = HostileLog(server)
        module = (b"160000", log.head)
        log.add({b"module": module, b"b.txt": module})
        exchange(one, other)
        one.apply([replace("a.txt", "a\n", "A\n")])
        one.apply([write("b", "beside it in git's order\n")])
        exchange(one, other)
        other.apply([write("sub/new", "new\n")])
        other.remote_leave(lose=True)
        other.remote_join(str(server), keep="mine")
        exchange(one, other)
        names = log.names()
        assert (names[b"module"], names[b"b.txt"]) == (module, module)
        subprocess.run(["git", "--git-dir", server, "fsck", "--strict"], check=True, capture_output=True)
        assert places[0].files() == places[1].files()
        assert settle_down(one)[1] == settle_down(other)[1] == "current"
        assert [client.check().problems for client in (one, other)] == [[], []]


def test_an_object_of_another_kind_stops_the_exchange_and_writes_nothing(tmp_path: Path) -> None:
    with hosts(tmp_path, 1, FILES) as (places, (one,), _):
        for number, (name, mode, kind) in enumerate(KINDS):
            one.remote_leave(lose=True)
            server = bare_repository(tmp_path / f"{number}.git")
            one.remote_init(str(server))
            before, files, log = count(one), places[0].files(), HostileLog(server)
            objects = {
                "tree": log.git("rev-parse", f"{log.head}^{{tree}}"), "commit": log.head,
                "blob": log.object("blob", b"100644 x\0" + b"x" * 20),
            }  # fmt: skip
            log.add({name: (mode, objects[kind])})
            log.add({b"a.txt": (b"100644", log.object("blob", b"behind\n"))})
            until(lambda: one.remote_now(timeout=TRIED_SECONDS).error is not None, f"{name!r} is taken")
            one.remote_now(timeout=TRIED_SECONDS)
            assert count(one) == before, "no transaction comes of it, however often it is tried"
            assert places[0].files() == files
            assert one.apply([write("a.txt", f"edited {number}\n")]).transaction is not None
            assert count(one) == before + 1


def test_a_known_folder_in_the_place_of_a_file_stops_all_hosts_alike(tmp_path: Path) -> None:
    """The fault: git lets it through to a host that has the folder, and that host went on alone."""
    with hosts(tmp_path, 2, FILES) as (places, (one, other), server):
        exchange(one, other)
        log = HostileLog(server)
        blob = log.object("blob", b"f\n")
        tree = log.object("tree", b"100644 f\0" + bytes.fromhex(blob))
        places[1].stop()
        log.add({b"odd": (b"40000", tree)})
        until(lambda: places[0].files().get("odd/f") == b"f\n", "the host with the folder has it")
        log.add({b"odd": None})
        until(lambda: "odd/f" not in places[0].files(), "the folder is not in its newest entry any more")
        log.add({b"b.txt": (b"100644", tree)})
        log.add({b"a.txt": (b"100644", log.object("blob", b"behind\n"))})
        with places[1].start() as again:
            for client in (one, again):
                until(
                    lambda client=client: tree in (client.remote_now(timeout=TRIED_SECONDS).error or ""),  # type: ignore[misc]
                    "it is taken",
                )
                status = client.remote_now(timeout=TRIED_SECONDS)
                assert (status.state, status.unusable_entries) == ("offline", 0), "however often it is tried"
                assert tree in (status.error or "")
                assert client.apply([write("own.txt", "own\n")]).transaction is not None


def test_an_unusable_entry_is_named_alike_everywhere_and_the_rest_goes_on(two: Hosts, is_long: bool) -> None:
    places, clients, server = two
    one, other = clients
    exchange(one, other)
    log = HostileLog(server)
    reasons: dict[int, str] = {}
    texts: dict[int, str] = {}
    cases: list[tuple[str, str | None]] = [*TRAILERS, *(MORE_TRAILERS if is_long else [])]
    for case, (trailers, reason) in enumerate(cases):
        name, expected = f"new{case}", places[0].files()
        changes = {name.encode(): (b"100644", log.object("blob", b"new\n"))}
        log.add(changes, trailers.replace("new", name) + "\n")
        number = len(log_of(server)) - 1
        assert one.apply([write("b.txt", f"behind {trailers}\n")]).transaction is not None
        exchange(one, other)
        expected["b.txt"] = f"behind {trailers}\n".encode()
        expected |= {} if reason else {name: b"new\n"}
        if reason is not None:
            reasons[number] = reason
        named = []
        for place, client in zip(places, (one, other), strict=True):
            state = client.remote_status()
            assert (place.files(), state.state) == (expected, "current"), trailers
            named.append([(entry.number, entry.host, entry.reason) for entry in state.unusable])
            assert state.unusable_entries == len(named[-1])
        assert named[0] == named[1]
        texts = {entry: text for entry, _, text in named[0]}
        assert (number in texts) == (reason is not None), trailers
    assert reasons.keys() <= texts.keys()
    assert all(reason in texts[number] for number, reason in reasons.items()), texts
    for client in (one, other):
        for made in client.log(limit=200).transactions:
            client.show(made.seq)
        client.blame("b.txt")
        assert client.check().ok
    shown = places[0].editctl("remote", "status").stdout
    assert all(f"entry {number} of" in shown for number in reasons)
    taken = count(other)
    other.close()
    places[1].stop()
    clients[1] = again = places[1].start()
    assert count(again) == taken
    exchange(one, again)
    assert again.remote_status().unusable == one.remote_status().unusable


def test_an_entry_of_a_newer_version_is_said_and_its_files_are_taken(tmp_path: Path) -> None:
    with hosts(tmp_path, 2, FILES) as (places, (one, other), server):
        log = HostileLog(server)
        odd = "Kind: squash\nOutcome: folded\nNeeds: 4\nColour: blue\n"
        log.add({b"new": (b"100644", log.object("blob", b"new\n"))}, odd)
        exchange(one, other)
        for place, client in zip(places, (one, other), strict=True):
            assert place.files()["new"] == b"new\n"
            state = client.remote_status()
            assert (state.version, state.unusable, state.newer_entries) == (4, [], 1)
            assert [entry.reason for entry in state.newer] == [
                "version 4 of the log and the outcome folded and the kind squash"
            ]
        assert "the kind squash" in places[0].editctl("remote", "status").stdout


def test_an_entry_behind_an_unusable_one_does_not_bring_its_files(two: Hosts, tmp_path: Path) -> None:
    """A host that joins later has the same files, and the same entry for each line."""
    places, (one, other), server = two
    exchange(one, other)
    log, first = HostileLog(server), len(log_of(server))
    link = log.object("blob", b"a\0b")
    log.add({b"b.txt": (b"100644", log.object("blob", b"evil\n"))}, 'Actor: "\\u0000"\n')
    log.add({b"link": (b"120000", link)})
    log.add({b"link": None})
    exchange(one, other)
    unusable = [entry.number for entry in one.remote_status().unusable if entry.number >= first]
    assert unusable == [first, first + 1]
    assert places[0].files()["b.txt"] == b"evil\n", "the third entry, which is right, still has it"
    assert "link" not in places[0].files()
    other.apply([write("a.txt", "A\n")])
    exchange(one, other)
    with workplace(tmp_path / "late") as place:
        name_host(place, "late")
        with place.start() as late:
            late.remote_join(str(server))
            exchange(one, other, late)
            assert late.remote_status().unusable == one.remote_status().unusable
            assert place.files() == places[1].files() == places[0].files()
            assert [line.number for line in late.blame("a.txt").lines] == [
                line.number for line in one.blame("a.txt").lines
            ]
    assert one.diff(f"@{first - 1}", f"@{first + 1}").files == [], "unusable entries change nothing"


def test_a_transaction_is_not_twice_in_a_log(two: Hosts) -> None:
    places, (one, other), server = two
    made = one.apply([write("a.txt", "once\n")]).transaction
    assert made is not None
    number = exchange(one, other)[0].number
    log = HostileLog(server)
    log.add({b"a.txt": (b"100644", log.object("blob", b"twice\n"))}, f"Origin: {made.id}\n")
    other.apply([write("b.txt", "behind\n")])
    exchange(one, other)
    unusable = {entry.number: entry.reason for entry in one.remote_status().unusable}
    assert unusable[len(log_of(server)) - 2] == f"its transaction is entry {number} already"
    assert [place.files()["a.txt"] for place in places] == [b"once\n"] * 2


def test_a_transaction_that_an_entry_undoes_twice_is_in_the_history_once(two: Hosts) -> None:
    _, clients, server = two
    log = HostileLog(server)
    for lines in ("Undoes: 1\n", "Undoes: 1\nUndoes: 2\n", "Undoes: 1 b.txt\nUndoes: 2 b.txt\n"):
        made = clients[0].apply([write("b.txt", f"before {lines}")]).transaction
        assert made is not None
        number = exchange(*clients)[0].number
        changes = {b"b.txt": (b"100644", log.object("blob", b"b\n"))}
        log.add(changes, f"Kind: undo\n{lines}" + f"Undone: {made.id}\n" * 2)
        exchange(*clients)
        for client in clients:
            undo, landed = client.log(limit=2).transactions
            assert (landed.number, undo.undoes) == (number, [landed.seq])
    assert [client.check().problems for client in clients] == [[], []]


def test_of_two_decisions_about_a_transaction_the_first_counts_on_all_hosts(tmp_path: Path) -> None:
    with hosts(tmp_path, 2, FILES) as (_, clients, server):
        one, other = clients
        other.remote_pause()
        one.apply([replace("a.txt", "a\n", "one\n")])
        exchange(one)
        made = other.apply([replace("a.txt", "a\n", "other\n")]).transaction
        assert made is not None
        other.remote_resume()
        exchange(one, other)
        until(lambda: all(client.proposal_list().proposals for client in clients), "it is not set aside")
        one.remote_pause()  # it reads both decisions at once, and the other host one by one
        log = HostileLog(server)
        for decision in ("rejected", "withdrawn"):
            log.add({}, f"Outcome: decided\nDecides: {made.id}\nDecision: {decision}\n")
            until(lambda: other.remote_now(timeout=10).number == len(log_of(server)) - 1, "it is not read")
        one.remote_resume()
        exchange(one, other)
        until(lambda: not any(client.proposal_list().proposals for client in clients), "it is not decided")
        assert [states_of_all(client) for client in clients] == [["rejected"]] * 2
        assert [client.remote_status().unusable for client in clients] == [[], []]


def states_of_all(client: Client) -> list[str]:
    """Return the state of each proposal of a host."""
    listed = client.proposal_list(
        state=["open", "landed", "partly", "rejected", "withdrawn", "expired", "moot"]
    )
    return [one.state for one in listed.proposals]


@pytest.mark.parametrize(
    ("mode", "name"), [(0o104755, "100755"), (0o100664, "100644"), (0o160000, "100644"), (0o120000, "120000")]
)
def test_a_history_that_has_odd_modes_is_shown_with_gits(mode: int, name: str) -> None:
    """An earlier version has taken them out of a log."""
    assert mode_of(FileState(b"", mode)) == name  # type: ignore[arg-type]
