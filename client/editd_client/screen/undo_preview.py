"""The preview of an undo, a redo, a rollback or a restore, and the request that follows it."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from editd_client.review import actions
from editd_client.screen.lines import Line, Look, TextSpan, plain
from editd_client.screen.patch_lines import DIALOG, diff_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd.wire.messages import ApplyResult
    from editd_client.prepared_call import PreparedCall
    from editd_client.screen.desk import ReviewDesk


UndoCall = Callable[
    ..., "PreparedCall[Any]"
]  # takes the options of the request; its result is an ApplyResult


async def preview(
    desk: ReviewDesk, title: str, call: UndoCall, *, has_partial: bool = True, words: str = "undo it",
    seq: int | None = None,
) -> ApplyResult | None:  # fmt: skip
    """Show the effect of an undo, and make it if the reviewer agrees. Return its result, None without one.

    `has_partial`: the request can leave out what does not merge. `seq` is the transaction that is undone.
    """
    shown = await desk.ask(call(dry_run=True))
    context = await actions.undo_context(shown, desk.ask, seq)
    effects = list(actions.effects(shown, context))
    clean = sum(effect.is_clean for effect in effects)
    needs = actions.needed_first(shown)
    answers: dict[str, str] = {}
    if effects and clean == len(effects):
        answers["u"] = f"{words} ({_files(clean)})"
    elif clean and has_partial:
        answers["u"] = f"undo what is clean ({_files(clean)})"
    if needs:
        answers["n"] = f"undo {', '.join(map(str, needs))} first"
    if clean < len(effects):
        answers["f"] = "force it over the later changes"
    if effects:
        answers["p"] = "propose it"
    answer = await desk.choose(title, list(_preview_lines(shown, effects, needs, context.text)), answers)
    if answer is None:
        return None
    if answer == "n":
        return await _undo_in_order(desk, needs, call)
    options: dict[str, object] = {"request_id": secrets.token_hex(16)}
    if answer == "f":
        options["on_conflict"] = "force"
    elif answer == "u" and clean < len(effects):
        options["on_conflict"] = "skip"
    elif answer == "p":
        options["propose"] = True
    made: ApplyResult = await desk.ask(call(**options))
    desk.say(made_text(made))
    return made


async def _undo_in_order(desk: ReviewDesk, needs: list[int], call: UndoCall) -> ApplyResult:
    """Undo the transactions in the way, newest first, and then the one at the cursor."""
    from editd_client import requests

    for seq in needs:
        await desk.ask(requests.undo(seq, request_id=secrets.token_hex(16)))
    made: ApplyResult = await desk.ask(call(request_id=secrets.token_hex(16)))
    desk.say(f"Undone {', '.join(map(str, needs))}. {made_text(made)}")
    return made


def made_text(made: ApplyResult) -> str:
    """Return the outcome of an undo or a restore, in a sentence."""
    number = getattr(made.proposal, "proposal", None)
    if made.transaction is not None:
        return f"Transaction {made.transaction.seq} is made. r takes it back."
    return f"P{number} waits for a reviewer." if number is not None else "Nothing had to change."


def _preview_lines(
    shown: ApplyResult, effects: list[actions.FileEffect], needs: list[int], kept: str
) -> Iterator[Line]:
    text = "Nothing is changed yet. An undo is a transaction, and can be undone."
    yield Line((TextSpan(f" {text if effects else 'Nothing has to change.'}", "dim"),))
    if effects and kept:
        yield Line((TextSpan(f" {kept}"),))
    yield Line(())
    for effect in effects:
        look: Look = "good" if effect.is_clean else "bad"
        sign = "✓" if effect.is_clean else "!"
        yield Line(
            (TextSpan(f" {sign} ", look), TextSpan(f"{plain(effect.path)}  "), TextSpan(effect.text, "dim"))
        )
    if needs:
        text = f"     clean if these go too, newest first: {', '.join(map(str, needs))}"
        yield Line((TextSpan(text, "warning"),))
    yield Line(())
    for file in shown.files:
        if isinstance(file.diff, str) and file.diff:
            yield from diff_lines(file.diff, DIALOG)


def _files(number: int) -> str:
    return f"{number} file{'s' * (number != 1)}"
