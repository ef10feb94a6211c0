"""The agents' rows on a real daemon: what each session does, and the order."""

from __future__ import annotations

import threading
import time
from datetime import datetime
from typing import TYPE_CHECKING

import pytest

from editd_client.review.agents import Agents, totals
from support.reviewers import set_pin
from support.workplace import write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd_client.client import Client
    from support.workplace import Workplace


@pytest.fixture
def author(place: Workplace) -> Iterator[Client]:
    set_pin(place)
    with place.start() as made:
        made.settle()
        yield made
    place.stop()


def fetched(client: Client, agents: Agents | None = None) -> Agents:
    agents = agents or Agents()
    agents.receive(*(client.ask(one) for one in agents.requests()))  # type: ignore[arg-type]
    return agents


def test_each_session_says_what_it_does_and_the_one_that_waits_comes_first(
    place: Workplace, author: Client
) -> None:
    author.session_open("writer", actor="claude")
    author.apply([write("a", "1\n2\n")], message="Add a")
    place.write({"c": "outside\n"})
    author.settle()
    author.exec_begin("npm test", ttl=60)
    with place.client() as second, place.client() as waiting:
        second.session_open("careful", actor="codex", propose="always")
        made = second.apply([write("b", "1\n")], message="Add b")
        assert made.transaction is None
        asking = threading.Thread(target=lambda: waiting.proposal_wait(1, timeout=5))
        agents = fetched(author)
        assert [(row.name, row.doing) for row in agents.rows] == [
            ("careful", "connected"), ("writer", "command"), ("outside", "outside"),
        ]  # fmt: skip
        careful, writer, outside = agents.rows
        assert (careful.proposals, careful.edits, careful.needs_reviewer) == ((1,), 0, True)
        assert (writer.what, writer.edits, writer.added, writer.deleted) == ("npm test", 1, 2, 0)
        assert writer.last_seq == 1
        assert (outside.edits, outside.last_seq) == (1, 2)
        assert totals(agents.rows) == (2, 1)
        asking.start()
        until = time.monotonic() + 5
        while (row := fetched(author).rows[0]).doing != "review":
            assert time.monotonic() < until, "it never waits"
        created = author.proposal_get(1).created
        assert (row.what, row.since) == ("P1", datetime.fromisoformat(created))
        assert writer.since is not None
        assert writer.since.isoformat() < created
        author.hello("ann")
        author.proposal_comment(1, "wait")
        second.proposal_withdraw(1)
        asking.join()
    assert not any(row.needs_reviewer for row in fetched(author).rows)


def test_a_session_that_waits_for_a_lease_names_its_holder_and_the_time(
    author: Client, place: Workplace
) -> None:
    author.session_open("holder")
    author.lease_acquire(["src/**", "docs/**"], 60)
    with place.client() as other, place.client() as waiting:
        other.session_open("bystander")
        other.lease_acquire(["web/**"], 60)
        waiting.session_open("waiting")
        before = author.log(limit=1).transactions[0].time
        asking = threading.Thread(target=lambda: waiting.lease_acquire(["src/a", "c"], 60, wait=20))
        asking.start()
        until = time.monotonic() + 5
        while (row := next(one for one in fetched(author).rows if one.name == "waiting")).doing != "lease":
            assert time.monotonic() < until, "it never waits"
        assert row.what == "src/a c of holder"
        assert row.since is not None
        assert row.since.isoformat() > before
        for lease in author.lease_list().leases:
            if lease.session == "holder":
                author.lease_release(lease.lease)
        asking.join()
    assert next(one for one in fetched(author).rows if one.name == "waiting").since is None


def test_the_cursor_stays_on_its_session_and_leases_have_their_holder(
    place: Workplace, author: Client
) -> None:
    author.session_open("one")
    author.lease_acquire(["src/**"], 60)
    with place.client() as second:
        second.session_open("two")
        agents = fetched(author)
        names = [row.name for row in agents.rows]
        agents.move(names.index("one"))
        assert agents.selected is not None
        assert agents.selected.name == "one"
        assert [lease.paths for lease in agents.leases_of("one")] == [["src/**"]]
        assert agents.leases_of("two") == []
        agents.move(-9)
        agents.move(names.index("one"))
        second.apply([write("x", "1\n")], message="Now two is the last")
        assert fetched(author, agents).selected == agents.rows[[row.name for row in agents.rows].index("one")]
        second.session_close()
    agents = fetched(author, agents)
    assert [(row.name, row.doing) for row in agents.rows] == [("one", "connected"), ("two", "closed")]
    assert agents.rows[1].is_closed
