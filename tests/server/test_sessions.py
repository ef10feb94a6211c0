"""Sessions through the real socket: tokens, scopes, what each has seen, and what outlives the daemon."""

from __future__ import annotations

import json
import socket
import sqlite3
import time
from typing import TYPE_CHECKING

import pytest

from editd.wire import messages
from editd_client.errors import EditdError
from support.shared_daemon import renewed, shared_workplace
from support.workplace import replace, workplace, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from editd_client.client import Client
    from support.workplace import Workplace

TEXT = "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\nten\n"


FILES = {"a.txt": TEXT, "src/b.txt": TEXT, "docs/c.txt": TEXT}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workplace]:
    with shared_workplace(tmp_path_factory.mktemp("sessions")) as made:
        yield made


@pytest.fixture
def alone() -> None:
    """Give a test a daemon that it may end, and a history without the sessions of other tests."""


@pytest.fixture
def place(shared: Workplace, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Workplace]:
    if "alone" not in request.fixturenames:
        yield renewed(shared, FILES)
        return
    with workplace(tmp_path / "place", FILES) as made:
        made.start().close()
        yield made
        made.stop()


@pytest.fixture
def client(place: Workplace) -> Iterator[Client]:
    with place.client() as made:
        made.settle()
        yield made


def refusal(refused: pytest.ExceptionInfo[EditdError]) -> str:
    return refused.value.name


# ── names and tokens ──


def test_only_who_has_the_token_acts_in_an_open_sessions_name(place: Workplace, client: Client) -> None:
    opened = client.session_open("agent", actor="claude")
    made = client.apply([replace("a.txt", "two", "2")]).transaction
    assert made is not None
    assert (made.session, made.actor) == ("agent", "claude")
    with place.client() as other:
        for attempt in (
            lambda: other.apply([replace("a.txt", "one", "1")], session="agent"),
            lambda: other.read("a.txt", session="agent"),
            lambda: other.begin(session="agent"),
            lambda: other.redo(session="agent"),
            lambda: other.lease_acquire(["a.txt"], 5, session="agent"),
            lambda: other.exec_begin("make", session="agent"),
            lambda: other.hello(session="agent"),
            lambda: other.hello(session="agent", token=opened.token + "x"),
            lambda: other.session_close("agent"),
        ):
            with pytest.raises(EditdError) as refused:
                attempt()
            assert refusal(refused) == "unknown_session"
        other.hello(session="agent", token=opened.token)
        again = other.apply([replace("a.txt", "three", "3")]).transaction
        assert again is not None
        assert (again.session, again.actor) == ("agent", "claude")


def test_a_name_that_nobody_opened_is_just_a_name(place: Workplace, client: Client) -> None:
    client.hello(session="anybody")
    assert client.apply([replace("a.txt", "two", "2")]).transaction is not None
    with place.client() as other:
        other.session_open("anybody")
    with pytest.raises(EditdError) as refused:
        client.apply([replace("a.txt", "one", "1")])
    assert refusal(refused) == "unknown_session"
    with pytest.raises(EditdError) as refused:
        client.hello(session="nobody", token="made up")
    assert refusal(refused) == "unknown_session"


@pytest.mark.usefixtures("alone")
def test_a_person_undoes_what_a_session_did_in_their_own_name(place: Workplace, client: Client) -> None:
    client.session_open("agent", actor="claude")
    client.apply([replace("a.txt", "two", "2")])
    with place.client() as person:
        person.hello("kim")
        undone = person.undo(session="agent").transaction
    assert undone is not None
    assert (undone.actor, undone.session, undone.undoes) == ("kim", None, [1])
    assert (place.root / "a.txt").read_text() == TEXT


def test_a_changeset_of_a_name_that_is_opened_meanwhile_is_not_committed(
    place: Workplace, client: Client
) -> None:
    changeset = client.begin(session="agent").changeset
    client.stage(changeset, [replace("a.txt", "two", "2")])
    with place.client() as other:
        other.session_open("agent")
    with pytest.raises(EditdError) as refused:
        client.commit(changeset)
    assert refusal(refused) == "unknown_session"
    assert place.files()["a.txt"] == TEXT.encode()


