"""The conversations on a real daemon, by an asker that has its answers, and the faces that have each."""

from __future__ import annotations

import ast
import asyncio
import inspect
import secrets
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

import pytest

import editd_client.conversations
from editd_client.aio import AsyncClient
from editd_client.conversations.comment import comment
from editd_client.conversations.decision import decide, reject
from editd_client.conversations.grant import allow, revoke
from editd_client.conversations.leases import end_leases
from editd_client.conversations.pause import PAUSES, answer_of, pause, resume
from editd_client.conversations.publication import publish
from editd_client.conversations.reversal import Reversal, redo_of, restore_of, reverse, rollback_of, undo_of
from editd_client.conversations.review_mark import mark
from editd_client.conversations.session_end import close
from editd_client.errors import EditdError
from editd_client.review.actions import HunkDecision
from support.reviewers import PIN, propose, set_pin
from support.workplace import TOP, replace, write

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping

    from editd_client.client import Client
    from editd_client.conversations.asker import Prompt, Question
    from editd_client.prepared_call import PreparedCall
    from support.workplace import Workplace

    Conversation = Callable[["ScriptedAsker"], Awaitable[Any]]

READS = {"lease.list", "log", "log.count", "show"}  # and a request with `dry_run`
ALL = {"screen", "web", "cli"}
FACES: Mapping[str, set[str]] = {  # each conversation, and the faces that have it
    "allow": ALL,
    "close": ALL,
    "comment": ALL,
    "decide": {"screen", "web"},  # `editctl proposal approve` asks as `git add -p` does
    "end_leases": {"screen", "web"},  # `editctl lease release` ends one lease, by its name
    "mark": ALL,
    "pause": ALL,
    "publish": ALL,
    "reject": ALL,
    "resume": ALL,
    "reverse": ALL,
    "revoke": ALL,
}


class ScriptedAsker:
    """An asker with texts and an answer. `is_showing` builds the question before the answer is given."""

    def __init__(
        self, client: AsyncClient, answer: str | None = None, *, is_showing: bool = False, **texts: str
    ) -> None:
        self._client, self._answer, self._texts, self._is_showing = client, answer, texts, is_showing
        self.sent: list[str] = []  # requests that change something
        self.read: list[str] = []
        self.question: Question | None = None
        self.said: list[str] = []

    async def ask(self, call: PreparedCall[Any]) -> Any:
        method = call.params.method
        is_read = method in READS or getattr(call.params, "dry_run", False)
        (self.read if is_read else self.sent).append(method)
        return await self._client.ask(call)

    async def choose(self, names: Collection[str], question: Callable[[], Awaitable[Question]]) -> str | None:
        if self._is_showing:
            self.question = await question()
            assert {one.name for one in self.question.answers} <= {*names}
            keys = [one.key for one in self.question.answers]
            assert len(keys) == len({*keys})
        return self._answer

    async def prompt(self, prompt: Prompt) -> str | None:
        return self._texts.get(prompt.name, prompt.text) if self._answer is not None else None

    def say(self, text: str, *, is_error: bool = False) -> None:
        del is_error
        self.said.append(text)


@pytest.fixture
def agent(place: Workplace) -> Iterator[Client]:
    """The session `agent` has three edits, a lease and a proposal."""
    set_pin(place)
    place.write({"a": "".join(f"#{number}\n" for number in range(1, 31))})
    place.git("init", "-q", "-b", "main")
    place.git("config", "user.name", "Ann")
    place.git("config", "user.email", "ann@example.org")
    place.git("add", "-A")
    place.git("commit", "-q", "-m", "First")
    with place.start() as client:
        client.settle()
        client.session_open("agent", actor="claude")
        client.apply([replace("a", "#5\n", "#V\n")])
        client.apply([replace("a", "#V\n", "#five\n")])
        client.apply([write("new", "x\n")])
        client.lease_acquire(["src/**"], 600)
        propose(client, write("proposed", "x\n"))
        yield client


def converse(place: Workplace, conversation: Conversation, *answer: str | None, **more: Any) -> ScriptedAsker:
    """Carry out a conversation as the reviewer, and return its asker."""

    async def run() -> ScriptedAsker:
        async with AsyncClient(str(place.socket)) as client:
            await client.hello("ann")
            await client.review_unlock(PIN)
            asker = ScriptedAsker(client, *answer, **more)
            await conversation(asker)
            return asker

    return asyncio.run(run())


def taking_back(reversal: Reversal) -> Conversation:
    return lambda asker: reverse(asker, reversal, request_id=secrets.token_hex(16))


DECISION = HunkDecision(proposal=1, view="", rejected=("x",))

# Each conversation, with an answer and texts, and the requests that it sends then.
ANSWERED: Mapping[str, tuple[Conversation, str, Mapping[str, str], list[str]]] = {
    "pause": (lambda one: pause(one, "agent"), "pause-propose-end", {"reason": "stop"}, ["session.pause"]),
    "resume": (lambda one: resume(one, "agent"), "resume", {}, ["session.resume"]),
    "leases": (lambda one: end_leases(one, "agent"), "leases", {}, ["lease.release"]),
    "close": (lambda one: close(one, "agent"), "withdraw", {}, ["session.close"]),
    "publish": (
        lambda one: publish(one, "agent", session="agent"), "make", {"message": "All"}, ["publish"]
    ),
    "allow": (lambda one: allow(one, "agent", "a b"), "", {"uses": "2"}, ["review.allow"]),
    "mark": (lambda one: mark(one, sessions=["agent"]), "mark", {}, ["review.mark"]),
    "comment": (lambda one: comment(one, 1), "", {"comment": "well"}, ["proposal.comment"]),
    "decide": (lambda one: decide(one, DECISION, request_id="one"), "", {"comment": "no"},
               ["proposal.reject"]),
    "reject": (lambda one: reject(one, 1, request_id="one"), "", {"comment": "no"}, ["proposal.reject"]),
    "undo": (taking_back(undo_of(3)), "make", {}, ["undo"]),
    "undo first": (taking_back(undo_of(1)), "needed", {"needed": "2"}, ["undo", "undo"]),
    "rollback": (taking_back(rollback_of("agent")), "make", {}, ["rollback"]),
    "restore": (taking_back(restore_of(1, ["a"])), "make", {}, ["restore"]),
}  # fmt: skip


