"""Leases through the real socket: who is kept out, who waits, and when it ends."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from editd.store.session_store import Lease, SessionStore
from editd.values.glob import parse_all
from editd.wire import messages
from editd_client.errors import EditdError
from support.crash_checks import PATIENCE_SECONDS, wait_until
from support.workplace import TOP, replace, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from editd_client.client import Client
    from support.workplace import Workplace

TEXT = "one\ntwo\nthree\n"


@pytest.fixture
def client(place: Workplace) -> Iterator[Client]:
    """Of the session `holder`."""
    place.write({"a.txt": TEXT, "src/b.txt": TEXT})
    with place.start() as made:
        made.settle()
        made.session_open("holder")
        yield made
    place.stop()


@pytest.fixture
def other(place: Workplace, client: Client) -> Iterator[Client]:
    with place.client() as made:
        made.session_open("other")
        yield made


def test_while_it_holds_nobody_else_edits_however_they_try(
    place: Workplace, client: Client, other: Client
) -> None:
    other.apply([replace("src/b.txt", "one", "1")])
    other.apply([write("src/c.txt", "c\n")])
    lease = client.lease_acquire(["src/**"], 60)
    with place.client() as nobody:
        attempts: list[Callable[[], object]] = [
            lambda: other.apply([replace("src/b.txt", "two", "2")]),
            lambda: other.apply([replace("src/b.txt", "two", "2")], dry_run=True),
            lambda: other.apply([write("src/new.txt", "x")]),
            lambda: other.apply([messages.Delete(path="src/b.txt")]),
            lambda: other.apply([messages.Move(path="a.txt", to="src/a.txt")]),
            lambda: other.undo(1),
            lambda: other.rollback("other"),
            lambda: other.restore(1),
            lambda: nobody.apply([replace("src/b.txt", "two", "2")]),
            lambda: nobody.apply([replace("src/b.txt", "two", "2")], session="just a name"),
        ]
        for attempt in attempts:
            with pytest.raises(EditdError) as refused:
                attempt()
            data = refused.value.data
            assert refused.value.name == "leased"
            assert (data["holder"], data["token"], data["paths"]) == ("holder", lease.token, ["src/**"])
            assert data["expires"] == lease.expires
    client.apply([replace("src/b.txt", "two", "2")])
    other.apply([replace("a.txt", "two", "2")])
    assert other.status().leases == 1
    client.lease_release(lease.lease)
    other.read("src/b.txt")
    other.apply([replace("src/b.txt", "three", "3")])


def test_leases_exclude_each_other_where_a_path_can_be_in_both(client: Client, other: Client) -> None:
    client.lease_acquire(["src/**/*.py"], 60)
    with pytest.raises(EditdError) as refused:
        other.lease_acquire(["docs/", "src/*/test_*"], 60)
    assert refused.value.name == "leased"
    assert refused.value.data["holder"] == "holder"
    assert other.lease_acquire(["src/*.txt"], 60).token == 2
    assert client.lease_acquire(["src/a.py"], 60).token == 3  # one session's own do not


def test_a_lease_on_a_folder_keeps_others_from_making_it_a_file_or_a_symlink(
    place: Workplace, client: Client, other: Client
) -> None:
    client.lease_acquire(["new/**", "deep/er/*.py"], 60)
    attempts: list[list[Any]] = [
        [write("new", "a file\n")],
        [messages.Symlink(path="new", target="src")],
        [messages.Move(path="a.txt", to="new")],
        [write("deep", "a file\n")],
        [write("deep/er", "a file\n")],
    ]
    for edits in attempts:
        with pytest.raises(EditdError) as refused:
            other.apply(edits)
        assert refused.value.name == "leased"
        assert refused.value.data["holder"] == "holder"
    other.apply([write("deep/other", "not leased\n"), write("newer", "neither\n")])
    client.apply([write("new", "its own\n")])
    assert (place.root / "new").read_text() == "its own\n"


def test_a_file_that_another_program_puts_in_a_leased_folders_place_is_told_to_the_holder(
    place: Workplace, client: Client
) -> None:
    client.lease_acquire(["new/**"], 60)
    with place.client() as watcher:
        events = watcher.subscribe()
        place.write({"new": "a file\n"})
        event = next(event for event in events if event.event == "lease")
    assert event.data["what"] == "violated"
    assert event.data["files"] == ["new"]


def test_a_lease_stays_within_its_sessions_scope(place: Workplace) -> None:
    place.write({"src/b.txt": TEXT})
    with place.start() as client:
        client.session_open("narrow", scope=messages.Scope(write=["src/**", "docs/*.md"]))
        client.lease_acquire(["src/**/*.py", "docs/a*.md"], 60)
        for glob, path in (("**/*", "a"), ("src", "src"), ("docs/*", "docs/a"), ("README.md", "README.md")):
            for wait in (None, 5.0):
                with pytest.raises(EditdError) as refused:
                    client.lease_acquire([glob], 60, wait=wait)
                assert refused.value.name == "permission_denied"
                assert f"may not write {path}, which a lease of {glob} would cover" in refused.value.message
                assert "in its scope: src/**, docs/*.md." in refused.value.data["hint"]
    place.stop()


def test_a_lease_too_hard_to_hold_against_its_sessions_scope_is_refused(place: Workplace) -> None:
    """All that it covers lies within the scope, but to prove that takes more states than there may be."""
    scope, glob = "*a" + "?" * 18, "x*a" + "?" * 18
    with place.start() as client:
        client.session_open("narrow", scope=messages.Scope(write=[scope]))
        with pytest.raises(EditdError) as refused:
            client.lease_acquire([glob], 60)
        assert refused.value.name == "permission_denied"
        assert refused.value.data["glob"] == glob
        client.lease_acquire([scope], 60)
    place.stop()


def test_all_globs_of_a_lease_share_the_work_of_one_comparison(place: Workplace) -> None:
    """The attack: 64 globs, each with the full work of a request, took 64 times as long."""
    scope, globs = "*a" + "?" * 7, ["x*a" + "?" * 7, "y*a" + "?" * 7]
    with place.start() as client:
        client.session_open("narrow", scope=messages.Scope(write=[scope]))
        for glob in globs:
            client.lease_acquire([glob], 60)
        with pytest.raises(EditdError) as refused:
            client.lease_acquire(globs, 60)
        assert refused.value.name == "permission_denied"
        assert refused.value.data["glob"] == globs[1]
    place.stop()


def test_a_lease_of_many_long_names_stays_within_its_sessions_scope(place: Workplace) -> None:
    """Literal globs need no comparison, so that none is refused for its length."""
    with place.start() as client:
        client.session_open("narrow", scope=messages.Scope(write=["src/**", "docs/", "lib", "**/*.md"]))
        for folder in ("src", "docs", "lib"):
            client.lease_acquire([f"{folder}/{number}{'long' * 50}" for number in range(60)], 60)
    place.stop()


def test_a_daemon_with_many_leases_of_long_names_starts(place: Workplace) -> None:
    """The attack: a start compared each lease with each other, and did not end within ten seconds.

    Leases of an earlier version are kept, although together they are larger than new ones may be.
    """
    with place.start() as client:
        client.settle()
    place.stop()
    registry = SessionStore(str(place.state), time.time_ns() // 1000)
    end_us = time.time_ns() // 1000 + 3600 * 1_000_000
    for number in range(250):
        paths = parse_all([f"{number}/{place}{'long' * 58}" for place in range(64)], "A lease")
        registry.put_lease(Lease(f"{number:016x}", f"s{number}", number + 1, paths, end_us, is_of_name=True))
    registry.close(is_clean=True)
    with place.start() as client:
        assert client.status().leases == 250
        client.session_open("other")
        with pytest.raises(EditdError) as refused:
            client.lease_acquire(["249"], 60)
        assert refused.value.name == "leased"
        with pytest.raises(EditdError) as refused:
            client.lease_acquire(["free"], 60)
        assert refused.value.name == "overloaded"
    place.stop()


def test_a_lease_needs_a_session_and_ends_with_it(place: Workplace, client: Client) -> None:
    with place.client() as nobody:
        for session in (None, "holder"):
            with pytest.raises(EditdError) as refused:
                nobody.lease_acquire(["a.txt"], 5, session=session)
            assert refused.value.name == "unknown_session"
        client.lease_acquire(["a.txt"], 60)
        client.session_close()
        assert nobody.lease_list().leases == []
        nobody.apply([replace("a.txt", "two", "2")])


def test_a_name_that_nobody_opened_may_have_leases_which_outlive_a_killed_daemon(
    place: Workplace, client: Client
) -> None:
    with place.client() as hook:
        hook.hello("codex", "codex-1")
        lease = hook.lease_acquire(["a.txt"], 60)
        hook.apply([replace("a.txt", "two", "2")])
        hook.apply([replace("a.txt", "2", "two")])
    assert not _may_apply(client, "a.txt")
    place.kill()
    with place.start() as another:
        assert [(one.lease, one.session) for one in another.lease_list().leases] == [(lease.lease, "codex-1")]
        another.hello("codex", "codex-1")
        another.lease_release(lease.lease)
        assert another.lease_list().leases == []


def test_a_lease_ends_at_its_time_unless_it_is_renewed(client: Client, other: Client) -> None:
    client.lease_acquire(["a.txt"], 0.3)
    kept = client.lease_acquire(["src/"], 0.3)
    renewed = client.lease_renew(kept.lease, 60)
    assert (renewed.token, renewed.expires > kept.expires) == (kept.token, True)
    _until(lambda: _may_apply(other, "a.txt"))
    assert [one.lease for one in other.lease_list().leases] == [kept.lease]


def test_who_waits_is_answered_when_it_is_free_and_the_late_holder_is_refused(
    client: Client, other: Client
) -> None:
    first = client.lease_acquire(["a.txt"], 0.3)
    second = other.lease_acquire(["*.txt"], 60, wait=20)
    assert second.token > first.token
    with pytest.raises(EditdError) as refused:  # its lease has passed to another
        client.apply([replace("a.txt", "two", "2")])
    assert refused.value.name == "leased"
    assert (refused.value.data["holder"], refused.value.data["token"]) == ("other", second.token)
    with pytest.raises(EditdError) as refused:
        client.lease_renew(first.lease, 60)
    assert refused.value.name == "invalid_params"
    with pytest.raises(EditdError) as refused:
        client.lease_acquire(["a.txt"], 60, wait=0.1)
    assert refused.value.name == "timeout"
    with pytest.raises(EditdError) as refused:
        client.lease_release(second.lease)
    assert refused.value.name == "unknown_session"
    client.lease_release(second.lease, force=True)
    assert client.lease_list().waiting == 0


def test_those_who_wait_are_served_in_turn_and_who_leaves_is_passed_over(
    place: Workplace, client: Client
) -> None:
    held = client.lease_acquire(["a.txt"], 60)
    served: list[str] = []

    def wait(name: str) -> None:
        with place.client() as waiting:
            waiting.session_open(name)
            try:
                lease = waiting.lease_acquire(["a.txt"], 60, wait=30)
            except EditdError as refused:
                served.append(refused.name)
                return
            served.append(name)
            waiting.lease_release(lease.lease)

    threads: list[threading.Thread] = []
    for place_in_line, name in enumerate("uvwxyz", 1):
        threads.append(threading.Thread(target=wait, args=(name,)))
        threads[-1].start()
        _until_waiting(client, place_in_line)
    client.session_close("w", force=True)
    threads[2].join(10)
    assert served == ["unknown_session"]  # its session has ended
    assert client.lease_list().waiting == 5
    client.lease_release(held.lease)
    for thread in threads:
        thread.join(30)
    assert served[1:] == list("uvxyz")
    assert client.lease_list().leases == []


def test_who_hangs_up_while_it_waits_gets_no_lease(place: Workplace, client: Client, other: Client) -> None:
    held = client.lease_acquire(["a.txt"], 60)
    before = client.status().clients
    with socket.socket(socket.AF_UNIX) as gone:
        gone.connect(place.socket)
        for number, (method, params) in enumerate(
            [("session.open", {"name": "gone"}), ("lease.acquire", {"paths": ["*"], "ttl": 60, "wait": 60})]
        ):
            request = {"id": number, "method": method, "params": params}
            gone.sendall(json.dumps(request).encode() + b"\n")
        _until_waiting(client, 1)
    _until_waiting(client, 0)
    client.lease_release(held.lease)
    assert other.lease_acquire(["a.txt"], 60).token > held.token
    assert client.status().clients == before


@pytest.mark.parametrize("end", ["its time", "its connection", "its session"])
def test_a_request_behind_one_that_gives_up_is_granted_at_once(
    place: Workplace, client: Client, end: str
) -> None:
    held = client.lease_acquire(["a.txt"], 60)
    wait = 2 if end == "its time" else 60
    with socket.socket(socket.AF_UNIX) as first, place.client() as behind, ThreadPoolExecutor() as pool:
        first.connect(place.socket)
        behind.session_open("behind")
        acquire = {"paths": ["a.txt", "b.txt"], "ttl": 60, "wait": wait}
        for number, (method, params) in enumerate(
            [("session.open", {"name": "first"}), ("lease.acquire", acquire)]
        ):
            request = {"id": number, "method": method, "params": params}
            first.sendall(json.dumps(request).encode() + b"\n")
        _until_waiting(client, 1)
        # Any other request about leases would grant them, so there is none until the reply.
        reply = pool.submit(behind.lease_acquire, ["b.txt"], 60, wait=15)
        if end != "its time":
            _until_waiting(client, 2)
        if end == "its connection":
            first.close()
        elif end == "its session":
            client.session_close("first", force=True)
        assert reply.result().token > held.token
    assert held.lease in [lease.lease for lease in client.lease_list().leases], "it would be free anyway"


def test_a_lease_and_its_token_outlive_a_killed_daemon(place: Workplace, client: Client) -> None:
    with place.client() as other:
        token = other.session_open("other").token
        first = other.lease_acquire(["src/"], 60)
        short = other.lease_acquire(["a.txt"], 0.05)
    place.kill()
    with place.start() as again:
        assert [one.lease for one in again.lease_list().leases] == [first.lease]
        with pytest.raises(EditdError) as refused:
            again.apply([replace("src/b.txt", "two", "2")])
        assert refused.value.name == "leased"
        again.hello(session="other", token=token)
        again.read("src/b.txt")
        again.apply([replace("src/b.txt", "two", "2")])
        assert again.lease_acquire(["a.txt"], 60).token > short.token


def test_the_holder_hears_of_what_is_written_beside_the_daemon(
    place: Workplace, client: Client, other: Client
) -> None:
    lease = client.lease_acquire(["src/"], 60)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.settimeout(20)
        listener.connect(place.socket)
        lines = listener.makefile()
        listener.sendall(b'{"id": 1, "method": "subscribe", "params": {"events": ["lease", "session"]}}\n')
        assert "result" in json.loads(lines.readline())
        place.write({"src/b.txt": "outside\n", "a.txt": "outside\n"})
        other.settle()
        client.lease_renew(lease.lease, 30)
        client.lease_release(lease.lease)
        client.session_close()
        heard = [json.loads(lines.readline())["params"] for _ in range(4)]
    assert [(one.get("what"), one.get("session")) for one in heard] == [
        (what, "holder") for what in ("violated", "renewed", "released", "closed")
    ]
    assert heard[0]["files"] == ["src/b.txt"]
    made = other.show(heard[0]["seq"]).transaction
    assert (made.kind, place.files()["src/b.txt"]) == ("outside", b"outside\n")


def _until_waiting(client: Client, number: int) -> None:
    _until(lambda: client.lease_list().waiting == number)


def _may_apply(client: Client, path: str) -> bool:
    try:
        client.apply([replace(path, "two", "2")])
    except EditdError as refused:
        if refused.name != "leased":
            raise
        return False
    return True


def _until(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_nothing_begins_for_a_connection_that_is_gone(place: Workplace) -> None:
    """Its request waits for the baseline, and the connection ends before that is taken."""
    gate = place.folder / "gate"
    os.mkfifo(gate)
    place.launcher = (sys.executable, str(TOP / "tests/support/held_scan_daemon.py"), str(gate))
    with place.start() as client:
        assert client.status().state == "scanning"
        with socket.socket(socket.AF_UNIX) as gone:
            gone.settimeout(PATIENCE_SECONDS)
            gone.connect(place.socket)
            gone.sendall(
                b'{"id": 1, "method": "session.open", "params": {"name": "s"}}\n'
                b'{"id": 2, "method": "status", "params": {}}\n'
            )
            assert gone.recv(1 << 16, socket.MSG_PEEK), "both were read; what is not read back resets it"
        wait_until(lambda: client.status().clients == 1, "the connection is not gone")
        assert client.status().state == "scanning"
        gate.write_bytes(b"")
        client.settle()
        assert client.session_list().sessions == []
