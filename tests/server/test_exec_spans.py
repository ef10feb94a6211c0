"""exec brackets through the real socket: what a command changes is its session's, where that can be known."""

from __future__ import annotations

import contextlib
import re
import sqlite3
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

import pytest
from msgspec import UNSET

from editd.engine.ended_keys import KEYS_MAX, EndedKeys
from editd.store.session_store import ReadVersionStore
from editd.wire.messages import MadeText, Scope, SeenFile, Write
from editd_client.errors import EditdError
from support.crash_checks import wait_until
from support.reviewers import author_of
from support.workplace import replace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from editd.wire.messages import SessionEntry
    from editd_client.client import Client
    from support.workplace import Workplace

TEXT = "one\ntwo\nand\nmore\nthree\n"
NEW_COLUMNS = (
    "attribution",
    "claims",
    "claimed_by",
    "arrival",
    "turn",
    "model",
)  # of the index, since its version 6


@pytest.fixture
def client(place: Workplace) -> Iterator[Client]:
    """Of the session `agent`."""
    with author_of(place, {"a.txt": TEXT, "b.txt": TEXT}) as made:
        yield made


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


def test_no_secret_in_the_text_of_a_command_gets_into_the_history(place: Workplace, client: Client) -> None:
    secret = "hunter2-of-the-database"
    began = client.exec_begin(f"PGPASSWORD={secret} psql -f dump.sql").exec
    assert secret not in str(client.session_list(activity=True))
    place.write({"a.txt": "dumped\n"})
    made = client.exec_end(began, 0).transaction
    assert made is not None
    assert made.message == "PGPASSWORD=[secret] psql -f dump.sql (exit status 0)"
    since = client.show(made.seq).transaction.time
    place.write({"b.txt": "claimed\n"})
    client.settle()
    client.claim(["b.txt"], since, f"curl -u me:{secret} https://example.org")
    place.editctl("exec", "--", "sh", "-c", f"echo > c.txt; : --password {secret}")
    with contextlib.suppress(EditdError):
        client.exec_begin(f"echo TOKEN={secret}", paths=["../outside"])
    assert secret not in str(client.log().transactions) + str(client.log_refusals())
    place.stop()
    kept = [one.read_bytes() for one in place.state.rglob("*") if one.is_file()]
    assert not [content for content in kept if secret.encode() in content]


EDIT_MADE = [MadeText(path="a.txt", new="TWO", old="two")]


def asked_edit(client: Client) -> None:
    client.exec_begin("Edit a.txt", paths=["a.txt"], key="k")
    client.exec_ask(key="k")


@pytest.mark.parametrize("has_key", [True, False])
def test_what_a_person_saves_while_the_agent_asks_is_the_persons(
    place: Workplace, client: Client, has_key: bool
) -> None:
    client.exec_begin("Edit a.txt", paths=["a.txt"], key="k")
    client.exec_ask(key="k" if has_key else None)
    place.write({"a.txt": TEXT + "my own\n"})
    client.settle()
    client.exec_end(every=True, status=0)  # the answer was no: only the turn ends
    place.write({"a.txt": TEXT + "my own\nand more\n"})
    client.settle()
    assert [(kind, session) for kind, session, _ in log(client)] == [("outside", None)] * 2
    with pytest.raises(EditdError, match="othing"):
        client.rollback("agent")
    assert place.files()["a.txt"].decode().endswith("and more\n")


def test_an_approved_edit_is_the_agents_by_its_own_texts_alone(place: Workplace, client: Client) -> None:
    asked_edit(client)
    mine = TEXT + "my own\n"
    place.write({"a.txt": mine})
    client.settle()
    place.write({"a.txt": mine.replace("two", "TWO")})  # the tool
    made = client.exec_end(key="k", status=0, made=EDIT_MADE).transaction
    assert made is not None
    assert (made.kind, made.session, made.by) == ("exec", "agent", "path")
    client.rollback("agent")
    assert place.files()["a.txt"].decode() == mine


def test_an_asked_edit_that_fits_nothing_stays_outside_and_is_counted_and_told(
    place: Workplace, client: Client
) -> None:
    asked_edit(client)
    place.write({"a.txt": TEXT.replace("two", "TWO") + "mine\n"})  # both at once
    ended = client.exec_end(key="k", status=0, made=EDIT_MADE)
    assert ended.transactions == []
    assert "recorded as outside: Edit a.txt" in ended.warnings[0]
    assert [kind for kind, _, _ in log(client)] == ["outside"]
    assert client.status().agents[0].missed == 1
    assert "1 call missed" in place.editctl("status").stdout


