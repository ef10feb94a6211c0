"""Repeated requests: the first answer to an id, and the refusal of an id with two requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from editd.errors import InvalidParams

if TYPE_CHECKING:
    from collections.abc import Iterable

    from editd.values.proposal import Decision, DecisionKind, Proposal, ProposalNumber, Reviewer
    from editd.values.transaction import Authorship


def check_is_repeated(authorship: Authorship, fingerprint: str, first: tuple[Proposal, str]) -> None:
    """Raise InvalidParams if the first request with this id was another one. It became a proposal."""
    proposal, first_fingerprint = first
    key = authorship.request_id
    if first_fingerprint != fingerprint:
        raise InvalidParams(
            f"request_id {key!r} was used for a different request, which became proposal {proposal.number}.",
            hint="Use a new id for a new request.",
            data={"request_id": key, "proposal": proposal.number},
        )


def decision_with_id(request_id: str, by: Reviewer, decisions: Iterable[Decision]) -> Decision | None:
    """Return the decision that a reviewer's request with this id made, or None."""
    return next((one for one in decisions if one.request_id == request_id and _is_same(one.by, by)), None)


def check_is_same_decision(
    number: ProposalNumber, first: Decision, what: DecisionKind, fingerprint: str
) -> None:
    """Raise InvalidParams if the first decision with this id was another one."""
    if first.what != what or first.fingerprint != fingerprint:
        raise InvalidParams(
            f"request_id {first.request_id!r} was used for a different decision on proposal {number}.",
            hint="Use a new id for a new request.",
            data={"request_id": first.request_id, "proposal": number},
        )


def _is_same(one: Reviewer, other: Reviewer) -> bool:
    return (one.actor, one.session) == (other.actor, other.session)
