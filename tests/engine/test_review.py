"""Tests of `review.submission` and of the states of proposals: who asks, what ends, and what comes back."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from editd.config.schema import AtMost, Keep
from editd.engine.commands import Apply, Land, NeedsHooks, Restore, Undo
from editd.engine.hooks import Hook, HookResult
from editd.engine.undo_selection import BySession, ByTransaction
from editd.errors import (
    Conflict,
    Decided,
    InvalidParams,
    Overloaded,
    PermissionDenied,
    Rejected,
    UnknownProposal,
    ViewChanged,
)
from editd.review.choice import ReviewedText
from editd.review.planned import Planned
from editd.review.policy import ReviewPolicy, ReviewRule
from editd.review.proposals import EDITD
from editd.server.retention import Retention
from editd.values.content import Change, FileState, version_of
from editd.values.glob import Glob
from editd.values.proposal import HunkId, Proposal, ProposalNumber, Reviewer
from editd.values.transaction import Authorship, Outcome
from editd.wire import messages
from support.harness import FakeClock, Harness, answer, apply, done, path_of, refused, write
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

    from editd.engine.engine import Engine

SECOND, THIRD = ProposalNumber(2), ProposalNumber(3)
AUTHOR = Authorship("somebody", "claude-1", "better")
DAY_US = 86_400_000_000
START_US = 1_800_000_000_000_000


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    made = Harness(tmp_path, FakeClock(START_US))
    made.baseline({"f": BASE, "g": BASE, "other": "x\n"})
    return made


def rule(name: str, glob: str, action: str, **most: int) -> ReviewRule:
    return ReviewRule(name, (Glob.parse(glob),), action, AtMost(**most))  # type: ignore[arg-type]


def outcome_of(engine: Engine, request: Any) -> Outcome:
    outcome = answer(engine, request)
    assert isinstance(outcome, Outcome), outcome
    return outcome


def words(engine: Engine) -> list[tuple[int, str, str]]:
    """Return a list that fills with each change from here on: the proposal, the word, and its state."""
    heard: list[tuple[int, str, str]] = []

    def hear(proposal: Proposal, word: str) -> None:
        assert proposals(engine).get(proposal.number) == proposal, "the change is stored before it is told"
        heard.append((proposal.number, word, proposal.state))

    proposals(engine).on_changed.append(hear)
    return heard


# ── The states ──


def test_each_change_is_told_when_it_is_stored(harness: Harness) -> None:
    with opened(harness) as engine:
        heard = words(engine)
        propose(engine)
        answer(engine, replace(proposing(write("f", "A\nb\nc\nd\nE\n")), proposal=FIRST))
        proposals(engine).comment(FIRST, ANN, "why?")
        proposals(engine).check(FIRST, view(engine).token, "pytest", 0, 1.5, "ok", ANN)
        first, second = ids(engine)
        done(engine, land(first))
        proposals(engine).reject(FIRST, ANN, frozenset({second}))
        propose(engine, write("g", PROPOSED))
        proposals(engine).withdraw(SECOND, Reviewer("somebody", "claude-1"))
        assert heard == [
            (1, "opened", "open"),
            (1, "revised", "open"),
            (1, "commented", "open"),
            (1, "checked", "open"),
            (1, "landed", "open"),
            (1, "rejected", "partly"),
            (2, "opened", "open"),
            (2, "withdrawn", "withdrawn"),
        ]


def test_a_comment_is_on_the_whole_on_a_hunk_or_on_a_line(harness: Harness) -> None:
    with opened(harness) as engine:
        propose(engine)
        first, *_ = ids(engine)
        made = proposals(engine)
        made.comment(FIRST, ANN, "why?")
        made.comment(FIRST, ANN, "this one", hunk=first)
        made.comment(FIRST, ANN, "here", path="f", line=3)
        with pytest.raises(InvalidParams):
            made.comment(FIRST, ANN, "which?", hunk=HunkId("0" * 16))
        with pytest.raises(InvalidParams):
            made.comment(FIRST, ANN, "which?", path="other")
        with pytest.raises(InvalidParams):
            made.comment(FIRST, ANN, "which?", line=3)
        with pytest.raises(InvalidParams):
            made.comment(FIRST, ANN, " ")
        with pytest.raises(UnknownProposal):
            made.comment(SECOND, ANN, "what?")
    with opened(harness) as engine:
        comments = proposals(engine).store.comments(FIRST)
        assert [(one.text, one.hunk, one.path, one.line) for one in comments] == [
            ("why?", None, None, None),
            ("this one", first, None, None),
            ("here", None, "f", 3),
        ]


def test_a_check_keeps_the_end_of_its_output_and_the_view_it_ran_on(harness: Harness) -> None:
    with opened(harness) as engine:
        propose(engine)
        token = view(engine).token
        proposals(engine).check(FIRST, token, "pytest", 1, 2.5, "begin" + "x" * 3_997 + "end", ANN)
    with opened(harness) as engine:
        (result,) = proposals(engine).store.checks(FIRST)
        assert (result.view, result.name, result.exit, result.by) == (token, "pytest", 1, ANN)
        assert len(result.output) == 4_000
        assert result.output.endswith("xend")
        proposals(engine).reject(FIRST, ANN)
        with pytest.raises(Decided):
            proposals(engine).check(FIRST, token, "pytest", 0, 1, "", ANN)


def test_what_others_made_as_well_is_moot_once_it_is_viewed(harness: Harness) -> None:
    with opened(harness) as engine:
        propose(engine)
        done(engine, apply(write("f", "A\nb\nC\nd\ne\n")))
        assert proposals(engine).settle_moot(view(engine)).proposal.state == "open"
        done(engine, apply(write("f", PROPOSED)))
        heard = words(engine)
        assert proposals(engine).settle_moot(view(engine)).proposal.state == "moot"
        assert proposals(engine).settle_moot(view(engine)).proposal.state == "moot"
        assert heard == [(1, "moot", "moot")]
        assert isinstance(refused(engine, land(token=view(engine).token)), Decided)


def test_a_proposal_expires_when_its_time_is_over_and_lands_no_more(harness: Harness) -> None:
    with opened(harness) as engine:
        proposals(engine).lifetime_us = DAY_US
        propose(engine)
        propose(engine, write("g", PROPOSED))
        token = view(engine).token
        assert proposals(engine).expire(START_US + DAY_US - 1) == []
        harness.clock.us = START_US + DAY_US
        refusal = refused(engine, land(token=token))
        assert isinstance(refusal, Decided)
        assert refusal.data["state"] == "expired"
        assert [one.number for one in proposals(engine).expire(START_US + DAY_US)] == [2]
        assert harness.files()["f"] == BASE
    with opened(harness) as engine:
        assert proposals(engine).store.open == {}


@pytest.mark.parametrize("end", ["reject", "withdraw"])
def test_a_settled_proposal_is_reopened_as_another(harness: Harness, end: str) -> None:
    with opened(harness) as engine:
        propose(engine)
        with pytest.raises(InvalidParams):
            proposals(engine).reopen(FIRST, AUTHOR, ANN)
        getattr(proposals(engine), end)(FIRST, ANN)
        again = proposals(engine).reopen(FIRST, AUTHOR, ANN)
        assert (again.number, again.state, again.authorship) == (2, "open", AUTHOR)
        (decision,) = proposals(engine).store.decisions(SECOND)
        assert (decision.what, decision.comment, decision.by) == ("reopen", "P1", ANN)
        assert [one.state for one in view(engine, SECOND).files[0].hunks] == ["fits"] * 3
        done(engine, replace(land(token=view(engine, SECOND).token), proposal=SECOND))
        assert harness.files()["f"] == PROPOSED
        with pytest.raises(Decided):
            proposals(engine).reopen(SECOND, AUTHOR, ANN)


def test_a_reopened_proposal_waits_on_its_first_base_also_if_others_moved_the_file(harness: Harness) -> None:
    with opened(harness) as engine:
        propose(engine)
        proposals(engine).reject(FIRST, ANN)
        done(engine, apply(messages.Move(path="f", to="moved")))
        again = proposals(engine).reopen(FIRST, AUTHOR, ANN)
        assert again.at == proposals(engine).get(FIRST).at == 0
        (fitted,) = view(engine, SECOND).files
        assert (fitted.path, [one.state for one in fitted.hunks]) == (path_of("moved"), ["fits"] * 3)
        done(engine, replace(land(token=view(engine, SECOND).token), proposal=SECOND))
        assert harness.files()["moved"] == PROPOSED


@pytest.mark.parametrize(
    ("state", "verdict"), [("rejected", "rejected"), ("landed", "landed"), ("moot", None)]
)
def test_a_decision_of_another_host_is_about_all_undecided_hunks(
    harness: Harness, state: str, verdict: str | None
) -> None:
    with opened(harness) as engine:
        propose(engine)
        first, *_ = ids(engine)
        done(engine, land(first))
        settled = proposals(engine).settle_elsewhere(FIRST, state, ANN, "there")
        assert settled.state == state
    with opened(harness) as engine:
        (file,) = proposals(engine).store.files(FIRST, 1)
        assert [hunk.verdict for hunk in file.hunks] == ["landed", verdict, verdict]


def test_the_rejected_hunks_of_a_partly_landed_proposal_are_reopened(harness: Harness) -> None:
    with opened(harness) as engine:
        propose(engine)
        first, *_ = ids(engine)
        done(engine, replace(land(first), rejects_rest=True))
        assert proposals(engine).get(FIRST).state == "partly"
        proposals(engine).reopen(FIRST, AUTHOR, ANN)
        assert [one.state for one in view(engine, SECOND).files[0].hunks] == ["fits"] * 2
        done(engine, replace(land(token=view(engine, SECOND).token), proposal=SECOND))
        assert harness.files()["f"] == PROPOSED


def test_a_reviewer_may_send_the_same_decision_again(harness: Harness) -> None:
    with opened(harness) as engine:
        propose(engine)
        request = replace(land(token=view(engine).token), authorship=Authorship("ann", request_id="r"))
        transaction = done(engine, request)
        assert done(engine, request) == transaction
        assert engine.history.head == 1
        assert isinstance(refused(engine, replace(request, fingerprint="other")), InvalidParams)
        bob = replace(request, by=Reviewer("bob"))
        assert isinstance(refused(engine, bob), Decided), "the id is ann's"
        propose(engine, write("g", PROPOSED))
        rejected = proposals(engine).reject(SECOND, ANN, comment="no", request_id="q")
        assert proposals(engine).reject(SECOND, ANN, comment="no", request_id="q") == rejected
        assert len(proposals(engine).store.decisions(SECOND)) == 1


# ── Who asks ──


def test_a_rule_asks_lands_or_refuses(harness: Harness) -> None:
    with opened(harness) as engine:
        engine.landing.review = ReviewPolicy(
            "land",
            (rule("locks", "f", "ask"), rule("tests", "g", "land", lines=4), rule("no", "other", "refuse")),
        )
        asked = outcome_of(engine, apply(write("f", PROPOSED)))
        assert (asked.transaction, asked.proposal) == (None, 1)
        assert proposals(engine).get(FIRST).rule == "locks"
        landed = done(engine, apply(write("g", "A\n" + BASE)))
        assert landed.authorship.approval is not None
        assert (landed.authorship.approval.rule, landed.authorship.approval.proposal) == ("tests", None)
        assert outcome_of(engine, apply(write("g", PROPOSED))).proposal == 2, (
            "more lines than the rule lets land"
        )
        assert isinstance(refused(engine, apply(write("other", "y\n"))), PermissionDenied)
        assert done(engine, apply(write("new", "y\n"))).authorship.approval is None
        assert harness.files() == {"f": BASE, "g": "A\n" + BASE, "other": "x\n", "new": "y\n"}


def test_a_dry_run_names_the_rule_and_makes_nothing(harness: Harness) -> None:
    with opened(harness) as engine:
        engine.landing.review = ReviewPolicy("ask")
        planned = outcome_of(engine, replace(apply(write("f", PROPOSED)), dry_run=True))
        assert (planned.would_propose, planned.proposal) == ("default", None)
        done_before = outcome_of(engine, replace(proposing(write("f", PROPOSED)), dry_run=True))
        assert done_before.would_propose == "request"
        assert outcome_of(engine, replace(apply(write("f", BASE)), dry_run=True)).would_propose is None
        assert proposals(engine).store.open == {}


def test_a_session_only_tightens_what_the_rules_say(harness: Harness) -> None:
    with opened(harness) as engine:
        engine.landing.review = ReviewPolicy("land", (rule("no", "other", "refuse"),))
        wish = replace(apply(write("other", "y\n")), propose="session")
        assert isinstance(refused(engine, wish), PermissionDenied)
        assert outcome_of(engine, replace(apply(write("f", "")), propose="session")).proposal == 1
        assert proposals(engine).get(FIRST).rule == "session"


def test_a_rule_counts_the_edits_of_the_last_hour_in_one_turn_and_after_a_restart(harness: Harness) -> None:
    policy = ReviewPolicy("ask", (rule("few", "**", "land", per_hour=3),))
    with opened(harness) as engine:
        engine.landing.review = policy
        results = engine.run_batch([apply(write(name, "1\n")) for name in ("a", "b")])
        assert all(isinstance(result, Outcome) and result.transaction for result in results)
    with opened(harness) as engine:
        engine.landing.review = policy
        third, fourth = engine.run_batch([apply(write(name, "1\n")) for name in ("c", "d")])
        assert isinstance(third, Outcome)
        assert isinstance(fourth, Outcome)
        assert (third.proposal, fourth.proposal) == (None, 1)
        for seconds in (1_801, 3_599):
            harness.clock.us = START_US + seconds * 1_000_000
            assert outcome_of(engine, apply(write(f"d{seconds}", "1\n"))).transaction is None
        harness.clock.us = START_US + 3_600_000_000 + 10
        done(engine, apply(write("e", "1\n")))


def test_a_proposal_by_a_rule_is_not_based_on_an_edit_that_may_be_aborted(harness: Harness) -> None:
    with opened(harness) as engine:
        engine.landing.review = ReviewPolicy("land", (rule("g", "g", "ask"),))
        edit, proposed = engine.run_batch(
            [apply(write("f", PROPOSED)), apply(write("f", "x\n"), write("g", PROPOSED))]
        )
        assert isinstance(edit, Outcome)
        assert isinstance(proposed, Outcome)
        assert proposed.proposal == 1
        made = proposals(engine).get(FIRST)
        assert made.at == 1
        base = proposals(engine).store.files(FIRST, 1)[0].base
        assert base is not None
        assert base.content.decode() == PROPOSED


def test_the_same_request_finds_the_proposal_that_a_rule_made(harness: Harness) -> None:
    request = replace(apply(write("f", PROPOSED), session="s", request_id="r"), fingerprint="one")
    with opened(harness) as engine:
        engine.landing.review = ReviewPolicy("ask")
        assert outcome_of(engine, request).proposal == 1
    with opened(harness) as engine:
        assert outcome_of(engine, request).proposal == 1, "also when the rules have changed"
        assert len(proposals(engine).store.open) == 1


# ── Grants ──


def checked(*most: int, check: str | None = "tests") -> ReviewRule:
    limits = AtMost(lines=most[0]) if most else AtMost()
    return ReviewRule("tested", (Glob.parse("f"),), "land", limits, check=check)


def by_rule(token: str, *names: str) -> Land:
    return Land(Authorship("editd"), "rules", FIRST, EDITD, view=token, passed=frozenset(names))


def test_a_rule_with_a_check_lands_exactly_the_view_that_has_passed_it(harness: Harness) -> None:
    with opened(harness) as engine:
        engine.landing.review = ReviewPolicy("land", (checked(),))
        waiting = outcome_of(engine, apply(write("f", "a\nb\nc\nd\nE\n"), session="s"))
        assert (waiting.transaction, waiting.proposal) == (None, FIRST)
        assert proposals(engine).get(FIRST).lands_after == ("tests",)
        token = view(engine).token
        assert isinstance(refused(engine, by_rule(token)), PermissionDenied)
        assert isinstance(refused(engine, by_rule(token, "lint")), PermissionDenied)
        engine.landing.review = ReviewPolicy("land", (checked(1),))
        assert isinstance(refused(engine, by_rule(token, "tests")), PermissionDenied), "it is beyond at_most"
        engine.landing.review = ReviewPolicy("land", (checked(),))
        engine.landing.review = ReviewPolicy()
        done(engine, apply(write("f", "0\n" + BASE)))
        engine.landing.review = ReviewPolicy("land", (checked(),))
        assert isinstance(refused(engine, by_rule(token, "tests")), ViewChanged), "its lines have moved"
        landed = done(engine, by_rule(view(engine).token, "tests"))
        assert harness.files()["f"] == "0\na\nb\nc\nd\nE\n"
        approval = landed.authorship.approval
        assert approval is not None
        assert (approval.rule, approval.actor, approval.proposal) == ("tested", None, FIRST)
        (decision,) = proposals(engine).store.decisions(FIRST)
        assert decision.by == Reviewer("tested", via="rule")


def test_a_conflict_keeps_a_rule_from_landing_the_rest(harness: Harness) -> None:
    with opened(harness) as engine:
        engine.landing.review = ReviewPolicy("land", (checked(),))
        outcome_of(engine, apply(write("f", PROPOSED), session="s"))
        engine.landing.review = ReviewPolicy()
        done(engine, apply(write("f", "X\nb\nc\nd\ne\n")))
        engine.landing.review = ReviewPolicy("land", (checked(),))
        assert states(engine) == ["conflict", "fits", "fits"]
        assert isinstance(refused(engine, by_rule(view(engine).token, "tests")), ViewChanged)


def test_the_checks_of_all_paths_are_needed_and_a_reviewer_if_one_path_needs_that(harness: Harness) -> None:
    lint = ReviewRule("linted", (Glob.parse("g"),), "land", AtMost(), check="lint")
    with opened(harness) as engine:
        engine.landing.review = ReviewPolicy("land", (checked(), lint, rule("asks", "other", "ask")))
        outcome_of(engine, apply(write("f", "1\n"), write("g", "1\n")))
        assert proposals(engine).get(FIRST).lands_after == ("tests", "lint")
        assert isinstance(refused(engine, by_rule(view(engine).token, "tests")), PermissionDenied)
        outcome_of(engine, apply(write("f", "1\n"), write("other", "1\n")))
        asked = proposals(engine).get(SECOND)
        assert (asked.rule, asked.lands_after) == ("asks", ())
        done(engine, by_rule(view(engine).token, "tests", "lint"))


def test_a_landing_by_a_rule_uses_a_grant_once_though_hooks_run_in_between(harness: Harness) -> None:
    """What lands is not what was proposed, so the hooks run again, and the landing is planned twice."""
    with opened(harness) as engine:
        made = proposals(engine).allow((Glob.parse("g"),), DAY_US, None, 2, None, ANN)
        engine.landing.review = ReviewPolicy("ask", (checked(),))
        outcome_of(engine, apply(write("f", "a\nb\nc\nd\nE\n"), write("g", "1\n"), session="s"))
        assert proposals(engine).get(FIRST).lands_after == ("tests",)
        engine.landing.review = ReviewPolicy()
        done(engine, apply(write("f", "0\n" + BASE)))
        engine.landing.review = ReviewPolicy("ask", (checked(),))
        engine.landing.hooks = (Hook("fmt", (Glob.parse("f"),), ("fmt",)),)
        request = by_rule(view(engine).token, "tests")
        needed = answer(engine, request)
        assert isinstance(needed, NeedsHooks)
        done(engine, replace(request, hooked=(needed.job, HookResult())))
        (left,) = proposals(engine).grants()
        assert (left.number, left.uses) == (made.number, 1)


def test_a_grant_lets_edits_land_until_it_is_used_up(harness: Harness) -> None:
    with opened(harness) as engine:
        engine.landing.review = ReviewPolicy("ask")
        granted = proposals(engine).allow([Glob.parse("f")], DAY_US, None, 2, None, ANN)
        transaction = done(engine, apply(write("f", "1\n")))
        assert transaction.authorship.approval is not None
        assert transaction.authorship.approval.rule == f"grant {granted.number}"
    with opened(harness) as engine:
        engine.landing.review = ReviewPolicy("ask")
        assert [one.uses for one in proposals(engine).grants()] == [1]
        assert outcome_of(engine, replace(apply(write("f", "2\n")), dry_run=True)).would_propose is None
        second, third = engine.run_batch([apply(write("f", "2\n")), apply(write("f", "3\n"))])
        assert isinstance(second, Outcome)
        assert isinstance(third, Outcome)
        assert (second.proposal, third.proposal) == (None, 1)
        assert proposals(engine).grants() == []


def test_a_grant_is_for_its_session_its_lines_and_its_time(harness: Harness) -> None:
    with opened(harness) as engine:
        engine.landing.review = ReviewPolicy("ask")
        made = proposals(engine)
        made.allow([Glob.parse("*")], DAY_US, "claude-1", None, 3, ANN)
        assert outcome_of(engine, apply(write("f", "0\n" + BASE))).proposal == 1
        done(engine, apply(write("f", "0\n" + BASE), session="claude-1"))
        assert [one.lines for one in made.grants()] == [2]
        assert outcome_of(engine, apply(write("g", PROPOSED), session="claude-1")).proposal == 2
        harness.clock.us = START_US + DAY_US
        assert made.grants() == []
        assert outcome_of(engine, apply(write("g", "0\n" + BASE), session="claude-1")).proposal == 3


def test_a_grant_is_revoked_and_has_an_end(harness: Harness) -> None:
    with opened(harness) as engine:
        made = proposals(engine)
        granted = made.allow([Glob.parse("f")], DAY_US, None, None, None, ANN)
        made.revoke(granted.number)
        assert made.grants() == []
        with pytest.raises(InvalidParams):
            made.revoke(granted.number)
        for ttl, uses, lines in ((DAY_US + 1, None, None), (0, None, None), (1, 0, None), (1, None, 0)):
            with pytest.raises(InvalidParams):
                made.allow([Glob.parse("f")], ttl, None, uses, lines, ANN)
        for _ in range(100):
            made.allow([Glob.parse("f")], DAY_US, None, None, None, ANN)
        with pytest.raises(Overloaded):
            made.allow([Glob.parse("f")], DAY_US, None, None, None, ANN)


# ── Undo and the like ──


def test_an_undo_waits_and_is_decided_whole(harness: Harness) -> None:
    with opened(harness) as engine:
        done(engine, apply(write("f", PROPOSED), write("g", "x\n")))
        undo = Undo(AUTHOR, "session claude-1", ByTransaction(1), propose="request")
        assert outcome_of(engine, undo).proposal == 1
        assert harness.files()["f"] == PROPOSED
        first, *_ = ids(engine)
        assert isinstance(refused(engine, land(first)), InvalidParams)
        with pytest.raises(InvalidParams):
            proposals(engine).reject(FIRST, ANN, frozenset({first}))
        text = ReviewedText(path_of("f"), b"mine\n", None)
        assert isinstance(refused(engine, land(texts=(text,))), InvalidParams)
    with opened(harness) as engine:
        transaction = done(engine, land(token=view(engine).token))
        assert (transaction.kind, transaction.undoes) == ("undo", (1,))
        assert engine.history.find(1).undone_by == 2
        assert (harness.files()["f"], harness.files()["g"]) == (BASE, BASE)
        assert proposals(engine).get(FIRST).state == "landed"


def test_no_edit_replaces_a_proposed_undo(harness: Harness) -> None:
    with opened(harness) as engine:
        done(engine, apply(write("f", PROPOSED)))
        outcome_of(engine, Undo(AUTHOR, "session claude-1", ByTransaction(1), propose="request"))
        refusal = refused(engine, revising(write("f", "x\n")))
        assert isinstance(refusal, InvalidParams)
        assert refusal.data == {"proposal": FIRST, "kind": "undo"}
        assert proposals(engine).get(FIRST).revision == 1
        done(engine, land(token=view(engine).token))
        assert harness.files()["f"] == BASE


def test_an_undo_that_no_longer_fits_whole_does_not_land(harness: Harness) -> None:
    with opened(harness) as engine:
        done(engine, apply(write("f", PROPOSED), write("g", "x\n")))
        outcome_of(engine, Undo(AUTHOR, "session claude-1", ByTransaction(1), propose="request"))
        done(engine, apply(write("g", "y\n")))
        assert isinstance(refused(engine, land(token=view(engine).token)), Conflict)
        assert harness.files()["f"] == PROPOSED
        assert proposals(engine).get(FIRST).state == "open"


def test_an_undo_of_what_is_undone_already_does_not_land(harness: Harness) -> None:
    with opened(harness) as engine:
        done(engine, apply(write("f", PROPOSED)))
        undo = Undo(AUTHOR, "session claude-1", ByTransaction(1))
        outcome_of(engine, replace(undo, propose="request"))
        done(engine, undo)
        done(engine, apply(write("f", PROPOSED)))
        assert isinstance(refused(engine, land(token=view(engine).token)), Conflict)
        assert harness.files()["f"] == PROPOSED


def test_a_rollback_a_redo_and_a_restore_are_transactions_of_their_kind(harness: Harness) -> None:
    rollback = Undo(AUTHOR, "s", BySession("bad"), "rollback", propose="session")
    restore = Restore(AUTHOR, "s", 0, propose="session")
    with opened(harness) as engine:
        done(engine, apply(write("f", PROPOSED), session="bad"))
        assert outcome_of(engine, rollback).proposal == 1
        landed = done(engine, land(token=view(engine).token))
        assert (landed.kind, landed.undoes) == ("rollback", (1,))
        assert landed.authorship.message == "better"
        redo = Undo(AUTHOR, "s", ByTransaction(2), "redo", propose="session")
        assert outcome_of(engine, redo).proposal == 2
        landed = done(engine, replace(land(token=view(engine, SECOND).token), proposal=SECOND))
        assert (landed.kind, harness.files()["f"]) == ("redo", PROPOSED)
        third = ProposalNumber(3)
        assert outcome_of(engine, restore).proposal == 3
        landed = done(engine, replace(land(token=view(engine, third).token), proposal=third))
        assert (landed.kind, harness.files()["f"]) == ("restore", BASE)


def test_the_rules_are_about_undos_too(harness: Harness) -> None:
    with opened(harness) as engine:
        done(engine, apply(write("f", PROPOSED)))
        engine.landing.review = ReviewPolicy("land", (rule("f", "f", "ask"),))
        undo = Undo(AUTHOR, "s", ByTransaction(1))
        assert outcome_of(engine, replace(undo, dry_run=True)).would_propose == "f"
        assert outcome_of(engine, undo).proposal == 1
        assert outcome_of(engine, Restore(AUTHOR, "s", 0, dry_run=True)).would_propose == "f"
        assert outcome_of(engine, Restore(AUTHOR, "s", 0)).proposal == 2
        assert harness.files()["f"] == PROPOSED


# ── Revisions ──


def revising(
    *edits: messages.AnyEdit, session: str | None = "claude-1", request_id: str | None = None
) -> Apply:
    request = apply(*edits, session=session, request_id=request_id)
    return replace(request, proposal=FIRST, fingerprint="two")


def test_a_revision_replaces_the_files_on_what_is_there_now(harness: Harness) -> None:
    with opened(harness) as engine:
        propose(engine)
        first, *_ = ids(engine)
        done(engine, land(first))
        outcome = outcome_of(engine, revising(write("g", PROPOSED)))
        assert (outcome.transaction, outcome.proposal) == (None, 1)
        revised = proposals(engine).get(FIRST)
        assert (revised.revision, revised.at, revised.landed) == (2, 1, (1,))
        assert (revised.authorship.message, revised.rule) == ("better", "request")
        assert [fitted.path.text for fitted in view(engine).files] == ["g"]
        transaction = done(engine, land(token=view(engine).token))
        assert transaction.authorship.approval is not None
        assert transaction.authorship.approval.revision == 2
        assert (harness.files()["f"], harness.files()["g"]) == ("A\nb\nc\nd\ne\n", PROPOSED)


def test_only_the_author_revises_what_is_open(harness: Harness) -> None:
    with opened(harness) as engine:
        propose(engine)
        request = revising(write("f", "x\n"))
        for session in ("other", None):
            revision = revising(write("f", "x\n"), session=session)
            assert isinstance(refused(engine, revision), PermissionDenied)
        dry = outcome_of(engine, replace(request, dry_run=True))
        assert (dry.would_propose, proposals(engine).get(FIRST).revision) == ("request", 1)
        proposals(engine).reject(FIRST, ANN)
        assert isinstance(refused(engine, request), Decided)
        assert isinstance(refused(engine, replace(request, proposal=SECOND)), UnknownProposal)


def test_each_request_of_a_revised_proposal_finds_it_again(harness: Harness) -> None:
    first = proposing(write("f", PROPOSED), request_id="a")
    second = revising(write("f", "x\n"), request_id="b")
    with opened(harness) as engine:
        for request in (first, second, first, second):
            assert outcome_of(engine, request).proposal == 1
        assert proposals(engine).get(FIRST).revision == 2
        transaction = done(engine, land(token=view(engine).token))
        assert done(engine, second) == transaction
        assert outcome_of(engine, first).proposal == 1
        assert engine.history.head == 1


# ── Hooks, and files that moved ──


def test_hooks_run_again_on_bytes_that_are_not_as_proposed(harness: Harness) -> None:
    hook = Hook("shout", (Glob.parse("f"),), ("true",))
    with opened(harness) as engine:
        propose(engine)
        engine.landing.hooks = (hook,)
        first, *_ = ids(engine)
        needs = answer(engine, land(first))
        assert isinstance(needs, NeedsHooks)
        assert needs.job.files[0].content == b"A\nb\nc\nd\ne\n"
        refusal = Rejected("no")
        assert isinstance(refused(engine, replace(land(first), hooked=(needs.job, refusal))), Rejected)
        assert proposals(engine).get(FIRST).state == "open"
        assert harness.files()["f"] == BASE
        result = HookResult({path_of("f"): b"A!\nb\nc\nd\ne\n"}, {path_of("f"): ("shout",)})
        done(engine, replace(land(first), hooked=(needs.job, result)))
        assert harness.files()["f"] == "A!\nb\nc\nd\ne\n"


def test_hooks_do_not_run_again_on_what_the_reviewer_read(harness: Harness) -> None:
    with opened(harness) as engine:
        propose(engine)
        engine.landing.hooks = (Hook("shout", (Glob.parse("f"),), ("true",)),)
        done(engine, land(token=view(engine).token))
        assert harness.files()["f"] == PROPOSED


def test_a_file_that_others_moved_is_found_at_its_new_path(harness: Harness) -> None:
    with opened(harness) as engine:
        propose(engine)
        done(engine, apply(messages.Move(path="f", to="moved/f", base=version_of(BASE.encode()))))
        assert states(engine) == ["fits"] * 3
        assert view(engine).files[0].path.text == "moved/f"
        done(engine, land(token=view(engine).token))
        assert harness.files()["moved/f"] == PROPOSED
        assert "f" not in harness.files()


def test_a_file_that_others_deleted_is_a_conflict(harness: Harness) -> None:
    with opened(harness) as engine:
        propose(engine)
        done(engine, apply(messages.Delete(path="f", base=version_of(BASE.encode()))))
        assert states(engine) == ["conflict"] * 3


def test_settled_proposals_are_forgotten_and_those_whose_time_is_over_expire(harness: Harness) -> None:
    with opened(harness) as engine:
        retention = Retention(
            engine, nothing(), nothing(), nothing(), str(harness.state), Keep(), lambda: None
        )
        draft = replace(apply(write("other", "y\n"), session="drafts"), is_collected=True, is_draft=True)
        draft_number = outcome_of(engine, draft).proposal
        assert draft_number is not None
        proposals(engine).lifetime_us = 2 * DAY_US
        propose(engine)
        proposals(engine).reject(SECOND, ANN)
        propose(engine, write("g", PROPOSED))
        retention.review_keep = 86_400.0
        harness.clock.us = START_US + DAY_US
        retention.tidy_proposals()
        assert proposals(engine).get(SECOND).state == "rejected"
        harness.clock.us = START_US + 2 * DAY_US
        retention.tidy_proposals()
        assert proposals(engine).get(THIRD).state == "expired"
        with pytest.raises(UnknownProposal):
            proposals(engine).get(SECOND)
        assert proposals(engine).get(ProposalNumber(draft_number)).state == "draft", "it is not settled"
    with opened(harness) as engine:
        assert proposals(engine).store.files(FIRST, 1)[0].path == path_of("other")


def nothing() -> Any:
    """A part of the server that the call does not use."""
    return None


# ── Many ──


def test_a_thousand_open_proposals_do_not_slow_an_edit(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All calls of an edit are counted, of Python and of C."""
    monkeypatch.setattr("editd.store.proposals.OPEN_OF_ONE_MAX", 2_000)
    requests = [
        replace(apply(write("f", f"{number}\n"), session="s", request_id=f"r{number}"), fingerprint="x")
        for number in range(4)
    ]
    with opened(harness) as engine:
        answer(engine, requests[0])
        few = calls_of(engine, requests[1])
        for number in range(1_000):
            changes = tuple(
                Change(path_of(f"{number}/{name}"), None, FileState(b"new\n")) for name in range(10)
            )
            proposals(engine).propose(Planned(changes, AUTHOR, None, "request", ""))
        answer(engine, requests[2])
        many = calls_of(engine, requests[3])
        assert len(proposals(engine).store.open) == 1_000
        assert many <= few + 10


def calls_of(engine: Engine, request: Apply) -> int:
    """Return the number of function calls that an edit takes."""
    count = 0

    def note(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        outcome = answer(engine, request)
    finally:
        sys.setprofile(None)
    assert isinstance(outcome, Outcome)
    assert outcome.transaction is not None
    return count
