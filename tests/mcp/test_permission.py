"""The work of others: a client that can ask its user does so, before that work is taken back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.agent import LEGACY, MODERN, User, agent, text_of
from support.reviewers import configure
from support.workplace import write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.workplace import Workplace

YES: dict[str, Any] = {"action": "accept", "content": {"allow": True}}
ERAS = pytest.mark.parametrize("mode", [LEGACY, MODERN])


@pytest.fixture
def workspace(place: Workplace) -> Iterator[Workplace]:
    """Transaction 1 is the work of `other` in `theirs.txt`, and so are the lines of `both.txt`."""
    configure(place, '[review]\nelicitation = "trusted"\n')
    place.write({"both.txt": "one\ntwo\n"})
    with place.start() as client:
        client.session_open("other", actor="ann")
        edits = [write("theirs.txt", "theirs\n"), write("both.txt", "ONE\ntwo\n", force=True)]
        client.apply(edits)
        client.session_close()
    yield place
    place.stop()


@ERAS
def test_a_user_who_allows_it_lets_the_agent_undo_work_of_another(workspace: Workplace, mode: str) -> None:
    user = User(**YES)
    with agent(workspace, mode=mode, user=user) as made:
        made.does("undo", tx=1)
    assert workspace.files() == {"both.txt": b"one\ntwo\n"}
    (asked,) = user.asked
    assert "The agent asks for undo." in asked
    assert "by session 'other'" in asked
    assert "both.txt, theirs.txt" in asked


@ERAS
def test_any_other_answer_leaves_it_as_it_is(workspace: Workplace, mode: str) -> None:
    before = workspace.files()
    answers: tuple[dict[str, Any], ...] = (
        {"action": "decline"}, {"action": "cancel"}, {"content": {"allow": False}}, {"content": None},
    )  # fmt: skip
    for answer in answers:
        user = User(**answer)
        with agent(workspace, mode=mode, user=user) as made:
            text, data = made.is_refused("undo", tx=1)
        assert len(user.asked) == 1, answer
        assert data["error"] == "permission_denied", answer
        assert "The user was asked, and did not allow it." in text, answer
        assert workspace.files() == before, answer


def test_a_client_that_fails_to_ask_leaves_it_as_it_is(workspace: Workplace) -> None:
    before, user = workspace.files(), User(**YES, is_away=True)
    with agent(workspace, mode=LEGACY, user=user) as made:
        assert "The user could not be asked." in made.is_refused("undo", tx=1)[0]
    assert workspace.files() == before


@ERAS
def test_force_over_the_lines_of_another_asks_as_well(workspace: Workplace, mode: str) -> None:
    user = User(**YES)
    with agent(workspace, mode=mode, user=user) as made:
        mine = made.does("apply_edits", edits=[swap("both.txt", "two", "2")])["transaction"]
        with workspace.client() as client:
            client.hello("ann", "third")
            client.apply([write("both.txt", "ONE\nzwei\n", force=True)])
        assert made.is_refused("undo", tx=mine)[1]["error"] == "conflict"
        assert user.asked == [], "without force there is nothing to allow"
        made.does("undo", tx=mine, force=True)
    assert len(user.asked) == 1
    assert workspace.files()["both.txt"] == b"ONE\ntwo\n"


@ERAS
def test_the_session_of_another_is_rolled_back_if_the_user_allows_it(workspace: Workplace, mode: str) -> None:
    user = User(**YES)
    with agent(workspace, mode=mode, user=user) as made:
        tools = {tool.name: tool for tool in made.tools()}
        assert "session" in tools["rollback_session"].input_schema["properties"]
        made.does("rollback_session", session="other")
    assert workspace.files() == {"both.txt": b"one\ntwo\n"}
    assert len(user.asked) == 1


def test_nobody_is_asked_about_ones_own_work_a_dry_run_or_what_cannot_be_done(workspace: Workplace) -> None:
    user = User(**YES)
    with agent(workspace, user=user) as made:
        made.does("apply_edits", edits=[{"op": "write", "path": "mine.txt", "content": "x\n"}])
        made.does("undo")
        assert made.is_refused("undo", tx=1, dry_run=True)[1]["error"] == "permission_denied"
        assert made.is_refused("undo", tx=99)[1]["error"] == "unknown_transaction"
    assert user.asked == []


@ERAS
def test_a_client_that_cannot_ask_gets_the_refusal(workspace: Workplace, mode: str) -> None:
    with agent(workspace, mode=mode) as made:
        tools = {tool.name: tool for tool in made.tools()}
        assert "session" not in tools["rollback_session"].input_schema["properties"]
        text, data = made.is_refused("undo", tx=1)
        assert data["error"] == "permission_denied"
        assert "--may-undo-others" in text
        assert "was asked" not in text_of(made.call("undo", tx=1))


@ERAS
def test_a_form_counts_only_if_the_user_trusts_it(workspace: Workplace, mode: str) -> None:
    restart(workspace, "")
    before = workspace.files()
    with agent(workspace, mode=mode, user=User(**YES)) as made:
        text, data = made.is_refused("undo", tx=1)
        assert data["error"] == "permission_denied"
        assert "permissions.agents" in text
    assert workspace.files() == before


@pytest.mark.parametrize("word", ["", "review"])
def test_an_agent_undoes_the_work_of_others_only_with_that_right(workspace: Workplace, word: str) -> None:
    restart(workspace, f'[permissions]\nagents = ["{word}"]\n' if word else "")
    before = workspace.files()
    with agent(workspace, "--may-undo-others") as made:
        assert made.is_refused("undo", tx=1)[1]["error"] == "permission_denied"
    assert workspace.files() == before


def test_a_server_that_may_undo_others_asks_nobody(workspace: Workplace) -> None:
    restart(workspace, '[permissions]\nagents = ["undo_others"]\n')
    user = User(action="decline")
    with agent(workspace, "--may-undo-others", user=user) as made:
        made.does("undo", tx=1)
    assert user.asked == []


def restart(place: Workplace, configuration: str) -> None:
    place.stop()
    configure(place, configuration)
    place.start().close()


def swap(path: str, old: str, new: str) -> dict[str, Any]:
    return {"op": "replace", "path": path, "old": old, "new": new}
