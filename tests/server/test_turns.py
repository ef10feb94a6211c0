"""Turns through the real socket: the prompts of agents, and the transactions that carry their numbers."""

from __future__ import annotations

import os
import sqlite3
import stat
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import UNSET

from editd_client.errors import EditdError
from support.agent_program import agent_program
from support.permission_walk import Line
from support.reviewers import PIN, configure, set_pin
from support.workplace import write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd.wire.messages import Transaction, TurnEntry
    from editd_client.client import Client
    from support.workplace import Workplace

NAME = "codex-1"
TALK = "01a21935-0c9b-72b3"


@pytest.fixture
def client(place: Workplace) -> Iterator[Client]:
    """The owner's, without a session; transaction 0 is the baseline."""
    place.write({"a.txt": "one\n", "b.txt": "one\n"})
    with place.start() as made:
        made.hello("codex")
        made.settle()
        yield made
    place.stop()


def begin(client: Client, prompt: str | None = "fix it", session: str = NAME, **more: Any) -> int:
    return client.turn_begin(TALK, session=session, prompt=prompt, **more).turn


def newest(client: Client) -> Transaction:
    return client.log(limit=1).transactions[0]


def edited(client: Client, path: str = "a.txt", session: str = NAME) -> Transaction:
    """Edit a file in a session, and return the transaction as the log has it."""
    client.apply([write(path, f"{os.urandom(4).hex()}\n", force=True)], session=session)
    return newest(client)


def entries(client: Client, session: str | None = NAME, **more: Any) -> list[TurnEntry]:
    """Return the turns, the oldest first."""
    return client.turns(session=session, **more).turns[::-1]


