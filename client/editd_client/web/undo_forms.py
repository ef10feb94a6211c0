"""The forms that take back: undo, redo, rollback and restore. Each shows its effect before it is made."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from editd_client import requests
from editd_client.errors import EditdError, refusal
from editd_client.review.actions import preview_of
from editd_client.web.agents_page import session_path
from editd_client.web.form_fields import FormAnswer, first, new_request, number, status_of
from editd_client.web.pin import pin_question, unlock
from editd_client.web.site import Desk
from editd_client.web.undo_page import UndoQuestion, preview_detail

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from editd.wire.messages import ApplyResult
    from editd_client.prepared_call import PreparedCall
    from editd_client.web.form_fields import Form
    from editd_client.web.layout import Page
    from editd_client.web.markup import Html
    from editd_client.web.visitor import Visitor

    PageWith = Callable[[Html | None], Awaitable[Page]]  # the page of a form, with another detail

OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "make": {}, "needed": {}, "fitting": {"on_conflict": "skip"}, "force": {"on_conflict": "force"},
    "propose": {"propose": True},
}  # fmt: skip


async def undo(form: Form, visitor: Visitor, workspace: str) -> FormAnswer:
    """Undo a transaction or some of its hunks."""
    seq = _transaction(form, "seq")
    marked = list(form.get("hunk", ()))
    question = UndoQuestion(
        title=f"Undo {len(marked)} hunk{'s' * (len(marked) != 1)} of {seq}?" if marked else f"Undo {seq}?",
        action="/undo",
        back=f"/transactions/{seq}",
        fields=(("seq", str(seq)), *(("hunk", one) for one in marked), new_request()),
        seq=seq,
    )
    call = partial(requests.undo, seq, hunks=_hunks(marked) or None)
    return await _answer(
        form, visitor, question, call, partial(Desk(visitor, workspace).transaction, seq, {})
    )


async def redo(form: Form, visitor: Visitor, workspace: str) -> FormAnswer:
    """Redo the newest undo."""
    question = UndoQuestion(
        title="Redo the newest undo?", action="/redo", back="/timeline", fields=(new_request(),),
        may_skip=False,
    )  # fmt: skip
    return await _answer(
        form, visitor, question, requests.redo, partial(Desk(visitor, workspace).timeline, {})
    )


async def rollback(form: Form, visitor: Visitor, workspace: str) -> FormAnswer:
    """Roll back the work of a session."""
    session = first(form, "session")
    question = UndoQuestion(
        title=f"Roll back all the work of {session}?",
        action="/rollback",
        back=session_path(session),
        fields=(("session", session), new_request()),
    )
    page = partial(Desk(visitor, workspace).agents, {"session": session})
    return await _answer(form, visitor, question, partial(requests.rollback, session), page)


async def restore(form: Form, visitor: Visitor, workspace: str) -> FormAnswer:
    """Put the workspace, or some files, back to the state right after a transaction."""
    seq = _transaction(form, "to")
    paths = list(form.get("path", ()))
    what = f"{len(paths)} file{'s' * (len(paths) != 1)}" if paths else "all files"
    question = UndoQuestion(
        title=f"Put {what} back to the state after {seq}?",
        action="/restore",
        back=f"/transactions/{seq}",
        fields=(("to", str(seq)), *(("path", one) for one in paths), new_request()),
        warning="This also takes back all later changes of these files, by any author.",
        may_skip=False,
    )
    call = partial(requests.restore, seq, paths=paths or None)
    return await _answer(
        form, visitor, question, call, partial(Desk(visitor, workspace).transaction, seq, {})
    )


async def _answer(
    form: Form,
    visitor: Visitor,
    question: UndoQuestion,
    call: Callable[..., PreparedCall[Any]],
    page: PageWith,
) -> FormAnswer:
    """Ask the question of a form, or make what it is about."""
    verb, ident = first(form, "do"), first(form, "request_id") or None
    try:
        await unlock(form, visitor)
        if verb == "preview":
            preview = await visitor.editor.ask(call(dry_run=True))
            shown = await preview_of(preview, visitor.editor.ask, question.seq)
            return FormAnswer(await page(preview_detail(question, shown)), "")
        if verb not in OPTIONS:
            raise refusal("invalid_params", "The form names no action.")
        for text in form.get("needed", ()) if verb == "needed" else ():
            seq = _transaction({"needed": [text]}, "needed")
            await visitor.editor.ask(requests.undo(seq, request_id=ident and f"{ident}-{seq}"))
        made = await visitor.editor.ask(call(request_id=ident, **OPTIONS[verb]))
    except EditdError as error:
        asking = pin_question(form, error, question.action)
        return FormAnswer(await page(asking), error.message, status_of(error))
    return FormAnswer(await page(None), _made(made), is_elsewhere=True)


def _made(result: ApplyResult) -> str:
    waits = getattr(result.proposal, "proposal", None)
    if result.transaction is not None:
        return f"Done, as {result.transaction.seq}."
    return f"It waits for a reviewer as P{waits}." if waits is not None else "Nothing was changed."


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