def test_sessions_are_counted_listed_and_closed(place: Workplace, client: Client) -> None:
    client.session_open("agent", actor="claude", scope=messages.Scope(write=["src/"]), on_stale="merge")
    with pytest.raises(EditdError) as refused:
        client.session_open("agent")
    assert refusal(refused) == "invalid_params"
    listed = client.session_list().sessions
    assert [(one.session, one.actor, one.connections) for one in listed] == [("agent", "claude", 1)]
    assert (listed[0].scope.write, listed[0].scope.read, listed[0].on_stale) == (["src/"], None, "merge")
    assert (listed[0].in_doubt, listed[0].ttl) == (False, 7 * 86400)
    with place.client() as other:
        assert other.status().sessions == 1
        other.session_close("agent", force=True)
        assert other.status().sessions == 0
    assert client.apply([replace("a.txt", "two", "2")]).transaction is not None  # a name again


@pytest.mark.parametrize(
    "wrong", [{"name": ""}, {"name": "x" * 1001}, {"name": "caf\udce9"}, {"name": "x", "ttl": 0.0}]
)
def test_what_makes_no_session_is_refused(client: Client, wrong: dict[str, object]) -> None:
    with pytest.raises(EditdError) as refused:
        client.session_open(**wrong)  # type: ignore[arg-type]
    assert refusal(refused) == "invalid_params"
    assert client.status().sessions == 0


def test_a_session_ends_when_nobody_has_used_it_for_its_time(place: Workplace, client: Client) -> None:
    with place.client() as other:
        other.session_open("short", ttl=0.2)
        other.session_open("connected", ttl=0.2)
        other.session_open("long", ttl=60)
        with place.client() as third:
            third.session_open("kept", ttl=0.2)
    third = place.client()
    third.session_open("held", ttl=0.2)
    until = time.monotonic() + 20
    while len(client.session_list().sessions) > 2 and time.monotonic() < until:
        time.sleep(0.05)
    assert [one.session for one in client.session_list().sessions] == ["long", "held"]
    third.close()


# ── scopes ──


def test_a_scope_confines_what_is_written_however_it_is_asked_for(place: Workplace, client: Client) -> None:
    first = seq_of(client.apply([replace("docs/c.txt", "two", "2")]))
    client.session_open("agent", scope=messages.Scope(write=["src/**/*.txt"]))
    second = seq_of(client.apply([replace("src/b.txt", "two", "2")]))
    (place.root / "src/link.txt").symlink_to("../a.txt")
    before = place.files()
    patch = "--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n-one\n+1\n two\n"
    for edit in (
        replace("a.txt", "two", "2"),
        write("src/new.py", "x"),
        messages.Delete(path="docs/c.txt"),
        messages.Move(path="src/b.txt", to="b.txt"),
        messages.Move(path="a.txt", to="src/a.txt"),
        messages.Chmod(path="a.txt", executable=True),
        messages.Patch(patch=patch),
        replace("src/link.txt", "two", "2"),
    ):
        for is_dry in (True, False):
            with pytest.raises(EditdError) as refused:
                client.apply([write("src/fine.txt", "x"), edit], dry_run=is_dry)
            assert refusal(refused) == "permission_denied"
            assert "src/**/*.txt" in refused.value.message
    changeset = client.begin().changeset
    attempts: tuple[Callable[[], object], ...] = (
        lambda: client.stage(changeset, [replace("a.txt", "two", "2")]),
        lambda: client.undo(first),
        lambda: client.restore("0"),
    )
    for attempt in attempts:
        with pytest.raises(EditdError) as refused:
            attempt()
        assert refusal(refused) == "permission_denied"
    assert place.files() == before
    assert client.undo(second).transaction is not None


