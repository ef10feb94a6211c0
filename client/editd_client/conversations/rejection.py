"""The rejection of a proposal, with a comment for its author."""

from __future__ import annotations

from typing import TYPE_CHECKING

from editd_client import requests
from editd_client.conversations.asker import Prompt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from editd.wire.messages import ProposalResult
    from editd_client.conversations.asker import Asker


async def reject(
    asker: Asker, proposal: int, *, hunks: Sequence[str] | None = None, request_id: str | None
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