def test_an_asked_edit_that_was_made_through_editd_is_not_counted(client: Client) -> None:
    asked_edit(client)
    client.apply([replace("a.txt", "two", "TWO")])
    assert client.exec_end(key="k", status=0, made=EDIT_MADE).warnings == []
    assert client.status().agents[0].missed == 0


def test_what_an_approved_command_changed_is_in_doubt_and_left_out_of_a_rollback(
    place: Workplace, client: Client
) -> None:
    client.exec_begin("make", key="k")
    assert client.status().watcher["state"] == "paused"
    client.exec_ask(key="k")
    place.write({"b.txt": "mine\n"})
    client.settle()
    place.write({"a.txt": "made\n"})
    made = client.exec_end(key="k", status=0)
    assert client.status().watcher["state"] != "paused"
    assert len(made.transactions) == 2
    assert made.transaction is not None
    assert (made.transaction.session, made.transaction.by) == ("agent", "time")
    assert made.transaction.candidates == ["agent"]
    assert "in doubt" in place.editctl("show", str(made.transaction.seq)).stdout
    with pytest.raises(EditdError, match="while the agent asked"):
        client.rollback("agent")
    assert place.files()["b.txt"] == b"mine\n"
    client.rollback("agent", include_by_time=True)
    assert place.files()["a.txt"].decode() == TEXT


def test_a_question_outlives_a_killed_daemon(place: Workplace, client: Client) -> None:
    asked_edit(client)
    place.kill()
    with place.start() as again:
        again.settle()
        place.write({"a.txt": "mine\n"})
        again.settle()
        assert [kind for kind, _, _ in log(again)] == ["outside"]


def test_an_asked_bracket_keeps_nobody_waiting(client: Client, other: Client) -> None:
    asked_edit(client)
    assert other.exec_begin("Edit", paths=["a.txt"], key="other").waited == 0


def test_a_missed_beginning_is_repaired_from_the_end(place: Workplace, client: Client) -> None:
    place.write({"a.txt": TEXT.replace("two", "TWO")})
    client.settle()
    ended = client.exec_end(key="never", status=0, command="Edit a.txt", made=EDIT_MADE, seen=True)
    assert ended.transaction is not None
    assert (ended.transaction.session, ended.transaction.by) == ("agent", "path")
    assert log(client)[-1] == ("claim", "agent", "Edit a.txt")
    assert ended.warnings == []
    assert client.status().agents[0].missed == 0


def test_a_missed_beginning_that_cannot_be_repaired_is_counted_and_told(
    place: Workplace, client: Client
) -> None:
    place.write({"b.txt": "made\n"})
    ended = client.exec_end(key="never", status=0, command="make --token=hunter2x")
    assert ended.transactions == []
    (warning,) = ended.warnings
    assert "did not reach editd in time" in warning
    assert "hunter2x" not in warning
    assert client.status().agents[0].missed == 1
    assert "1 call missed" in place.editctl("status").stdout


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


# Spans with a key: an agent's hooks, each of which is a process and a connection of its own.


def until(is_true: Callable[[], object], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)


def made_by(place: Workplace) -> list[tuple[str, str | None, list[str], object]]:
    """Kind, session, files and evidence of each transaction, the oldest first."""
    with place.client() as fresh:
        return [
            (one.kind, one.session, [file.path for file in one.files], one.by)
            for one in reversed(fresh.log(after=0).transactions)
        ]


def refused(ask: Callable[[], object]) -> EditdError:
    with pytest.raises(EditdError) as raised:
        ask()
    return raised.value


def begin(place: Workplace, session: str, path: str, **more: object) -> float:
    """What a hook does before an edit. Return the seconds that it waited."""
    with place.client() as hook:
        hook.hello("hook")
        asked = {"session": session, "paths": [path], "key": f"{session}:{path}", **more}
        return hook.exec_begin(f"edit {path}", **asked).waited  # type: ignore[arg-type]


def end(place: Workplace, session: str, path: str, *, seen: bool = True) -> list[int]:
    with place.client() as hook:
        ended = hook.exec_end(key=f"{session}:{path}", session=session, status=0, seen=seen)
        assert (ended.transaction is None) == (not ended.transactions)
        return ended.transactions