def test_what_a_session_may_not_read_it_may_not_edit_either(place: Workplace, client: Client) -> None:
    client.session_open("agent", scope=messages.Scope(read=["src/"]))
    assert client.read("src/b.txt").content == TEXT
    (place.root / "src/link").symlink_to("../a.txt")
    changeset = client.begin().changeset
    for attempt in (
        lambda: client.read("a.txt"),
        lambda: client.read("src/link"),
        lambda: client.read("a.txt", changeset=changeset),
        lambda: client.apply([replace("a.txt", "two", "2")]),
        lambda: client.apply([replace("a.txt", "no such text", "2")]),
    ):
        with pytest.raises(EditdError) as refused:
            attempt()
        assert refusal(refused) == "permission_denied"
        assert "three" not in str(refused.value.data)
    assert client.apply([replace("src/b.txt", "two", "2")]).transaction is not None


def test_the_view_of_a_folder_lists_only_names_in_the_read_scope_and_folders_on_the_way(
    place: Workplace, client: Client
) -> None:
    for path in ("src/deep/seen.py", "src/deep/secret.txt", "src/secret.txt", "other/x.py", "od[d]/sub/y.py"):
        (place.root / path).parent.mkdir(parents=True, exist_ok=True)
        (place.root / path).write_text("x\n")
    client.session_open("agent", scope=messages.Scope(read=["src/**/*.py", "od[[]d]/sub/"]))

    def view(path: str) -> list[str]:
        tool = "str_replace_based_edit_tool"
        call = messages.Tool(dialect="claude", tool=tool, args={"command": "view", "path": path})
        answers = client.apply([call]).answers
        assert isinstance(answers, list)
        answer = answers[0]
        assert answer is not None
        return [line.removeprefix(f"{place.root}/") for line in answer.splitlines()[2:]]

    assert view(str(place.root)) == ["od[d]/", "od[d]/sub/", "src/", "src/deep/"]
    assert view(f"{place.root}/src") == ["src/deep/", "src/deep/seen.py"]
    assert view(f"{place.root}/other") == []


def test_read_follows_a_symlink_and_at_a_transaction_shows_its_target(
    place: Workplace, client: Client
) -> None:
    link = client.apply([messages.Symlink(path="link", target="a.txt")])
    assert link.transaction is not None
    now, then = client.read("link"), client.read("link", at=link.transaction.seq)
    assert (now.path, now.kind, now.content) == ("link", "file", client.read("a.txt").content)
    assert (then.path, then.kind, then.content) == ("link", "symlink", "a.txt")


# ── reading first ──


def test_a_session_that_must_read_first_is_told_so(place: Workplace, client: Client) -> None:
    client.session_open("agent", unread="reject")
    with pytest.raises(EditdError) as refused:
        client.apply([replace("a.txt", "two", "2")])
    assert refusal(refused) == "unread"
    assert "has not read a.txt" in refused.value.message
    version = client.stat(["src/b.txt"]).files[0].version
    client.apply([replace("src/b.txt", "two", "2", base=version)])
    client.apply([replace("src/b.txt", "three", "3")])  # it knows what it made
    client.apply([write("new.txt", "x\n", force=False)])
    client.apply([replace("new.txt", "x", "y")])
    client.read("a.txt")
    client.apply([replace("a.txt", "two", "2")])
    assert client.undo().transaction is not None
    with place.client() as other:
        other.apply([replace("docs/c.txt", "two", "2")])  # only that session


def test_each_file_of_an_edit_must_be_read_also_behind_one_that_need_not(
    place: Workplace, client: Client
) -> None:
    client.session_open("agent", unread="reject")
    version = client.stat(["a.txt"]).files[0].version
    for free in (write("a-new.txt", "x\n", force=False), replace("a.txt", "two", "2", base=version)):
        before = place.files()
        with pytest.raises(EditdError) as refused:
            client.apply([free, replace("src/b.txt", "two", "2")])
        assert refusal(refused) == "unread"
        assert "has not read src/b.txt" in refused.value.message
        assert place.files() == before


