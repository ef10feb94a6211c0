"""Entries that somebody wrote into the log by hand: no odd mode, kind of object or trailer harms a host."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from editd.server.convert import mode_of
from editd.values.content import FileState
from hostile_log import MORE_TRAILERS, TRAILERS, HostileLog
from hosts import exchange, hosts, until
from workplace import replace, write

if TYPE_CHECKING:
    from pathlib import Path

    from editd_client.client import Client

FILES = {"a.txt": "a\n", "b.txt": "b\n", "sub/c.txt": "c\n"}


def count(client: Client) -> int:
    """Return the number of transactions of a host, by its log, which is never an internal error."""
    return len(client.log(limit=200).transactions)


def settle_down(client: Client) -> tuple[int, str]:
    """Exchange a few times, and return the number of transactions and the state."""
    states = [client.remote_now(timeout=5).state for _ in range(3)]
    return count(client), str(states[-1])


@pytest.mark.parametrize(
    ("mode", "expected"), [(b"104755", "100755"), (b"100664", "100644"), (b"140000", None)]
)
def test_only_gits_modes_come_out_of_a_log(tmp_path: Path, mode: bytes, expected: str | None) -> None:
    with hosts(tmp_path, 2, FILES) as (places, (one, other), server):
        log = HostileLog(server)
        log.add({b"new": (mode, log.object("blob", b"new\n"))})
        log.add({b"b.txt": (b"100644", log.object("blob", b"behind\n"))})
        exchange(one, other)
        for place, client in zip(places, (one, other), strict=True):
            assert place.files().get("new") == (b"new\n" if expected else None)
            assert place.files()["b.txt"] == b"behind\n"
            shown = [file for made in client.log(limit=9).transactions for file in made.files or ()]
            assert [file.mode for file in shown if file.path == "new"] == ([expected] if expected else [])
        one.apply([replace("a.txt", "a\n", "A\n")])
        exchange(one, other)
        before = settle_down(one)
        assert before[1] == "current"
        log.add({b"new": (b"100" + mode[-3:], log.object("blob", b"new\n"))})
        exchange(one, other)
        assert count(one) == before[0] + (expected is None), "the same file is no change"
        assert places[0].files() == places[1].files()
        one.remote_leave(lose=True)
        assert count(one) == before[0] + (expected is None)


def test_no_set_user_id_bit_comes_out_of_a_log(tmp_path: Path) -> None:
    with hosts(tmp_path, 2, FILES) as (places, (one, other), server):
        log = HostileLog(server)
        log.add({b"new": (b"100755", log.object("blob", b"new\n"))}, "Permissions: 6711 new\n")
        exchange(one, other)
        assert (places[0].root / "new").stat().st_mode & 0o7777 == 0o711


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


@pytest.mark.parametrize(
    ("name", "mode", "kind"),
    [
        (b"b.txt", b"100644", "tree"),
        (b"b.txt", b"100644", "commit"),
        (b"b.txt", b"120000", "tree"),
        (b"new", b"100755", "commit"),
        (b"sub", b"40000", "blob"),
        (b"sub", b"40000", "commit"),
    ],
)
def test_an_object_of_another_kind_stops_the_exchange_and_writes_nothing(
    tmp_path: Path, name: bytes, mode: bytes, kind: str
) -> None:
    with hosts(tmp_path, 1, FILES) as (places, (one,), server):
        before, log = count(one), HostileLog(server)
        objects = {
            "tree": log.git("rev-parse", f"{log.head}^{{tree}}"), "commit": log.head,
            "blob": log.object("blob", b"100644 x\0" + b"x" * 20),
        }  # fmt: skip
        log.add({name: (mode, objects[kind])})
        log.add({b"a.txt": (b"100644", log.object("blob", b"behind\n"))})
        until(lambda: one.remote_now(timeout=1).error is not None, "it is taken")
        assert settle_down(one)[0] == before, "no transaction comes of it, however often it is tried"
        assert places[0].files() == {path: content.encode() for path, content in FILES.items()}
        assert one.apply([write("a.txt", "edited\n")]).transaction is not None
        one.remote_leave(lose=True)
        assert count(one) == before + 1


@pytest.mark.parametrize(
    ("trailers", "reason"),
    [*TRAILERS, *(pytest.param(*one, marks=pytest.mark.long) for one in MORE_TRAILERS)],
)
def test_an_unusable_entry_is_named_alike_everywhere_and_the_rest_goes_on(
    tmp_path: Path, trailers: str, reason: str | None
) -> None:
    with hosts(tmp_path, 2, FILES) as (places, (one, other), server):
        one.apply([write("a.txt", "before\n")])
        exchange(one, other)
        log = HostileLog(server)
        log.add({b"new": (b"100644", log.object("blob", b"new\n"))}, trailers + "\n")
        assert one.apply([write("b.txt", "behind\n")]).transaction is not None
        exchange(one, other)
        expected = {"a.txt": b"before\n", "b.txt": b"behind\n", "sub/c.txt": b"c\n"}
        expected |= {} if reason else {"new": b"new\n"}
        named = []
        for place, client in zip(places, (one, other), strict=True):
            state = client.remote_status()
            assert (place.files(), state.state) == (expected, "current")
            named.append([(entry.number, entry.host, entry.reason) for entry in state.unusable])
            assert state.unusable_entries == (reason is not None)
            for made in client.log(limit=9).transactions:
                client.show(made.seq)
            client.blame("b.txt")
            assert client.check().ok
        assert named[0] == named[1]
        assert [number for number, _, _ in named[0]] == [2] * (reason is not None)
        assert all(reason in text for _, _, text in named[0]) if reason else True
        taken = count(other)
        places[1].stop()
        with places[1].start() as again:
            assert count(again) == taken
            exchange(one, again)
            assert again.remote_status().unusable == one.remote_status().unusable
        assert "entry 2 of" in places[0].editctl("remote", "status").stdout if reason else True


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


def test_an_entry_behind_an_unusable_one_does_not_bring_its_files(tmp_path: Path) -> None:
    """A host that joins later has the same files, and the same entry for each line."""
    with hosts(tmp_path, 3, FILES, join=False) as (places, (one, other, late), server):
        other.remote_join(str(server))
        log = HostileLog(server)
        link = log.object("blob", b"a\0b")
        log.add({b"b.txt": (b"100644", log.object("blob", b"evil\n"))}, 'Actor: "\\u0000"\n')
        log.add({b"link": (b"120000", link)})
        log.add({b"link": None})
        exchange(one, other)
        assert [entry.number for entry in one.remote_status().unusable] == [1, 2]
        assert places[0].files()["b.txt"] == b"evil\n", "the third entry, which is right, still has it"
        assert "link" not in places[0].files()
        other.apply([write("a.txt", "A\n")])
        exchange(one, other)
        late.remote_join(str(server))
        exchange(one, other, late)
        assert late.remote_status().unusable == one.remote_status().unusable
        assert places[2].files() == places[1].files() == places[0].files()
        assert [line.number for line in late.blame("a.txt").lines] == [
            line.number for line in one.blame("a.txt").lines
        ]
        assert one.diff("@0", "@2").files == [], "unusable entries change nothing"


def test_a_transaction_is_not_twice_in_a_log(tmp_path: Path) -> None:
    with hosts(tmp_path, 2, FILES) as (places, (one, other), server):
        made = one.apply([write("a.txt", "once\n")]).transaction
        assert made is not None
        exchange(one, other)
        log = HostileLog(server)
        log.add({b"a.txt": (b"100644", log.object("blob", b"twice\n"))}, f"Origin: {made.id}\n")
        other.apply([write("b.txt", "behind\n")])
        exchange(one, other)
        assert [entry.reason for entry in one.remote_status().unusable] == [
            "its transaction is entry 1 already"
        ]
        assert [place.files()["a.txt"] for place in places] == [b"once\n"] * 2


@pytest.mark.parametrize(
    "lines", ["Undoes: 1\n", "Undoes: 1\nUndoes: 2\n", "Undoes: 1 b.txt\nUndoes: 2 b.txt\n"]
)
def test_a_transaction_that_an_entry_undoes_twice_is_in_the_history_once(tmp_path: Path, lines: str) -> None:
    with hosts(tmp_path, 2, FILES) as (_, (one, other), server):
        made = one.apply([write("b.txt", "before\n")]).transaction
        assert made is not None
        exchange(one, other)
        log = HostileLog(server)
        changes = {b"b.txt": (b"100644", log.object("blob", b"b\n"))}
        log.add(changes, f"Kind: undo\n{lines}" + f"Undone: {made.id}\n" * 2)
        exchange(one, other)
        assert [client.log(limit=1).transactions[0].undoes for client in (one, other)] == [[1], [2]]
        assert [client.check().problems for client in (one, other)] == [[], []]


def test_the_umask_holds_for_what_arrives(tmp_path: Path) -> None:
    with hosts(tmp_path, 1, FILES) as (places, (one,), server):
        log = HostileLog(server)
        log.add({b"new": (b"100644", log.object("blob", b"new\n"))}, "Permissions: 7666 new\n")
        exchange(one)
        assert (places[0].root / "new").stat().st_mode & 0o7777 == 0o644


@pytest.mark.parametrize(
    ("mode", "name"), [(0o104755, "100755"), (0o100664, "100644"), (0o160000, "100644"), (0o120000, "120000")]
)
def test_a_history_that_has_odd_modes_is_shown_with_gits(mode: int, name: str) -> None:
    """An earlier version has taken them out of a log."""
    assert mode_of(FileState(b"", mode)) == name  # type: ignore[arg-type]
