"""The forms of the conversations: each is the answer to a question, or shows the question first."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from editd.words import Face
from editd_client.conversations import grant, pause, session_end
from editd_client.conversations.leases import END, end_leases
from editd_client.conversations.publication import publish
from editd_client.conversations.reversal import redo_of, restore_of, reverse, rollback_of, undo_of
from editd_client.conversations.review_mark import MARK, UNMARK, mark
from editd_client.errors import EditdError, refusal
from editd_client.web.agents_page import session_path
from editd_client.web.asker import FormAsker, Unanswered
from editd_client.web.form_fields import FormAnswer, first, new_request, number, status_of
from editd_client.web.pin import pin_question, unlock
from editd_client.web.question_page import question_detail
from editd_client.web.site import Desk

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from editd_client.aio import AsyncClient
    from editd_client.conversations.reversal import Reversal
    from editd_client.web.form_fields import Form
    from editd_client.web.layout import Page
    from editd_client.web.markup import Html
    from editd_client.web.visitor import Visitor

    PageWith = Callable[[Html | None], Awaitable[Page]]  # the page of a form, with another detail
    Conversation = Callable[[FormAsker], Awaitable[object]]


async def undo(form: Form, visitor: Visitor, workspace: str) -> FormAnswer:
    """Undo a transaction or some of its hunks."""
    seq = _transaction(form, "seq")
    page = partial(Desk(visitor, workspace).transaction, seq, {})
    reversal = undo_of(seq, _hunks(form.get("hunk", ())))
    return await _reversed(form, visitor, "/undo", reversal, page, f"/transactions/{seq}")


async def redo(form: Form, visitor: Visitor, workspace: str) -> FormAnswer:
    """Redo the newest undo."""
    page = partial(Desk(visitor, workspace).timeline, {})
    return await _reversed(form, visitor, "/redo", redo_of(), page, "/timeline")


async def rollback(form: Form, visitor: Visitor, workspace: str) -> FormAnswer:
    """Roll back the work of a session."""
    name = first(form, "session")
    page = partial(Desk(visitor, workspace).agents, {"session": name})
    return await _reversed(form, visitor, "/rollback", rollback_of(name), page, session_path(name))


async def restore(form: Form, visitor: Visitor, workspace: str) -> FormAnswer:
    """Put the workspace, or some files, back to the state right after a transaction."""
    seq = _transaction(form, "to")
    page = partial(Desk(visitor, workspace).transaction, seq, {})
    reversal = restore_of(seq, form.get("path", ()))
    return await _reversed(form, visitor, "/restore", reversal, page, f"/transactions/{seq}")


SESSION: Mapping[str, Callable[[FormAsker, str], Awaitable[object]]] = {
    **dict.fromkeys(("ask-pause", *pause.PAUSES), pause.pause),
    pause.RESUME: pause.resume,
    **dict.fromkeys(("ask-leases", END), end_leases),
    **dict.fromkeys(("ask-close", session_end.CLOSE, session_end.WITHDRAW), session_end.close),
}


async def session(form: Form, visitor: Visitor, workspace: str) -> FormAnswer:
    """Pause a session or resume it, end its leases, or close it; ask first."""

    async def conversation(asker: FormAsker) -> None:
        work = SESSION.get(first(form, "do"))
        if work is None:
            raise refusal("invalid_params", "The form names no action.")
        await work(asker, first(form, "session"))

    pauses = (*pause.PAUSES, pause.RESUME)
    client = visitor.reviewer if first(form, "do") in pauses else visitor.editor
    return await _answered_by_session(form, visitor, workspace, "/session", client, conversation)


async def allow(form: Form, visitor: Visitor, workspace: str) -> FormAnswer:
    """Make a grant, or end one."""

    async def conversation(asker: FormAsker) -> None:
        if first(form, "do") == "revoke":
            await grant.revoke(asker, [number(form, "grant") or 0])
        else:
            await grant.allow(asker, first(form, "session") or None)

    return await _answered_by_session(form, visitor, workspace, "/allow", visitor.reviewer, conversation)


async def publish_work(form: Form, visitor: Visitor, workspace: str) -> FormAnswer:
    """Show the commit with a session's work, or make it."""
    name = first(form, "session")

    async def conversation(asker: FormAsker) -> None:
        await publish(asker, name, session=name)

    return await _answered_by_session(form, visitor, workspace, "/publish", visitor.editor, conversation)


async def review(form: Form, visitor: Visitor, workspace: str) -> FormAnswer:
    """Mark a transaction or the work of a session as reviewed, or take the mark back."""
    seq, name, verb = number(form, "seq"), first(form, "session"), first(form, "do")

    async def conversation(asker: FormAsker) -> None:
        if verb not in (MARK, UNMARK):
            raise refusal("invalid_params", "The form names no action.")
        seqs = [] if seq is None else [seq]
        await mark(asker, seqs, sessions=[name] if name else (), is_new=verb == MARK)

    if seq is None:
        return await _answered_by_session(form, visitor, workspace, "/review", visitor.reviewer, conversation)
    page = partial(Desk(visitor, workspace).transaction, seq, {})
    return await _answered(form, visitor, "/review", visitor.reviewer, conversation, page, "/timeline")


async def _reversed(
    form: Form, visitor: Visitor, action: str, reversal: Reversal, page: PageWith, back: str
) -> FormAnswer:
    ident = first(form, "request_id") or None

    async def conversation(asker: FormAsker) -> None:
        await reverse(asker, reversal, request_id=ident)

    return await _answered(form, visitor, action, visitor.editor, conversation, page, back)


async def _answered_by_session(
    form: Form,
    visitor: Visitor,
    workspace: str,
    action: str,
    client: AsyncClient,
    conversation: Conversation,
) -> FormAnswer:
    """Answer a form about a session with its page."""
    name = first(form, "session")
    page = partial(Desk(visitor, workspace).agents, {"session": name})
    return await _answered(form, visitor, action, client, conversation, page, session_path(name))


async def _answered(
    form: Form,
    visitor: Visitor,
    action: str,
    client: AsyncClient,
    conversation: Conversation,
    page: PageWith,
    back: str,
) -> FormAnswer:
    """Carry out a conversation, or show its question. If the daemon asks for the PIN, ask for it."""
    asker = FormAsker(form, client)
    try:
        await unlock(form, visitor)
        await conversation(asker)
        visitor.cache.outdate()
    except Unanswered as asked:
        fields = [(name, one) for name in form for one in form[name]]
        if "request_id" not in form:
            fields.append(new_request())
        return FormAnswer(await page(question_detail(asked.question, action, fields, back)), "")
    except EditdError as error:
        detail = pin_question(form, error, action)
        return FormAnswer(await page(detail), error.text(Face.PAGE), status_of(error))
    if asker.is_refused:
        return FormAnswer(await page(None), asker.said, 400)
    return FormAnswer(await page(None), asker.said, is_elsewhere=True)


def _transaction(form: Form, name: str) -> int:
    seq = number(form, name)
    if seq is None:
        raise refusal("invalid_params", "The form names no transaction.")
    return seq


def _hunks(marked: Sequence[str]) -> dict[str, list[int]]:
    numbers: dict[str, list[int]] = {}
    for one in marked:
        number_, _, path = one.partition(":")
        if not number_.isdecimal() or len(number_) > 9:
            raise refusal("invalid_params", f"{one!r} is not a hunk.")
        numbers.setdefault(path, []).append(int(number_))
    return numbers
