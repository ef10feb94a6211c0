"""The forms: each becomes requests of the view model, and its answer is the page that it came from.

Nothing here decides: the daemon refuses what has changed since the page was shown, what needs the PIN, and
what another reviewer was faster with.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from msgspec import Struct

from editd.config.schema import duration
from editd.wire.messages import ReviewedFile
from editd_client.errors import EditdError, refusal
from editd_client.review import actions
from editd_client.web import timeline_page
from editd_client.web.site import Desk

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from editd.wire.messages import UndoResult
    from editd_client.requests import PreparedCall
    from editd_client.web.layout import Page
    from editd_client.web.visitor import Visitor

    Form = Mapping[str, Sequence[str]]

CHOICES = ("approve", "reject", "open", "there")


class FormAnswer(Struct, frozen=True):
    """The answer to a form: a page, a sentence about it, and whether the form was refused.

    With `is_elsewhere`, a browser without the script goes to the page's own address.
    """

    page: Page
    said: str
    status: int = 200
    is_elsewhere: bool = False


async def decide(number: int, form: Form, visitor: Visitor, workspace: str) -> FormAnswer:
    """Carry out the form of a proposal: approve the chosen hunks, reject it, or open it again."""
    desk = Desk(visitor, workspace)
    client = visitor.reviewer
    try:
        if pin := _first(form, "pin"):
            await client.review_unlock(pin)
        said = await _decided(number, form, visitor)
    except EditdError as error:
        return FormAnswer(await _refused(desk, number, form, error), error.message, status_of(error))
    return FormAnswer(await desk.proposals(number), said, is_elsewhere=True)


async def comment(number: int, form: Form, visitor: Visitor, workspace: str) -> FormAnswer:
    """Add the comment of a form."""
    desk = Desk(visitor, workspace)
    text = _comment(form)
    if not text:
        page = await desk.proposals(number)
        return FormAnswer(page, "The comment is empty.", 400)
    try:
        await visitor.reviewer.proposal_comment(number, text, hunk=_first(form, "hunk") or None)
    except EditdError as error:
        return FormAnswer(await _refused(desk, number, form, error), error.message, status_of(error))
    return FormAnswer(await desk.proposals(number), "The comment is added.", is_elsewhere=True)


async def undo(form: Form, visitor: Visitor, workspace: str) -> FormAnswer:
    """Show the effect of an undo of a transaction or of some hunks, or make it."""
    desk = Desk(visitor, workspace)
    seq = _number(form, "seq")
    if seq is None:
        raise refusal("invalid_params", "The form names no transaction.")
    marked = list(form.get("hunk", ()))
    hunks = _hunks(marked)
    fields = [("seq", str(seq)), *(("hunk", one) for one in marked), _new_request()]
    what = f"hunks of {seq}" if marked else str(seq)

    def call(*, dry_run: bool, only_fitting: bool) -> PreparedCall[UndoResult]:
        ident = None if dry_run else _first(form, "request_id") or None
        return actions.undo(
            seq, hunks=hunks or None, dry_run=dry_run, only_fitting=only_fitting, request_id=ident
        )

    try:
        if _first(form, "do") == "preview":
            preview = await visitor.editor.ask(call(dry_run=True, only_fitting=False))
            shown = timeline_page.preview_detail(f"Undo {what}?", preview, "/undo", fields)
            return FormAnswer(await desk.transaction(seq, {}, shown), "")
        made = await visitor.editor.ask(call(dry_run=False, only_fitting=_first(form, "do") == "fitting"))
    except EditdError as error:
        return FormAnswer(await desk.transaction(seq, {}), error.message, status_of(error))
    return FormAnswer(await desk.transaction(seq, {}), _made(made), is_elsewhere=True)


async def rollback(form: Form, visitor: Visitor, workspace: str) -> FormAnswer:
    """Show the effect of a rollback of a session, or make it."""
    desk = Desk(visitor, workspace)
    session = _first(form, "session")
    try:
        if _first(form, "do") == "preview":
            preview = await visitor.editor.ask(actions.rollback(session, dry_run=True))
            fields = [("session", session), _new_request()]
            title = f"Roll back {session}?"
            shown = timeline_page.preview_detail(title, preview, "/rollback", fields)
            return FormAnswer(await desk.agents(shown), "")
        is_partial = _first(form, "do") == "fitting"
        ident = _first(form, "request_id") or None
        made = await visitor.editor.ask(actions.rollback(session, only_fitting=is_partial, request_id=ident))
    except EditdError as error:
        return FormAnswer(await desk.agents(), error.message, status_of(error))
    return FormAnswer(await desk.agents(), _made(made), is_elsewhere=True)


async def allow(form: Form, visitor: Visitor, workspace: str) -> FormAnswer:
    """Make a grant, or end one."""
    desk = Desk(visitor, workspace)
    client = visitor.reviewer
    try:
        if pin := _first(form, "pin"):
            await client.review_unlock(pin)
        if _first(form, "do") == "revoke":
            grant = _number(form, "grant") or 0
            await client.review_revoke(grant)
            said = f"Grant {grant} has ended."
        else:
            made = await client.review_allow(
                _first(form, "paths").split(), _seconds(_first(form, "ttl")),
                session=_first(form, "session") or None,
                uses=_number(form, "uses"), lines=_number(form, "lines"),
            )  # fmt: skip
            waiting = ", ".join(f"P{one}" for one in made.matching)
            said = f"Grant {made.grant} is made." + (
                f" These wait, and would land now: {waiting}." if waiting else ""
            )
    except EditdError as error:
        detail = None
        if error.data.get("needs_pin"):
            from editd_client.web.agents_page import pin_detail

            fields = [(name, one) for name in form if name != "pin" for one in form[name]]
            detail = pin_detail(error.message, fields)
        return FormAnswer(await desk.agents(detail), error.message, status_of(error))
    return FormAnswer(await desk.agents(), said, is_elsewhere=True)


# ── Proposals ─────────────────────────────────────────────────────────────────────────────────


async def _decided(number: int, form: Form, visitor: Visitor) -> str:
    """Send the decision of a form; return what came of it."""
    client, verdict = visitor.reviewer, _first(form, "do")
    note = _comment(form) or None
    if verdict == "reopen":
        opened = await client.proposal_reopen(number)
        return f"P{number} is open again as P{opened.proposal.proposal}."
    ident = _first(form, "request_id") or None
    if verdict == "reject":
        await client.proposal_reject(number, comment=note, request_id=ident)
        return f"P{number} is rejected."
    if verdict != "approve":
        raise refusal("invalid_params", "The form names no decision.")
    landed: list[str] = []
    for call in _approval(number, form).calls(comment=note, request_id=ident or secrets.token_hex(16)):
        transaction = getattr(await client.ask(call), "transaction", None)
        landed += [str(transaction.seq)] if transaction is not None else []
    return f"P{number} landed as {landed[0]}." if landed else f"P{number} is decided."


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
        view=_first(form, "view"),
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
        text = _first(form, f"text-{at}").replace("\r\n", "\n")
        if _first(form, f"ends-{at}") == "crlf":
            text = text.replace("\n", "\r\n")
        found.append(ReviewedFile(path=values[-1], content=text, base=_first(form, f"base-{at}") or None))
    return found


async def _refused(desk: Desk, number: int, form: Form, error: EditdError) -> Page:
    """Return the proposal as it is now, with what the reviewer has chosen and written."""
    chosen = {
        name.removeprefix("hunk-"): values[-1] for name, values in form.items() if name.startswith("hunk-")
    }
    needs_pin = bool(error.data.get("needs_pin")) or bool(_first(form, "pin"))
    detail = await desk.proposal(
        number, chosen=chosen, comment=_first(form, "comment"), pin=error.message if needs_pin else None
    )
    return await desk.proposals(number, detail=detail)


# ── Fields ────────────────────────────────────────────────────────────────────────────────────


def _first(form: Form, name: str) -> str:
    return next(iter(form.get(name, ())), "")


def _new_request() -> tuple[str, str]:
    """Return the hidden field for which the same form, sent twice, is one request."""
    return "request_id", secrets.token_hex(16)


def _comment(form: Form) -> str:
    """Return the comment of a form. A browser sends each line end as CR LF."""
    return _first(form, "comment").replace("\r\n", "\n").strip()


def _number(form: Form, name: str) -> int | None:
    text = _first(form, name).strip()
    if not text:
        return None
    if not text.isdecimal() or len(text) > 15:
        raise refusal("invalid_params", f"{text!r} is not a number.")
    return int(text)


def _seconds(text: str) -> float:
    try:
        return duration(text)
    except ValueError as error:
        raise refusal("invalid_params", str(error)) from None


def _hunks(marked: Sequence[str]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for one in marked:
        number, _, path = one.partition(":")
        if not number.isdecimal() or len(number) > 9:
            raise refusal("invalid_params", f"{one!r} is not a hunk.")
        found.setdefault(path, []).append(int(number))
    return found


def status_of(error: EditdError) -> int:
    """Return the status of HTTP for a refusal."""
    return {
        "permission_denied": 403, "unknown_proposal": 404, "unknown_transaction": 404, "stale": 409,
        "conflict": 409, "decided": 409, "overloaded": 429,
    }.get(error.name, 400)  # fmt: skip


def _made(result: UndoResult) -> str:
    waits = getattr(result.proposal, "proposal", None)
    if result.transaction is not None:
        return f"Done, as {result.transaction.seq}."
    return f"It waits for a reviewer as P{waits}." if waits is not None else "Nothing was changed."
