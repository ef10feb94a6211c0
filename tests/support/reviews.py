"""An engine with proposals, and the requests of their authors and reviewers."""

from __future__ import annotations

from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from msgspec.structs import replace

from editd.engine.commands import Land
from editd.review.proposals import Proposals
from editd.store.proposals import ProposalStore
from editd.values.proposal import ProposalNumber, Reviewer
from editd.values.transaction import Authorship, Outcome
from support.harness import Harness, answer, apply, write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd.engine.commands import Apply
    from editd.engine.engine import Engine
    from editd.review.choice import ReviewedText
    from editd.review.fit import FittedProposal
    from editd.values.proposal import HunkId, Proposal
    from editd.wire import messages

FIRST = ProposalNumber(1)
ANN = Reviewer("ann", "ann's page")
BASE = "a\nb\nc\nd\ne\n"
PROPOSED = "A\nb\nC\nd\nE\n"


@contextmanager
def opened(harness: Harness) -> Iterator[Engine]:
    """An engine with its proposals; what it leaves is as after a SIGKILL."""
    with harness.killed() as engine, closing(ProposalStore(str(harness.state), 1)) as store:
        engine.landing.proposals = Proposals(store, engine.history, engine.clock)
        yield engine


def proposals(engine: Engine) -> Proposals:
    assert engine.landing.proposals is not None
    return engine.landing.proposals


def proposing(*edits: messages.AnyEdit, request_id: str | None = None) -> Apply:
    request = apply(*edits, session="claude-1", request_id=request_id, message="better")
    return replace(request, propose="request", fingerprint="one")


def propose(engine: Engine, *edits: messages.AnyEdit) -> Proposal:
    outcome = answer(engine, proposing(*(edits or (write("f", PROPOSED),))))
    assert isinstance(outcome, Outcome), outcome
    assert outcome.transaction is None
    assert outcome.proposal is not None
    return proposals(engine).get(ProposalNumber(outcome.proposal))


def view(engine: Engine, number: ProposalNumber = FIRST) -> FittedProposal:
    return proposals(engine).view(number, lambda path: engine.tree.find(path) and engine.recorder.look(path))


def ids(engine: Engine) -> list[HunkId]:
    return [one.hunk.id for fitted in view(engine).files for one in fitted.hunks]


def states(engine: Engine) -> list[str]:
    return [one.state for fitted in view(engine).files for one in fitted.hunks]


def land_with_id(hunk: HunkId) -> Land:
    """Return an approval that its reviewer may send again."""
    author = Authorship("ann", "ann's page", request_id="r")
    return replace(land(hunk), authorship=author, comment="fine", fingerprint="one")


def land(*hunks: HunkId, token: str | None = None, texts: tuple[ReviewedText, ...] = ()) -> Land:
    author = Authorship("ann", "ann's page")
    chosen = frozenset(hunks) if hunks else None
    return Land(author, "session ann's page", FIRST, ANN, chosen, token, texts)
