"""The question to the client's user whether a proposal may land, where the configuration trusts the answer.

`review.elicitation = "trusted"` is the user's word for that. The daemon verifies it too, and records that the
decision came by elicitation. Closing the form decides nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from editd.config.load import ConfigError, read_config
from editd.wire.messages import ProposalView
from editd_client.client import Client
from editd_client.connect import connect_or_start
from editd_client.file_text import HIDDEN, readable
from editd_client.locate import login_name
from editd_client.review.proposals import reason, subject

if TYPE_CHECKING:
    from collections.abc import Mapping

    from editd.wire.messages import Verdict
    from editd_client.locate import Workspace

CHARACTERS_MAX = 8_000  # of a difference that a person reads in a form
DECISION, COMMENT = "decision", "comment"
VERDICTS: Mapping[object, Verdict] = {"approve": "approve", "reject": "reject"}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        DECISION: {"type": "string", "title": "Decision", "enum": list(VERDICTS)},
        COMMENT: {"type": "string", "title": "Comment for the agent"},
    },
    "required": [DECISION],
}


class ReviewForm(Struct, frozen=True):
    """A question about a proposal as it was shown: the view with this token."""

    number: int
    view: str
    message: str = ""


def form_of(workspace: Workspace, number: int) -> ReviewForm | None:
    """Return the question about a proposal; None if the answer is not trusted, or it is too long to show."""
    try:
        settings = read_config(workspace.id).config.review
    except ConfigError:
        return None
    if settings.elicitation != "trusted" or settings.socket == "own":
        return None
    with _client(workspace) as client:
        shown = client.proposal_get(number)
    if len(shown.diff) > CHARACTERS_MAX or "conflict" in shown.counts:
        return None
    title = f"Proposal {number} waits for your review ({reason(shown)}): {subject(shown)}"
    return ReviewForm(number, shown.view, _visible(f"{title}\n\n{shown.diff}"))


def decide(workspace: Workspace, form: ReviewForm, answer: Mapping[str, Any]) -> None:
    """Decide as the user has answered. The daemon refuses that if the view has changed since the question."""
    if (verdict := VERDICTS.get(answer.get(DECISION))) is None:
        return
    comment = answer.get(COMMENT)
    with _client(workspace) as client:
        client.proposal_decide(
            [ProposalView(proposal=form.number, view=form.view)], verdict,
            comment=comment if isinstance(comment, str) and comment else None, elicited=True,
        )  # fmt: skip


def _visible(text: str) -> str:
    """Return the text with characters that would hide or reorder some of it shown by their code points."""
    return HIDDEN.sub(lambda match: f"[U+{ord(match[0]):04X}]", readable(text))


def _client(workspace: Workspace) -> Client:
    """Return a client outside of the agent's session, which may not decide about its own edits."""
    client = Client(connect_or_start(workspace)[0])
    client.hello(login_name())
    return client
