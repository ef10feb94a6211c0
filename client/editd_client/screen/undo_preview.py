"""The preview of an undo, a redo or a rollback, and the request that the reviewer chooses after it."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Protocol

from editd_client.review import actions
from editd_client.screen.lines import Line, Look, TextSpan, plain
from editd_client.screen.patch_lines import DiffForm, diff_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd.wire.messages import OnConflict, UndoResult
    from editd_client.requests import PreparedCall
    from editd_client.screen.desk import ReviewDesk

DIFF_COLUMNS = 1_000  # the dialog cuts its lines itself


class UndoCall(Protocol):
    """One of the requests that take something back, with its options."""

    def __call__(
        self, *, dry_run: bool = False, on_conflict: OnConflict = "fail", request_id: str | None = None,
        propose: bool | None = None,
    ) -> PreparedCall[UndoResult]:  # fmt: skip
        ...


async def preview(
    desk: ReviewDesk, title: str, call: UndoCall, *, has_partial: bool = True
) -> UndoResult | None:
    """Show the effect of an undo, and make it if the reviewer agrees. Return its result, None without one.

    `has_partial`: the request can leave out what does not merge.
    """
    shown = await desk.ask(call(dry_run=True))
    effects = list(actions.effects(shown))
    clean = sum(effect.is_clean for effect in effects)
    needs = actions.needed_first(shown)
    answers: dict[str, str] = {}
    if clean == len(effects):
        answers["u"] = f"undo it ({_files(clean)})"
    elif clean and has_partial:
        answers["u"] = f"undo what is clean ({_files(clean)})"
    if needs:
        answers["n"] = f"undo {', '.join(map(str, needs))} first"
    if clean < len(effects):
        answers["f"] = "force it over the later changes"
    answers["p"] = "propose it"
    answer = await desk.choose(title, list(_preview_lines(shown, effects, needs)), answers)
    if answer is None:
        return None
    if answer == "n":
        return await _undo_in_order(desk, needs, call)
    on_conflict: OnConflict = "fail"
    if answer == "f":
        on_conflict = "force"
    elif answer == "u" and clean < len(effects):
        on_conflict = "skip"
    made = await desk.ask(
        call(
            on_conflict=on_conflict, request_id=secrets.token_hex(16), propose=True if answer == "p" else None
        )
    )
    desk.say(made_text(made))
    return made


async def _undo_in_order(desk: ReviewDesk, needs: list[int], call: UndoCall) -> UndoResult:
    """Undo the transactions in the way, newest first, and then the one at the cursor."""
    from editd_client import requests

    for seq in needs:
        await desk.ask(requests.undo(seq, request_id=secrets.token_hex(16)))
    made = await desk.ask(call(request_id=secrets.token_hex(16)))
    desk.say(f"Undone {', '.join(map(str, needs))}. {made_text(made)}")
    return made


def made_text(made: UndoResult) -> str:
    """Return what an undo has made, in a sentence."""
    number = getattr(made.proposal, "proposal", None)
    if made.transaction is not None:
        return f"Transaction {made.transaction.seq} is made. r takes it back."
    return f"P{number} waits for a reviewer." if number is not None else "Nothing had to change."


def _preview_lines(shown: UndoResult, effects: list[actions.FileEffect], needs: list[int]) -> Iterator[Line]:
    yield Line((TextSpan(" Nothing is changed yet. An undo is a transaction, and can be undone.", "dim"),))
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
            yield from diff_lines(file.diff, DiffForm(DIFF_COLUMNS))


def _files(number: int) -> str:
    return f"{number} file{'s' * (number != 1)}"
