"""`claim` through the real socket: changes that an agent tells of only afterwards are its session's."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from msgspec import UNSET

from editd.wire.messages import Write
from editd_client.errors import EditdError
from support.crash_checks import packer, wait_until
from support.workplace import replace, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from editd.wire.messages import Transaction
    from editd_client.client import Client
    from support.workplace import Workplace

TEXT = "one\ntwo\nthree\n"
NAME = "aider-1"


@pytest.fixture
def client(place: Workplace) -> Iterator[Client]:
    """Without a session; transaction 0 is the baseline."""
    place.write({"a.txt": TEXT, "b.txt": TEXT})
    with place.start() as made:
        made.hello("aider")
        made.settle()
        yield made
    place.stop()


def ago(seconds: float) -> str:
    return (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat()


def claim(client: Client, *paths: str, session: str = NAME, seconds: float = 30.0) -> list[int]:
    return client.claim(paths or ["a.txt"], ago(seconds), "aider: edit", session=session).transactions


def written(place: Workplace, client: Client, **files: str) -> int:
    """Write files as another program does, and return the transaction that records it."""
    place.write({f"{name}.txt": text for name, text in files.items()})
    client.settle()
    return client.log(limit=1).transactions[0].seq


def refused(ask: Callable[[], object]) -> str:
    with pytest.raises(EditdError) as raised:
        ask()
    return raised.value.name


def found(client: Client, seq: int) -> Transaction:
    return client.show(seq).transaction


def test_a_claimed_change_is_the_session_s_in_the_log_the_blame_a_rollback_and_a_commit(
    place: Workplace, client: Client
) -> None:
    place.git("init", "-q", "-b", "main")
    place.git("config", "user.name", "Ann")
    place.git("config", "user.email", "ann@example.org")
    place.git("add", ".")
    place.git("commit", "-q", "-m", "Begin")
    seq = written(place, client, a=TEXT.replace("two", "2"))
    before = found(client, seq)
    assert (before.kind, before.session) == ("outside", None)
    assert claim(client) == [seq]
    made = found(client, seq)
    assert (made.kind, made.actor, made.session, made.by) == ("exec", "aider", NAME, "path")
    assert made.id == before.id, "the history is not rewritten"
    record = client.log(limit=1).transactions[0]
    assert (record.kind, record.session, record.message) == ("claim", NAME, "aider: edit")
    assert (record.claims, record.files, made.claimed_by) == ([seq], [], record.seq)
    assert [one.seq for one in client.log(session=NAME, kind="exec").transactions] == [seq]
    assert client.log(kind="outside", after=seq - 1).transactions == []
    assert [line.session for line in client.blame("a.txt").lines] == [None, NAME, None]
    written(place, client, b="somebody's\n")
    commit = client.publish("By aider", session=NAME)
    assert [file.path for file in commit.files] == ["a.txt"]
    client.rollback(NAME, include_published=True)
    assert place.files()["a.txt"] == TEXT.encode()
    assert place.files()["b.txt"] == b"somebody's\n"
    assert client.check().ok


def test_a_change_that_was_not_noticed_yet_is_claimed_too_and_a_retry_has_the_same_answer(
    place: Workplace, client: Client
) -> None:
    place.write({"a.txt": "x\n"})
    seqs = claim(client)
    assert len(seqs) == 1
    assert claim(client) == seqs
    assert [one.kind for one in client.log(after=0).transactions] == ["claim", "exec"]
    assert claim(client, session="another") == [], "it is somebody's now"


def test_a_change_that_is_somebody_s_or_of_other_files_or_older_is_not_claimed(
    place: Workplace, client: Client
) -> None:
    client.apply([replace("a.txt", "one", "1")])
    both = written(place, client, a="x\n", b="x\n")
    assert claim(client) == [], "it is of another file as well"
    assert claim(client, "a.txt", "b.txt", seconds=-1.0) == []
    command = client.exec_begin("make", session="maker").exec
    place.write({"a.txt": "made\n"})
    client.exec_end(command, 0)
    assert claim(client, "a.txt", "b.txt") == [both]
    assert [one.session for one in client.log(path="a.txt", limit=3).transactions] == ["maker", NAME, None]


def test_a_change_with_several_candidates_is_not_claimed(place: Workplace, client: Client) -> None:
    with place.client() as another:
        commands = [
            one.exec_begin("make", session=name).exec for one, name in ((client, "1"), (another, "2"))
        ]
        place.write({"a.txt": "made\n"})
        for one, command in zip((client, another), commands, strict=True):
            one.exec_end(command, 0)
    made = client.log(limit=1).transactions[0]
    assert (made.kind, made.candidates) == ("outside", ["1", "2"])
    assert claim(client, session="1") == []


def test_what_was_claimed_is_known_to_the_session(place: Workplace, client: Client) -> None:
    written(place, client, a="x\n")
    claim(client)
    with place.client() as own:
        own.hello("aider", NAME)
        own.apply([Write(path="a.txt", content="y\n")])
        assert place.files()["a.txt"] == b"y\n"
        place.write({"a.txt": "somebody's\n"})
        assert refused(lambda: own.apply([Write(path="a.txt", content="z\n")])) == "stale"


def test_a_claim_needs_a_session_a_command_paths_and_a_recent_time(place: Workplace, client: Client) -> None:
    written(place, client, a="x\n")
    ask = client.claim
    for request in (
        lambda: ask(["a.txt"], ago(1), "edit"),
        lambda: ask([], ago(1), "edit", session=NAME),
        lambda: ask(["a.txt"], ago(1), "", session=NAME),
        lambda: ask(["a.txt"], ago(61), "edit", session=NAME),
        lambda: ask(["a.txt"], "yesterday", "edit", session=NAME),
    ):
        assert refused(request) == "invalid_params"
    assert refused(lambda: ask(["../a.txt"], ago(1), "edit", session=NAME)) == "path_outside"
    with place.client() as owner:
        owner.session_open("open")
        assert refused(lambda: ask(["a.txt"], ago(1), "edit", session="open")) == "unknown_session"
    assert client.log(kind="claim").transactions == []


def test_a_claim_cannot_be_undone_but_the_claimed_can(place: Workplace, client: Client) -> None:
    seq = written(place, client, a="x\n")
    claim(client)
    assert refused(lambda: client.undo(seq + 1)) == "nothing_to_undo"
    client.undo(seq)
    assert place.files()["a.txt"] == TEXT.encode()


@pytest.mark.parametrize("ending", ["stop", "kill", "rebuild"])
def test_a_claim_outlives_the_daemon_and_its_index(place: Workplace, client: Client, ending: str) -> None:
    seq = written(place, client, a="x\n")
    claim(client)
    client.apply([write("c.txt", "c\n")])
    place.kill() if ending == "kill" else place.stop()
    if ending == "rebuild":
        for name in ("index.db", "index.db-wal", "index.db-shm"):
            (place.state / name).unlink(missing_ok=True)
    with place.start() as again:
        made = found(again, seq)
        assert (made.kind, made.actor, made.session, made.claimed_by) == ("exec", "aider", NAME, seq + 1)
        assert found(again, seq + 1).claims == [seq]
        assert found(again, seq + 2).claimed_by is UNSET
        assert again.check().ok


def test_claims_are_rebuilt_from_the_index_by_a_repair(place: Workplace, client: Client) -> None:
    """The index has the claimed change as the session's, and its commit has it as nobody's."""
    written(place, client, b="y\n")
    packing = packer(place)
    wait_until(lambda: client.status().journal["unpacked"] == 0, "the first change is not packed")
    os.kill(
        packing, signal.SIGSTOP
    )  # what is packed already needs no index, and a `settle` would wait for it
    seq = client.status().head + 1
    place.write({"a.txt": "x\n"})
    wait_until(lambda: client.status().head == seq, "the second change is not recorded")
    claim(client)
    commit = found(client, seq).id
    place.kill()
    os.kill(packing, signal.SIGKILL)
    for segment in (place.state / "journal").glob("*.segment"):
        segment.unlink()
    with place.start() as damaged:
        repaired = damaged.check(repair=True)
        assert repaired.lost == []
        assert {f"Transaction {number} is rebuilt from the index." for number in (seq, seq + 1)} <= {
            *repaired.repaired
        }
    assert place.process is not None
    assert place.process.wait(30) == 0
    with place.start() as again:
        assert (found(again, seq).id, found(again, seq).session) == (commit, NAME)
        assert again.check().ok


def test_the_index_of_an_editd_without_claims_is_taken_over(place: Workplace, client: Client) -> None:
    seq = written(place, client, a="x\n")
    place.stop()
    with contextlib.closing(sqlite3.connect(place.state / "index.db")) as database, database:
        database.execute("drop index tx_by_turn")
        for column in ("claims", "claimed_by", "arrival", "turn", "model"):
            database.execute(f"alter table tx drop column {column}")
        database.execute("drop table landed")
        database.execute("drop table set_back")
        database.execute("pragma user_version = 7")
    with place.start() as again:
        assert found(again, seq).kind == "outside"
        again.hello("aider")
        assert claim(again) == [seq]
        assert found(again, seq).session == NAME
    assert not (place.state / "damaged").exists()