def is_let_in_by(begin: Callable[[], float], end: Callable[[], object]) -> bool:
    """Return whether `begin`, which waits, is answered after `end` only.

    However late the machine lets either of them run: no time is compared but their order.
    """
    answered, waited = threading.Event(), list[float]()

    def run() -> None:
        waited.append(begin())
        answered.set()

    thread = threading.Thread(target=run)
    thread.start()
    has_waited = not answered.wait(0.3)
    end()
    thread.join()
    return has_waited and bool(waited)


def test_an_edit_between_two_hooks_is_the_sessions_by_its_path(place: Workplace, client: Client) -> None:
    place.write({"a.txt": "before\n"})
    command = client.exec_begin("make").exec
    begin(place, "codex-1", "a.txt")
    place.write({"a.txt": "edited\n", "b.txt": "made\n"})
    assert end(place, "codex-1", "a.txt") == [2]
    assert client.exec_end(command, 0).transactions == [3]
    assert made_by(place) == [
        ("outside", None, ["a.txt"], UNSET),
        ("exec", "codex-1", ["a.txt"], "path"),
        ("exec", "agent", ["b.txt"], "time"),
    ]
    made = client.log(session="codex-1").transactions[0]
    assert (made.message, made.actor) == ("edit a.txt", "hook")
    assert end(place, "codex-1", "a.txt") == []  # the end may come twice
    assert client.check().ok


def test_a_whole_write_is_refused_if_the_session_has_not_seen_the_file_as_it_is(
    place: Workplace, client: Client
) -> None:
    client.seen([SeenFile(path="a.txt")], session="gemini")
    begin(place, "gemini", "a.txt", whole=["a.txt"])
    place.write({"a.txt": "its own\n"})
    end(place, "gemini", "a.txt")
    begin(place, "gemini", "a.txt", whole=["a.txt"])  # its own write is known to it
    place.write({"a.txt": "its own 2\n"})
    client.settle()
    place.write({"a.txt": "somebody's\n"})
    client.apply([replace("a.txt", "somebody", "nobody", guard="text")])
    end(place, "gemini", "a.txt")
    stale = refused(lambda: begin(place, "gemini", "a.txt", whole=["a.txt"]))
    assert stale.name == "stale"
    assert "+nobody's" in stale.data["diff"]
    assert stale.data["changed_by"][-1]["session"] == "agent"
    begin(place, "gemini", "a.txt")  # a tool that searches its text guards itself
    end(place, "gemini", "a.txt")
    client.seen([SeenFile(path="a.txt", start_line=1, end_line=1)], session="gemini")
    begin(place, "gemini", "a.txt", whole=["a.txt"])
    begin(place, "gemini", "new.txt", whole=["new.txt"])


def test_a_version_that_was_seen_may_be_an_older_one(place: Workplace, client: Client) -> None:
    version = client.stat(["a.txt"]).files[0].version
    assert version is not None
    place.write({"a.txt": "newer\n"})
    client.seen([SeenFile(path="a.txt", version=version)], session="codex")
    assert refused(lambda: begin(place, "codex", "a.txt", whole=["a.txt"])).name == "stale"
    client.seen([SeenFile(path="b.txt")], session="codex")
    (place.root / "b.txt").unlink()
    gone = refused(lambda: begin(place, "codex", "b.txt", whole=["b.txt"]))
    assert (gone.name, gone.data["current"]) == ("stale", None), "a tool would make it again"


def test_leases_and_the_scope_hold_for_an_agents_own_tools(
    place: Workplace, client: Client, other: Client
) -> None:
    client.lease_acquire(["a.txt"], 60.0)
    assert refused(lambda: begin(place, "codex", "a.txt")).name == "leased"
    with place.client() as narrow:
        narrow.session_open("narrow", scope=Scope(write=["b.*"]), unread="reject")
        ask = narrow.exec_begin
        assert refused(lambda: ask("e", paths=["a.txt"], key="1")).name == "permission_denied"
        assert refused(lambda: ask("e", paths=["b.txt"], whole=["b.txt"], key="1")).name == "unread"
        ask("e", paths=["b.txt"], key="1")
        assert refused(lambda: other.exec_end(key="1", session="narrow")).name == "unknown_session"
    assert [entry.activity.running for entry in listed(client, "narrow")] == [["e"]]  # type: ignore[union-attr]


