"""The end of a session, by a reviewer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from editd_client import requests
from editd_client.conversations.asker import Answer, Question

if TYPE_CHECKING:
    from editd_client.conversations.asker import Asker

CLOSE, WITHDRAW = "close", "withdraw"
ANSWERS = (
    Answer(CLOSE, "K", "close it"),
    Answer(WITHDRAW, "w", "close it, and withdraw its proposals"),
)


async def close(asker: Asker, session: str | None, *, force: bool = True) -> None:
    """Close a session; without a name, the connection's own."""

    async def question() -> Question:
        note = "Its work and its proposals stay. Its leases end, and its token is void."
        return Question(title=f"Close the session {session}?", notes=(note,), answers=ANSWERS)

    answer = await asker.choose({CLOSE, WITHDRAW}, question)
    if answer is not None:
        await asker.ask(requests.session_close(session, force=force, withdraw=answer == WITHDRAW))
        asker.say(f"{session or 'The session'} is closed.")
