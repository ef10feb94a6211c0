"""`why` through the real socket: from a line to its transaction, turn and prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from msgspec import UNSET

from editd.wire.messages import Move
from editd_client.errors import EditdError
from support.agent_program import agent_program
from support.hosts import exchange, hosts
from support.permission_walk import Line
from support.reviewers import PIN, set_pin
from support.workplace import replace, write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from editd.wire.messages import WhyLine
    from editd_client.client import Client
    from support.workplace import Workplace

TEXT = "one\ntwo\nthree\nfour\n"
A, B = "codex-1", "claude-1"


@pytest.fixture
def client(place: Workplace) -> Iterator[Client]:
    """The owner's. Transaction 0 is the baseline."""
    place.write({"a.txt": TEXT})
    with place.start() as made:
        made.hello("ann")
        made.settle()
        yield made
    place.stop()


def turn(client: Client, session: str, prompt: str, model: str = "m") -> None:
    client.turn_begin(f"talk of {session}", session=session, prompt=prompt, model=model)


def edit(client: Client, session: str | None, old: str, new: str, path: str = "a.txt") -> int:
    """Replace a line in a session that has read the file, and return the transaction."""
    client.read(path, session=session)
    made = client.apply([replace(path, old, new)], session=session, message=f"{old} to {new}").transaction
    assert made is not None
    return made.seq


def line(client: Client, number: int, path: str = "a.txt", **more: Any) -> WhyLine:
    found = client.why(path, number, **more).lines
    assert len(found) == 1
    return found[0]


def refused(answer: dict[str, Any]) -> str:
    return str(answer["error"]["data"]["name"]) if "error" in answer else ""


def test_a_line_leads_to_its_transaction_turn_and_prompt(client: Client) -> None:
    turn(client, A, "make it a number", "gpt-5.5")
    seq = edit(client, A, "two", "2")
    turn(client, A, "a later prompt", "gpt-6")
    found = line(client, 2)
    assert (found.line, found.path, found.transaction, found.kind) == (2, "a.txt", seq, "edit")
    assert (found.actor, found.session, found.agent, found.model) == ("ann", A, "ann", "gpt-5.5")
    assert (found.turn, found.prompt, found.characters) == (1, "make it a number", 16)
    assert (found.reviewed, found.host) == (None, None)
    assert found.time == client.show(seq).transaction.time
    assert found.began is not None
    assert found.began < found.time


def test_what_is_not_known_is_null(client: Client) -> None:
    seq = edit(client, "script", "two", "2")
    for number, transaction, session in ((1, 0, None), (2, seq, "script")):
        found = line(client, number)
        assert (found.transaction, found.session) == (transaction, session)
        unknown = (found.agent, found.model, found.turn, found.prompt, found.characters, found.began)
        assert unknown == (None,) * 6


def test_each_line_of_a_range_has_its_own_prompt(client: Client) -> None:
    for session, prompt, old, new in (
        (A, "the second", "two", "2"), (B, "the third", "three", "3"), (A, "the fourth", "four", "4"),
    ):  # fmt: skip
        turn(client, session, prompt)
        edit(client, session, old, new)
    found = client.why("a.txt", 1, end_line=9).lines
    assert [(one.line, one.prompt, one.turn) for one in found] == [
        (1, None, None), (2, "the second", 1), (3, "the third", 1), (4, "the fourth", 2),
    ]  # fmt: skip


def test_a_line_keeps_its_prompt_through_moves_undos_and_merges(client: Client) -> None:
    turn(client, A, "the second")
    edit(client, A, "two", "2")
    read = client.read("a.txt")
    turn(client, B, "the fourth")
    fourth = edit(client, B, "four", "4")
    merged = client.apply(
        [write("a.txt", read.content.replace("one", "1"), force=False, base=read.version)],
        session=A, on_stale="merge",
    )  # fmt: skip
    assert merged.merged == ["a.txt"]
    client.read("a.txt", session=B)
    client.apply([Move(path="a.txt", to="b.txt")], session=B)
    client.undo(fourth)
    assert [one.prompt for one in client.why("b.txt", 1, end_line=4).lines] == [
        "the second", "the second", None, None,
    ]  # fmt: skip
    client.redo()
    assert line(client, 4, "b.txt").prompt == "the fourth", "the line is older than its redo"


