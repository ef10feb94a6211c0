"""The end of the leases of a session, by a reviewer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from editd_client import requests
from editd_client.conversations.asker import Answer, HeldLeases, Question

if TYPE_CHECKING:
    from editd_client.conversations.asker import Asker

END = "leases"


async def end_leases(asker: Asker, session: str) -> None:
    """End all leases of a session."""
    listed = await asker.ask(requests.lease_list())
    held = tuple(one for one in listed.leases if one.session == session)
    if not held:
        asker.say(f"{session} has no lease.", is_error=True)
        return

    async def question() -> Question:
        return Question(
            title=f"End the leases of {session}?",
            notes=("Other sessions may edit these files then.",),
            answers=(Answer(END, "L", "end them"),),
            about=HeldLeases(held),
        )

    if await asker.choose({END}, question) is not None:
        for one in held:
            await asker.ask(requests.lease_release(one.lease, force=True))
        asker.say(f"The leases of {session} have ended.")
