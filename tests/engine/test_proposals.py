"""Tests of `review.proposals`: nothing lands before it is approved, and each hunk lands once."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from editd.engine.commands import Undo
from editd.engine.commit import Batch
from editd.engine.undo_selection import ByTransaction
from editd.errors import Conflict, Decided, InvalidParams, IoError, UnknownProposal, ViewChanged
from editd.review.choice import ReviewedText
from editd.review.proposals import Proposals
from editd.store.proposals import ProposalStore
from editd.values.content import version_of
from editd.values.proposal import ProposalNumber, Reviewer
from editd.values.transaction import Authorship, Outcome, Seq
from support.harness import Harness, answer, apply, done, path_of, refused, write
from support.reviews import (
    ANN,
    BASE,
    FIRST,
    PROPOSED,
    ids,
    land,
    opened,
    proposals,
    propose,
    proposing,
    states,
    view,
)

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    made = Harness(tmp_path)
    made.baseline({"f": BASE, "other": "x\n"})
    return made


def test_a_proposal_touches_no_file_and_makes_no_transaction(harness: Harness) -> None:
    with opened(harness) as engine:
        proposal = propose(engine)
        assert (proposal.number, proposal.state, proposal.at) == (1, "open", 0)
        assert harness.files()["f"] == BASE
        assert engine.history.head == 0
        assert states(engine) == ["fits", "fits", "fits"]


def test_an_approval_of_the_view_is_one_transaction_of_the_author(harness: Harness) -> None:
    with opened(harness) as engine:
        propose(engine)
        transaction = done(engine, land(token=view(engine).token))
        assert harness.files()["f"] == PROPOSED
        author = transaction.authorship
        assert (transaction.kind, author.actor, author.session) == ("edit", "somebody", "claude-1")
        assert author.message == "better"
        assert author.approval is not None
        assert (author.approval.proposal, author.approval.hunks) == (1, (1, 2, 3))
        assert (author.approval.actor, author.approval.is_modified) == ("ann", False)
        settled = proposals(engine).get(FIRST)
        assert (settled.state, settled.landed) == ("landed", (1,))


def test_hunks_land_one_by_one_while_others_commit(harness: Harness) -> None:
    with opened(harness) as engine:
        propose(engine)
        first, second, third = ids(engine)
        done(engine, land(third))
        assert harness.files()["f"] == "a\nb\nc\nd\nE\n"
        done(engine, apply(write("f", "a\nb\nX\nd\nE\nnew\n")))
        assert states(engine) == ["fits", "conflict", "landed"]
        refusal = refused(engine, land(first, second))
        assert isinstance(refusal, Conflict)
        done(engine, land(first))
        assert harness.files()["f"] == "A\nb\nX\nd\nE\nnew\n"
        assert proposals(engine).get(FIRST).landed == (1, 3)
        assert proposals(engine).reject(FIRST, ANN, comment="no").state == "partly"


def test_what_has_only_moved_lands_with_the_token_of_the_former_view(harness: Harness) -> None:
    with opened(harness) as engine:
        propose(engine, write("f", "a\nb\nc\nd\nE\n"))
        token = view(engine).token
        done(engine, apply(write("f", "new\n" + BASE)))
        done(engine, land(token=token))
        assert harness.files()["f"] == "new\na\nb\nc\nd\nE\n"


def test_what_has_changed_since_is_refused_with_the_new_view(harness: Harness) -> None:
    with opened(harness) as engine:
        propose(engine)
        token = view(engine).token
        done(engine, apply(write("f", "X\nb\nc\nd\ne\n")))
        refusal = refused(engine, land(token=token))
        assert isinstance(refusal, ViewChanged)
        assert refusal.data == {"proposal": 1, "view": view(engine).token, "changed": []}
        assert harness.files()["f"] == "X\nb\nc\nd\ne\n"
        done(engine, land(token=view(engine).token))
        assert harness.files()["f"] == "X\nb\nC\nd\nE\n"
        assert proposals(engine).get(FIRST).state == "open"


def test_the_second_of_two_reviewers_is_told_of_the_first(harness: Harness) -> None:
    with opened(harness) as engine:
        propose(engine)
        token = view(engine).token
        first, second = engine.run_batch([land(token=token), land(token=token)])
        assert isinstance(first, Outcome)
        assert isinstance(second, Decided)
        assert second.data == {"proposal": 1, "state": "landed", "by": "ann", "seq": 1}
        assert engine.history.head == 1


def test_a_hunk_that_landed_is_not_landed_again(harness: Harness) -> None:
    with opened(harness) as engine:
        propose(engine)
        first, *_ = ids(engine)
        done(engine, land(first))
        refusal = refused(engine, land(first))
        assert isinstance(refusal, ViewChanged)
        assert refusal.data["changed"] == [first]


def test_an_approval_names_what_it_approves(harness: Harness) -> None:
    with opened(harness) as engine:
        propose(engine)
        assert isinstance(refused(engine, land()), InvalidParams)
        assert isinstance(
            refused(engine, replace(land(token="x"), proposal=ProposalNumber(9))), UnknownProposal
        )
        assert harness.files()["f"] == BASE


def test_a_rejected_proposal_touches_nothing_and_stays_readable(harness: Harness) -> None:
    with opened(harness) as engine:
        propose(engine)
        assert proposals(engine).reject(FIRST, ANN, comment="why?").state == "rejected"
        assert harness.files()["f"] == BASE
        assert isinstance(refused(engine, land(token="x")), Decided)
        assert states(engine) == ["rejected"] * 3
        (decision,) = proposals(engine).store.decisions(FIRST)
        assert (decision.what, decision.comment, decision.by) == ("reject", "why?", ANN)
        with pytest.raises(Decided):
            proposals(engine).withdraw(FIRST, Reviewer("somebody"))


def test_the_reviewers_own_text_lands_for_the_author_and_is_marked_so(harness: Harness) -> None:
    with opened(harness) as engine:
        propose(engine)
        text = ReviewedText(path_of("f"), b"mine\n", version_of(BASE.encode()))
        transaction = done(engine, land(texts=(text,)))
        assert harness.files()["f"] == "mine\n"
        approval = transaction.authorship.approval
        assert approval is not None
        assert approval.is_modified
        assert proposals(engine).get(FIRST).state == "landed"


def test_a_proposal_of_what_others_made_too_lands_without_a_transaction(harness: Harness) -> None:
    with opened(harness) as engine:
        propose(engine)
        done(engine, apply(write("f", PROPOSED)))
        assert states(engine) == ["there"] * 3
        outcome = answer(engine, land(token=view(engine).token))
        assert isinstance(outcome, Outcome)
        assert (outcome.changes, outcome.transaction) == ((), None)
        assert proposals(engine).get(FIRST).state == "landed"


def test_a_dry_run_decides_nothing(harness: Harness) -> None:
    with opened(harness) as engine:
        propose(engine)
        outcome = answer(engine, replace(land(token=view(engine).token), dry_run=True))
        assert isinstance(outcome, Outcome)
        assert [change.path.text for change in outcome.changes] == ["f"]
        assert harness.files()["f"] == BASE
        assert proposals(engine).get(FIRST).state == "open"


def test_the_same_request_again_finds_the_proposal_and_then_its_transaction(harness: Harness) -> None:
    request = proposing(write("f", PROPOSED), request_id="r")
    with opened(harness) as engine:
        first = answer(engine, request)
        assert isinstance(first, Outcome)
    with opened(harness) as engine:
        again = answer(engine, request)
        assert isinstance(again, Outcome)
        assert again.proposal == first.proposal
        assert isinstance(refused(engine, replace(request, fingerprint="two")), InvalidParams)
        assert len(proposals(engine).store.open) == 1
        transaction = done(engine, land(token=view(engine).token))
        assert done(engine, request) == transaction


def test_a_proposal_has_nothing_of_an_edit_that_is_not_committed_yet(harness: Harness) -> None:
    """Its base is in the history, even if an edit of the same turn is planned before it."""
    with opened(harness) as engine:
        edit, proposed = engine.run_batch(
            [apply(write("f", "0\n" + BASE)), proposing(write("f", "0\n" + PROPOSED))]
        )
        assert isinstance(edit, Outcome)
        assert isinstance(proposed, Outcome)
        assert proposed.proposal is not None
        assert proposals(engine).get(ProposalNumber(proposed.proposal)).at == 1


def test_a_kill_between_the_frame_and_the_verdicts_lands_the_hunks_once(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(harness) as engine, monkeypatch.context() as patched:
        propose(engine)
        first, *rest = ids(engine)
        patched.setattr(Proposals, "landed", lambda *_: os_error())
        with pytest.raises(SystemExit):
            done(engine, land(first))
        assert proposals(engine).store.open[FIRST].landed == ()
    with opened(harness) as engine:
        assert harness.files()["f"] == "A\nb\nc\nd\ne\n"
        assert states(engine) == ["landed", "fits", "fits"]
        assert proposals(engine).get(FIRST).landed == (1,)
        assert isinstance(refused(engine, land(first)), ViewChanged)
        done(engine, land(*rest))
        assert harness.files()["f"] == PROPOSED
    with opened(harness) as engine:
        assert proposals(engine).get(FIRST).landed == (1, 2)


def os_error() -> None:
    raise SystemExit


def test_the_same_approval_again_after_a_kill_gets_the_first_answer(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of the decision is there again: its comment, its difference, and the rest that it rejected."""
    with opened(harness) as engine, monkeypatch.context() as patched:
        propose(engine)
        first, *_ = ids(engine)
        asked = replace(
            land(first), comment="the rest is for later", rejects_rest=True, fingerprint="one",
            authorship=Authorship("ann", "ann's page", request_id="r"),
        )  # fmt: skip
        patched.setattr(Proposals, "landed", lambda *_: os_error())
        with pytest.raises(SystemExit):
            done(engine, asked)
    with opened(harness) as engine:
        again = answer(engine, asked)
        assert isinstance(again, Outcome)
        assert again.transaction == engine.history.find(1)
        assert harness.files()["f"] == "A\nb\nc\nd\ne\n"
        assert engine.history.head == 1
        assert states(engine) == ["landed", "rejected", "rejected"]
        (decision,) = proposals(engine).store.decisions(FIRST)
        assert (decision.comment, decision.request_id, decision.seq) == ("the rest is for later", "r", 1)
        assert proposals(engine).get(FIRST).state == "partly"
        other = replace(asked, fingerprint="two")
        assert isinstance(refused(engine, other), InvalidParams)


