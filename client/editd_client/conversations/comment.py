"""A comment on a proposal, for its author."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from editd_client import requests
from editd_client.conversations.asker import Prompt
from editd_client.errors import refusal

if TYPE_CHECKING:
    from editd.wire.messages import ProposalResult
    from editd_client.conversations.asker import Asker


async def comment(asker: Asker, proposal: int, about: str = "", **position: Any) -> ProposalResult | None:
    """Add a comment, on a place named by parameters of `requests.proposal_comment` and in words."""
    prompt = Prompt(name="comment", words=f"Comment on {about}P{proposal}:", is_required=True, is_long=True)
    text = await asker.prompt(prompt)
    if text is None:
        return None
    if not text:
        raise refusal("invalid_params", "The comment is empty.")
    result = await asker.ask(requests.proposal_comment(proposal, text, **position))
    asker.say("The comment is added.")
    return result