def test_a_base_is_as_good_as_having_read_the_file_wherever_it_was_given(
    place: Workplace, client: Client
) -> None:
    (place.root / "link").symlink_to("a.txt")
    client.session_open("agent", unread="reject")
    version = client.stat(["a.txt"]).files[0].version
    client.apply([replace("link", "two", "2", base=version)])
    version = client.stat(["src/b.txt"]).files[0].version
    args = {"relative_path": "src/b.txt", "needle": "two", "repl": "2", "mode": "literal"}
    call = messages.Tool(dialect="serena", tool="replace_content", args=args)
    with pytest.raises(EditdError) as refused:
        client.apply([call])
    assert refusal(refused) == "unread"
    based = messages.Tool(dialect="serena", tool="replace_content", args=args, base=version)
    client.apply([based])


# ── staleness ──


def test_a_formatters_rewrite_makes_the_next_edit_stale_and_says_what_changed(
    place: Workplace, client: Client
) -> None:
    client.session_open("agent")
    client.read("a.txt")
    client.apply([replace("a.txt", "two", "2")])
    formatted = (place.root / "a.txt").read_text().replace("nine", "NINE")
    (place.root / "a.txt").write_text(formatted)
    with pytest.raises(EditdError) as refused:
        client.apply([replace("a.txt", "one", "1")])
    data = refused.value.data
    assert refusal(refused) == "stale"
    assert "-nine\n+NINE\n" in data["diff"]
    assert [made["kind"] for made in data["changed_by"]] == ["outside"]
    client.read("a.txt")
    client.apply([replace("a.txt", "one", "1")])


def test_with_merge_as_its_default_only_an_overlap_stands_in_the_way(
    place: Workplace, client: Client
) -> None:
    client.session_open("agent", on_stale="merge")
    client.read("a.txt")
    client.apply([replace("a.txt", "two", "2")])
    (place.root / "a.txt").write_text((place.root / "a.txt").read_text().replace("nine", "NINE"))
    assert client.apply([replace("a.txt", "one", "1")]).merged == ["a.txt"]
    assert (place.root / "a.txt").read_text() == TEXT.replace("one\ntwo", "1\n2").replace("nine", "NINE")
    (place.root / "a.txt").write_text((place.root / "a.txt").read_text().replace("ten", "TEN"))
    with pytest.raises(EditdError) as refused:
        client.apply([replace("a.txt", "ten", "10")])
    assert refusal(refused) == "conflict"
    with pytest.raises(EditdError) as refused:
        client.apply([replace("a.txt", "five", "5")], on_stale="reject")  # what is said goes before
    assert refusal(refused) == "stale"
    changeset = client.begin().changeset
    client.stage(changeset, [write("docs/new.txt", "x")])
    assert client.commit(changeset).transaction is not None


def test_a_session_does_not_make_itself_stale_however_fast_it_asks(place: Workplace, client: Client) -> None:
    client.session_open("agent", unread="reject")
    asked = [
        {"op": "write", "path": "new.txt", "content": "one two three\n", "base": None},
        *({"op": "replace", "path": "new.txt", "old": word, "new": word.upper()} for word in ("one", "two")),
    ]
    requests = [
        {"id": 0, "method": "session.open", "params": {"name": "fast", "unread": "reject"}},
        {"id": 1, "method": "read", "params": {"path": "a.txt"}},
        *(
            {"id": 2 + place_in_line, "method": "apply", "params": {"edits": [edit]}}
            for place_in_line, edit in enumerate([*asked, *_louder("a.txt", "one", "two", "three")])
        ),
    ]
    with socket.socket(socket.AF_UNIX) as stream:
        stream.settimeout(20)
        stream.connect(place.socket)
        stream.sendall(b"".join(json.dumps(request).encode() + b"\n" for request in requests))
        answers = stream.makefile()
        assert [line for line in (answers.readline() for _ in requests) if '"error"' in line] == []
    assert place.files()["new.txt"] == b"ONE TWO three\n"
    assert place.files()["a.txt"].startswith(b"ONE\nTWO\nTHREE\n")


