"""The review of a planned edit or undo: it lands, or becomes a proposal.

A request or its session may ask for a review. That only tightens the policy: a rule that refuses an edit
still refuses it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from editd.engine.commands import Apply, Undo
from editd.engine.proposals import Planned
from editd.engine.review_policy import Ruling
from editd.errors import PermissionDenied
from editd.system.process import line_above
from editd.values.proposal import Reviewer
from editd.values.transaction import Approval

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from editd.engine.access import AccessControl
    from editd.engine.commands import Restore
    from editd.engine.proposal_view import Landing
    from editd.engine.proposals import Proposals
    from editd.engine.review_policy import ReviewPolicy
    from editd.values.content import Change, FileState
    from editd.values.proposal import ProposalKind
    from editd.values.transaction import Authorship, Outcome, Part, Seq

    Reviewed = Apply | Undo | Restore

LANDS = Ruling("land")


class NeedsCommit(Exception):
    """The ruling depends on transactions of the batch that are not committed yet. Never sent to a client."""


def judge(
    request: Reviewed,
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
        ruling = proposals.ruling(policy, changes, request.authorship.session)
        if request.sender.is_reviewer:  # but for a rule that refuses
            ruling = LANDS
    if isinstance(request, Apply) and request.proposal is not None:
        ruling = Ruling("ask", proposals.revisable(request.proposal, request.authorship).rule)
    elif request.propose is not None:
        ruling = Ruling("ask", request.propose)
    if not is_first and (ruling.action == "ask" or policy.is_counted):
        raise NeedsCommit
    return ruling


def propose(
    request: Reviewed,
    outcome: Outcome,
    ruling: Ruling,
    proposals: Proposals,
    guard: AccessControl | None,
    authorship: Authorship | None = None,
    undoes: Sequence[Seq] = (),
    parts: Sequence[Part] = (),
) -> Outcome:
    """Make a proposal of the outcome, or the next revision of one. Return the outcome with its number."""
    authorship = request.authorship if authorship is None else authorship
    planned = replace(
        _planned(request, outcome.changes, ruling, guard, authorship), kind=_kind_of(request),
        undoes=tuple(undoes), parts=tuple(parts),
    )  # fmt: skip
    if isinstance(request, Apply) and request.proposal is not None:
        made = proposals.revise(request.proposal, planned)
    else:
        made = proposals.propose(planned)
    return replace(outcome, proposal=made.number)


def collect(
    request: Apply,
    outcome: Outcome,
    changes: Sequence[Change[FileState]],
    ruling: Ruling,
    proposals: Proposals,
    guard: AccessControl | None,
) -> Outcome:
    """Make `changes` the next revision of the session's collecting proposal, or its first.

    If they take back all of it, it is withdrawn. Return the outcome with its number.
    """
    authorship = request.authorship
    known = proposals.collecting(authorship.session)
    planned = replace(
        _planned(request, changes, ruling, guard, authorship), is_collecting=True, is_draft=request.is_draft
    )
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

    The rules are asked again about what is to land now, and their ruling is returned too. Raises
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


def _planned(
    request: Reviewed,
    changes: Sequence[Change[FileState]],
    ruling: Ruling,
    guard: AccessControl | None,
    authorship: Authorship,
) -> Planned:
    pid = request.sender.pid
    return Planned(
        tuple(changes), authorship, None if guard is None else guard.scope_of(authorship.session),
        ruling.rule or "", request.fingerprint, lands_after=ruling.checks,
        line=() if pid is None else line_above(pid),
    )  # fmt: skip


def _kind_of(request: Reviewed) -> ProposalKind:
    if isinstance(request, Apply):
        return "edit"
    return request.kind if isinstance(request, Undo) else "restore"