def test_a_session_that_must_read_first_makes_new_files_with_its_own_tools(
    place: Workplace, client: Client
) -> None:
    with place.client() as careful:
        careful.session_open("careful", unread="reject")
        ask = careful.exec_begin
        assert refused(lambda: ask("Write", paths=["a.txt"], whole=["a.txt"], key="1")).name == "unread"
        ask("Write", paths=["new.txt"], whole=["new.txt"], key="2")
        place.write({"new.txt": "new\n"})
        made = careful.exec_end(key="2", status=0).transaction
        assert made is not None
        assert (made.session, [file.path for file in made.files]) == ("careful", ["new.txt"])


def test_a_path_that_the_configuration_protects_is_so_for_an_agents_own_tools(
    place: Workplace, client: Client
) -> None:
    config = place.folder / "config/editd/config.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text('protect = ["**/*.pem"]\n')
    assert client.config_reload().applied == ["protect"]
    (place.root / "link").symlink_to("keys/a.pem")
    for path in ("keys/a.pem", "link"):
        error = refused(lambda path=path: begin(place, "codex", path))  # type: ignore[misc]
        assert (error.name, error.data["protect"]) == ("path_protected", "**/*.pem")
    begin(place, "codex", "a.txt")


def listed(client: Client, session: str) -> list[SessionEntry]:
    return [one for one in client.session_list(activity=True).sessions if one.session == session]


def test_the_second_session_for_a_file_waits_for_the_first(place: Workplace, client: Client) -> None:
    begin(place, "one", "a.txt")
    assert begin(place, "two", "b.txt") == 0
    place.write({"a.txt": "one\n"})
    assert is_let_in_by(lambda: begin(place, "two", "a.txt", wait=60.0), lambda: end(place, "one", "a.txt"))
    place.write({"a.txt": "two\n"})
    end(place, "two", "a.txt")
    assert [session for _, session, _, _ in made_by(place)] == ["one", "two"]
    begin(place, "one", "a.txt")
    assert begin(place, "two", "a.txt") >= 2.0, "it waits so long if nothing else is said"
    place.write({"a.txt": "anybody\n"})
    end(place, "one", "a.txt")
    made = client.log().transactions[0]
    assert (made.kind, made.by, made.candidates) == ("outside", "path", ["one", "two"])


def test_commands_wait_for_each_other_if_they_are_asked_to(client: Client, other: Client) -> None:
    first = client.exec_begin("make").exec
    begun = []

    def begin_another() -> float:
        begun.append(other.exec_begin("npm test", wait=60.0))
        return begun[0].waited

    assert is_let_in_by(begin_another, lambda: client.exec_end(first, 0))
    assert other.exec_end(begun[0].exec, 0).transaction is None


def test_commands_take_turns_if_the_configuration_says_so(
    place: Workplace, client: Client, other: Client
) -> None:
    config = place.folder / "config/editd/config.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text('[agents]\nserial = "60s"\n')
    assert client.config_reload().applied == ["agents.serial"]
    first = client.exec_begin("make").exec
    assert is_let_in_by(lambda: other.exec_begin("npm test").waited, lambda: client.exec_end(first, 0))


def test_an_end_that_was_lost_comes_with_the_next_edit_or_the_end_of_the_turn(
    place: Workplace, client: Client
) -> None:
    begin(place, "codex", "a.txt", key="first")
    place.write({"a.txt": "first\n"})
    begin(place, "codex", "a.txt", key="second")
    place.write({"a.txt": "second\n"})
    begin(place, "codex", "b.txt", key="third")
    with place.client() as hook:
        assert hook.exec_end(key="first", session="codex", status=0).transaction is None
        ended = hook.exec_end(every=True, session="codex", status=0)
    assert ended.transactions == [2]
    place.write({"a.txt": "outside\n"})
    client.settle()
    assert [kind for kind, _, _, _ in made_by(place)] == ["exec", "exec", "outside"]


