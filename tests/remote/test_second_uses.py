"""Second uses of the exchange: another log, a compacted history, what was refused, and a busy file."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import UNSET

from editd.errors import Stale
from editd.remote import push_selection
from editd.remote.exchange_worker import Worker
from editd.remote.replica import _to_send
from editd.server.shared_log import HOLD_AFTER, SharedLog
from editd.values.transaction import Arrival, Authorship, CommitId
from support.hosts import bare_repository, exchange, hosts, name_host, until
from support.log_checker import log_of
from support.workplace import replace, write

if TYPE_CHECKING:
    from pathlib import Path

    from editd.wire.messages import Replace
    from editd_client.client import Client
    from support.workplace import Workplace

LINES = "".join(f"line {number}\n" for number in range(1, 10))
FILES = {"a.txt": LINES, ".env": "secret\n", "private/key.txt": "mine\n"}
REFUSING = """#!/bin/sh
read old new ref
git log -p $old..$new | grep -q "a password" || exit 0
echo no passwords here >&2; exit 1
"""


def seq_of(client: Client, path: str, text: str) -> int:
    made = client.apply([write(path, text)]).transaction
    assert made is not None
    return made.seq


def on_text(old: str, new: str) -> Replace:
    """Return an edit that only its old text guards, whatever its connection has read."""
    return replace("a.txt", old, new, guard="text")


def test_a_host_that_leaves_and_begins_another_log_has_landed_nothing_in_it(tmp_path: Path) -> None:
    with hosts(tmp_path, 1, FILES) as (_, (one,), _):
        first = [seq_of(one, "b.txt", text) for text in ("1\n", "2\n", "3\n")]
        exchange(one)
        assert [one.show(seq).transaction.number for seq in first] == [1, 2, 3]
        one.remote_leave()
        assert [one.show(seq).transaction.number for seq in first] == [UNSET] * 3
        server = bare_repository(tmp_path / "another.git")
        one.remote_init(str(server))
        made = seq_of(one, "c.txt", "1\n")
        landed = one.remote_land(made, timeout=20)
        assert (landed.number, landed.outcome) == (1, "applied")
        assert [one.show(seq).transaction.number for seq in (*first, made)] == [UNSET] * 3 + [1]
        assert [entry.origin for entry in log_of(server)[1:]] == [one.show(made).transaction.id]


def test_the_lines_of_a_host_that_leaves_and_joins_keep_their_authors(tmp_path: Path) -> None:
    with hosts(tmp_path, 2, {"a.txt": "one\ntwo\nthree\n"}) as (_, (one, other), server):
        one.session_open("first", actor="ann")
        one.apply([replace("a.txt", "one\n", "ONE\n")])
        exchange(one, other)
        other.session_open("second", actor="bob")
        other.read("a.txt")
        other.apply([replace("a.txt", "three\n", "THREE\n")])
        exchange(one, other)
        before = [(line.actor, line.session, line.number) for line in one.blame("a.txt").lines]
        assert [(actor, number) for actor, _, number in before][::2] == [("ann", 1), ("bob", 2)]
        made = [(shown.actor, shown.session) for shown in other.log(limit=2).transactions]
        other.remote_leave()
        other.remote_join(str(server))
        exchange(one, other)
        assert [(line.actor, line.number) for line in other.blame("a.txt").lines] == [
            (actor, number) for actor, _, number in before
        ]
        assert [(shown.actor, shown.session) for shown in other.log(limit=2).transactions] == made


def test_a_dry_run_of_init_counts_only_the_files_that_it_would_send(tmp_path: Path) -> None:
    with hosts(tmp_path, 1, FILES) as (places, (one,), _):
        one.remote_leave()
        name_host(places[0], "host0", 'exclude = ["private/"]\n')
        one.config_reload()
        server = bare_repository(tmp_path / "another.git")
        counted = one.remote_init(str(server), dry_run=True)
        assert (counted.files, counted.bytes, counted.state) == (1, len(LINES), "none")
        assert not list((server / "refs/heads").iterdir()), "nothing is sent"
        one.remote_init(str(server))
        assert [entry.name for entry in log_of(server)[0].commit.tree] == ["a.txt"]


def test_a_transaction_that_is_set_aside_proposes_no_path_that_the_host_excludes(tmp_path: Path) -> None:
    with hosts(tmp_path, 3, {"a.txt": LINES}, join=False) as (places, clients, server):
        name_host(places[2], "host2", 'exclude = ["private/"]\n')
        clients[2].config_reload()
        for client in clients[1:]:
            client.remote_join(str(server))
        one, other, third = clients
        other.remote_pause()
        one.apply([replace("a.txt", "line 5\n", "five\n")])
        exchange(one)
        other.apply([replace("a.txt", "line 5\n", "FIVE\n"), write("private/key.txt", "theirs\n")])
        other.remote_resume()
        exchange(one, other, third)
        until(lambda: all(client.proposal_list().proposals for client in clients), "it is not proposed")
        (paths, _, left) = [sorted(client.proposal_list().proposals[0].paths) for client in clients]
        assert (paths, left) == (["a.txt", "private/key.txt"], ["a.txt"])
        assert third.proposal_list().proposals[0].rule == "set aside"


def test_an_exchange_goes_on_after_the_history_was_compacted_beside_it(tmp_path: Path) -> None:
    with hosts(tmp_path, 2, {"a.txt": LINES}) as (places, (one, other), _):
        for number in range(1, 6):
            one.apply([on_text(f"line {number}\n", f"{number}\n")])
        exchange(one, other)
        name_host(places[0], "host0", "[history.keep]\ncount = 1\n")
        one.config_reload()
        assert one.gc().oldest > 0, "it is not compacted"
        one.apply([on_text("line 6\n", "6\n")])
        other.apply([on_text("line 9\n", "9\n")])
        exchange(one, other)
        assert places[0].files() == places[1].files()
        one.close()
        places[0].stop()
        with places[0].start() as again:  # it reads its history back to the joining, which is gone
            other.apply([write("b.txt", "b\n")])
            again.apply([on_text("line 7\n", "7\n")])
            states = exchange(again, other)
            assert [(state.state, state.error) for state in states] == [("current", None)] * 2
        assert places[0].files() == places[1].files()
        assert places[0].files()["a.txt"] == b"1\n2\n3\n4\n5\n6\n7\nline 8\n9\n"


# ── time ──


class Rounds:
    """The exchange of a host whose daemon has ended, in this process: with a clock of the test's own."""

    def __init__(self, place: Workplace, head: str, *, may_land: bool = True) -> None:
        self._worker = Worker(str(place.state), str(place.runtime))
        self._asked = json.loads((place.state / "remote.json").read_text()) | {
            "do": "round", "head": head, "may_land": may_land, "retry": False, "proposed": [], "settled": [],
            "listed": 0,
        }  # fmt: skip

    def state(self) -> tuple[str, int]:
        """Exchange as long as a round pushes, or asks for the next. Return the state, and what waits."""
        for _ in range(20):
            answer = self._worker.answer(dict(self._asked))
            if answer["push"] is None and not answer["again"]:
                return answer["state"], answer["tentative"]
        raise AssertionError("the exchange comes to no end")

    def queue(self) -> None:
        """Put what waits into this host's queue, as a host does that another one has overtaken."""
        self.state()
        assert self._worker._exchange is not None
        self._worker._exchange._help()


