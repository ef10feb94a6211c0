"""The latest refusals: as rows of the timeline, in full, as a list, and in a sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from editd_client import requests
from editd_client.review.refusal_rows import REFUSALS_MAX
from editd_client.review.timeline import RefusalRow
from editd_client.screen.lines import Line, TextSpan, plain, wrap
from editd_client.screen.rows import CURSOR, TIME_COLUMNS_MIN, Drawing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd_client.screen.clock import ScreenClock
    from editd_client.screen.desk import ReviewDesk


def refusal_line(one: RefusalRow, drawing: Drawing) -> Line:
    """Return the row of a refusal in the timeline."""
    sign = CURSOR if drawing.is_cursor else " "
    is_narrow = drawing.width < TIME_COLUMNS_MIN
    spans = [TextSpan(sign, "key"), *_spans(one, drawing.clock, is_narrow=is_narrow)]
    return Line(tuple(spans))


def refusal_text(one: RefusalRow, width: int) -> Iterator[Line]:
    """Yield a refusal in full: its request, and the message."""
    head = f" {one.method} of {plain(one.who)} was refused: {one.error}"
    yield Line((TextSpan(head, "bad"),))
    for path in one.paths:
        yield Line((TextSpan(f"   {plain(path)}"),))
    yield Line(())
    for spans in wrap((TextSpan(f" {plain(one.text)}"),), width, 1, has_words=True):
        yield Line(spans)
    if one.attempt:
        yield Line(())
        yield Line((TextSpan(" Attempted:", "bold"),))
    for line in one.attempt.split("\n") if one.attempt else ():
        for spans in wrap((TextSpan(f"   {plain(line)}", "dim"),), width, 3):
            yield Line(spans)


def refusal_lines(one: RefusalRow, clock: ScreenClock) -> Iterator[Line]:
    """Yield a refusal as lines: its time and its sentence, and the attempted text."""
    yield Line((TextSpan(" "), *_spans(one, clock)))
    for line in one.attempt.split("\n") if one.attempt else ():
        yield Line((TextSpan(f"       {plain(line)}", "dim"),))


def _spans(one: RefusalRow, clock: ScreenClock, *, is_narrow: bool = False) -> Iterator[TextSpan]:
    time = clock.time_of_day(one.time)
    yield TextSpan("     ! ", "bad")
    yield TextSpan(f"{time[:5]} " if is_narrow else f"{time:<8} ", "dim")
    yield TextSpan(plain(one.sentence), "bad")


async def show_refusals(desk: ReviewDesk, session: str | None = None) -> None:
    """Show the refusals, of one session or of all."""
    result = await desk.ask(requests.log_refusals(session=session, limit=REFUSALS_MAX))
    lines = [line for one in result.refusals for line in refusal_lines(RefusalRow.of(one), desk.clock)]
    whose = "" if session is None else f" of {plain(session)}"
    none = [Line((TextSpan(" Nothing was refused since the daemon has started.", "dim"),))]
    await desk.choose(f"Refused edits{whose}, newest first", lines or none, {})


def refusal_sentence(one: RefusalRow) -> str:
    """Return a refusal as a sentence."""
    paths = f", about {plain(one.paths[0])}" if one.paths else ""
    return f"Refused to {plain(one.who)}{paths}: {one.error}. ! lists all."