def test_a_bracket_ends_with_its_time_and_with_its_process(place: Workplace, client: Client) -> None:
    begin(place, "short", "a.txt", ttl=0.1)
    place.write({"a.txt": "short\n"})
    until(lambda: made_by(place) == [("exec", "short", ["a.txt"], "path")])
    with subprocess.Popen(["sleep", "60"]) as agent:
        begin(place, "mortal", "a.txt", pid=agent.pid)
        with place.client() as hook:
            hook.exec_begin("make", session="mortal", key="make", pid=agent.pid)
        place.write({"a.txt": "mortal\n", "b.txt": "mortal\n"})
        agent.kill()
    until(lambda: len(made_by(place)) == 3)
    assert {one[1] for one in made_by(place)[1:]} == {"mortal"}
    until(lambda: client.status().watcher["state"] != "paused")
    place.write({"a.txt": "outside\n"})
    client.settle()
    assert made_by(place)[-1][0] == "outside"
    bad: list[dict[str, object]] = [
        {"ttl": -1.0}, {"wait": -1.0}, {"pid": 0}, {"whole": ["b.txt"]}, {"key": ""},
    ]  # fmt: skip
    for more in bad:
        name = refused(lambda more=more: begin(place, "bad", "a.txt", **more)).name  # type: ignore[misc]
        assert name == "invalid_params", more
    begin(place, "unknown process", "b.txt", pid=2**22 + 1)


def test_a_lost_end_leaves_a_command_an_hour_and_an_edit_a_minute(place: Workplace, client: Client) -> None:
    before_us = time.time_ns() // 1000
    client.exec_begin("Edit a.txt", paths=["a.txt"], key="edit")
    client.exec_begin("make", key="command")
    client.exec_begin("Edit b.txt", paths=["b.txt"], key="own", ttl=7)
    after_us = time.time_ns() // 1000
    place.stop()
    with contextlib.closing(ReadVersionStore(str(place.state))) as store:
        ends = {span.key: span.ends_us for span in store.spans()}
    assert ends.keys() == {"edit", "command", "own"}
    for key, seconds in (("edit", 60), ("command", 3600), ("own", 7)):
        assert before_us <= ends[key] - seconds * 1_000_000 <= after_us, key


def test_a_bracket_with_a_key_outlives_a_killed_daemon(place: Workplace, client: Client) -> None:
    with subprocess.Popen(["sleep", "60"]) as agent:
        begin(place, "codex", "a.txt")
        begin(place, "mortal", "b.txt", pid=agent.pid)
        place.write({"a.txt": "before\n", "b.txt": "before\n"})
        place.kill()
        agent.kill()
    place.start().close()
    until(lambda: ("exec", "mortal", ["b.txt"], "path") in made_by(place))
    place.write({"a.txt": "after\n"})
    end(place, "codex", "a.txt")
    assert made_by(place)[-1] == ("exec", "codex", ["a.txt"], "path")
    place.write({"b.txt": "outside\n"})
    with place.client() as fresh:
        fresh.settle()
    assert made_by(place)[-1][0] == "outside"


def test_a_command_with_a_key_outlives_a_killed_daemon(place: Workplace, client: Client) -> None:
    with place.client() as hook:
        hook.exec_begin("make", session="codex", key="make")
    place.kill()
    place.write({"a.txt": "made\n"})
    with place.start() as fresh:
        assert fresh.exec_end(key="make", session="codex", status=0).transaction is not None
        assert fresh.status().watcher["state"] != "paused"
    assert made_by(place) == [("exec", "codex", ["a.txt"], "time")]


def test_status_names_the_agents_that_were_heard(place: Workplace, client: Client) -> None:
    assert client.status().agents == []
    begin(place, "codex-1", "a.txt")
    client.seen([SeenFile(path="a.txt")], session="gemini-1")
    heard = [(one.name, one.session, one.event) for one in client.status().agents]
    assert heard == [("claude", "gemini-1", "seen"), ("hook", "codex-1", "exec.begin")]


# Rollbacks of what was attributed.


