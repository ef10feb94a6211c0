"""The forms about a session: its pause, its leases, its end, its commit, a grant, and marks of its work."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from editd_client.errors import EditdError, refusal
from editd_client.web.agents_page import PAUSES, QUESTIONS, publish_detail, session_question
from editd_client.web.form_fields import FormAnswer, first, number, seconds, status_of, text_of
from editd_client.web.layout import counted
from editd_client.web.pin import pin_question, unlock
from editd_client.web.site import Desk

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from editd_client.web.form_fields import Form
    from editd_client.web.layout import Page
    from editd_client.web.markup import Html
    from editd_client.web.visitor import Visitor

MARKS_MAX = 10_000  # in one request


async def allow(form: Form, visitor: Visitor, workspace: str) -> FormAnswer:
    """Make a grant, or end one."""
    page = partial(Desk(visitor, workspace).agents, {"session": first(form, "session")})
    return await _answer(form, visitor, "/allow", _allowed, page)


async def session(form: Form, visitor: Visitor, workspace: str) -> FormAnswer:
    """Pause a session or resume it, end its leases, or close it; ask first."""
    desk = Desk(visitor, workspace)
    name, verb = first(form, "session"), first(form, "do")
    query = {"session": name}
    if verb in QUESTIONS:
        return FormAnswer(await desk.agents(query, session_question(name, QUESTIONS[verb])), "")
    return await _answer(form, visitor, "/session", _steered, partial(desk.agents, query))


async def review(form: Form, visitor: Visitor, workspace: str) -> FormAnswer:
    """Mark a transaction or the work of a session as reviewed, or take the mark back."""
    desk = Desk(visitor, workspace)
    seq = number(form, "seq")
    page = (
        partial(desk.agents, {"session": first(form, "session")})
        if seq is None
        else partial(desk.transaction, seq, {})
    )
    return await _answer(form, visitor, "/review", _marked, page)


async def publish(form: Form, visitor: Visitor, workspace: str) -> FormAnswer:
    """Show the commit with a session's work, or make it."""
    desk = Desk(visitor, workspace)
    session, branch = first(form, "session"), first(form, "branch").strip()
    message = text_of(form, "message")
    query = {"session": session}
    is_preview = first(form, "do") != "make"
    try:
        await unlock(form, visitor)
        if not message and not is_preview:
            raise refusal("invalid_params", "The commit needs a message.")
        shown = await visitor.editor.publish(
            message or "(no message yet)", session=session, branch=branch or None, dry_run=is_preview
        )
    except EditdError as error:
        asking = pin_question(form, error, "/publish")
        return FormAnswer(await desk.agents(query, asking), error.message, status_of(error))
    if is_preview:
        return FormAnswer(await desk.agents(query, publish_detail(session, shown, message, branch)), "")
    said = f"Published as {shown.commit[:7]} on {shown.branch}."
    return FormAnswer(await desk.agents(query), said, is_elsewhere=True)


async def _answer(
    form: Form,
    visitor: Visitor,
    action: str,
    work: Callable[[Form, Visitor], Awaitable[str]],
    page: Callable[[Html | None], Awaitable[Page]],
) -> FormAnswer:
    """Do the work of a form. If the daemon asks for the PIN, ask for it with the same form."""
    try:
        await unlock(form, visitor)
        said = await work(form, visitor)
    except EditdError as error:
        detail = pin_question(form, error, action)
        return FormAnswer(await page(detail), error.message, status_of(error))
    return FormAnswer(await page(None), said, is_elsewhere=True)


async def _steered(form: Form, visitor: Visitor) -> str:
    name, verb = first(form, "session"), first(form, "do")
    if verb == "resume":
        await visitor.reviewer.session_resume(name)
        return f"{name} may edit again."
    if verb in PAUSES:
        ends = bool(first(form, "end-leases"))
        reason = first(form, "reason").strip()
        await visitor.reviewer.session_pause(name, action=PAUSES[verb], reason=reason, end_leases=ends)
        return f"{name} is paused."
    client = visitor.editor
    if verb == "leases":
        held = [one for one in (await client.lease_list()).leases if one.session == name]
        for one in held:
            await client.lease_release(one.lease, force=True)
        return f"The leases of {name} have ended."
    if verb in ("close", "withdraw"):
        await client.session_close(name, force=True, withdraw=verb == "withdraw")
        return f"{name} is closed."
    raise refusal("invalid_params", "The form names no action.")


async def _marked(form: Form, visitor: Visitor) -> str:
    client, verb, seq = visitor.reviewer, first(form, "do"), number(form, "seq")
    if verb not in ("mark", "unmark"):
        raise refusal("invalid_params", "The form names no action.")
    seqs = [seq] if seq is not None else []
    if name := first(form, "session"):
        work = await client.log(session=name, unreviewed=True, limit=MARKS_MAX)
        seqs += [one.seq for one in work.transactions]
    if not seqs:
        return "Everything is reviewed already."
    marked = (await client.review_mark(seqs, reviewed=verb == "mark")).marked
    return f"{counted(marked, 'transaction')} {'marked' if verb == 'mark' else 'unmarked'}."


async def _allowed(form: Form, visitor: Visitor) -> str:
    client = visitor.reviewer
    if first(form, "do") == "revoke":
        grant = number(form, "grant") or 0
        await client.review_revoke(grant)
        return f"Grant {grant} has ended."
    made = await client.review_allow(
        first(form, "paths").split(), seconds(form, "ttl"),
        session=first(form, "session") or None,
        uses=number(form, "uses"), lines=number(form, "lines"),
    )  # fmt: skip
    waiting = ", ".join(f"P{one}" for one in made.matching)
    return f"Grant {made.grant} is made." + (
        f" These wait, and would land now: {waiting}." if waiting else ""
    )
