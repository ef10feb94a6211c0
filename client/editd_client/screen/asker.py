"""The screen as the asker of a conversation: its questions as lines, with a key for each answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from editd_client.conversations.asker import CommitPreview, HeldLeases, UnreviewedWork
from editd_client.review.actions import NEEDED_WORDS, ReversalPreview
from editd_client.review.timeline import TimelineRow
from editd_client.screen.lines import Line, Look, TextSpan, plain
from editd_client.screen.patch_lines import DIALOG, diff_lines
from editd_client.screen.rows import Drawing, timeline_line

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterator

    from editd_client.conversations.asker import Prompt, Question
    from editd_client.prepared_call import PreparedCall
    from editd_client.screen.clock import ScreenClock
    from editd_client.screen.desk import ReviewDesk

Result = TypeVar("Result")


class ScreenAsker:
    """The asker of one key."""

    def __init__(self, desk: ReviewDesk) -> None:
        self._desk = desk

    async def ask(self, call: PreparedCall[Result]) -> Result:
        """Send a request. Asks for the PIN if the daemon needs it. Raises EditdError and Unreachable."""
        return await self._desk.ask(call)

    async def choose(self, names: Collection[str], question: Callable[[], Awaitable[Question]]) -> str | None:
        """Show the question, and return the name of the answer whose key is pressed."""
        shown = await question()
        answers = {one.key: one for one in shown.answers if one.name in names}
        words = {key: one.words for key, one in answers.items()}
        lines = list(_lines(shown, self._desk.clock))
        key = await self._desk.choose(plain(shown.title), lines, words)
        return None if key is None else answers[key].name

    async def prompt(self, prompt: Prompt) -> str | None:
        """Ask for a line of text; an optional one is left out."""
        if prompt.is_optional:
            return prompt.text
        text = await self._desk.prompt(plain(prompt.words), text=prompt.text)
        return None if prompt.is_required and not text else text

    def say(self, text: str, *, is_error: bool = False) -> None:
        """Show a sentence until the next key."""
        self._desk.say(plain(text), is_error=is_error)


def _lines(question: Question, clock: ScreenClock) -> Iterator[Line]:
    for note in question.notes:
        yield Line((TextSpan(f" {plain(note)}", "dim"),))
    if question.warning:
        yield Line((TextSpan(f" {plain(question.warning)}", "warning"),))
    match question.about:
        case HeldLeases(leases):
            for lease in leases:
                yield Line((TextSpan(f" {' '.join(map(plain, lease.paths))}"),))
        case UnreviewedWork(transactions):
            for one in transactions:
                yield timeline_line(TimelineRow.of(one), one.seq, Drawing(DIALOG.width, clock))
        case CommitPreview():
            yield from _commit_lines(question.about)
        case ReversalPreview():
            yield Line(())
            yield from _reversal_lines(question.about)


def _commit_lines(preview: CommitPreview) -> Iterator[Line]:
    commit = preview.commit
    yield Line((TextSpan(f" On the branch {plain(commit.branch)}:", "bold"),))
    for file in commit.files:
        counts = "binary" if file.added is None else f"+{file.added} -{file.removed}"
        yield Line((TextSpan(f" {plain(file.path)}  "), TextSpan(counts, "dim")))
    for text in commit.message.split("\n"):
        yield Line((TextSpan(f" {plain(text)}", "dim"),))


def _reversal_lines(preview: ReversalPreview) -> Iterator[Line]:
    for effect in preview.effects:
        look: Look = "good" if effect.is_clean else "bad"
        sign = "✓" if effect.is_clean else "!"
        yield Line(
            (TextSpan(f" {sign} ", look), TextSpan(f"{plain(effect.path)}  "), TextSpan(effect.text, "dim"))
        )
    if preview.needed:
        text = f"     {NEEDED_WORDS} {', '.join(map(str, preview.needed))}"
        yield Line((TextSpan(text, "warning"),))
    yield Line(())
    for file in preview.result.files:
        if isinstance(file.diff, str) and file.diff:
            yield from diff_lines(file.diff, DIALOG)
