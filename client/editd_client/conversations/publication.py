"""One commit of the work of sessions in the person's own git, after a preview."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from editd_client import requests
from editd_client.conversations.asker import Answer, CommitPreview, Prompt, Question
from editd_client.errors import refusal

if TYPE_CHECKING:
    from editd.wire.messages import PublishResult
    from editd_client.conversations.asker import Asker

MAKE = "make"
NO_MESSAGE = "(no message yet)"
MESSAGE = Prompt(name="message", words="Message of the commit:", is_required=True, is_long=True)
BRANCH = Prompt(name="branch", words="Branch:", is_optional=True)


async def publish(asker: Asker, whose: str, **work: Any) -> PublishResult | None:
    """Publish work, named by parameters of `requests.publish`. `whose` names it in the question."""
    message = await asker.prompt(MESSAGE)
    if message is None:
        return None
    if "branch" not in work:
        work["branch"] = (await asker.prompt(BRANCH) or "").strip() or None

    async def question() -> Question:
        shown = await asker.ask(requests.publish(message or NO_MESSAGE, dry_run=True, **work))
        return Question(
            title=f"Publish the work of {whose}?",
            notes=("Nothing is changed yet. It becomes one commit of your git repository.",),
            answers=(Answer(MAKE, "m", "make the commit"),),
            prompts=(MESSAGE, BRANCH),
            about=CommitPreview(shown),
        )

    if await asker.choose({MAKE}, question) is None:
        return None
    if not message:
        raise refusal("invalid_params", "The commit needs a message.")
    made = await asker.ask(requests.publish(message, **work))
    asker.say(f"Published as {made.commit[:7]} on {made.branch}.")
    return made
