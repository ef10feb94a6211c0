"""The forms about a session: a grant for its edits, the commit with its work, its leases and its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from editd_client.errors import EditdError, refusal
from editd_client.web.agents_page import pin_detail, publish_detail, session_question
from editd_client.web.form_fields import FormAnswer, first, number, seconds, status_of, text_of
from editd_client.web.layout import button
from editd_client.web.site import Desk

if TYPE_CHECKING:
    from editd_client.web.form_fields import Form
    from editd_client.web.markup import Html
    from editd_client.web.visitor import Visitor


async def allow(form: Form, visitor: Visitor, workspace: str) -> FormAnswer:
    """Make a grant, or end one."""
    desk = Desk(visitor, workspace)
    query = {"session": first(form, "session")}
    try:
        said = await _allowed(form, visitor)
    except EditdError as error:
        detail = None
        if error.data.get("needs_pin"):
            fields = [(name, one) for name in form if name != "pin" for one in form[name]]
            detail = pin_detail(error.message, fields)
        return FormAnswer(await desk.agents(query, detail), error.message, status_of(error))
    return FormAnswer(await desk.agents(query), said, is_elsewhere=True)


async def publish(form: Form, visitor: Visitor, workspace: str) -> FormAnswer:
    """Show the commit with a session's work, or make it."""
    desk = Desk(visitor, workspace)
    session, branch = first(form, "session"), first(form, "branch").strip()
    message = text_of(form, "message")
    query = {"session": session}
    is_preview = first(form, "do") != "make"
    try:
        if not message and not is_preview:
            raise refusal("invalid_params", "The commit needs a message.")
        shown = await visitor.editor.publish(
            message or "(no message yet)", session=session, branch=branch or None, dry_run=is_preview
        )
    except EditdError as error:
        return FormAnswer(await desk.agents(query), error.message, status_of(error))
    if is_preview:
        return FormAnswer(await desk.agents(query, publish_detail(session, shown, message, branch)), "")
    said = f"Published as {shown.commit[:7]} on {shown.branch}."
    return FormAnswer(await desk.agents(query), said, is_elsewhere=True)


async def session(form: Form, visitor: Visitor, workspace: str) -> FormAnswer:
    """End the leases of a session, or close it; ask first."""
    desk = Desk(visitor, workspace)
    name, verb = first(form, "session"), first(form, "do")
    query = {"session": name}
    if verb in QUESTIONS:
        return FormAnswer(await desk.agents(query, _question(name, verb)), "")
    try:
        said = await _steered(name, verb, visitor)
    except EditdError as error:
        return FormAnswer(await desk.agents(query), error.message, status_of(error))
    return FormAnswer(await desk.agents(query), said, is_elsewhere=True)


QUESTIONS = {
    "ask-leases": ("End the leases of {}?", "Other sessions may edit these files then."),
    "ask-close": (
        "Close the session {}?",
        "Its work and its proposals stay. Its leases end, and its token is void.",
    ),
}


def _question(name: str, verb: str) -> Html:
    title, effect = QUESTIONS[verb]
    buttons = {
        "ask-leases": [button("End them", "leases", key="L")],
        "ask-close": [
            button("Close it", "close", key="K"),
            button("Close it, and withdraw its proposals", "withdraw", key="w"),
        ],
    }[verb]
    return session_question(name, title.format(name), effect, *buttons)


async def _steered(name: str, verb: str, visitor: Visitor) -> str:
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


async def _allowed(form: Form, visitor: Visitor) -> str:
    client = visitor.reviewer
    if pin := first(form, "pin"):
        await client.review_unlock(pin)
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
