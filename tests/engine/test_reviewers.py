"""Tests of `review.reviewers`: no author decides about its own work, whatever it calls itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from editd.errors import PermissionDenied
from editd.review.reviewers import (
    Candidate,
    check_author,
    check_elicited,
    check_grant,
    check_person,
    check_reviewer,
    is_author,
)
from editd.system.process import Process
from editd.values.proposal import Proposal, ProposalNumber
from editd.values.transaction import Authorship, Seq

if TYPE_CHECKING:
    from collections.abc import Callable

ONE = ProposalNumber(1)
PROPOSAL = Proposal(ONE, "open", "edit", Authorship("ann", "claude-1"), None, "rule", Seq(1), 100, 100)
INIT, SHELL = Process(1, 0, 1, "systemd"), Process(20, 7, 20, "bash")
AGENT, TOOL = Process(30, 9, 20, "claude"), Process(40, 11, 20, "python")
KIN = ((AGENT, SHELL, INIT),)
TERMINAL = (Process(50, 12, 20, "editctl"), SHELL, INIT)


def candidate(session: str | None = None, *, pin: bool = False, **more: object) -> Candidate:
    base = Candidate(session, lambda: TERMINAL, lambda: pin)
    return replace(base, **more)


BELOW_THE_AGENT = candidate(processes=lambda: (TOOL, *KIN[0]))


def denied(check: Callable[[], None]) -> PermissionDenied:
    with pytest.raises(PermissionDenied) as refusal:
        check()
    return refusal.value


def test_a_person_in_another_program_decides() -> None:
    check_reviewer(candidate(), PROPOSAL, KIN)
    check_reviewer(candidate("ann's"), PROPOSAL, KIN)


def test_the_session_of_the_author_and_a_connection_that_has_proposed_decide_nothing() -> None:
    own = denied(lambda: check_reviewer(candidate("claude-1", has_pin=True), PROPOSAL, ()))
    assert own.message == "Proposal 1 is of session claude-1, which may not decide about it."
    other = denied(lambda: check_reviewer(candidate(proposed={7}, has_pin=True), PROPOSAL, ()))
    assert "has proposed edits itself" in other.message


@pytest.mark.parametrize("is_set", [False, True])
def test_the_kin_of_the_author_need_the_pin(*, is_set: bool) -> None:
    kin = replace(BELOW_THE_AGENT, is_pin_set=lambda: is_set)
    refusal = denied(lambda: check_reviewer(kin, PROPOSAL, KIN))
    assert refusal.data == {"needs_pin": is_set, "program": "claude"}
    check_reviewer(replace(kin, has_pin=True), PROPOSAL, KIN)


def test_no_session_lets_its_own_edits_through_nor_do_its_kin() -> None:
    for session in ("claude-1", None):
        denied(lambda session=session: check_grant(candidate("claude-1", has_pin=True), session, ()))  # type: ignore[misc]
    denied(lambda: check_grant(BELOW_THE_AGENT, "claude-1", KIN))
    check_grant(candidate("ann's"), "claude-1", KIN)
    check_grant(candidate(), None, KIN)


def test_a_session_is_steered_by_a_person_and_not_by_itself() -> None:
    own = denied(lambda: check_person(candidate("claude-1", has_pin=True), "claude-1", (), "resume itself"))
    assert own.message == "The session 'claude-1' may not resume itself."
    denied(lambda: check_person(BELOW_THE_AGENT, "claude-1", KIN, "resume itself"))
    check_person(candidate(), "claude-1", KIN, "resume itself")


def test_an_answer_of_an_mcp_client_decides_if_the_configuration_trusts_it() -> None:
    check_elicited(ONE, "reviewer", is_trusted=True)
    assert denied(lambda: check_elicited(ONE, "reviewer", is_trusted=False)).data["needs"] == "reviewer"


@pytest.mark.parametrize(
    ("asks", "opened_us", "is_trusted", "expected"),
    [
        (candidate(proposed={1}), None, False, True),
        (candidate(proposed={2}), None, True, False),
        (candidate("claude-1"), 100, False, True),
        (candidate("claude-1"), 101, True, False),  # a later session of the name
        (candidate("claude-1"), None, True, True),
        (candidate("claude-1"), None, False, False),
        (candidate("claude-2"), 100, True, False),
    ],
)
def test_the_author_is_the_connection_or_its_session(
    asks: Candidate, opened_us: int | None, *, is_trusted: bool, expected: bool
) -> None:
    answer = is_author(asks, PROPOSAL, opened_us, is_trusted=lambda: is_trusted)
    assert answer is expected
    if answer:
        check_author(ONE, is_author=answer)
    else:
        assert denied(lambda: check_author(ONE, is_author=answer)).data == {"proposal": 1}
