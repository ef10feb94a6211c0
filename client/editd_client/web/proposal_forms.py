"""The forms of a proposal: each becomes requests, and its answer is the page that it came from.

Nothing here decides: the daemon refuses what has changed since the page was shown, what needs the PIN, and
what another reviewer was faster with.
"""

from __future__ import annotations

import secrets
import shlex
from typing import TYPE_CHECKING

from editd.wire.messages import ReviewedFile
from editd.words import Face
from editd_client.conversations import comment as conversation
from editd_client.conversations import decision
from editd_client.errors import EditdError, refusal
from editd_client.review import actions
from editd_client.web.asker import FormAsker
from editd_client.web.form_fields import FormAnswer, first, status_of
from editd_client.web.pin import needs_pin, pin_question, unlock
from editd_client.web.site import Desk

if TYPE_CHECKING:
    from editd_client.web.form_fields import Form
    from editd_client.web.layout import Page
    from editd_client.web.visitor import Visitor

CHOICES = ("approve", "reject", "open", "there")


async def decide(number: int, form: Form, visitor: Visitor, workspace: str) -> FormAnswer:
    """Carry out the form of a proposal: approve the chosen hunks, reject it, or open it again."""
    desk = Desk(visitor, workspace)
    try:
        await unlock(form, visitor)
        said = await _decided(number, form, visitor)
    except EditdError as error:
        visitor.cache.outdate()
        return FormAnswer(await _refused(desk, number, form, error), error.text(Face.PAGE), status_of(error))
    return FormAnswer(await desk.proposals(number), said, is_elsewhere=True)


async def comment(number: int, form: Form, visitor: Visitor, workspace: str) -> FormAnswer:
    """Add the comment of a form."""
    desk, asker = Desk(visitor, workspace), FormAsker(form, visitor.reviewer)
    try:
        await conversation.comment(asker, number, hunk=first(form, "hunk") or None)
    except EditdError as error:
        visitor.cache.outdate()
        return FormAnswer(await _refused(desk, number, form, error), error.text(Face.PAGE), status_of(error))
    visitor.cache.outdate()
    return FormAnswer(await desk.proposals(number), asker.said, is_elsewhere=True)


async def attempt(number: int, form: Form, visitor: Visitor, workspace: str) -> FormAnswer:
    """Start a command on the files as the proposal would leave them, or stop it."""
    desk = Desk(visitor, workspace)
    try:
        said = await _attempted(number, form, visitor)
    except EditdError as error:
        visitor.cache.outdate()
        return FormAnswer(await _refused(desk, number, form, error), error.text(Face.PAGE), status_of(error))
    return FormAnswer(await desk.proposals(number), said, is_elsewhere=True)


async def _attempted(number: int, form: Form, visitor: Visitor) -> str:
    if first(form, "do") == "stop":
        visitor.trials.stop(number)
        return "The command is stopped."
    try:
        command = shlex.split(first(form, "command"))
    except ValueError as error:
        raise refusal("invalid_params", f"The command is not finished: {error}.") from None
    if not command:
        raise refusal("invalid_params", "The form names no command.")
    shown = await visitor.reviewer.proposal_get(number)
    numbers = {hunk.hunk: hunk.number for file in shown.files for hunk in file.hunks}
    hunks = [numbers[one] for one in form.get("hunk", ()) if one in numbers]
    await visitor.trials.start(number, command, hunks)
    return f"{shlex.join(command)} runs."


async def _decided(number: int, form: Form, visitor: Visitor) -> str:
    """Send the decision of a form; return what came of it."""
    client, verdict = visitor.reviewer, first(form, "do")
    if verdict == "reopen":
        opened = await client.proposal_reopen(number)
        visitor.cache.outdate()
        return f"P{number} is open again as P{opened.proposal.proposal}."
    asker, ident = FormAsker(form, client), first(form, "request_id") or secrets.token_hex(16)
    if verdict == "reject":
        rejected = await decision.reject(asker, number, request_id=ident)
        results = [] if rejected is None else [rejected]
    elif verdict == "approve":
        results = await decision.decide(asker, _approval(number, form), request_id=ident) or []
    else:
        raise refusal("invalid_params", "The form names no decision.")
    for result in results:
        made = getattr(result, "transaction", None)
        visitor.cache.decided(result.proposal, None if made is None else made.seq)
    return asker.said


def _approval(number: int, form: Form) -> actions.HunkDecision:
    """Return the decision of a form. It has a field for each hunk of its page, which has all or a part.

    An undo and the like have none, because they land as a whole.
    """
    chosen = {
        name.removeprefix("hunk-"): values[-1] for name, values in form.items() if name.startswith("hunk-")
    }
    by = {choice: tuple(hunk for hunk, one in chosen.items() if one == choice) for choice in CHOICES}
    return actions.HunkDecision(
        proposal=number,
        view=first(form, "view"),
        approved=by["approve"] if chosen else ("all",),
        rejected=by["reject"],
        is_open=bool(by["open"]) or "in-part" in form,
        there=by["there"],
        files=tuple(_texts(form)),
    )


def _texts(form: Form) -> list[ReviewedFile]:
    """Return the reviewer's own texts. A browser sends each line end as CR LF."""
    found = []
    for name, values in form.items():
        if not name.startswith("own-"):
            continue
        at = name.removeprefix("own-")
        text = first(form, f"text-{at}").replace("\r\n", "\n")
        if first(form, f"ends-{at}") == "crlf":
            text = text.replace("\n", "\r\n")
        found.append(ReviewedFile(path=values[-1], content=text, base=first(form, f"base-{at}") or None))
    return found


async def _refused(desk: Desk, number: int, form: Form, error: EditdError) -> Page:
    """Return the proposal as it is now, with what the reviewer has chosen and written."""
    chosen = {
        name.removeprefix("hunk-"): values[-1] for name, values in form.items() if name.startswith("hunk-")
    }
    if first(form, "do") == "reopen":
        return await desk.proposals(number, detail=pin_question(form, error, f"/proposals/{number}/decide"))
    detail = await desk.proposal(
        number, chosen=chosen, texts=_texts(form), comment=first(form, "comment"),
        pin=error.text(Face.PAGE) if needs_pin(form, error) else None, verdict=first(form, "do"),
    )  # fmt: skip
    return await desk.proposals(number, detail=detail)