@pytest.mark.parametrize("name", ANSWERED)
def test_an_asker_that_has_the_answer_sends_only_the_action(
    place: Workplace, agent: Client, name: str
) -> None:
    conversation, answer, texts, sent = ANSWERED[name]
    if name == "resume":
        converse(place, lambda one: pause(one, "agent"), "pause-refuse")
    asker = converse(place, conversation, answer, **texts)
    assert asker.sent == sent
    assert set(asker.read) <= ({"lease.list"} if name == "leases" else {"log"} if name == "mark" else set())
    assert len(asker.said) == 1


@pytest.mark.parametrize("name", ANSWERED)
def test_a_question_that_is_left_changes_nothing(place: Workplace, agent: Client, name: str) -> None:
    conversation, *_ = ANSWERED[name]
    asker = converse(place, conversation, None, is_showing=True)
    assert (asker.sent, asker.said) == ([], [])
    assert agent.log(limit=1).transactions[0].seq == 3


def test_a_conflict_is_shown_with_its_ways_out(place: Workplace, agent: Client) -> None:
    asker = converse(place, taking_back(undo_of(1)), None, is_showing=True)
    assert asker.question is not None
    assert [(one.name, one.key) for one in asker.question.answers] == [
        ("needed", "n"), ("force", "f"), ("propose", "p"),
    ]  # fmt: skip
    made = converse(place, taking_back(undo_of(1)), "needed", is_showing=True)
    assert made.said == ["Undone 2. Transaction 5 is made."]
    assert b"#5\n" in place.files()["a"]


def test_an_undo_is_proposed_redone_and_without_effect(place: Workplace, agent: Client) -> None:
    assert converse(place, taking_back(undo_of(3)), "propose").said == ["P2 waits for a reviewer."]
    assert converse(place, taking_back(undo_of(3)), "make").said == ["Transaction 4 is made."]
    assert converse(place, taking_back(redo_of()), "make").said == ["Transaction 5 is made."]
    asker = converse(place, taking_back(restore_of(5, None)), None, is_showing=True)
    assert asker.question is not None
    assert (asker.question.notes, asker.question.answers) == (("It would change nothing.",), ())


def test_a_commit_needs_a_message(place: Workplace, agent: Client) -> None:
    with pytest.raises(EditdError, match="needs a message"):
        converse(place, lambda one: publish(one, "agent", session="agent"), "make", message=" ".strip())
    assert place.git("rev-list", "--count", "HEAD").strip() == "1"


@pytest.mark.parametrize("texts", [{"paths": "'a"}, {"ttl": "soon"}, {"uses": "many"}])
def test_a_grant_with_a_wrong_text_is_refused(
    place: Workplace, agent: Client, texts: Mapping[str, str]
) -> None:
    with pytest.raises(EditdError, check=lambda error: error.name == "invalid_params"):
        converse(place, lambda one: allow(one, None, "a"), "", **texts)
    assert agent.review_grants().grants == []


def test_nothing_to_end_or_to_mark_is_said(place: Workplace, agent: Client) -> None:
    assert converse(place, lambda one: end_leases(one, "other"), "leases").said == ["other has no lease."]
    assert converse(place, lambda one: revoke(one, []), "").said == ["There is no grant."]
    assert converse(place, lambda one: mark(one, sessions=["x"]), "").said == [
        "Everything is reviewed already."
    ]


def test_each_effect_of_a_pause_has_an_answer() -> None:
    assert {answer_of(one.action, end_leases=one.end_leases) for one in PAUSES.values()} == {*PAUSES}


# ── The faces ──


def conversations() -> set[str]:
    """Return the name of each conversation: the public coroutines of the package."""
    package = editd_client.conversations
    modules = [import_module(f"{package.__name__}.{one.name}") for one in iter_modules(package.__path__)]
    return {
        name
        for module in modules
        for name, value in vars(module).items()
        if inspect.iscoroutinefunction(value) and value.__module__ == module.__name__
    }


def used_by(face: str) -> set[str]:
    """Return the names of the conversations that a face imports, also as `grant.allow`."""
    package, used = editd_client.conversations.__name__, set[str]()
    for file in Path(TOP / "client/editd_client" / face).glob("*.py"):
        nodes = [*ast.walk(ast.parse(file.read_text()))]
        imported = [one for one in nodes if isinstance(one, ast.ImportFrom)]
        used |= {
            name.name
            for one in imported
            if one.module and one.module.startswith(f"{package}.")
            for name in one.names
        }
        homes = {name.asname or name.name for one in imported if one.module == package for name in one.names}
        calls = [one for one in nodes if isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name)]
        used |= {one.attr for one in calls if isinstance(one.value, ast.Name) and one.value.id in homes}
    return used


@pytest.mark.parametrize("face", sorted(ALL))
def test_each_face_has_each_action_that_the_table_says(face: str) -> None:
    assert conversations() == set(FACES)
    assert used_by(face) & set(FACES) == {name for name, faces in FACES.items() if face in faces}
    if face != "cli":  # its reversals have more options
        assert {"undo_of", "redo_of", "rollback_of", "restore_of"} <= used_by(face)
