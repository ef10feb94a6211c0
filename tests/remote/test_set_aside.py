"""Transactions that do not merge: each host has them as proposals, and the first decision is that of all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from editd.wire.messages import ReviewedFile
from support.hosts import exchange, hosts, until
from support.log_checker import log_of
from support.workplace import replace

if TYPE_CHECKING:
    from pathlib import Path

    from editd.wire.messages import ProposalEntry, Transaction
    from editd_client.client import Client
    from support.hosts import Hosts

LINES = "".join(f"line {number}\n" for number in range(1, 10))
NAMES = ("rejected", "approved", "withdrawn", "killed", "redone", "twice")
FILES = {f"{name}.txt": LINES for name in NAMES}
COMMENTS = ("a\0b", "\ud800", "a\n\nKind: baseline\n", "x" * 100_000)


def set_aside(three: Hosts, name: str, session: str | None = None) -> Transaction:
    """Have an edit of host 1 not merge with one of host 0, and all hosts know it. Return it."""
    path = f"{name}.txt"
    _, (one, other, third), _ = three
    other.remote_pause()
    one.apply([replace(path, "line 5\n", "five\n")])
    exchange(one)
    made = other.apply([replace(path, "line 5\n", "FIVE\n")], message=name, session=session).transaction
    assert made is not None
    other.remote_resume()
    exchange(one, other, third)
    return made


def proposal_of(client: Client, name: str) -> ProposalEntry | None:
    """Return the open proposal with this message."""
    found = [one for one in client.proposal_list().proposals if one.message == name]
    assert len(found) <= 1, "it is proposed twice"
    return found[0] if found else None


def waits_on_all(three: Hosts, name: str) -> list[ProposalEntry]:
    clients = three[1]
    until(lambda: all(proposal_of(client, name) for client in clients), "not all hosts have a proposal")
    return [one for client in clients if (one := proposal_of(client, name)) is not None]


def states(three: Hosts, name: str) -> set[str]:
    """Return the states of the proposals of all hosts with this message."""
    found = [
        client.proposal_list(state=["open", "landed", "rejected", "withdrawn", "moot"]) for client in three[1]
    ]
    return {one.state for answer in found for one in answer.proposals if one.message == name}


def test_a_decision_with_any_comment_is_sent_once(tmp_path: Path) -> None:
    files = {f"{number}.txt": LINES for number in range(len(COMMENTS))}
    with hosts(tmp_path, 2, files) as (_, (one, other), server):
        one.remote_pause()
        for path in files:
            one.apply([replace(path, "line 5", "five")])
            other.apply([replace(path, "line 5", "FIVE")])
        exchange(other)
        one.remote_resume()
        exchange(one, other)
        until(lambda: len(one.proposal_list().proposals) == len(files), "some are not set aside")
        for shown, comment in zip(one.proposal_list().proposals, COMMENTS, strict=True):
            one.proposal_reject(shown.proposal, comment=comment)
        until(lambda: other.proposal_list().proposals == [], "some are decided on one host alone")
        exchange(one, other)
        made = [entry.is_decision for entry in log_of(server)[1:]]
        assert made == [False] * 2 * len(files) + [True] * len(files)
        assert one.remote_status().unusable == []


def test_a_rejection_on_any_host_is_that_of_all(three: Hosts) -> None:
    places, clients, server = three
    made = set_aside(three, "rejected")
    shown = waits_on_all(three, "rejected")
    assert {one.rule for one in shown} == {"set aside"}
    clients[2].proposal_reject(shown[2].proposal, comment="not that loud")
    until(lambda: states(three, "rejected") == {"rejected"}, "the others do not follow")
    (decision,) = clients[0].proposal_get(shown[0].proposal).decisions
    assert decision.by.via == "log"
    assert str(decision.comment).startswith("not that loud (entry ")
    for client, one in zip(clients, shown, strict=True):
        hunks = [hunk.state for file in client.proposal_get(one.proposal).files for hunk in file.hunks]
        assert hunks == ["rejected"]
    assert [entry.trailers.get("Decides") for entry in log_of(server)].count(made.id) == 1
    assert {place.files()["rejected.txt"] for place in places} == {LINES.replace("line 5", "five").encode()}


def test_an_approval_on_another_host_lands_everywhere(three: Hosts) -> None:
    places, clients, _ = three
    set_aside(three, "approved", session=None)
    (_, _, shown) = waits_on_all(three, "approved")
    view = clients[2].proposal_get(shown.proposal)
    assert [hunk.state for file in view.files for hunk in file.hunks] == ["conflict"]
    text = LINES.replace("line 5", "five, FIVE").encode()
    ours = ReviewedFile(path="approved.txt", content=text.decode(), base=view.files[0].now)
    clients[2].proposal_approve(shown.proposal, view=view.view, files=[ours])
    until(
        lambda: all(place.files()["approved.txt"] == text for place in places), "the approval does not arrive"
    )
    until(lambda: states(three, "approved") <= {"landed", "moot"}, "a proposal of it still waits")


def test_of_two_approvals_while_cut_off_both_texts_are_kept(three: Hosts) -> None:
    places, clients, server = three
    made = set_aside(three, "twice")
    shown = waits_on_all(three, "twice")
    for client in clients:
        client.remote_pause()
    for number, own in ((0, "text of host 0"), (2, "text of host 2")):
        view = clients[number].proposal_get(shown[number].proposal)
        text = ReviewedFile(path="twice.txt", content=LINES.replace("line 5", own), base=view.files[0].now)
        clients[number].proposal_approve(shown[number].proposal, view=view.view, files=[text])
    clients[0].remote_resume()
    exchange(clients[0])
    for client in clients[1:]:
        client.remote_resume()
    exchange(*clients)
    landed = LINES.replace("line 5", "text of host 0").encode()
    assert {place.files()["twice.txt"] for place in places} == {landed}
    (second,) = [
        entry
        for entry in log_of(server)
        if entry.trailers["Outcome"] == "aside" and entry.trailers["Host"] == "host2"
    ]

    def offers_second(client: Client) -> bool:
        return any(
            "text of host 2" in hunk.text
            for one in client.proposal_list().proposals
            for file in client.proposal_get(one.proposal).files
            for hunk in file.hunks
        )

    until(lambda: all(map(offers_second, clients)), "the second text is no proposal")
    assert second.origin != made.id
    assert states(three, "twice") <= {"landed", "moot", "open"}


def test_a_redo_does_not_bring_back_what_was_set_aside(three: Hosts) -> None:
    places, clients, _ = three
    undone = clients[1].apply([replace("redone.txt", "line 1\n", "1\n")]).transaction
    assert undone is not None
    clients[1].undo(undone.seq)
    set_aside(three, "redone")
    clients[1].redo()
    exchange(*clients)
    expected = LINES.replace("line 5", "five").replace("line 1", "1").encode()
    assert {place.files()["redone.txt"] for place in places} == {expected}
    assert all(proposal_of(client, "redone") for client in clients)


def test_a_proposal_that_a_kill_has_cost_is_made_by_the_next_round(three: Hosts) -> None:
    places, clients, _ = three
    clients[2].remote_pause()
    _, (one, other, _), _ = three
    other.remote_pause()
    one.apply([replace("killed.txt", "line 5\n", "five\n")])
    exchange(one)
    other.apply([replace("killed.txt", "line 5\n", "FIVE\n")], message="killed")
    other.remote_resume()
    exchange(one, other)
    places[2].kill()
    clients[2].close()
    clients[2] = places[2].start()
    clients[2].remote_resume()
    waits_on_all(three, "killed")


def test_the_authors_session_is_told(three: Hosts) -> None:
    places, clients, _ = three
    clients[1].session_open("types")
    author = places[1].client()
    heard = author.subscribe(events=["proposal"])
    set_aside(three, "withdrawn", session="types")
    shown = waits_on_all(three, "withdrawn")
    assert [one.session for one in shown] == ["types@host1", "types", "types@host1"]
    event = heard.wait(10)
    assert event is not None
    assert (event.data["what"], event.data["proposal"]["session"]) == ("opened", "types")
    clients[1].session_close(withdraw=True)
    until(lambda: states(three, "withdrawn") == {"withdrawn"}, "the others do not follow")
    author.close()
