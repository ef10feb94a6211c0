"""proposal_summaries: computed once for each change, and bounded for what is settled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from editd.server import proposal_summaries
from editd.server.convert_proposals import ProposalSummary
from editd.server.proposal_summaries import ProposalSummaries
from editd.values.proposal import Proposal, ProposalNumber
from support.proposals import OTHER, PATH, proposal_of

if TYPE_CHECKING:
    import pytest


def numbered(number: int) -> Proposal:
    return replace(proposal_of(), number=ProposalNumber(number))


def summaries(computed: list[int]) -> ProposalSummaries:
    def compute(proposal: Proposal) -> ProposalSummary:
        computed.append(int(proposal.number))
        return ProposalSummary("token", 1, {}, 0, 0, (PATH,))

    return ProposalSummaries(compute)


def test_a_summary_is_computed_once_until_its_proposal_or_a_file_of_it_changes() -> None:
    computed: list[int] = []
    kept = summaries(computed)
    one = numbered(1)
    for proposal in (one, one, replace(one, changed_us=2), replace(one, changed_us=2)):
        kept.of(proposal)
    assert computed == [1, 1]
    assert kept.forget_path(OTHER) == ()
    assert kept.forget_path(PATH) == (1,)
    kept.of(replace(one, changed_us=2))
    assert computed == [1, 1, 1]


def test_only_the_last_listed_of_the_settled_are_kept_and_all_that_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(proposal_summaries, "SETTLED_MAX", 3)
    kept = summaries([])
    for number in range(1, 11):
        kept.of(numbered(number))
        kept.of(replace(numbered(100 + number), state="landed"))
    assert len(kept) == 13
    assert kept.by_path[PATH] == {*range(1, 11), 108, 109, 110}
