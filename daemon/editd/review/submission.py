"""The review of a planned edit or undo: it lands, or becomes a proposal.

A request or its session may ask for a review. That only tightens the policy: a rule that refuses an edit
still refuses it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from msgspec.structs import replace

from editd.errors import PermissionDenied
from editd.review.planned import Planned
from editd.review.policy import Ruling
from editd.system.process import line_above
from editd.values.proposal import Reviewer
from editd.values.transaction import Approval

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from editd.review.choice import Landing
    from editd.review.policy import ReviewPolicy
    from editd.review.proposals import Proposals
    from editd.values.content import Change, FileState
    from editd.values.glob import Glob
    from editd.values.proposal import ProposalKind, ProposalNumber
    from editd.values.transaction import Authorship, Outcome, Part, Seq

Wish = Literal["request", "session", "pause"]
"""The source of a wish for a review: the request, its session, or a pause. It becomes the proposal's rule."""

LANDS = Ruling("land")


class Submission(Struct, frozen=True):
    """A planned edit or undo that is reviewed: its author, its kind, and the wish for a review."""

    authorship: Authorship
    kind: ProposalKind
    fingerprint: str = ""
    wish: Wish | None = None  # ask for a review, also if no rule does
    revised: ProposalNumber | None = None  # the open proposal whose next revision this is
    is_draft: bool = False  # no reviewer decides about it before the session submits it
    is_reviewers: bool = False  # sent on the reviewers' own socket, so no rule asks for a review
    pid: int | None = None  # of the author's process
    may_write: tuple[Glob, ...] | None = None  # the scope of the author's session


class NeedsCommit(Exception):
    """The ruling depends on transactions of the batch that are not committed yet. Never sent to a client."""


def judge(
    submission: Submission,
    changes: Sequence[Change[FileState]],
    policy: ReviewPolicy,
    proposals: Proposals,
    *,
    is_first: bool,
) -> Ruling:
    """Return the decision about planned changes. `is_first` is False behind others of the batch.

    The base of a proposal must not be a draft that may be aborted, so it is never behind others.
    Raises NeedsCommit, PermissionDenied, and the refusals of `Proposals.revisable`.
    """
    ruling = LANDS
    if not policy.never_asks:
        ruling = proposals.ruling(policy, changes, submission.authorship.session)
        if submission.is_reviewers:  # but for a rule that refuses
            ruling = LANDS
    if submission.revised is not None:
        ruling = Ruling("ask", proposals.revisable(submission.revised, submission.authorship).rule)
    elif submission.wish is not None:
        ruling = Ruling("ask", submission.wish)
    if not is_first and (ruling.action == "ask" or policy.is_counted):
        raise NeedsCommit
    return ruling


def propose(
    submission: Submission,
    outcome: Outcome,
    ruling: Ruling,
    proposals: Proposals,
    undoes: Sequence[Seq] = (),
    parts: Sequence[Part] = (),
) -> Outcome:
    """Make a proposal of the outcome, or the next revision of one. Return the outcome with its number."""
    planned = replace(_planned(submission, outcome.changes, ruling), undoes=tuple(undoes), parts=tuple(parts))
    if submission.revised is not None:
        made = proposals.revise(submission.revised, planned)
    else:
        made = proposals.propose(planned)
    return replace(outcome, proposal=made.number)


def collect(
    submission: Submission,
    outcome: Outcome,
    changes: Sequence[Change[FileState]],
    ruling: Ruling,
    proposals: Proposals,
) -> Outcome:
    """Make `changes` the next revision of the session's collecting proposal, or its first.

    If they take back all of it, it is withdrawn. Return the outcome with its number.
    """
    authorship = submission.authorship
    known = proposals.collecting(authorship.session)
    planned = replace(_planned(submission, changes, ruling), is_collecting=True, is_draft=submission.is_draft)
    if known is None:
        return replace(outcome, proposal=proposals.propose(planned).number) if changes else outcome
    if changes:
        proposals.revise(known.number, planned)
    else:
        proposals.withdraw(known.number, Reviewer(authorship.actor, authorship.session))
    return replace(outcome, proposal=known.number)


def landing_by_rule(
    landing: Landing, passed: Collection[str], policy: ReviewPolicy, proposals: Proposals
) -> tuple[Landing, Ruling]:
    """Return the landing in the name of the rule that lets it land, now that these checks have passed.

    The rules decide again about these changes. Return their ruling too. Raises
    PermissionDenied if a reviewer has to decide.
    """
    proposal = landing.view.proposal
    ruling = LANDS
    if landing.changes and not proposals.has_verdict(proposal):
        ruling = proposals.ruling(policy, landing.changes, proposal.authorship.session, passed)
    approval = landing.authorship.approval
    if ruling.action != "land" or ruling.rule is None or approval is None:
        raise PermissionDenied(
            f"No rule lets proposal {proposal.number} land.", data={"proposal": proposal.number}
        )
    approval = replace(approval, actor=None, session=None, rule=ruling.rule)
    landing = replace(
        landing,
        authorship=replace(landing.authorship, approval=approval),
        decision=replace(landing.decision, by=Reviewer(ruling.rule, via="rule")),
    )
    return landing, ruling


def approved(authorship: Authorship, ruling: Ruling, proposals: Proposals | None) -> Authorship:
    """Return the authorship of a transaction that lands by this ruling. Uses up its grants."""
    if ruling.rule is None:
        return authorship
    if proposals is not None:
        proposals.use(ruling)
    return replace(authorship, approval=Approval(rule=ruling.rule))


def _planned(submission: Submission, changes: Sequence[Change[FileState]], ruling: Ruling) -> Planned:
    pid = submission.pid
    return Planned(
        tuple(changes), submission.authorship, submission.may_write, ruling.rule or "",
        submission.fingerprint, submission.kind, lands_after=ruling.checks,
        line=() if pid is None else line_above(pid),
    )  # fmt: skip
