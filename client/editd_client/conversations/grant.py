"""A grant, which lets edits of some paths land without a decision for a while, and its end."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from editd.config.value_parsers import duration
from editd_client import requests
from editd_client.conversations.asker import Prompt, number_in
from editd_client.errors import refusal

if TYPE_CHECKING:
    from editd.wire.messages import ReviewAllowResult
    from editd_client.conversations.asker import Asker

USES = Prompt(name="uses", words="Edits at most:", is_optional=True)
LINES = Prompt(name="lines", words="Lines at most:", is_optional=True)


async def allow(asker: Asker, session: str | None, paths: str = "") -> ReviewAllowResult | None:
    """Let edits of a session, or of all, land without a decision; `paths` is the default."""
    whose = f" of {session}" if session else ""
    words = f"Let edits{whose} land without a decision, of these paths:"
    globs = await asker.prompt(Prompt(name="paths", words=words, text=paths, is_required=True))
    if globs is None:
        return None
    words = f"For how long may {globs} land (a day at most)?"
    time = await asker.prompt(Prompt(name="ttl", words=words, text="1h", is_required=True))
    if time is None:
        return None
    try:
        named, seconds = shlex.split(globs), duration(time)
    except ValueError as error:
        raise refusal("invalid_params", str(error)) from None
    uses, lines = [number_in(await asker.prompt(one) or "") for one in (USES, LINES)]
    made = await asker.ask(requests.review_allow(named, seconds, session=session, uses=uses, lines=lines))
    waiting = ", ".join(f"P{one}" for one in made.matching)
    asker.say(
        f"Grant {made.grant} is made." + (f" These wait, and would land now: {waiting}." if waiting else "")
    )
    return made


async def revoke(asker: Asker, grants: list[int]) -> None:
    """End a grant, out of these."""
    if not grants:
        asker.say("There is no grant.", is_error=True)
        return
    grant: int | None = grants[0]
    if len(grants) > 1:
        prompt = Prompt(name="grant", words="Number of the grant to end:", text=str(grant), is_required=True)
        text = await asker.prompt(prompt)
        grant = None if text is None else number_in(text)
    if grant is not None:
        await asker.ask(requests.review_revoke(grant))
        asker.say(f"Grant {grant} has ended.")