def test_a_rollback_leaves_what_a_person_may_have_saved_during_a_command(
    place: Workplace, client: Client
) -> None:
    begin(place, "codex-1", "b.txt")
    place.write({"b.txt": "codex\n"})
    end(place, "codex-1", "b.txt")
    with place.unnoticed():
        place.write({"a.txt": "a person's\n", "b.txt": "codex, and a person\n"})
    client.settle()
    with place.client() as hook:
        name = hook.exec_begin("make", session="codex-1").exec
        with place.unnoticed():
            place.write({"a.txt": "a person's 2\n", "b.txt": "made\n", "c.txt": "made\n"})
        assert hook.exec_end(name, 0).transactions == [3]
    trial = client.rollback("codex-1", dry_run=True, on_conflict="skip")
    assert isinstance(trial.by_time, list)
    assert [(part.seq, part.path) for part in trial.by_time] == [(3, "b.txt"), (3, "c.txt")]
    assert "shortly before: a.txt (3)" in trial.warnings[0]
    everything = client.rollback("codex-1", dry_run=True, on_conflict="skip", include_by_time=True)
    assert [file.path for file in everything.files] == ["a.txt", "b.txt", "c.txt"]
    done = client.rollback("codex-1", on_conflict="skip")
    assert done.warnings == trial.warnings
    assert place.files()["a.txt"] == b"a person's 2\n"
    assert "c.txt" not in place.files()


def test_a_rollback_without_effect_names_what_it_leaves_alone(place: Workplace, client: Client) -> None:
    with place.client() as hook:
        name = hook.exec_begin("make", session="codex-1").exec
        place.write({"new.txt": "made\n", "made.txt": "made\n"})
        hook.exec_end(name, 0)
    place.write({"new.txt": "a person's\n"})
    client.settle()
    with place.client() as hook:
        name = hook.exec_begin("make clean", session="codex-1").exec
        (place.root / "new.txt").unlink()
        (place.root / "made.txt").unlink()
        hook.exec_end(name, 0)
    for is_trial in (True, False):
        nothing = refused(partial(client.rollback, "codex-1", dry_run=is_trial))
        assert nothing.name == "nothing_to_undo"
        assert nothing.message.startswith("Left alone, because another program wrote these files")
        assert re.search(r"new\.txt \(\d+\)\. An undo of the rest", nothing.message)
        assert nothing.hint == "Use include_by_time to take these changes back as well."


def test_a_rollback_of_nothing_but_such_changes_says_how_to_take_them(
    place: Workplace, client: Client
) -> None:
    place.write({"a.txt": "a person's\n"})
    client.settle()
    with place.client() as hook:
        name = hook.exec_begin("make", session="codex-1").exec
        place.write({"a.txt": "anybody's\n"})
        hook.exec_end(name, 0)
    nothing = refused(lambda: client.rollback("codex-1"))
    assert (nothing.name, nothing.hint) == (
        "nothing_to_undo", "Use include_by_time to take these changes back as well.",
    )  # fmt: skip
    hint = place.editctl("rollback", "codex-1").stderr
    assert "Use --include-by-time to take these changes back as well." in hint
    trial = place.editctl("rollback", "codex-1", "--include-by-time", "--dry-run").stdout
    assert place.editctl("rollback", "codex-1", "--all", "--dry-run").stdout == trial
    assert "found while a command ran" in trial
    assert " a.txt (2)" in trial
    place.editctl("rollback", "codex-1", "--include-by-time")
    assert place.files()["a.txt"] == b"a person's\n"


def test_a_rollback_takes_a_session_and_its_sub_agents_by_a_glob(place: Workplace, client: Client) -> None:
    for session, path in (("codex-1", "a.txt"), ("codex-1-sub", "b.txt"), ("codex-2", "c.txt")):
        client.apply([Write(path=path, content=f"{session}\n", force=True)], session=session)
    client.rollback("codex-1*")
    assert place.files() == {"a.txt": TEXT.encode(), "b.txt": TEXT.encode(), "c.txt": b"codex-2\n"}
    assert refused(lambda: client.rollback("none*")).name == "nothing_to_undo"


def test_the_state_of_a_daemon_without_brackets_with_keys_is_taken_over(place: Workplace) -> None:
    place.write({"a.txt": "x\n"})
    with place.start() as client:
        client.settle()
        client.session_open("kept")
        place.write({"a.txt": "y\n"})
        client.settle()
    place.stop()
    for name, statements in (
        (
            "index.db",
            (
                "drop index tx_by_turn",
                *(f"alter table tx drop column {name}" for name in NEW_COLUMNS),
                "drop table landed",
                "drop table set_back",
                "pragma user_version = 6",
            ),
        ),
        ("seen.db", ("drop table span",)),
    ):
        with contextlib.closing(sqlite3.connect(place.state / name)) as database, database:
            for statement in statements:
                database.execute(statement)
    with place.start() as client:
        assert [one.kind for one in client.log().transactions] == ["outside", "baseline"]
        assert [one.in_doubt for one in client.session_list().sessions] == [False]
        begin(place, "codex", "a.txt")
        place.write({"a.txt": "z\n"})
        assert end(place, "codex", "a.txt"), "one, or two if the watcher has met the write half done"
        assert client.check().ok
    assert not (place.state / "damaged").exists()


