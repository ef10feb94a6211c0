"""Undo, redo, rollback and restore: each shows its effect before it is made."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from editd_client import requests
from editd_client.conversations.asker import Answer, Prompt, Question, number_in, quantity
from editd_client.review.actions import ReversalPreview, preview_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from editd.wire.messages import ApplyResult
    from editd_client.conversations.asker import Asker
    from editd_client.prepared_call import PreparedCall

MAKE, NEEDED, FITTING, FORCE, PROPOSE = "make", "needed", "fitting", "force", "propose"
OPTIONS: Mapping[str, Mapping[str, Any]] = {
    MAKE: {},
    NEEDED: {},
    FITTING: {"on_conflict": "skip"},
    FORCE: {"on_conflict": "force"},
    PROPOSE: {"propose": True},
}
NOTE = "Nothing is changed yet. It becomes a transaction, and can be undone."
NO_EFFECT = "It would change nothing."


class Reversal(Struct, frozen=True, kw_only=True):
    """A request that takes something back. `call` takes its options, and returns the request."""

    call: Callable[..., PreparedCall[Any]]  # whose result is an ApplyResult
    title: str = ""
    words: str = ""  # of the answer that makes it
    warning: str = ""
    may_skip: bool = True  # it can leave out what conflicts
    seq: int | None = None  # the transaction that is undone


def undo_of(seq: int, hunks: Mapping[str, Sequence[int]] | None = None, about: str = "") -> Reversal:
    """Return the undo of a transaction or of some of its hunks; `about` describes the transaction."""
    count = sum(map(len, hunks.values())) if hunks else 0
    subject = f"{quantity(count, 'hunk')} of {seq}" if hunks else f"{seq}{about}"
    call = partial(requests.undo, seq, hunks=hunks or None)
    return Reversal(call=call, title=f"Undo {subject}?", words="undo it", seq=seq)


def redo_of() -> Reversal:
    """Return the redo of the newest undo."""
    return Reversal(call=requests.redo, title="Redo the newest undo?", words="redo it", may_skip=False)


def rollback_of(session: str) -> Reversal:
    """Return the rollback of a session."""
    title = f"Roll back all the work of {session}?"
    return Reversal(call=partial(requests.rollback, session), title=title, words="roll it back")


def restore_of(seq: int, paths: Sequence[str] | None) -> Reversal:
    """Return the restore of some files, or of all, to the state right after a transaction."""
    return Reversal(
        call=partial(requests.restore, seq, paths=paths or None),
        title=f"Put {quantity(len(paths), 'file') if paths else 'all files'} back to the state after {seq}?",
        words="put back",
        warning="This also takes back all later changes of these files, by any author.",
        may_skip=False,
    )


async def reverse(asker: Asker, reversal: Reversal, *, request_id: str | None) -> ApplyResult | None:
    """Take something back. Return the result, or None if the person leaves it."""
    needed: list[int] = []

    async def question() -> Question:
        preview = await preview_of(await asker.ask(reversal.call(dry_run=True)), asker.ask, reversal.seq)
        needed.extend(preview.needed)
        return _question(reversal, preview)

    answer = await asker.choose(OPTIONS, question)
    if answer is None:
        return None
    first: list[int] = []
    if answer == NEEDED:
        prompt = Prompt(name=NEEDED, words="", text=" ".join(map(str, needed)), is_optional=True)
        words = (await asker.prompt(prompt) or "").split()
        first = [seq for seq in map(number_in, words) if seq is not None]
    for seq in first:
        ident = None if request_id is None else f"{request_id}-{seq}"
        await asker.ask(requests.undo(seq, request_id=ident))
    made: ApplyResult = await asker.ask(reversal.call(**{"request_id": request_id, **OPTIONS[answer]}))
    undone = f"Undone {', '.join(map(str, first))}. " if first else ""
    asker.say(undone + _made_text(made))
    return made


def _question(reversal: Reversal, preview: ReversalPreview) -> Question:
    notes = [NOTE if preview.effects else NO_EFFECT]
    notes += [preview.context] if preview.effects and preview.context else []
    return Question(
        title=reversal.title,
        notes=tuple(notes),
        warning=reversal.warning if preview.effects else "",
        answers=tuple(_answers(reversal, preview)),
        about=preview,
    )


def _answers(reversal: Reversal, preview: ReversalPreview) -> Iterator[Answer]:
    total = len(preview.effects)
    clean = sum(one.is_clean for one in preview.effects)
    if total and clean == total:
        yield Answer(MAKE, "u", f"{reversal.words} ({quantity(clean, 'file')})")
    elif clean and reversal.may_skip:
        yield Answer(FITTING, "u", f"undo what is clean ({quantity(clean, 'file')})")
    if preview.needed:
        yield Answer(NEEDED, "n", f"undo {', '.join(map(str, preview.needed))} first")
    if clean < total:
        yield Answer(FORCE, "f", "force it over the later changes")
    if total:
        yield Answer(PROPOSE, "p", "propose it")


def _made_text(made: ApplyResult) -> str:
    number = getattr(made.proposal, "proposal", None)
    if made.transaction is not None:
        return f"Transaction {made.transaction.seq} is made."
    return f"P{number} waits for a reviewer." if number is not None else "Nothing was changed."
