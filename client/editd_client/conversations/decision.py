"""The decision about a proposal, hunk by hunk or as a whole, with a comment for its author."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from editd_client import requests
from editd_client.conversations.asker import Prompt, quantity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from editd.wire.messages import ProposalResult
    from editd_client.conversations.asker import Asker
    from editd_client.review.actions import HunkDecision


async def decide(asker: Asker, decision: HunkDecision, *, request_id: str) -> list[Any] | None:
    """Land the approved hunks and reject the others. Return the results, or None if the person leaves it.

    Raises EditdError. Hunks that have landed before the refusal stay landed.
    """
    rejected = quantity(len(decision.rejected), "hunk")
    words = f"Reject {rejected} of P{decision.proposal}. Comment for the author:"
    prompt = Prompt(name="comment", words=words, is_long=True, is_optional=not decision.rejected)
    comment = await asker.prompt(prompt)
    if comment is None:
        return None
    calls = decision.calls(comment=comment or None, request_id=request_id)
    results = [await asker.ask(call) for call in calls]
    made = [one.transaction.seq for one in results if getattr(one, "transaction", None) is not None]
    asker.say(
        f"P{decision.proposal} has landed as {made[0]}." if made else f"P{decision.proposal} is decided."
    )
    return results


async def reject(
    asker: Asker, proposal: int, *, hunks: Sequence[str] | None = None, request_id: str
) -> ProposalResult | None:
    """Reject all that is left of a proposal, or some hunks."""
    words = f"Reject all that is left of P{proposal}. Comment for the author:"
    comment = await asker.prompt(Prompt(name="comment", words=words, is_long=True))
    if comment is None:
        return None
    call = requests.proposal_reject(proposal, hunks=hunks, comment=comment or None, request_id=request_id)
    result = await asker.ask(call)
    asker.say(f"P{proposal} is rejected. `editctl proposal reopen {proposal}` takes that back.")
    return result
