"""exec brackets through the real socket: what a command changes is its session's, where that can be known."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from editd_client.errors import EditdError
from workplace import replace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd_client.client import Client
    from workplace import Workplace

TEXT = "one\ntwo\nand\nmore\nthree\n"


@pytest.fixture
def client(place: Workplace) -> Iterator[Client]:
    """Of the session `agent`."""
    place.write({"a.txt": TEXT, "b.txt": TEXT})
    with place.start() as made:
        made.settle()
        made.session_open("agent", actor="claude")
        yield made
    place.stop()


@pytest.fixture
def other(place: Workplace, client: Client) -> Iterator[Client]:
    with place.client() as made:
        made.session_open("other", actor="codex")
        yield made


def log(client: Client) -> list[tuple[str, str | None, str]]:
    """Kind, session and message of each transaction, the oldest first."""
    made = client.log(after=0).transactions
    return [(one.kind, one.session, one.message) for one in reversed(made)]


def test_what_a_command_changes_is_the_sessions_and_one_transaction(place: Workplace, client: Client) -> None:
    place.write({"a.txt": "before\n"})
    name = client.exec_begin("make all").exec
    place.write({"a.txt": "made\n", "out/c.txt": "made\n"})
    (place.root / "b.txt").unlink()
    made = client.exec_end(name, 2).transaction
    assert made is not None
    assert (made.kind, made.session, made.actor) == ("exec", "agent", "claude")
    assert made.message == "make all (exit status 2)"
    assert {(file.path, file.change) for file in made.files} == {
        ("a.txt", "modified"), ("b.txt", "deleted"), ("out/c.txt", "added"),
    }  # fmt: skip
    assert [kind for kind, _, _ in log(client)] == ["outside", "exec"]
    assert client.status().watcher["state"] != "paused"
    place.write({"a.txt": "after\n"})
    client.settle()
    assert log(client)[-1][0] == "outside"
    undone = client.undo(made.seq, on_conflict="force").transaction
    assert undone is not None
    assert place.files()["b.txt"] == TEXT.encode()
    assert "out/c.txt" not in place.files()


def test_a_command_that_changes_nothing_is_no_transaction(client: Client) -> None:
    assert client.exec_end(client.exec_begin("true").exec, 0).transaction is None
    assert log(client) == []


def test_a_rollback_takes_back_edits_and_commands(place: Workplace, client: Client, other: Client) -> None:
    client.apply([replace("a.txt", "one", "1")])
    name = client.exec_begin("sed").exec
    place.write({"b.txt": TEXT.replace("two", "2")})
    client.exec_end(name, 0)
    other.apply([replace("b.txt", "three", "3")], on_stale="merge")
    client.rollback("agent")
    assert place.files() == {"a.txt": TEXT.encode(), "b.txt": TEXT.replace("three", "3").encode()}


def test_edits_through_the_daemon_during_a_command_are_their_authors(
    place: Workplace, client: Client, other: Client
) -> None:
    name = client.exec_begin("make").exec
    place.write({"a.txt": TEXT.replace("two", "2")})
    other.apply([replace("a.txt", "three", "3"), replace("b.txt", "one", "1")])
    place.write({"b.txt": TEXT})
    assert client.exec_end(name, 0).transaction is not None
    assert log(client) == [
        ("exec", "agent", "make (still running)"),
        ("edit", "other", ""),
        ("exec", "agent", "make (exit status 0)"),
    ]


def test_where_commands_of_several_sessions_overlap_nobody_is_said_to_have_done_it(
    place: Workplace, client: Client, other: Client
) -> None:
    first = client.exec_begin("make").exec
    place.write({"a.txt": "surely the first's\n"})
    second = other.exec_begin("npm install").exec
    place.write({"b.txt": "anybody's\n"})
    made = client.exec_end(first, 0).transaction
    assert made is not None
    assert (made.kind, made.session, made.actor) == ("outside", None, "outside")
    assert "session 'agent', session 'other'" in made.message
    assert "make (exit status 0)" in made.message
    assert "npm install (still running)" in made.message
    place.write({"b.txt": "surely the second's\n"})
    other.exec_end(second, 1)
    assert [(kind, session) for kind, session, _ in log(client)] == [
        ("exec", "agent"), ("outside", None), ("exec", "other"),
    ]  # fmt: skip


def test_two_commands_of_one_session_are_both_its_own(place: Workplace, client: Client) -> None:
    first, second = client.exec_begin("one").exec, client.exec_begin("two").exec
    place.write({"a.txt": "x\n"})
    client.exec_end(second, 0)
    client.exec_end(first, 0)
    assert log(client) == [("exec", "agent", "one (still running)\ntwo (exit status 0)")]


def test_a_bracket_ends_with_its_connection(place: Workplace, client: Client) -> None:
    with place.client() as gone:
        gone.hello("kim")
        gone.exec_begin("vi a.txt")
        place.write({"a.txt": "x\n"})
    until = time.monotonic() + 20
    while not log(client) and time.monotonic() < until:
        time.sleep(0.02)
    assert log(client) == [("exec", None, "vi a.txt (its end is not known)")]
    assert client.log().transactions[0].actor == "kim"
    place.write({"a.txt": "y\n"})
    client.settle()
    assert log(client)[-1][0] == "outside"


def test_only_the_connection_that_began_a_bracket_ends_it(client: Client, other: Client) -> None:
    name = client.exec_begin("make").exec
    with pytest.raises(EditdError) as refused:
        other.exec_end(name, 0)
    assert refused.value.name == "invalid_params"
    client.exec_end(name, 0)
    with pytest.raises(EditdError) as refused:
        client.exec_end(name, 0)
    assert refused.value.name == "invalid_params"
    for command in ("", "x" * 10_001):
        with pytest.raises(EditdError) as refused:
            client.exec_begin(command)
        assert refused.value.name == "invalid_params"