def ago(seconds: float) -> str:
    return (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat()


# ── the turn of an edit ──


def test_an_edit_carries_the_turn_and_the_model_of_its_session(client: Client, place: Workplace) -> None:
    assert begin(client, model="gpt-5.5") == 1
    first = edited(client)
    assert (first.turn, first.model) == (1, "gpt-5.5")
    assert begin(client, model="gpt-6") == 2
    assert (edited(client).turn, newest(client).model) == (2, "gpt-6")
    assert edited(client, session="codex-2").turn is UNSET, "the turn is of one session"
    trailers = place.git("log", "--format=%B", "history", store=True) if client.gc() else ""
    assert "\nTurn: 1\nModel: gpt-5.5\n" in trailers
    assert "fix it" not in trailers


def test_a_bracket_a_claim_and_an_undo_carry_the_turn_of_their_session(
    client: Client, place: Workplace
) -> None:
    begin(client, model="m")
    name = client.exec_begin("make", session=NAME, key="k").exec
    place.write({"a.txt": "by a command\n"})
    client.exec_end(key="k", session=NAME, status=0)
    assert name
    assert (newest(client).kind, newest(client).turn) == ("exec", 1)
    place.write({"b.txt": "by a tool\n"})
    client.settle()
    client.claim(["b.txt"], ago(30), "edit", session=NAME)
    claimed = client.show(newest(client).seq - 1).transaction
    assert (claimed.kind, claimed.turn, claimed.model) == ("exec", 1, "m")
    with place.client() as hook:
        hook.hello("codex", NAME)
        hook.undo(claimed.seq)
        assert (newest(hook).kind, newest(hook).turn) == ("undo", 1)


def test_a_bracket_keeps_the_turn_of_its_beginning_and_takes_the_one_that_its_agent_names(
    client: Client, place: Workplace
) -> None:
    begin(client, native="n1")
    begin(client, native="n2")
    client.exec_begin("edit", session=NAME, key="k", paths=["a.txt"], native_turn="n1")
    place.write({"a.txt": "late\n"})
    client.exec_end(key="k", session=NAME, status=0)
    assert newest(client).turn == 1
    client.exec_begin("edit", session=NAME, key="l", paths=["a.txt"], native_turn="unknown")
    place.write({"a.txt": "later\n"})
    client.exec_end(key="l", session=NAME, status=0)
    assert newest(client).turn == 2


def test_a_new_turn_ends_the_brackets_of_the_one_before(client: Client, place: Workplace) -> None:
    begin(client)
    client.exec_begin("edit", session=NAME, key="k", paths=["a.txt"])
    place.write({"a.txt": "by the tool\n"})
    begin(client)
    assert newest(client).turn == 1
    place.write({"a.txt": "by a person\n"})
    client.settle()
    assert (newest(client).kind, newest(client).turn) == ("outside", UNSET)


def test_after_the_end_of_a_turn_an_edit_has_none_but_a_claim_of_earlier_work(
    client: Client, place: Workplace
) -> None:
    begin(client, native="n1")
    client.turn_end(session=NAME, native="another")
    assert edited(client).turn == 1, "the end of another turn ends nothing"
    place.write({"b.txt": "by a tool\n"})
    client.settle()
    client.turn_end(session=NAME, native="n1", reason="stop")
    assert edited(client).turn is UNSET
    client.claim(["b.txt"], ago(30), "edit", session=NAME)
    assert newest(client).turn == 1
    turn = entries(client)[0]
    assert turn.reason == "stop"
    assert turn.ended is not None


def test_an_approved_proposal_has_the_turn_of_its_author(client: Client, place: Workplace) -> None:
    begin(client, model="m")
    with place.client() as agent:
        agent.hello("codex", NAME)
        proposed = agent.apply([write("c.txt", "c\n")], propose=True).proposal
    assert proposed is not UNSET
    assert proposed.proposal is not None
    assert entries(client)[0].proposals == [proposed.proposal]
    begin(client)
    set_pin(place)
    client.review_unlock(PIN)
    client.proposal_approve(proposed.proposal, view=client.proposal_get(proposed.proposal).view)
    assert (newest(client).turn, newest(client).model) == (1, "m")
    assert entries(client)[0].proposals == []


def test_the_model_may_come_after_the_prompt(client: Client) -> None:
    begin(client)
    client.turn_note(session=NAME, model="gemini-2.5-flash")
    assert edited(client).model == "gemini-2.5-flash"
    assert entries(client)[0].model == "gemini-2.5-flash"


# ── numbers ──


def test_a_repeated_beginning_is_the_same_turn(client: Client) -> None:
    assert [begin(client, native="n1"), begin(client, native="n1"), begin(client, native="n2")] == [1, 1, 2]


def test_turns_go_on_over_a_restart_and_a_lost_file(client: Client, place: Workplace) -> None:
    begin(client, model="m")
    edited(client)
    begin(client, model="m")
    edited(client)
    for is_lost in (False, True):
        place.stop()
        if is_lost:
            os.unlink(place.state / "turns.db")
        with place.start() as again:
            again.hello("codex")
            made = edited(again)
            assert (made.turn, made.model) == ((UNSET, UNSET) if is_lost else (2, "m"))
            if is_lost:
                assert entries(again) == []
                assert begin(again) == 3


def test_a_session_that_ends_ends_its_turn(client: Client, place: Workplace) -> None:
    with place.client() as agent:
        agent.session_open("mine")
        agent.turn_begin(TALK, prompt="a")
        agent.session_close()
    turn = entries(client, "mine")[0]
    assert turn.reason == "session end"
    assert edited(client, session="mine").turn is UNSET


# ── the list ──


def test_a_turn_lists_its_transactions_with_their_lines_and_what_is_undone(client: Client) -> None:
    begin(client, "first", model="m", source="startup", transcript="/home/me/rollout.jsonl")
    first = edited(client)
    second = edited(client, "c.txt")
    client.undo(second.seq)
    begin(client, "second")
    turns = entries(client, stat=True)
    assert [(one.turn, one.prompt, one.agent) for one in turns] == [
        (1, "first", "codex"),
        (2, "second", "codex"),
    ]
    shown = turns[0].transactions
    assert [(one.seq, one.undone_by, one.added, one.deleted) for one in shown] == [
        (first.seq, None, 1, 1), (second.seq, second.seq + 1, 1, 0),
    ]  # fmt: skip
    assert (turns[0].source, turns[0].transcript) == ("startup", "/home/me/rollout.jsonl")
    assert turns[0].ended == turns[1].began
    assert turns[0].reason == "next turn"


def test_the_turns_of_all_sessions_come_newest_first_and_in_parts(client: Client) -> None:
    for number in range(3):
        begin(client, str(number))
        begin(client, str(number), session="codex-2")
    first = client.turns(limit=4)
    assert [(one.session, one.turn) for one in first.turns] == [
        ("codex-2", 3), (NAME, 3), ("codex-2", 2), (NAME, 2),
    ]  # fmt: skip
    assert first.more
    rest = client.turns(before=first.turns[-1].began)
    assert [(one.session, one.turn) for one in rest.turns] == [("codex-2", 1), (NAME, 1)]
    assert not rest.more


def test_a_sub_agent_is_a_child_of_the_turn_that_started_it(client: Client) -> None:
    begin(client)
    begin(client)
    begin(client, "look", session="codex-1-ab12", parent=NAME)
    child = next(one for one in entries(client) if one.session == "codex-1-ab12")
    assert child.parent is not None
    assert (child.parent.session, child.parent.turn) == (NAME, 2)


def test_the_calls_of_a_turn_are_counted_by_their_outcome(client: Client, place: Workplace) -> None:
    begin(client)
    for number, status in enumerate((0, 0, 1)):
        client.exec_begin("x", session=NAME, key=f"k{number}", paths=["a.txt"], tool_call=f"call_{number}")
        client.exec_end(key=f"k{number}", session=NAME, status=status)
    client.exec_begin("x", session=NAME, key="k", paths=["a.txt"], tool_call="call_3")
    client.turn_note(session=NAME, tool_call="call_3", asked=True)
    client.turn_note(session=NAME, tool_call="call_3", outcome="denied")
    client.exec_begin("x", session=NAME, key="l", paths=["b.txt"], tool_call="call_4")
    assert entries(client)[0].calls == {"ran": 2, "failed": 1, "denied": 1, "unknown": 1}
    place.stop()
    with closing(sqlite3.connect(place.state / "turns.db")) as database:
        asked = database.execute("select name from call where asked_us is not null").fetchall()
    assert asked == [("call_3",)]


# ── prompts ──


def test_the_secrets_of_a_prompt_are_replaced_and_counted(client: Client, place: Workplace) -> None:
    token = "ghp_" + "aB3dE5gH7j" * 4
    begin(client, f"use {token} and fix it")
    turn = entries(client)[0]
    assert (turn.prompt, turn.redactions) == ("use [github-token] and fix it", 1)
    assert turn.characters == len(f"use {token} and fix it")
    place.stop()
    for path in place.state.glob("turns.db*"):
        assert token.encode() not in path.read_bytes()


def test_a_long_prompt_is_cut_and_no_secret_is_cut_with_it(client: Client) -> None:
    token = "ghp_" + "aB3dE5gH7j" * 4
    begin(client, "word " * 1_599 + token + " more" * 10_000)
    prompt = entries(client)[0].prompt
    assert prompt is not None
    assert len(prompt) == 8_000
    assert "ghp_" not in prompt


@pytest.mark.parametrize(("mode", "has_length"), [("digest", True), ("off", False)])
def test_the_configuration_says_what_is_kept_of_a_prompt(
    client: Client, place: Workplace, mode: str, has_length: bool
) -> None:
    configure(place, f'[turns]\nprompts = "{mode}"\n')
    client.config_reload()
    begin(client, "a prompt of some length")
    turn = entries(client)[0]
    assert (turn.prompt, turn.characters) == (None, 23 if has_length else None)
    place.stop()
    for path in place.state.glob("turns.db*"):
        assert b"a prompt of some length" not in path.read_bytes()


def test_a_prompt_is_kept_for_a_time_and_then_its_length(client: Client, place: Workplace) -> None:
    begin(client, "the words of an old prompt")
    configure(place, '[turns]\nkeep = "1s"\n')
    place.stop()
    with closing(sqlite3.connect(place.state / "turns.db")) as database:
        database.execute("update turn set began_us = began_us - 3000000")
        database.commit()
    with place.start() as again:
        turn = entries(again)[0]
        assert (turn.prompt, turn.characters) == (None, 26)
    place.stop()
    for path in place.state.glob("turns.db*"):
        assert b"the words of an old prompt" not in path.read_bytes()


def test_the_file_of_the_turns_is_the_user_s_alone_and_a_damaged_one_is_set_aside(
    client: Client, place: Workplace
) -> None:
    begin(client)
    file = place.state / "turns.db"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    place.stop()
    file.write_bytes(b"no database" * 1000)
    with place.start() as again:
        assert entries(again) == []
        assert any("turns was damaged" in sentence for sentence in again.status().weaker)
        assert begin(again) == 1
    assert "a database is damaged" in place.log()
    assert list(place.state.glob("damaged/*/turns.db"))


def test_a_file_that_is_damaged_while_it_is_open_is_set_aside(client: Client, place: Workplace) -> None:
    for number in range(200):
        begin(client, f"{number} " * 100)
    place.stop()
    file = place.state / "turns.db"
    content = bytearray(file.read_bytes())
    content[8192:] = b"\xff" * (len(content) - 8192)
    file.write_bytes(content)
    with place.start() as again:
        entries(again)
        assert begin(again) >= 1
        assert any("turns was damaged" in sentence for sentence in again.status().weaker)


# ── who may write and read them ──


def error_of(answer: dict[str, Any]) -> str:
    return str(answer["error"]["data"]["name"]) if "error" in answer else ""


def begin_by(line: Line, session: str, **more: Any) -> str:
    """Begin a turn on a raw connection; return the name of the refusal."""
    return error_of(line.ask("turn.begin", {"conversation": TALK, "session": session, "prompt": "p", **more}))


def test_a_session_writes_its_own_turns_only(client: Client, place: Workplace) -> None:
    begin(client)
    other = Line(place.socket)
    other.ask("hello", {"session": "codex-2"})
    assert begin_by(other, "codex-2") == ""
    for method, params in (
        ("turn.begin", {"conversation": TALK, "prompt": "forged"}),
        ("turn.note", {"model": "forged"}),
        ("turn.end", {}),
    ):
        assert error_of(other.ask(method, {"session": NAME, **params})) == "permission_denied", method
    assert begin_by(other, "codex-2", parent=NAME) == "permission_denied", "nor is it another's child"
    turn = entries(client)[-1]
    assert (turn.turn, turn.prompt, turn.model, turn.ended) == (1, "fix it", None, None)


def test_an_open_session_s_turns_need_its_token(client: Client, place: Workplace) -> None:
    with place.client() as agent:
        agent.session_open("mine")
        agent.turn_begin(TALK, prompt="a")
        line = Line(place.socket)
        assert begin_by(line, "mine") == "unknown_session"
    assert client.turns(session="mine").turns[0].turn == 1


def test_a_person_s_session_gets_no_turn_by_its_name(client: Client, place: Workplace) -> None:
    edited(client, session="alice")
    assert begin_by(Line(place.socket), "alice") == "permission_denied"


def test_a_program_below_another_agent_forges_no_turn_and_reads_no_prompt(
    client: Client, place: Workplace
) -> None:
    with agent_program(place) as one, agent_program(place) as other:
        own = {"session": NAME, "conversation": TALK, "pid": one.pid}
        assert "result" in one.ask("turn.begin", **own, prompt="the secret plan")
        assert "result" in other.ask(
            "turn.begin", session="codex-2", conversation="x", pid=other.pid, prompt="q"
        )
        for answer in (
            other.ask("turn.begin", **(own | {"pid": other.pid}), prompt="forged"),
            other.ask_in(NAME, None, "turn.begin", conversation=TALK, pid=other.pid, prompt="forged"),
        ):
            assert error_of(answer) == "permission_denied"
        for answer in (
            other.ask("turns"),
            other.ask_in(NAME, None, "turns"),
            other.ask_in("codex-2", None, "turns"),
        ):
            turn = next(turn for turn in answer["result"]["turns"] if turn["session"] == NAME)
            assert (turn["prompt"], turn["conversation"], turn["transcript"]) == (None, None, None)
            assert turn["characters"] == len("the secret plan")
        own_turns = one.ask_in(NAME, None, "turns")["result"]["turns"]
        assert {turn["session"]: turn["prompt"] for turn in own_turns} == {
            NAME: "the secret plan", "codex-2": None,
        }  # fmt: skip
    assert entries(client)[0].prompt == "the secret plan", "it is the owner's, too"


def test_another_process_resumes_a_session_only_with_the_id_of_its_conversation(
    client: Client, place: Workplace
) -> None:
    with agent_program(place) as agent:
        agent.ask("turn.begin", session=NAME, conversation=TALK, pid=agent.pid, prompt="the secret plan")
    with agent_program(place) as other:
        taken = {"session": NAME, "pid": other.pid, "prompt": "q"}
        assert error_of(other.ask("turn.begin", conversation="guess", **taken)) == "permission_denied"
        assert other.ask("turn.begin", conversation=TALK, **taken)["result"]["turn"] == 2
        prompts = [turn["prompt"] for turn in other.ask_in(NAME, None, "turns")["result"]["turns"]]
        assert prompts == ["q", "the secret plan"]
    assert client.turns().more is False


def test_beside_a_reviewers_socket_no_name_alone_has_turns(client: Client, place: Workplace) -> None:
    place.stop()
    configure(place, '[review]\nsocket = "own"\n')
    place.start().close()
    line = Line(place.socket)
    assert begin_by(line, NAME) == "permission_denied"
    opened = line.ask("session.open", {"name": "mine", "kind": "agent"})
    assert "result" in opened
    assert begin_by(line, "mine") == ""
    assert line.ask("turns", {})["result"]["turns"][0]["prompt"] == "p"
    assert Line(place.socket).ask("turns", {})["result"]["turns"][0]["prompt"] is None


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("turn.begin", {"conversation": TALK}),
        ("turn.begin", {"conversation": "", "session": NAME}),
        ("turn.begin", {"conversation": "c" * 1001, "session": NAME}),
        ("turn.begin", {"conversation": TALK, "session": NAME, "transcript": "t" * 5000}),
        ("turn.note", {"session": NAME, "outcome": "ran"}),
        ("turn.note", {"session": NAME, "model": ""}),
        ("turns", {"limit": 0}),
        ("turns", {"limit": 201, "stat": True}),
        ("turns", {"before": "yesterday"}),
    ],
)
def test_a_wrong_parameter_is_refused(
    client: Client, place: Workplace, method: str, params: dict[str, Any]
) -> None:
    assert error_of(Line(place.socket).ask(method, params)) == "invalid_params"
    assert client.turns().turns == []


def test_an_exception_names_no_prompt(client: Client) -> None:
    with pytest.raises(EditdError) as raised:
        client.turn_begin("c" * 2000, session=NAME, prompt="the secret plan")
    assert "secret plan" not in str(raised.value)
