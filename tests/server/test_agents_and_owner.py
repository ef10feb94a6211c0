"""Who the owner is: agents by their hooks and MCP servers, their sessions, and their rights."""

from __future__ import annotations

import os
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from editd.config.paths import review_socket_path
from editd.engine.permissions import Caller, is_owner, lack_of
from editd.store.proposals import ProposalStore
from editd_client.errors import EditdError
from support.agent_program import agent_program
from support.permission_walk import Line
from support.reviewers import PIN, configure, set_pin
from support.workplace import write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.workplace import Workplace

OWN = '[review]\nsocket = "own"\n'


def is_refused(answer: dict[str, Any]) -> bool:
    return "needs" in answer.get("error", {}).get("data", {}).get("data", {})


@pytest.fixture
def served(place: Workplace) -> Iterator[Workplace]:
    """Transaction 1 is by the session `bob`, which nobody has opened."""
    set_pin(place)
    place.write({"a.txt": "one\n"})
    with place.start() as client:
        client.hello("bob", "bob")
        client.apply([write("bobs.txt", "bob\n")])
    yield place
    place.stop()


@pytest.mark.parametrize(
    ("caller", "lack"),
    [
        (Caller(), None),
        (Caller(has_review_socket=True), "reviewers"),
        (Caller(has_review_socket=True, has_pin=True), "reviewers"),
        (Caller(has_review_socket=True, is_on_review_socket=True, is_readable=False), None),
        (Caller(has_review_socket=True, is_on_review_socket=True, agent="codex"), "codex"),
        (Caller(agent="codex"), "codex"),
        (Caller(agent="codex", has_pin=True), None),
        (Caller(is_agents_session=True), "session of an agent"),
        (Caller(is_agents_session=True, has_pin=True), None),
        (Caller(is_readable=False), "cannot see"),
        (Caller(is_readable=False, has_pin=True), None),
        (Caller(is_started_by_daemon=True, has_pin=True), "the daemon has started"),
    ],
)
def test_the_owner_is_one_sentence(caller: Caller, lack: str | None) -> None:
    assert is_owner(caller) == (lack is None)
    assert lack is None or lack in (lack_of(caller) or "")


def test_a_program_below_an_agent_is_not_the_owner_in_whatever_session(served: Workplace) -> None:
    with agent_program(served) as agent:
        assert "result" in agent.ask("gc"), "it is not known as an agent yet"
        agent.ask("seen", files=[], session="codex-1", pid=agent.pid)
        for method, params in (("gc", {}), ("undo", {"tx": 1}), ("shutdown", {})):
            assert is_refused(agent.ask(method, **params)), method
        served.stop()
        served.start().close()
        assert is_refused(agent.ask("gc")), "it is known after a restart, too"
    with served.client() as person:
        assert person.gc()


def test_a_process_that_is_no_ancestor_of_the_client_does_not_become_an_agent(served: Workplace) -> None:
    line = Line(served.socket)
    with agent_program(served) as person:
        for pid in (1, person.pid):
            assert "result" in line.ask("seen", {"files": [], "session": "x", "pid": pid})
        assert "result" in person.ask("gc")
        person.ask("seen", files=[], session="x", pid=1)
        assert "result" in person.ask("gc"), "nobody starts an agent that is the ancestor of all"
        assert "result" in line.ask("gc", {})


def test_a_connection_in_the_session_of_an_agent_is_not_the_owner(served: Workplace) -> None:
    line = Line(served.socket)
    line.ask("exec.begin", {"command": "x", "paths": ["a.txt"], "key": "k", "session": "claude-1"})
    line.ask("exec.end", {"key": "k", "session": "claude-1"})
    with served.client() as person:
        person.hello("ann", "claude-1")
        with pytest.raises(EditdError, match="the session of an agent"):
            person.gc()
        person.review_unlock(PIN)
        assert person.gc()


@pytest.mark.parametrize("request_", ["undo", "rollback", "restore"])
def test_an_agent_that_names_a_person_s_session_takes_none_of_its_work_back(
    served: Workplace, request_: str
) -> None:
    params: dict[str, dict[str, Any]] = {
        "undo": {"tx": 1}, "rollback": {"session": "bob"}, "restore": {"to": 0, "session": "bob"},
    }  # fmt: skip
    with agent_program(served) as agent:
        agent.ask("seen", files=[], session="codex-1", pid=agent.pid)
        # Each request has a connection of its own, so the session is named in the request or nowhere.
        assert is_refused(agent.ask(request_, **params[request_]))
    assert served.files()["bobs.txt"] == b"bob\n"


@pytest.mark.parametrize("way", ["open", "bracket", "seen"])
def test_a_name_that_an_agent_takes_over_proves_nothing_about_the_work_before(
    served: Workplace, way: str
) -> None:
    with served.client() as person:
        person.session_open("alice")
        seq = person.apply([write("alice.txt", "alice\n")]).transaction
        person.session_close()
    assert seq is not None
    with agent_program(served) as agent:
        agent.ask("seen", files=[], session="codex-1", pid=agent.pid)
        if way == "open":
            agent.ask("session.open", name="alice")
            name = Line(served.socket)
            assert "result" in name.ask("session.close", {"session": "alice", "force": True})
            opened = agent.ask("session.open", name="alice")["result"]
            answer = agent.ask_in("alice", opened["token"], "undo", tx=seq.seq)
        else:
            if way == "bracket":
                agent.ask("exec.begin", command="x", session="alice", key="k", paths=["a.txt"])
            else:
                agent.ask("seen", files=[], session="alice", pid=agent.pid)
            answer = agent.ask_in("alice", None, "undo", tx=seq.seq)
        assert is_refused(answer)
    assert served.files()["alice.txt"] == b"alice\n"
    if way == "open":
        return
    with served.client() as person:
        person.hello("alice", "alice")
        assert person.gc(), "the name is still a person's"


