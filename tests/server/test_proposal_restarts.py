"""Proposals through the real socket over the end of a daemon, and where all its proposals or PINs count."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from editd.wire import messages
from support.reviewers import FILES, LINES, PIN, propose, reconfigure, refused, reviewer_of
from support.workplace import replace, write

if TYPE_CHECKING:
    from editd_client.client import Client
    from support.workplace import Workplace

__all__ = ["FILES"]  # for the fixture `author`


def test_an_author_may_not_decide_nor_kin_without_the_pin(
    place: Workplace, author: Client, reviewer: Client
) -> None:
    number = propose(author, write("n", "1\n"))
    view = reviewer.proposal_get(number).view
    with refused("permission_denied"):
        author.proposal_approve(number, view=view)
    with place.client() as kin:
        with refused("permission_denied") as denied:
            kin.proposal_approve(number, view=view)
        assert denied.value.data["needs_pin"] is True
        with refused("permission_denied"):
            kin.proposal_reject(number)
        with refused("permission_denied"):
            kin.review_unlock("0000")
        kin.review_unlock(PIN)
        assert kin.proposal_approve(number, view=view).proposal.state == "landed"


def test_after_five_wrong_pins_none_is_compared(place: Workplace, author: Client) -> None:
    assert author.status().state == "ready"
    with place.client() as kin:
        for _ in range(5):
            with refused("permission_denied"):
                kin.review_unlock("0000")
        with refused("overloaded"):
            kin.review_unlock(PIN)


AGENT = """
import subprocess, sys
from editd.wire.messages import Write
from editd_client.client import Client
from editd_client.errors import EditdError
if sys.argv[2] == "shell":
    with Client(sys.argv[1]) as client:
        for _ in range(6):
            try:
                client.review_unlock("0000")
            except EditdError as error:
                print(error.name, flush=True)
else:
    with Client(sys.argv[1]) as author:
        author.apply([Write(path="n", content="1")], propose=True)
    for _ in sys.stdin:
        subprocess.run([sys.executable, "-c", sys.argv[3], sys.argv[1], "shell"], check=True)