def test_a_decision_that_was_never_committed_is_no_decision(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ann is killed before the commit point. Bob lands the same hunk: it is his, also after a kill."""
    with opened(harness) as engine, monkeypatch.context() as patched:
        propose(engine)
        first, *rest = ids(engine)
        patched.setattr(Batch, "commit", lambda *_: os_error())
        with pytest.raises(SystemExit):
            done(engine, replace(land(first), comment="ann's", rejects_rest=True))
    with opened(harness) as engine, monkeypatch.context() as patched:
        assert states(engine) == ["fits", "fits", "fits"]
        patched.setattr(Proposals, "landed", lambda *_: os_error())
        with pytest.raises(SystemExit):
            done(engine, replace(land(first), by=Reviewer("bob"), comment="bob's"))
    with opened(harness) as engine:
        (decision,) = proposals(engine).store.decisions(FIRST)
        assert (decision.by.actor, decision.comment) == ("bob", "bob's")
        assert states(engine) == ["landed", "fits", "fits"]
        done(engine, land(*rest))


def test_verdicts_that_cannot_be_stored_are_taken_from_the_history_before_anything_else(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise IoError(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "The proposals cannot be written")

    with opened(harness) as engine:
        propose(engine)
        first, *_ = ids(engine)
        with monkeypatch.context() as patched:
            patched.setattr(ProposalStore, "decide", full)
            transaction = done(engine, land(first))
            assert harness.files()["f"] == "A\nb\nc\nd\ne\n"
            assert isinstance(refused(engine, land(first)), IoError)
        assert isinstance(refused(engine, land(first)), ViewChanged)
        assert proposals(engine).get(FIRST).landed == (transaction.seq,)
        assert engine.history.head == Seq(1)


def test_a_landed_hunk_can_be_undone_alone(harness: Harness) -> None:
    with opened(harness) as engine:
        propose(engine)
        first, _, third = ids(engine)
        done(engine, land(first))
        done(engine, land(third))
        done(engine, Undo(Authorship("somebody"), "connection 1", ByTransaction(1)))
        assert harness.files()["f"] == "a\nb\nc\nd\nE\n"
        assert states(engine) == ["landed", "fits", "landed"]