def test_a_bracket_of_a_connection_does_not_keep_the_daemon_from_ending(place: Workplace) -> None:
    place.write({"a": "one\n"})
    with place.start() as client:
        client.settle()
        client.exec_begin("sed")
        place.write({"a": "two\n"})
        place.stop()
    with place.start() as client:
        assert [tx.kind for tx in client.log().transactions if tx.kind != "baseline"] == ["exec"]


def late_end(client: Client, session: str | None = None) -> None:
    """End a call whose beginning has not come."""
    client.exec_end(key="k", session=session, status=0, command="Edit a.txt", made=EDIT_MADE)


def test_a_beginning_that_comes_after_its_end_opens_no_bracket(place: Workplace, client: Client) -> None:
    place.write({"a.txt": TEXT.replace("two", "TWO")})
    late_end(client)
    client.exec_begin("Edit a.txt", paths=["a.txt"], key="k")
    place.write({"a.txt": TEXT.replace("two", "TWO") + "mine\n"})
    client.settle()
    assert [(kind, session) for kind, session, _ in log(client)] == [
        ("exec", "agent"), ("claim", "agent"), ("outside", None),
    ]  # fmt: skip


def test_a_question_that_comes_after_the_end_of_its_call_is_about_no_other_bracket(
    place: Workplace, client: Client
) -> None:
    late_end(client)
    client.exec_begin("make", key="other")
    client.exec_ask(key="k")
    place.write({"b.txt": "made\n"})
    made = client.exec_end(key="other", status=0).transaction
    assert made is not None
    assert (made.kind, made.session, made.candidates) == ("exec", "agent", UNSET)


@pytest.mark.parametrize("is_turn", [True, False])
def test_a_beginning_whose_end_comes_while_it_waits_opens_no_bracket(
    place: Workplace, client: Client, *, is_turn: bool
) -> None:
    client.exec_begin("Edit a.txt", paths=["a.txt"], key="theirs")
    with place.client() as hook, place.client() as later, ThreadPoolExecutor() as pool:
        begin = partial(hook.exec_begin, session="late", paths=["a.txt"], key="k", wait=60.0)
        begun = pool.submit(begin, "Edit a.txt")
        wait_until(lambda: client.status().agents[0].session == "late", "the beginning")
        if is_turn:
            later.exec_end(every=True, session="late", status=0)
        else:
            late_end(later, "late")
        client.exec_end(key="theirs", status=0)
        begun.result()
        place.write({"a.txt": "mine\n"})
        client.settle()
    assert [(kind, session) for kind, session, _ in log(client)] == [("outside", None)]


@pytest.mark.parametrize("way", ["its own end", "a newer bracket", "the turn"])
def test_a_call_that_is_repeated_with_the_same_key_opens_its_bracket(
    place: Workplace, client: Client, way: str
) -> None:
    """An agent without names for its calls has one key for each repetition."""
    client.exec_begin("Edit a.txt", paths=["a.txt"], key="k")
    if way == "a newer bracket":
        client.exec_begin("Edit a.txt", paths=["a.txt"], key="newer")
        client.exec_end(key="newer")
    elif way == "the turn":
        client.exec_end(every=True, status=0)
    client.exec_end(key="k", status=1)
    client.exec_begin("Edit a.txt", paths=["a.txt"], key="k")
    place.write({"a.txt": "made\n"})
    assert client.exec_end(key="k", status=0).transactions == [1]


def test_a_late_beginning_is_expected_once_and_for_a_minute() -> None:
    keys, call, minute_us = EndedKeys(), ("agent", "k"), 60_000_000
    keys.end(call, 0)
    assert keys.is_late(call, minute_us)
    assert not keys.begin(call, minute_us)
    assert keys.begin(call, minute_us)
    keys.end(call, 0)
    assert keys.begin(call, minute_us + 1)
    for number in range(KEYS_MAX + 1):
        keys.end(("agent", str(number)), 0)
    assert [keys.is_late(("agent", key), 0) for key in ("0", "1")] == [False, True]
