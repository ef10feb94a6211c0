"""The page of the agents without a script: one session at a time, its commit, its leases and its end."""

from __future__ import annotations

from html import unescape
from typing import TYPE_CHECKING

import pytest

from editd_client.errors import EditdError, PermissionDenied
from support.reviewers import PIN, author_of, set_pin
from support.web_page import web_page
from support.workplace import replace, workplace, write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd_client.client import Client
    from support.web_page import WebPage
    from support.workplace import Workplace

FILES = {"a": "one\ntwo\n"}


class Team:
    """One page for all tests of this module, and the session `agent`."""

    def __init__(self, place: Workplace, author: Client, page: WebPage) -> None:
        self.place, self.author, self.page = place, author, page


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    with workplace(tmp_path_factory.mktemp("team") / "place") as place:
        set_pin(place)
        place.write(FILES)
        place.git("init", "-q", "-b", "main")
        place.git("config", "user.name", "Ann")
        place.git("config", "user.email", "ann@example.org")
        place.git("add", "-A")
        place.git("commit", "-q", "-m", "First")
        with author_of(place, FILES) as author, web_page(place) as page:
            yield Team(place, author, page.enter())


def test_a_session_is_shown_with_its_newest_work(team: Team) -> None:
    team.author.apply([replace("a", "one", "1")], message="Digits")
    with team.place.client() as other:
        other.session_open("other", actor="codex")
        page = team.page.get("/agents?session=agent").text
        assert "The last 1 transaction of agent" in page
        assert "Digits" in page
        assert "1 in force, 0 undone" in page
        listed = team.page.get("/agents?q=oth")
        assert 'id="agent-other"' in listed.body
        assert 'id="agent-agent"' not in listed.body
        assert 'href="/agents?session=other&q=oth"' in unescape(listed.body)
        assert "No session matches" in team.page.get("/agents?q=nobody").text


def test_the_work_of_a_session_is_shown_and_then_published(team: Team) -> None:
    team.author.apply([replace("a", "two", "2")])
    asked = team.page.post("/publish", {"session": "agent", "do": "preview"})
    assert "Publish the work of agent?" in asked.text
    assert "on the branch main" in asked.text
    assert team.page.post("/publish", {"session": "agent", "do": "make", "message": " "}).status == 400
    assert team.place.git("rev-list", "--count", "HEAD").strip() == "1"
    given = {"session": "agent", "do": "make", "message": "Digits\r\n\r\nAll of them"}
    made = team.page.post("/publish", given)
    assert (made.status, made.headers["location"]) == (303, "/agents?session=agent")
    assert team.place.git("log", "-1", "--format=%B").startswith("Digits\n\nAll of them\n")
    assert team.page.post("/publish", {"session": "agent", "do": "make", "message": "Again"}).status == 400


def test_a_paused_session_is_refused_with_the_reason_until_it_is_resumed(team: Team) -> None:
    with team.place.client() as other:
        other.session_open("busy", actor="codex")
        asked = team.page.post("/session", {"session": "busy", "do": "ask-pause"})
        assert "Pause busy?" in asked.text
        given = {"session": "busy", "do": "pause-refuse-end", "reason": "wait for ann"}
        assert team.page.post("/session", given).status == 303
        with pytest.raises(PermissionDenied, match="wait for ann"):
            other.apply([write("b", "x\n")])
        shown = team.page.get("/agents?session=busy").text
        assert "edits are refused: wait for ann" in shown
        assert team.page.post("/session", {"session": "busy", "do": "resume"}).status == 303
        other.apply([write("b", "x\n")])


