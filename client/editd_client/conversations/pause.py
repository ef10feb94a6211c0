"""The pause of a session, and its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from editd_client import requests
from editd_client.conversations.asker import Answer, Prompt, Question

if TYPE_CHECKING:
    from collections.abc import Mapping

    from editd.wire.messages import PauseAction, SessionPauseResult
    from editd_client.conversations.asker import Asker

REASON = Prompt(name="reason", words="Reason for the agent:", length_max=1000)


class PauseEffect(Struct, frozen=True):
    """One of the effects of a pause."""

    action: PauseAction
    end_leases: bool


REFUSE, REFUSE_END = "pause-refuse", "pause-refuse-end"
PROPOSE, PROPOSE_END = "pause-propose", "pause-propose-end"
RESUME = "resume"
PAUSES: Mapping[str, PauseEffect] = {
    REFUSE: PauseEffect("refuse", end_leases=False),
    REFUSE_END: PauseEffect("refuse", end_leases=True),
    PROPOSE: PauseEffect("propose", end_leases=False),
    PROPOSE_END: PauseEffect("propose", end_leases=True),
}
ANSWERS = (
    Answer(REFUSE, "r", "refuse its edits"),
    Answer(REFUSE_END, "e", "refuse them, and end its leases"),
    Answer(PROPOSE, "p", "let them wait for a reviewer"),
    Answer(PROPOSE_END, "l", "let them wait, and end its leases"),
)


def answer_of(action: PauseAction, *, end_leases: bool) -> str:
    """Return the name of the answer with an effect."""
    effect = PauseEffect(action, end_leases)
    return next(name for name, one in PAUSES.items() if one == effect)


async def pause(asker: Asker, session: str) -> SessionPauseResult | None:
    """Refuse the edits of a session, or make them proposals, until its pause is ended."""

    async def question() -> Question:
        note = "It can still read. The pause holds until you end it, also after a restart of the daemon."
        return Question(title=f"Pause {session}?", notes=(note,), answers=ANSWERS, prompts=(REASON,))

    answer = await asker.choose(PAUSES, question)
    if answer is None or (reason := await asker.prompt(REASON)) is None:
        return None
    made = PAUSES[answer]
    result = await asker.ask(
        requests.session_pause(session, action=made.action, reason=reason, end_leases=made.end_leases)
    )
    asker.say(f"{session} is paused.")
    return result


async def resume(asker: Asker, session: str) -> bool:
    """Let a paused session go on. Return whether it does."""

    async def question() -> Question:
        return Question(title=f"Let {session} go on?", answers=(Answer(RESUME, "P", "let it go on"),))

    if await asker.choose({RESUME}, question) is None:
        return False
    await asker.ask(requests.session_resume(session))
    asker.say(f"{session} goes on.")
    return True
