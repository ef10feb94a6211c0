"""A form of the client about an edit that waits: it decides only if the user's configuration trusts it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from editd.wire.messages import ProposalView
from editd_client.mcp.review_form import VERDICTS
from support.agent import LEGACY, MODERN, User, agent, text_of
from support.reviewers import config_folder
from support.workplace import write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.workplace import Workplace

RULE = '[[review.rule]]\nname = "all"\npaths = ["**"]\naction = "ask"\n'
TRUSTED = '[review]\nelicitation = "trusted"\n'
EDIT = {"op": "replace", "path": "a", "old": "one", "new": "two\u202e"}
ERAS = pytest.mark.parametrize("mode", [LEGACY, MODERN])


@pytest.fixture
def trusting(place: Workplace) -> Iterator[Workplace]:
    """A workspace of which each edit waits, and whose user trusts the forms of MCP clients."""
    (config_folder(place) / "config.toml").write_text(TRUSTED + RULE)
    place.write({"a": "one\n"})
    with place.start() as client:
        client.settle()
        yield place
    place.stop()


def content(decision: str, comment: str = "") -> dict[str, Any]:
    return {"content": {"decision": decision, "comment": comment}}


@ERAS
def test_a_trusted_answer_decides_about_what_the_form_has_shown(trusting: Workplace, mode: str) -> None:
    user = User(**content("approve"))
    with agent(trusting, mode=mode, user=user) as made:
        assert "Approved by " in text_of(made.call("apply_edits", edits=[EDIT]))
        user.content = content("reject", "not so")["content"]
        text, data = made.is_refused("apply_edits", edits=[{**EDIT, "old": "two", "new": "three"}])
    assert "rejected proposal 2: not so" in text
    assert data["error"] == "rejected"
    assert "Proposal 1 waits for your review (rule: all): a" in user.asked[0]
    assert "\n-one\n+two[U+202E]\n" in user.asked[0]
    assert trusting.files()["a"] == "two\u202e\n".encode()
    with trusting.client() as client:
        landed, rejected = (client.proposal_get(number).decisions[0].by for number in (1, 2))
    assert (landed.via, rejected.via, landed.session) == ("elicitation", "elicitation", None)


@ERAS
def test_a_form_that_is_closed_decides_nothing(trusting: Workplace, mode: str) -> None:
    user = User(action="decline", **content("approve"))
    with agent(trusting, "--wait", "0.5", mode=mode, user=user) as made:
        assert "waits for review" in text_of(made.call("apply_edits", edits=[EDIT]))
        user.action, user.content = "accept", content("perhaps")["content"]
        assert "waits for review" in text_of(made.call("apply_edits", edits=[{**EDIT, "new": "x"}]))
        long = {"op": "write", "path": "long", "content": "0123456789\n" * 1_000}
        assert "waits for review" in text_of(made.call("apply_edits", edits=[long]))
    assert len(user.asked) == 2, "a form does not show so long a difference"
    assert trusting.files() == {"a": b"one\n"}


def test_an_answer_is_refused_where_nobody_trusts_it(trusting: Workplace) -> None:
    (config_folder(trusting) / "config.toml").write_text(RULE)
    user = User(**content("approve"))
    with trusting.client() as client, agent(trusting, "--wait", "0.5", user=user) as made:
        client.config_reload()
        assert "waits for review" in text_of(made.call("apply_edits", edits=[EDIT]))
        shown = [ProposalView(proposal=1, view=client.proposal_get(1).view)]
        for verdict in VERDICTS.values():
            (left,) = client.proposal_decide(shown, verdict, elicited=True).left
            assert left.error.name == "permission_denied"
            assert "decides nothing" in left.error.message
    assert user.asked == []
    assert trusting.files() == {"a": b"one\n"}


def test_an_author_may_not_claim_an_answer_on_its_own_connection(trusting: Workplace) -> None:
    with trusting.client() as client:
        client.apply([write("a", "two\n")])
        shown = [ProposalView(proposal=1, view=client.proposal_get(1).view)]
        (left,) = client.proposal_decide(shown, "approve", elicited=True).left
    assert left.error.name == "permission_denied"
    assert trusting.files() == {"a": b"one\n"}