"""


def test_the_wrong_pins_of_an_agents_shell_lock_out_the_agent_and_no_person_also_after_a_restart(
    place: Workplace, author: Client
) -> None:
    """The attack: an agent locks out the person for an hour, or tries all PINs, a restart between them."""
    assert author.status().state == "ready"
    argv = [sys.executable, "-c", AGENT, place.socket, "agent", AGENT]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=place.environment
    ) as agent:
        assert agent.stdin is not None
        assert agent.stdout is not None

        def answers() -> list[str]:
            print(file=agent.stdin, flush=True)
            return [agent.stdout.readline().strip() for _ in range(6)]  # type: ignore[union-attr]

        assert answers() == ["permission_denied"] * 5 + ["overloaded"]
        reviewer_of(place).close()
        place.stop()
        with place.start():
            assert answers() == ["overloaded"] * 6
            with reviewer_of(place) as person:
                view = person.proposal_get(1).view
                assert person.proposal_approve(1, view=view).proposal.state == "landed"
        agent.stdin.close()
        assert agent.wait(60) == 0
    place.stop()
    with place.start():
        assert place.files()["n"] == b"1"


def test_a_daemon_that_ends_answers_those_who_wait(place: Workplace, author: Client) -> None:
    got: list[Any] = []

    def edit() -> None:
        with place.client() as other:
            got.append(other.apply([write("n", "1\n")], propose=True, wait=60))

    thread = threading.Thread(target=edit)
    thread.start()
    until = time.monotonic() + 20
    while not author.proposal_list().proposals and time.monotonic() < until:
        time.sleep(0.01)
    place.stop()
    thread.join(20)
    assert got[0].proposal.state == "open"


def test_a_list_has_what_waits_and_filters(author: Client, reviewer: Client) -> None:
    numbers = [propose(author, write(f"f/n{at}", "1\n")) for at in range(3)]
    reviewer.proposal_reject(numbers[0])
    assert [one.proposal for one in reviewer.proposal_list().proposals] == [3, 2]
    assert [one.proposal for one in reviewer.proposal_list(state=["rejected"]).proposals] == [1]
    assert [one.proposal for one in reviewer.proposal_list(path="f/n1").proposals] == [2]
    assert [one.proposal for one in reviewer.proposal_list(path="f", limit=1).proposals] == [3]
    assert reviewer.proposal_list(limit=1).more
    assert reviewer.proposal_list(session="other").proposals == []
    assert reviewer.status().proposals == 2
    entry = reviewer.proposal_list().proposals[0]
    assert (entry.counts, entry.lines.added, entry.lines.deleted, entry.paths) == (
        {"fits": 1},
        1,
        0,
        ["f/n2"],
    )


def test_a_proposal_outlives_the_daemon(place: Workplace, author: Client) -> None:
    number = propose(author, replace("a.txt", "5\n6", "five\n6"), message="Words")
    place.kill()
    with place.start() as client:
        shown = client.proposal_get(number)
        assert (shown.state, shown.message, shown.session) == ("open", "Words", "agent")
    with reviewer_of(place) as client:
        client.proposal_approve(number, view=shown.view)
    assert b"five\n" in place.files()["a.txt"]


def test_kin_of_the_author_are_known_after_a_restart(place: Workplace, author: Client) -> None:
    number = propose(author, replace("a.txt", "5\n6", "five\n6"))
    place.kill()
    with place.start() as client:
        view = client.proposal_get(number).view
        with refused("permission_denied"):
            client.proposal_approve(number, view=view)
        assert client.proposal_reopen(reject(place, number)).proposal.state == "open"
        with refused("permission_denied"):
            client.proposal_reject(number + 1)


def reject(place: Workplace, number: int) -> int:
    with reviewer_of(place) as ann:
        return ann.proposal_reject(number).proposal.proposal


def test_a_proposal_whose_time_is_over_no_longer_waits_and_does_not_keep_its_session_open(
    place: Workplace, author: Client
) -> None:
    reconfigure(place, author, '[review]\nexpire = "1s"\n')
    with place.client() as other:
        other.session_open("careful", propose="always")
        other.apply([write("n", "1\n")])
        assert author.status().proposals == 1
        time.sleep(1.1)
        assert author.status().proposals == 0
        assert author.proposal_list().proposals == []
        assert [one.state for one in author.proposal_list(state=["expired"]).proposals] == ["expired"]
        other.apply([write("m", "1\n")])
        time.sleep(1.1)
        other.session_close(withdraw=True)
        assert author.proposal_get(2).state == "expired"
        assert all(one.session != "careful" for one in author.session_list().sessions)


def test_a_session_can_collect_all_its_edits_in_one_proposal(place: Workplace, author: Client) -> None:
    assert author.status().state == "ready"
    with place.client() as other:
        other.session_open("careful", propose="always", batch="session")
        other.apply([replace("a.txt", "5\n6", "five\n6"), write("n", "1\n")])
        assert other.read("a.txt").content == LINES.replace("5\n6", "five\n6")
        assert other.read("n").content == "1\n"
        assert other.stat(["n"]).files[0].size == 2
        made = other.apply([replace("a.txt", "five\n6", "V\n6"), write("n", "22\n")])
        assert isinstance(made.proposal, messages.ProposedResult)
        assert (made.proposal.proposal, made.proposal.revision) == (1, 2)
        assert [one.proposal for one in other.proposal_list().proposals] == [1]
    with place.client() as idle:
        idle.session_open("idle", batch="session")
        assert not isinstance(idle.apply([write("a.txt", LINES)]).proposal, messages.ProposedResult)
        assert [one.proposal for one in idle.proposal_list().proposals] == [1], "an empty one is made"
    assert place.files() == {"a.txt": LINES.encode(), "b.txt": LINES.encode()}
    with reviewer_of(place) as client:
        client.proposal_approve(1, view=client.proposal_get(1).view)
    assert place.files()["n"] == b"22\n"
    assert b"V\n6" in place.files()["a.txt"]


def test_a_collected_changeset_is_a_draft_until_its_session_submits_it(
    place: Workplace, author: Client, reviewer: Client
) -> None:
    assert author.status().state == "ready"
    with place.client() as other, reviewer.subscribe(events=["proposal"]) as events:
        other.session_open("careful", batch="session")
        with other.transaction("First words", propose=True) as changeset:
            changeset.write("n", "1\n")
        assert isinstance(changeset.result.proposal, messages.ProposedResult)
        assert changeset.result.proposal.state == "draft"
        other.apply([write("n", "22\n")])  # joins it
        assert other.read("n").content == "22\n"
        shown = reviewer.proposal_get(1)
        assert (shown.state, shown.revision, shown.message) == ("draft", 2, "First words")
        for decide in (
            lambda: reviewer.proposal_approve(1, view=shown.view),
            lambda: reviewer.proposal_reject(1),
        ):
            with refused("permission_denied"):
                decide()
        with refused("permission_denied"):
            reviewer.proposal_submit(1)
        assert other.proposal_submit(1).proposal.state == "open"
        with refused("invalid_params"):
            other.proposal_submit(1)
        first = events.wait(10)
        assert first is not None
        assert first.data["what"] == "opened"
        assert (first.data["proposal"]["state"], first.data["proposal"]["revision"]) == ("open", 2)
        other.apply([write("n", "333\n")])
        assert reviewer.proposal_get(1).state == "open"
    assert "n" not in place.files()
    reviewer.proposal_approve(1, view=reviewer.proposal_get(1).view)
    assert place.files()["n"] == b"333\n"


def test_a_session_can_collect_its_edits_in_a_draft(
    place: Workplace, author: Client, reviewer: Client
) -> None:
    assert author.status().state == "ready"
    with place.client() as other:
        token = other.session_open("careful", batch="draft").token
        for content in ("1\n", "22\n"):
            made = other.apply([write("n", content)])
            assert isinstance(made.proposal, messages.ProposedResult)
            assert (made.proposal.proposal, made.proposal.state) == (1, "draft")
    place.kill()
    with place.start(), place.client() as other:
        other.hello("claude", "careful", token)
        assert other.read("n").content == "22\n"
        assert other.proposal_submit(1).proposal.state == "open"
        other.apply([write("n", "333\n")])
        shown = other.proposal_get(1)
        assert (shown.state, shown.revision) == ("open", 3)
        other.proposal_withdraw(1)
        again = other.apply([write("n", "4\n")])
        assert isinstance(again.proposal, messages.ProposedResult)
        assert (again.proposal.proposal, again.proposal.state) == (2, "draft")
    assert "n" not in place.files()


MANY_SESSIONS = """
import sys
from editd_client.client import Client
from editd_client.errors import EditdError
refused = []
for session in range(5):
    with Client(sys.argv[1]) as client:
        client.session_open(f"{sys.argv[2]}{session}", kind="agent")
        for number in range(201 if session == 0 else 1):
            edit = {"op": "write", "path": f"{sys.argv[2]}{session}-{number}", "content": "x"}
            try:
                client.apply([edit], propose=True)
            except EditdError as error:
                refused.append(f"{error.name}: {error}")
print(*refused, sep="\\n")
"""


def test_the_sessions_of_one_program_leave_room_for_the_proposals_of_others(place: Workplace) -> None:
    """Five sessions of one program filled the queue, and nobody else could propose anything."""

    def run(name: str) -> list[str]:
        shell = 'exec 3>&1; "$@" >&3; true'  # a shell that leads its session: two programs of one user
        words = ["sh", "-c", shell, "sh", sys.executable, "-c", MANY_SESSIONS, place.socket, name]
        done = subprocess.run(
            words, env=place.environment, start_new_session=True, capture_output=True, text=True, check=True
        )
        return done.stdout.split("\n")[:-1]

    with place.start():
        first = run("first")
        assert len(first) == 5
        assert first[0].startswith("overloaded: 200 proposals of session first0 are open")
        assert all("200 proposals of all sessions of this program are open" in one for one in first[1:])
        assert len(run("second")) == 5