# ── a restart ──


@pytest.mark.usefixtures("alone")
def test_sessions_and_what_they_have_seen_outlive_the_daemon(place: Workplace, client: Client) -> None:
    token = client.session_open("agent", actor="claude", unread="reject").token
    client.read("a.txt")
    client.read("src/b.txt", start_line=1, end_line=2)
    client.close()
    place.stop()
    place.write({"a.txt": TEXT.replace("ten", "TEN")})
    with place.start() as again:
        again.hello(session="agent", token=token)
        assert [(one.session, one.in_doubt) for one in again.session_list().sessions] == [("agent", False)]
        with pytest.raises(EditdError) as refused:
            again.apply([replace("a.txt", "two", "2")])
        assert refusal(refused) == "stale"
        assert again.apply([replace("src/b.txt", "two", "2")]).transaction is not None
        with pytest.raises(EditdError) as refused:
            again.apply([replace("docs/c.txt", "two", "2")])
        assert refusal(refused) == "unread"


@pytest.mark.usefixtures("alone")
def test_what_a_killed_daemon_may_have_forgotten_has_to_be_read_again(
    place: Workplace, client: Client
) -> None:
    token = client.session_open("agent").token
    client.read("docs/c.txt")
    seen = place.state / "seen.db"
    until = time.monotonic() + 10
    while not _has_seen(seen, b"docs/c.txt") and time.monotonic() < until:
        time.sleep(0.05)
    client.read("a.txt")  # less than a second before the end
    place.kill()
    place.write({"a.txt": TEXT.replace("two", "two of somebody else"), "docs/c.txt": TEXT + "eleven\n"})
    with place.start() as again:
        again.hello(session="agent", token=token)
        assert again.session_list().sessions[0].in_doubt
        with pytest.raises(EditdError) as refused:
            again.apply([replace("a.txt", "two", "2")])
        assert refusal(refused) in ("unread", "stale")
        with pytest.raises(EditdError) as refused:
            again.apply([replace("docs/c.txt", "two", "2")])
        assert refusal(refused) == "stale"
        with pytest.raises(EditdError) as refused:
            again.apply([replace("src/b.txt", "two", "2")])
        assert refusal(refused) == "unread"
        assert "killed" in refused.value.message
        for path in ("a.txt", "docs/c.txt", "src/b.txt"):
            again.read(path)
            again.apply([replace(path, "three", "3")])


@pytest.mark.usefixtures("alone")
def test_a_replace_that_its_text_guards_needs_no_new_read_after_a_crash(
    place: Workplace, client: Client
) -> None:
    token = client.session_open("agent").token
    strict = client.session_open("strict", unread="reject").token
    client.close()
    place.kill()
    with place.start() as again:
        again.hello(session="agent", token=token)
        assert again.session_list().sessions[0].in_doubt
        again.apply([replace("a.txt", "two", "2", guard="text")])
        diff = "------- SEARCH\nfour\n=======\n4\n+++++++ REPLACE\n"
        args = {"path": "docs/c.txt", "diff": diff}
        again.apply([messages.Tool(dialect="cline", tool="replace_in_file", args=args)])
        with pytest.raises(EditdError) as refused:
            again.apply([replace("src/b.txt", "two", "2", guard="text"), write("src/b.txt", "other\n")])
        assert refusal(refused) == "unread"
        again.hello(session="strict", token=strict)
        with pytest.raises(EditdError) as refused:
            again.apply([replace("docs/c.txt", "two", "2", guard="text")])
        assert refusal(refused) == "unread"


@pytest.mark.usefixtures("alone")
def test_a_damaged_registry_is_put_aside_and_tokens_still_rise(place: Workplace, client: Client) -> None:
    client.session_open("agent")
    first = client.lease_acquire(["src/"], 60).token
    client.close()
    place.stop()
    for name in ("sessions.db", "seen.db"):
        (place.state / name).write_bytes(b"not a database" * 1000)
    with place.start() as again:
        assert again.session_list().sessions == []
        again.session_open("agent")
        assert again.lease_acquire(["src/"], 60).token > first
        assert again.check().ok