def test_the_end_of_a_pause_asks_for_the_pin_while_proposals_wait(team: Team) -> None:
    with team.place.client() as other:
        other.session_open("keen", actor="codex")
        team.page.post("/session", {"session": "keen", "do": "pause-propose"})
        assert "edits wait for a reviewer" in team.page.get("/agents?session=keen").text
        assert other.apply([write("e", "y\n")]).transaction is None
        visitor = team.page.another().enter()
        resumed = {"session": "keen", "do": "resume"}
        asked = visitor.post("/session", resumed)
        assert (asked.status, 'action="/session"' in asked.body) == (403, True)
        assert 'type="password"' in asked.body
        assert visitor.post("/session", {**resumed, "pin": "0"}).status == 403
        assert visitor.post("/session", {**resumed, "pin": PIN}).status == 303
        assert other.apply([write("e", "y\n")]).transaction is not None


def test_unreviewed_work_is_listed_until_it_is_marked(team: Team) -> None:
    with team.place.client() as other:
        other.session_open("eager", actor="codex")
        made = other.apply([write("c", "x\n")], message="Unseen").transaction
        other.apply([write("d", "x\n")], message="Unseen, too")
    assert made is not None
    listed = "/timeline?q=is:unreviewed+session:eager"
    assert "Unseen, too" in team.page.get(listed).text
    marked = {"seq": str(made.seq), "do": "mark"}
    assert team.page.post("/review", marked).status == 303
    assert f"{made.seq} Unseen" not in team.page.get(listed).text
    assert "reviewed by" in team.page.get(f"/transactions/{made.seq}").text
    assert team.page.post("/review", {"session": "eager", "do": "mark"}).status == 303
    assert "No transaction matches" in team.page.get(listed).text
    assert team.page.post("/review", {**marked, "do": "unmark"}).status == 303
    assert f"{made.seq} Unseen" in team.page.get(listed).text
    assert team.page.post("/review", {**marked, "do": "x"}).status == 400


def test_a_refusal_is_in_the_timeline_with_its_reason(team: Team) -> None:
    with team.place.client() as other:
        other.session_open("late", actor="codex")
        with pytest.raises(EditdError):
            other.apply([replace("a", "nowhere", "x")])
    (refused,) = team.author.log_refusals(session="late").refusals
    listed = team.page.get("/timeline").body
    assert f'id="r{refused.number}"' in listed
    assert f'id="r{refused.number}"' in team.page.get("/timeline?q=session:late").body
    assert f'id="r{refused.number}"' not in team.page.get("/timeline?q=session:agent").body
    shown = team.page.get(f"/refusals/{refused.number}")
    assert f"Refused: {refused.error}" in shown.text
    assert refused.message in shown.text
    assert team.page.get("/refusals/99999").status == 404


def test_the_leases_of_a_session_are_ended_after_a_question(team: Team) -> None:
    team.author.lease_acquire(["src/**"], 600)
    assert "lease on src/** until" in team.page.get("/agents?session=agent").text
    asked = team.page.post("/session", {"session": "agent", "do": "ask-leases"})
    assert "End the leases of agent?" in asked.text
    assert team.author.lease_list().leases
    assert team.page.post("/session", {"session": "agent", "do": "leases"}).status == 303
    assert not team.author.lease_list().leases


def test_a_session_is_closed_after_a_question(team: Team) -> None:
    with team.place.client() as other:
        other.session_open("done", actor="codex")
        other.apply([replace("a", "\n", "!\n", count=2)], propose=True)
    asked = team.page.post("/session", {"session": "done", "do": "ask-close"})
    assert "Close the session done?" in asked.text
    assert team.page.post("/session", {"session": "done", "do": "withdraw"}).status == 303
    assert "done" not in [one.session for one in team.author.session_list().sessions]
    assert [one.session for one in team.author.proposal_list(state=["withdrawn"]).proposals] == ["done"]
    assert team.page.post("/session", {"session": "done", "do": "close"}).status == 400
    assert team.page.post("/session", {"session": "agent", "do": "x"}).status == 400


def test_the_form_for_a_grant_is_about_the_session_on_the_page(team: Team) -> None:
    assert '<option value="agent" selected>' in team.page.get("/agents?session=agent").body