def test_a_transaction_that_was_kept_back_is_offered_again_after_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    with hosts(tmp_path, 1, {"a.txt": LINES}) as (places, (one,), server):
        hook = server / "hooks/pre-receive"
        hook.write_text(REFUSING)
        hook.chmod(0o755)
        one.remote_pause()
        seq_of(one, "b.txt", "a password\n")
        head = one.show(seq_of(one, "c.txt", "c\n")).transaction.id
        one.close()
        places[0].stop()
        monkeypatch.setattr(push_selection, "time", SimpleNamespace(monotonic=lambda: now))
        rounds = Rounds(places[0], head)
        waits = ("refused", 1)
        assert rounds.state() == waits
        assert len(log_of(server)) == 2, "the other one has landed"
        hook.unlink()
        now += 59
        assert rounds.state() == waits, "the server is not asked each time"
        now += 2
        assert rounds.state() == ("current", 0)
        assert len(log_of(server)) == 3


def test_what_is_kept_back_of_another_hosts_queue_holds_up_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hosts(tmp_path, 2, {"a.txt": LINES}) as (places, clients, server):
        heads = []
        for place, client, text in zip(places, clients, ("mine\n", "a password\n"), strict=True):
            client.remote_pause()
            heads.append(client.show(seq_of(client, f"{place.folder.name}.txt", text)).transaction.id)
            client.close()
            place.stop()
        monkeypatch.setattr(push_selection, "time", SimpleNamespace(monotonic=lambda: 1000.0))
        Rounds(places[1], heads[1], may_land=False).queue()
        hook = server / "hooks/pre-receive"
        hook.write_text(REFUSING)
        hook.chmod(0o755)
        assert Rounds(places[0], heads[0]).state() == ("refused", 0)
        assert [entry.origin for entry in log_of(server)[1:]] == [heads[0]]


