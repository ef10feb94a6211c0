"""The marks of reviewed work: of transactions, or of all the work of sessions after a look at it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from editd_client import requests
from editd_client.conversations.asker import Answer, Question, UnreviewedWork, quantity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from editd_client.conversations.asker import Asker

MARK, UNMARK = "mark", "unmark"
MARKS_MAX = 10_000  # in one request


async def mark(
    asker: Asker, seqs: Sequence[int] = (), *, sessions: Sequence[str] = (), is_new: bool = True
) -> int:
    """Mark transactions and the work of sessions, or take the marks back. Return their number."""
    work = []
    if sessions:
        call = requests.log(session=sessions, unreviewed=is_new, limit=MARKS_MAX, brief=True)
        work = (await asker.ask(call)).transactions
    marked = [*seqs, *(one.seq for one in work)]
    if not marked:
        asker.say("Everything is reviewed already.")
        return 0

    async def question() -> Question:
        return Question(
            title=f"Mark {quantity(len(work), 'transaction')} of {' '.join(sessions)} as reviewed?",
            answers=(Answer(MARK, "M", "mark them"),),
            about=UnreviewedWork(tuple(work)),
        )

    if sessions and await asker.choose({MARK, UNMARK}, question) is None:
        return 0
    count = (await asker.ask(requests.review_mark(marked, reviewed=is_new))).marked
    words = f"{quantity(count, 'transaction')} {'is' if count == 1 else 'are'}"
    subject = f"{marked[0]} is" if len(marked) == 1 else words
    asker.say(f"{subject} {'marked as reviewed' if is_new else 'not marked as reviewed any more'}.")
    return count
