"""Each action of the owner on the page: on the ordinary and on the reviewers' socket, and with the PIN.

The short form has each test on one of the two sockets, by the seed of the commit.
"""

from __future__ import annotations

import select
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from support.reviewers import PIN, announce_agent, author_of, configure, set_pin
from support.seeds import one_of
from support.supervisor import supervised
from support.web_page import web_page
from support.workplace import START_SECONDS, workplace, write

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from editd_client.client import Client
    from support.web_page import Answer, WebPage
    from support.workplace import Workplace

OWN = '[review]\nsocket = "own"\n'
SOCKETS = {"ordinary socket": "", "reviewers' socket": OWN}  # and the configuration of the daemon for it


class Court:
    """A page whose process is below an agent, so that all that only the owner may do needs the PIN."""

    def __init__(self, place: Workplace, author: Client, page: WebPage) -> None:
        self.place, self.author, self.page = place, author, page

    def edit(self, path: str) -> int:
        made = self.author.apply([write(path, "new\n")]).transaction
        assert made is not None
        return made.seq

    def propose(self, path: str) -> int:
        made = self.author.apply([write(path, "new\n")], propose=True).proposal
        number: int | None = getattr(made, "proposal", None)
        assert number is not None
        return number

    def ask(self, form: str, given: Mapping[str, str]) -> Answer:
        """Send a form by a browser of its own, first without the PIN and then with it."""
        visitor = self.page.another().enter()
        asked = visitor.post(form, given)
        assert (asked.status, f'action="{form}"' in asked.body) == (403, True), asked.text
        assert 'type="password"' in asked.body
        for name, value in given.items():
            assert name == "do" or f'name="{name}"' in asked.body, (name, value)
        return visitor.post(form, {**given, "pin": PIN})


@pytest.fixture(scope="module")
def court(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Court]:
    with workplace(tmp_path_factory.mktemp("court") / "place") as place:
        configure(place, SOCKETS[request.param])
        set_pin(place)
        place.git("init", "-q", "-b", "main")
        place.git("config", "user.name", "Ann")
        place.git("config", "user.email", "ann@example.org")
        place.write({"a.txt": "old\n"})
        place.git("add", "-A")
        place.git("commit", "-q", "-m", "First")
        with author_of(place, {}) as author:
            announce_agent(place)
            with web_page(place) as page:
                yield Court(place, author, page.enter())


def at_a_socket(turn: int) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("court", one_of(SOCKETS, turn), indirect=True)


@at_a_socket(0)
def test_undo_redo_and_restore(court: Court) -> None:
    seq = court.edit("undone.txt")
    given = {"seq": str(seq), "do": "make"}
    wrong = court.page.another().enter().post("/undo", {**given, "pin": "0"})
    assert (wrong.status, 'type="password"' in wrong.body) == (403, True), wrong.text
    assert court.ask("/undo", given).status == 303
    assert "undone.txt" not in court.place.files()
    assert court.ask("/redo", {"do": "make"}).status == 303
    assert court.place.files()["undone.txt"] == b"new\n"
    given = {"to": str(seq - 1), "path": "undone.txt", "do": "make"}
    assert court.ask("/restore", given).status == 303
    assert "undone.txt" not in court.place.files()


@at_a_socket(1)
def test_a_rollback(court: Court) -> None:
    with court.place.client() as other:
        other.session_open("other")
        other.apply([write("other.txt", "new\n")])
    assert court.ask("/rollback", {"session": "other", "do": "make"}).status == 303
    assert "other.txt" not in court.place.files()


@at_a_socket(2)
def test_a_commit(court: Court) -> None:
    court.edit("published.txt")
    given = {"session": "agent", "message": "All of it", "do": "make"}
    assert court.ask("/publish", given).status == 303
    assert court.place.git("log", "-1", "--format=%s").strip() == "All of it"


@at_a_socket(3)
def test_a_pause_and_its_end(court: Court) -> None:
    with court.place.client() as other:
        other.session_open("busy")
        assert court.ask("/session", {"session": "busy", "do": "pause-refuse"}).status == 303
        assert [one.paused is not None for one in other.session_list().sessions if one.session == "busy"] == [
            True
        ]
        assert court.ask("/session", {"session": "busy", "do": "resume"}).status == 303
        other.apply([write("busy.txt", "new\n")])


@at_a_socket(4)
def test_the_end_of_leases_and_of_a_session(court: Court) -> None:
    with court.place.client() as other:
        other.session_open("done")
        other.lease_acquire(["done/**"], 600)
        assert court.ask("/session", {"session": "done", "do": "leases"}).status == 303
        assert not court.author.lease_list().leases
        assert court.ask("/session", {"session": "done", "do": "close"}).status == 303
        assert "done" not in [one.session for one in court.author.session_list().sessions]


@at_a_socket(5)
def test_marks_and_grants(court: Court) -> None:
    seq = court.edit("marked.txt")
    assert court.ask("/review", {"seq": str(seq), "do": "mark"}).status == 303
    assert court.ask("/allow", {"paths": "docs/**", "ttl": "1h"}).status == 303
    (grant,) = court.author.review_grants().grants
    assert court.ask("/allow", {"do": "revoke", "grant": str(grant.grant)}).status == 303
    assert not court.author.review_grants().grants


@at_a_socket(6)
def test_decisions(court: Court) -> None:
    number = court.propose("decided.txt")
    form = f"/proposals/{number}/decide"
    given = court.page.form(f"/proposals/{number}")
    assert court.ask(form, {"view": given["view"], "do": "approve"}).status == 303
    assert court.place.files()["decided.txt"] == b"new\n"
    number = court.propose("rejected.txt")
    form = f"/proposals/{number}/decide"
    assert court.ask(form, {"do": "reject"}).status == 303
    assert court.author.proposal_get(number).state == "rejected"
    assert court.ask(form, {"do": "reopen"}).status == 303
    assert [one.state for one in court.author.proposal_list().proposals] == ["open"]


def test_the_page_finds_the_reviewers_socket_where_systemd_starts_the_daemon(place: Workplace) -> None:
    """A browser comes while the daemon is not there, and its first request starts one."""
    configure(place, OWN)
    with supervised(place) as unit, ThreadPoolExecutor() as threads:
        unit.start()
        with place.client() as author:
            author.session_open("agent")
            made = author.apply([write("a.txt", "new\n")]).transaction
        assert made is not None
        with web_page(place) as page:
            unit.end()
            visitor = page.another().enter()
            given = {"seq": str(made.seq), "do": "make"}
            undone = threads.submit(visitor.post, "/undo", given)
            assert select.select([unit.listener], [], [], START_SECONDS)[0], "the page has connected"
            unit.start()
            answer = undone.result(START_SECONDS)
            assert answer.status == 303, answer.text
            assert "a.txt" not in place.files()
        unit.end()