def test_a_line_of_an_earlier_state_is_that_state_s(client: Client) -> None:
    turn(client, A, "first")
    first = edit(client, A, "two", "2")
    turn(client, A, "second")
    edit(client, A, "2", "zwei")
    assert line(client, 2).prompt == "second"
    assert line(client, 2, at=first).prompt == "first"
    assert line(client, 2, at=0).prompt is None
    client.apply([Move(path="a.txt", to="b.txt")])
    assert line(client, 2, at=first).prompt == "first", "under its path of that time"
    with pytest.raises(EditdError) as missing:
        line(client, 2)
    assert missing.value.name == "file_missing"


def test_the_reviewer_is_named(client: Client, place: Workplace) -> None:
    turn(client, A, "p")
    seq = edit(client, A, "two", "2")
    client.review_mark([seq])
    found = line(client, 2).reviewed
    assert found is not None
    assert found.actor == "ann"
    with place.client() as agent:
        agent.hello("codex", A)
        proposed = agent.apply([replace("a.txt", "three", "3")], propose=True).proposal
    assert proposed is not UNSET
    assert proposed.proposal is not None
    set_pin(place)
    client.review_unlock(PIN)
    client.proposal_approve(proposed.proposal, view=client.proposal_get(proposed.proposal).view)
    approved = line(client, 3)
    assert approved.reviewed is not None
    assert (approved.reviewed.actor, approved.prompt) == ("ann", "p")


def test_the_prompt_s_text_is_the_owner_s_and_its_session_s(client: Client, place: Workplace) -> None:
    with agent_program(place) as one, agent_program(place) as other:
        one.ask("turn.begin", session=A, conversation="x", pid=one.pid, prompt="the secret plan")
        other.ask("turn.begin", session=B, conversation="y", pid=other.pid, prompt="q")
        edit(client, A, "two", "2")
        asked = {"path": "a.txt", "line": 2}
        own = one.ask_in(A, None, "why", **asked)["result"]["lines"][0]
        assert own["prompt"] == "the secret plan"
        for answer in (other.ask("why", **asked), other.ask_in(A, None, "why", **asked)):
            found = answer["result"]["lines"][0]
            assert (found["prompt"], found["transcript"], found["characters"]) == (None, None, 15)
            assert (found["session"], found["turn"]) == (A, 1)
        assert len(one.ask_in(A, None, "log", prompt="SECRET")["result"]["transactions"]) == 1
        searches = [other.ask("log", prompt="SECRET")]
        searches += [other.ask_in(session, None, "log", prompt="SECRET") for session in (A, B)]
        for answer in searches:
            assert answer["result"]["transactions"] == [], "a search is no way around it"
    assert line(client, 2).prompt == "the secret plan"


def test_the_log_finds_transactions_by_turn_and_by_prompt(client: Client) -> None:
    turn(client, A, "Make it a Number")
    first = edit(client, A, "two", "2")
    turn(client, A, "another one")
    second = edit(client, A, "three", "3")
    turn(client, B, "a number, too")
    third = edit(client, B, "four", "4")

    def seqs(**wanted: Any) -> list[int]:
        assert client.log_count(**wanted).count == len(client.log(**wanted).transactions)
        return [one.seq for one in client.log(**wanted).transactions]

    assert seqs(session=A, turn=1) == [first]
    assert seqs(session=A, turn=[1, 2]) == [second, first]
    assert seqs(prompt="number") == [third, first]
    assert seqs(prompt="number", session=B) == [third]
    assert seqs(prompt="nothing of it") == []
    with pytest.raises(EditdError) as raised:
        client.log(turn=1)
    assert raised.value.name == "invalid_params"


def test_a_line_from_another_host_has_its_turn_and_no_prompt(tmp_path: Path) -> None:
    with hosts(tmp_path, 2, {"a.txt": TEXT}) as (_, (one, other), _):
        turn(one, A, "the second", "gpt-5.5")
        edit(one, A, "two", "2")
        exchange(one, other)
        far, near = line(other, 2), line(one, 2)
        assert (far.session, far.host, far.turn, far.model) == (f"{A}@host0", "host0", 1, "gpt-5.5")
        assert (far.prompt, far.characters, far.agent) == (None, None, None)
        assert (near.prompt, near.host, near.turn) == ("the second", None, 1)


@pytest.mark.parametrize(
    "params",
    [
        {"path": "a.txt", "line": 0},
        {"path": "a.txt", "line": 5},
        {"path": "a.txt", "line": 2, "end_line": 1},
        {"path": "a.txt", "line": 1, "end_line": 20_000},
    ],
)
def test_a_line_that_is_not_there_is_refused(
    client: Client, place: Workplace, params: dict[str, Any]
) -> None:
    assert refused(Line(place.socket).ask("why", params)) == "invalid_params"
    assert line(client, 4).transaction == 0