def test_a_sandbox_beside_a_wall_says_nothing_about_agents_and_gives_no_pin(served: Workplace) -> None:
    served.stop()
    configure(served, OWN)
    served.start().close()
    walled = Line(served.socket)
    walled.ask("seen", {"files": [], "session": "anns", "pid": os.getpid()})
    for _ in range(6):
        assert is_refused(walled.ask("review.unlock", {"pin": "0000"}))
    owner = Line(review_socket_path(served.socket))
    owner.ask("hello", {"client": "ann", "session": "anns"})
    assert "result" in owner.ask("gc", {})
    assert "result" in owner.ask("review.unlock", {"pin": PIN})


def test_an_agent_that_has_proposed_nothing_does_not_use_up_the_tries_of_a_person(served: Workplace) -> None:
    with agent_program(served) as agent:
        agent.ask("seen", files=[], session="codex-1", pid=agent.pid)
        answers = [agent.ask("review.unlock", pin="0000") for _ in range(7)]
        assert answers[-1]["error"]["data"]["name"] == "overloaded"
    assert "result" in Line(served.socket).ask("review.unlock", {"pin": PIN})


def test_an_agent_s_own_work_and_a_proposal_about_others_are_no_question(served: Workplace) -> None:
    with agent_program(served) as agent:
        agent.ask("seen", files=[], session="codex-1", pid=agent.pid)
        edit = {"op": "write", "path": "own.txt", "content": "1\n", "base": None}
        made = agent.ask("apply", edits=[edit], session="codex-1")["result"]["transaction"]["seq"]
        assert "result" in agent.ask("restore", to=made - 1, paths=["own.txt"], session="codex-1")
        assert agent.ask("undo", tx=1, propose=True)["result"]["proposal"]["state"] == "open"
        assert "result" in agent.ask("undo", tx=1, dry_run=True)
    assert "own.txt" not in served.files()


def test_a_right_of_agents_does_not_hold_on_the_ordinary_socket_beside_a_wall(served: Workplace) -> None:
    for configuration, is_open in (
        (OWN + '[permissions]\nagents = ["undo_others"]\n', False),
        ('[permissions]\nagents = ["undo_others"]\n', True),
    ):
        served.stop()
        configure(served, configuration)
        served.start().close()
        with agent_program(served) as agent:
            agent.ask("seen", files=[], session="codex-1", pid=agent.pid)
            assert is_refused(agent.ask("undo", tx=1)) == (not is_open)


def test_a_right_of_agents_makes_nobody_a_reviewer(served: Workplace) -> None:
    served.stop()
    configure(served, OWN + 'default = "ask"\n[permissions]\nagents = ["undo_others"]\n')
    served.start().close()
    with agent_program(served, review_socket_path(served.socket)) as agent:
        agent.ask("seen", files=[], session="codex-1", pid=agent.pid)
        assert agent.ask("undo", tx=1)["result"]["proposal"]["state"] == "open"
    assert served.files()["bobs.txt"] == b"bob\n"


def test_publish_of_an_agent_is_of_its_own_work_and_by_itself(served: Workplace) -> None:
    served.stop()
    configure(served, '[permissions]\nagents = ["publish"]\n')
    served.start().close()
    with served.client() as agent:
        agent.session_open("robot", kind="agent")
        agent.apply([write("robot.txt", "1\n")])
        wrongs: list[tuple[str, dict[str, Any]]] = [
            ("Mine", {"session": "bob"}),
            ("Mine", {"from_": 1}),
            ("Mine", {"session": "robot", "from_": 1}),
            ("Mine", {"session": "robot", "to": 1}),
            ("Mine", {"session": ["robot", "bob"]}),
            ("Mine", {}),
            ("Mine", {"session": "robot", "author": "root <root@a.org>"}),
            ("Mine\n\nReviewed-by: root", {"session": "robot"}),
        ]
        for message, wrong in wrongs:
            with pytest.raises(EditdError, match="Only the owner may publish"):
                agent.publish(message, **wrong)


def test_the_proposals_of_an_agent_count_as_the_agents_own(served: Workplace) -> None:
    """The programs above it may have started other agents, too, each with a share of its own."""
    with agent_program(served) as agent:
        agent.ask("seen", files=[], session="codex-1", pid=agent.pid)
        edit = {"op": "write", "path": "robot.txt", "content": "1\n", "force": True}
        assert agent.ask("apply", edits=[edit], propose=True)["result"]["proposal"]["state"] == "open"
    served.stop()
    with closing(ProposalStore(str(served.state), 1)) as store:
        (program,) = store._programs.values()
        assert program is not None
        assert program[0] == agent.pid
