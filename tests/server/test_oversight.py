"""Pauses of sessions, marks of reviewed work and the latest refusals, through the real socket."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from editd.wire import messages
from editd_client.errors import EditdError
from support.reviewers import author_of, config_folder, reviewer_of, set_pin
from support.workplace import replace, write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd_client.client import Client
    from support.workplace import Workplace


@pytest.fixture
def author(place: Workplace) -> Iterator[Client]:
    set_pin(place)
    with author_of(place, {"a": "one\n", "b": "one\n"}) as made:
        yield made


@pytest.fixture
def ann(place: Workplace, author: Client) -> Iterator[Client]:
    del author
    with reviewer_of(place) as made:
        yield made


def refused(name: str, said: str | None = None) -> Any:
    return pytest.raises(EditdError, match=said, check=lambda error: error.name == name)


def seq_of(result: messages.ApplyResult) -> int:
    assert result.transaction is not None
    return result.transaction.seq


def entry_of(client: Client, name: str = "agent") -> messages.SessionEntry:
    return next(entry for entry in client.session_list().sessions if entry.session == name)


# ── pauses ──


def test_a_paused_session_changes_nothing_and_is_told_the_reason(
    place: Workplace, author: Client, ann: Client
) -> None:
    done = seq_of(author.apply([replace("a", "one", "two")], request_id="first"))
    lease = author.lease_acquire(["b"], 600).lease
    with ann.subscribe(events=["session", "lease"]) as events:
        paused = ann.session_pause("agent", reason="Wait for the release.", end_leases=True)
        told = [events.wait(10), events.wait(10)]
    assert paused.leases == [lease]
    assert {one.data["what"] for one in told if one is not None} == {"paused", "released"}
    said = r"The session 'agent' is paused by ann: Wait for the release\. Change nothing until"
    for edit in (
        lambda: author.apply([write("n", "1\n")]),
        lambda: author.apply([write("n", "1\n")], dry_run=True),
        lambda: author.undo(done),
        lambda: author.rollback("agent"),
        lambda: author.restore(0),
        lambda: author.exec_begin("make"),
        lambda: author.lease_acquire(["b"], 600),
    ):
        with refused("permission_denied", said):
            edit()
    assert seq_of(author.apply([replace("a", "one", "two")], request_id="first")) == done, (
        "it is made already"
    )
    assert author.read("a").content == "two\n"
    entry = entry_of(author).paused
    assert entry is not None
    assert (entry.action, entry.reason, entry.by) == ("refuse", "Wait for the release.", "ann")
    ann.apply([write("n", "of ann\n")])
    with refused("permission_denied", "may not resume itself"):
        author.session_resume("agent")
    with refused("permission_denied", "may not change its own pause"):
        author.session_pause("agent", action="propose")
    ann.session_resume("agent")
    with refused("invalid_params", "not paused"):
        ann.session_resume("agent")
    author.apply([replace("b", "one", "two")])
    assert entry_of(author).paused is None


def test_a_pause_survives_a_kill_and_the_end_of_the_session(place: Workplace, author: Client) -> None:
    author.apply([replace("a", "one", "two")])
    with reviewer_of(place) as ann:
        ann.session_pause("agent")
    author.session_close()
    place.kill()
    with place.start() as client:
        entry = entry_of(client)
        assert (entry.state, entry.paused and entry.paused.by) == ("closed", "ann")
        client.session_open("agent")
        with refused("permission_denied", r"is paused by ann\."):
            client.apply([write("n", "1\n")])
    with place.client() as other:
        with refused("unknown_session"):
            other.session_pause("aegnt")
        with refused("invalid_params"):
            other.session_resume("other")


def test_the_edits_of_a_paused_session_can_wait_for_a_reviewer_instead(
    place: Workplace, author: Client, ann: Client
) -> None:
    ann.session_pause("agent", action="propose", reason="Show me")
    made = author.apply([replace("a", "one", "two")])
    assert made.transaction is None
    assert isinstance(made.proposal, messages.ProposedResult)
    assert (made.proposal.proposal, made.proposal.rule) == (1, "pause")
    assert made.warnings == ["The session 'agent' is paused by ann: Show me."]
    assert place.files()["a"] == b"one\n"
    ann.session_pause("agent")
    with refused("permission_denied"):
        author.apply([write("n", "1\n")])
    ann.proposal_approve(1, view=ann.proposal_get(1).view)
    assert place.files()["a"] == b"two\n"


CHECKED = """
[[review.check]]
name = "true"
command = ["sh", "-c", "while [ ! -e {gate} ]; do sleep 0.02; done"]
[[review.rule]]
name = "tested"
paths = ["**"]
action = "land"
check = "true"
"""


def test_no_rule_lands_the_work_of_a_paused_session(place: Workplace, author: Client, ann: Client) -> None:
    gate = place.folder / "gate"
    (config_folder(place) / "config.toml").write_text(CHECKED.format(gate=gate))
    author.config_reload()
    author.apply([replace("a", "one", "two")])
    ann.session_pause("agent", action="propose")
    with ann.subscribe(events=["proposal"]) as events:
        gate.touch()
        checked = events.wait(20)
    assert checked is not None
    assert checked.data["what"] == "checked"
    assert ann.proposal_wait(1, timeout=0.5).state == "open"


def test_only_reviewers_pause_and_mark_where_they_have_a_socket_of_their_own(
    place: Workplace, author: Client
) -> None:
    seq = seq_of(author.apply([replace("a", "one", "two")]))
    (config_folder(place) / "config.toml").write_text('[review]\nsocket = "own"\n')
    place.stop()
    with place.start() as client:
        for steer in (
            lambda: client.session_pause("agent"),
            lambda: client.session_resume("agent"),
            lambda: client.review_mark([seq]),
        ):
            with refused("permission_denied", "a separate socket for reviewers"):
                steer()


# ── marks ──


def test_unreviewed_work_is_what_no_person_has_approved_or_marked(
    place: Workplace, author: Client, ann: Client
) -> None:
    seqs = [
        seq_of(author.apply([replace("a", old, new)])) for old, new in (("one", "1"), ("1", "2"), ("2", "3"))
    ]
    ann.apply([write("by-ann", "1\n")])
    author.apply([write("seen", "1\n")], propose=True)
    ann.proposal_approve(1, view=ann.proposal_get(1).view)
    undone = seq_of(author.apply([write("undone", "1\n")]))
    ann.undo(undone)
    place.write({"outside": "1\n"})
    ann.settle()

    def unreviewed(**more: Any) -> list[int]:
        return [one.seq for one in ann.log(unreviewed=True, **more).transactions][::-1]

    assert unreviewed() == seqs
    with ann.subscribe(events=["review"]) as events:
        assert ann.review_mark([seqs[0], seqs[2]]).marked == 2
        told = events.wait(10)
    assert told is not None
    assert told.data == {"what": "marked", "transactions": [seqs[0], seqs[2]], "by": "ann"}
    assert ann.review_mark([seqs[0]]).marked == 0
    assert unreviewed() == [seqs[1]]
    assert ann.log_count(unreviewed=True).count == 1
    assert ann.log_count(unreviewed=True, path="b").count == 0
    later = seq_of(author.apply([replace("b", "one", "two")]))
    assert unreviewed(session="agent") == [seqs[1], later]
    by = ann.show(seqs[0]).transaction.reviewed_by
    assert isinstance(by, messages.ReviewedBy)
    assert by.actor == "ann"
    assert ann.review_mark([seqs[0]], reviewed=False).marked == 1
    place.kill()
    with place.start() as client:
        assert [one.seq for one in client.log(unreviewed=True).transactions][::-1] == [
            seqs[0],
            seqs[1],
            later,
        ]
        assert isinstance(
            client.log(before=seqs[2] + 1, limit=1).transactions[0].reviewed_by, messages.ReviewedBy
        )


def test_an_author_may_not_mark_its_own_work(author: Client, ann: Client) -> None:
    seq = seq_of(author.apply([replace("a", "one", "two")]))
    with refused("permission_denied", "may not mark its own work"):
        author.review_mark([seq])
    with refused("unknown_transaction"):
        ann.review_mark([seq, seq + 7])
    with refused("invalid_params"):
        ann.review_mark([])
    assert ann.log_count(unreviewed=True).count == 1


# ── refusals ──


def test_refusals_are_kept_and_told(author: Client, ann: Client) -> None:
    with ann.subscribe(events=["refusal"]) as events:
        with pytest.raises(EditdError):
            author.apply([replace("a", "absent", "x"), write("b", "2\n")])
        told = events.wait(10)
    assert told is not None
    entry = told.data["refusal"]
    assert (entry["number"], entry["method"], entry["session"], entry["actor"]) == (
        1,
        "apply",
        "agent",
        "claude",
    )
    assert entry["paths"] == ["a", "b"]
    assert "absent" in entry["message"] or "not in" in entry["message"]
    with pytest.raises(EditdError):
        author.apply([replace("a", "absent", "x")], dry_run=True)
    with pytest.raises(EditdError):
        author.read("absent")
    for name, mistyped in (("unknown_transaction", partial(ann.undo, 99)), ("nothing_to_undo", ann.undo)):
        with refused(name):
            mistyped()
    with pytest.raises(EditdError):
        ann.apply([write("../b", "2\n")])
    kept = ann.log_refusals().refusals
    assert [(one.number, one.method, one.error) for one in kept] == [
        (2, "apply", "path_outside"),
        (1, "apply", entry["error"]),
    ]
    assert kept[1].attempt == "replace a\n-absent\n+x\nwrite b\n+2\n+"
    assert ann.log_refusals(session="agent").refusals == kept[1:]
    assert ann.log_refusals(after=1).refusals == kept[:1]
    assert kept[0].head == 0
    author.session_open("robot", actor="robot", kind="agent")
    with refused("unknown_transaction"):
        author.undo(99)
    assert ann.log_refusals().refusals[0].error == "unknown_transaction", "an agent's mistake is shown"
    with refused("invalid_params"):
        ann.log_refusals(limit=0)