def test_a_transaction_of_another_host_is_sent_again_with_its_authors_own_session() -> None:
    """A host that repairs the log lands the work of all."""
    arrival = Arrival(3, "host0", CommitId("1" * 40), 5)
    sent = _to_send(Authorship("ann", "types@host0", "words", arrival=arrival))
    assert sent == Authorship("ann", "types", "words")
    own = Authorship("ann", "types@host0", "words")
    assert _to_send(own) == own, "a session of this host may have such a name"


@pytest.mark.parametrize(("is_busy", "held"), [(True, []), (False, [["busy.txt", 7]])])
def test_a_file_that_is_edited_all_the_time_is_not_held(
    tmp_path: Path, is_busy: bool, held: list[list[object]]
) -> None:
    """Each arrival is stale, because a client has edited the file since it was planned."""
    history = SimpleNamespace(head=7)
    engine: Any = SimpleNamespace(history=history, unshared=None)
    nothing: Any = None
    shared_log = SharedLog(engine, nothing, nothing, str(tmp_path), tell=lambda _event, _body: None)
    place = tmp_path / "remote.json"
    place.write_text(json.dumps({"exclude": [], "excluded": [], "paused": True, "url": "/nowhere"}))
    asyncio.run(started(shared_log))
    for _ in range(10 * HOLD_AFTER):
        stale = Stale("busy.txt", "1" * 40, "2" * 40)
        if shared_log._hold(stale, {"changes": [["busy.txt", None, None, None, None]]}):
            break
        history.head += is_busy
    assert json.loads(place.read_text()).get("held", []) == held


@pytest.mark.parametrize(("state", "is_due"), [("refused", True), ("current", False), ("offline", False)])
def test_to_exchange_now_does_not_wait_for_the_time_after_a_refusal(
    tmp_path: Path, state: str, is_due: bool
) -> None:
    """A rate of pushes goes on to hold: only the pause after a refusal ends."""
    engine: Any = SimpleNamespace(history=SimpleNamespace(head=7), stays_here=None, unshared=None)
    nothing: Any = None
    shared_log = SharedLog(engine, nothing, nothing, str(tmp_path), tell=lambda _event, _body: None)
    shared_log._set_member({"exclude": [], "excluded": [], "paused": True, "url": "x", "ref": "", "host": ""})
    shared_log._answer = {"state": state, "error": None, "tentative": 1}
    shared_log._may_push_at = 1e9
    asyncio.run(shared_log.now(0))
    assert (shared_log._may_push_at == 0) == is_due


async def started(shared_log: SharedLog) -> None:
    shared_log.start()
    await shared_log.close()
