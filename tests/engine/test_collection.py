"""Tests of `review.collection`: all edits of a session become one proposal, on which it goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from editd.config.schema import AtMost
from editd.errors import PermissionDenied
from editd.review.policy import ReviewPolicy, ReviewRule
from editd.values.content import version_of
from editd.values.glob import Glob
from editd.values.proposal import ProposalNumber
from editd.values.transaction import Outcome
from editd.wire import messages
from support.harness import Harness, answer, apply, done, path_of, refused, write
from support.reviews import ANN, BASE, FIRST, PROPOSED, ids, land, opened, proposals, states, view

if TYPE_CHECKING:
    from pathlib import Path

    from editd.engine.commands import Apply
    from editd.engine.engine import Engine


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    made = Harness(tmp_path)
    made.baseline({"f": BASE, "g": BASE})
    return made


def collecting(*edits: messages.AnyEdit, request_id: str | None = None) -> Apply:
    request = apply(*edits, session="claude-1", request_id=request_id, message="better")
    return replace(request, is_collected=True, fingerprint="one")


def collect(engine: Engine, *edits: messages.AnyEdit) -> Outcome:
    outcome = answer(engine, collecting(*edits))
    assert isinstance(outcome, Outcome), outcome
    assert outcome.transaction is None
    return outcome


def change(old: str, new: str) -> messages.AnyEdit:
    return messages.Replace(path="f", old=old, new=new)


def test_the_edits_of_a_session_are_one_proposal_that_each_builds_on(harness: Harness) -> None:
    with opened(harness) as engine:
        collect(engine, write("f", "A\nb\nc\nd\ne\n"))
        outcome = collect(engine, change("A\n", "AA\n"), change("e\n", "E\n"))
        collect(engine, write("new", "1\n"))
        assert outcome.changes[0].before is not None
        assert outcome.changes[0].before.content == b"A\nb\nc\nd\ne\n"
        assert harness.files() == {"f": BASE, "g": BASE}
    with opened(harness) as engine:
        (proposal,) = proposals(engine).store.open.values()
        assert (proposal.number, proposal.revision, proposal.rule) == (1, 3, "session")
        assert states(engine) == ["fits"] * 3
        done(engine, land(token=view(engine).token))
        assert harness.files() == {"f": "AA\nb\nc\nd\nE\n", "g": BASE, "new": "1\n"}
        assert collect(engine, write("g", PROPOSED)).proposal == 2, "the first is settled"


def test_it_is_seen_by_its_session_only(harness: Harness) -> None:
    with opened(harness) as engine:
        collect(engine, write("f", PROPOSED))
        seen = engine.collected("claude-1").states[path_of("f")]
        assert seen is not None
        assert seen.version == version_of(PROPOSED.encode())
        assert engine.collected("another").states == {}
        done(engine, apply(write("g", "x\n"), session="another"))
        assert harness.files() == {"f": BASE, "g": "x\n"}


def test_a_moved_file_stays_one_move(harness: Harness) -> None:
    with opened(harness) as engine:
        collect(engine, messages.Move(path="f", to="m", base=version_of(BASE.encode())))
        collect(engine, write("m", PROPOSED))
        (file,) = view(engine).files
        assert (file.file.source, file.file.path) == (path_of("f"), path_of("m"))
        collect(engine, messages.Move(path="m", to="n", base=version_of(PROPOSED.encode())))
        done(engine, land(token=view(engine).token))
        assert harness.files() == {"n": PROPOSED, "g": BASE}


def test_an_edit_that_takes_all_back_withdraws_it(harness: Harness) -> None:
    with opened(harness) as engine:
        collect(engine, write("f", PROPOSED))
        assert collect(engine, write("f", BASE)).proposal == 1
        assert proposals(engine).get(FIRST).state == "withdrawn"


def test_it_follows_others_and_says_which_hunks_no_longer_fit(harness: Harness) -> None:
    with opened(harness) as engine:
        collect(engine, write("f", PROPOSED))
        done(engine, apply(write("f", "X\nb\nc\nd\ne\n"), session="another"))
        outcome = collect(engine, write("g", PROPOSED))
        assert "no longer fit" in outcome.warnings[0]
        done(engine, land(token=view(engine).token))
        assert harness.files() == {"f": "X\nb\nC\nd\nE\n", "g": PROPOSED}


def test_a_landed_part_is_below_the_next_edit(harness: Harness) -> None:
    with opened(harness) as engine:
        collect(engine, write("f", PROPOSED))
        first, second, _ = ids(engine)
        done(engine, land(first))
        proposals(engine).reject(FIRST, ANN, frozenset({second}))
        collect(engine, change("b\n", "B\n"))
        done(engine, land(token=view(engine).token))
        assert harness.files()["f"] == "A\nB\nc\nd\nE\n"


def test_a_rule_that_refuses_refuses_and_a_dry_run_makes_nothing(harness: Harness) -> None:
    with opened(harness) as engine:
        engine.landing.review = ReviewPolicy(
            "land", (ReviewRule("no", (Glob.parse("g"),), "refuse", AtMost()),)
        )
        assert isinstance(refused(engine, collecting(write("g", "x\n"))), PermissionDenied)
        planned = answer(engine, replace(collecting(write("f", "x\n")), dry_run=True))
        assert isinstance(planned, Outcome)
        assert planned.would_propose == "session"
        assert proposals(engine).store.open == {}


def test_the_same_request_again_finds_it(harness: Harness) -> None:
    request = collecting(write("f", PROPOSED), request_id="r")
    with opened(harness) as engine:
        for _ in range(2):
            outcome = answer(engine, request)
            assert isinstance(outcome, Outcome)
            assert outcome.proposal == 1
        assert proposals(engine).get(ProposalNumber(1)).revision == 1


def test_it_is_not_based_on_an_edit_of_the_same_turn_that_is_not_committed(harness: Harness) -> None:
    with opened(harness) as engine:
        edit, made = engine.run_batch([apply(write("f", "0\n" + BASE)), collecting(write("g", PROPOSED))])
        assert isinstance(edit, Outcome)
        assert isinstance(made, Outcome)
        assert proposals(engine).get(FIRST).at == 1