def test_nobody_else_may_read_what_is_kept_of_sessions(place: Workplace, client: Client) -> None:
    token = client.session_open("agent").token
    for name in ("sessions.db", "seen.db"):
        kept = place.state / name
        assert kept.stat().st_mode & 0o777 == 0o600
        assert token.encode() not in kept.read_bytes()


def _louder(path: str, *words: str) -> list[dict[str, str]]:
    return [{"op": "replace", "path": path, "old": word, "new": word.upper()} for word in words]


def _has_seen(path: object, name: bytes) -> bool:
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as database:
        return bool(database.execute("select 1 from sight where path = ?", (name,)).fetchall())


# ── sessions of their own ──


@pytest.mark.usefixtures("alone")
def test_a_fresh_session_has_a_name_that_no_session_ever_had(client: Client, place: Workplace) -> None:
    first = client.session_open("agent", fresh=True)
    client.apply([replace("a.txt", "one", "1")])
    client.session_close()
    with place.client() as second, place.client() as third:
        second.session_open("agent", fresh=True)
        assert second.apply([replace("a.txt", "two", "2")]).transaction.session == "agent-2"  # type: ignore[union-attr]
        assert third.session_open("agent", fresh=True).session == "agent-3"
    assert first.session == "agent"


def test_a_fresh_name_is_found_among_many(client: Client) -> None:
    for number in range(2, 20):
        client.apply([write(f"n/{number}", "x")], session="s" if number == 2 else f"s-{number - 1}")
    found = client.session_open("s", fresh=True).session
    assert found.startswith("s-")
    assert not client.log(session=found).transactions


def seq_of(result: messages.ApplyResult) -> int:
    assert result.transaction is not None
    return result.transaction.seq


def test_an_undo_of_ones_own_only_is_refused_for_what_another_session_did(
    client: Client, place: Workplace
) -> None:
    client.session_open("mine")
    mine = seq_of(client.apply([replace("a.txt", "one", "1")]))
    with place.client() as other:
        theirs = seq_of(other.apply([replace("a.txt", "nine", "9")], session="theirs", actor="bob"))
        other.apply([replace("a.txt", "1", "uno")], session="theirs", actor="bob")
    undoing: list[Callable[[], object]] = [
        lambda: client.undo(theirs, own_only=True),
        lambda: client.undo(theirs, own_only=True, dry_run=True),
        lambda: client.rollback("theirs", own_only=True),
        lambda: client.undo(mine, own_only=True, on_conflict="force"),
    ]
    for undo in undoing:
        with pytest.raises(EditdError) as refused:
            undo()
        assert refusal(refused) == "permission_denied"
        assert "session 'theirs'" in refused.value.message
    with pytest.raises(EditdError) as refused:
        client.undo(mine, own_only=True)
    assert refusal(refused) == "conflict"
    client.undo(theirs)
    with place.client() as nobody, pytest.raises(EditdError) as refused:
        nobody.undo(mine, own_only=True)
    assert refusal(refused) == "invalid_params"


def test_an_undo_of_ones_own_only_may_be_forced_over_ones_own_later_change(client: Client) -> None:
    client.session_open("mine")
    first = seq_of(client.apply([replace("a.txt", "one", "1")]))
    client.apply([replace("a.txt", "1", "uno")])
    client.undo(first, own_only=True, on_conflict="force")
    assert client.read("a.txt").content == TEXT


def test_an_undo_of_ones_own_only_is_not_forced_over_a_change_that_nobody_recorded(
    client: Client, place: Workplace
) -> None:
    client.session_open("mine")
    first = seq_of(client.apply([replace("a.txt", "one", "1")]))
    place.write({"a.txt": TEXT.replace("one", "uno")})
    with pytest.raises(EditdError) as refused:
        client.undo(first, own_only=True, on_conflict="force")
    assert refusal(refused) == "permission_denied"
