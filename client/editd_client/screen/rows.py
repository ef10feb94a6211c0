"""The rows of the three lists, for any width.

On a narrow terminal counts are left out first, then times. Below 40 columns a row is a title.

A row begins with the sign of the cursor, so that it is seen without colour.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from editd_client.review import proposals
from editd_client.screen.lines import (
    Line,
    Look,
    TextSpan,
    cut,
    cut_in_middle,
    cut_path,
    fit,
    plain,
    right_aligned,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd.wire.messages import CheckReport, ProposalEntry
    from editd_client.review.agents import AgentRow, Doing
    from editd_client.review.timeline import TimelineRow
    from editd_client.screen.clock import ScreenClock

FULL_COLUMNS_MIN = 76  # for counts
TIME_COLUMNS_MIN = 60
NAMED_COLUMNS_MIN = 40  # for the author
COUNTED_COLUMNS_MIN = 44  # beside a diff, where the counts are short
CURSOR = "▌"


class Drawing(NamedTuple):
    """All that a row depends on besides its data."""

    width: int
    clock: ScreenClock
    is_cursor: bool = False
    is_marked: bool = False
    has_second: bool = False  # a line below has the subject of a proposal, or the work of an agent


def proposal_line(entry: ProposalEntry, drawing: Drawing) -> Line:
    """Return the row of a proposal: its number, age, author, size, subject, fit and checks."""
    if drawing.has_second:
        return _proposal_state(entry, drawing)
    width = drawing.width
    spans = [
        _cursor(drawing),
        TextSpan(f"P{entry.proposal:<4}", "title"),
    ]
    if width >= TIME_COLUMNS_MIN:
        spans.append(TextSpan(f"{_age(entry.created, drawing.clock):>4}  ", "dim"))
    if width >= NAMED_COLUMNS_MIN:
        spans.append(TextSpan(cut_in_middle(plain(proposals.author(entry)), 10 if width >= 60 else 8) + " "))
    if width >= FULL_COLUMNS_MIN:
        number = len(entry.paths)
        spans.append(TextSpan(fit(f"{number} file{'s' * (number != 1)}", 8)))
        spans += _counts(entry.lines.added, entry.lines.deleted)
    spans.append(TextSpan(plain(proposals.subject(entry))))
    end: list[TextSpan] = []
    if width >= NAMED_COLUMNS_MIN:
        end.append(_fit(entry))
        if width >= FULL_COLUMNS_MIN and entry.rule not in proposals.ASKED:
            end.append(TextSpan(f" · {fit(plain(entry.rule), min(16, len(entry.rule)))}", "dim"))
        end += _checks(entry.checks, with_names=width >= FULL_COLUMNS_MIN)
        end.append(TextSpan(" "))
    return right_aligned(Line(tuple(spans)), Line(tuple(end)), width)


def _proposal_state(entry: ProposalEntry, drawing: Drawing) -> Line:
    """Return all but the subject."""
    conflicts = entry.counts.get("conflict", 0)
    short = f" {conflicts} conflict{'s' * (conflicts != 1)}"
    left = (
        _cursor(drawing),
        TextSpan(f"P{entry.proposal:<4}", "title"),
        TextSpan(f"{_age(entry.created, drawing.clock):>4} ", "dim"),
        TextSpan(cut_in_middle(plain(proposals.author(entry)), 9)),
        *_counts(entry.lines.added, entry.lines.deleted),
        TextSpan(short, "bad") if conflicts else _fit(entry),
    )
    end = (*_checks(entry.checks, with_names=True), TextSpan(" "))
    return right_aligned(Line(left), Line(end), drawing.width)


def proposal_subject(entry: ProposalEntry, width: int) -> Line:
    """Return the second line of a proposal: its subject, and the rule that it waits for."""
    rule = "" if entry.rule in proposals.ASKED else f" {plain(proposals.reason(entry))} "
    left = Line((TextSpan(f"      {plain(proposals.subject(entry))}"),))
    return right_aligned(left, Line((TextSpan(rule, "dim"),)), width)


def _fit(entry: ProposalEntry) -> TextSpan:
    fit = proposals.fit(entry)
    look: Look = "bad" if entry.counts.get("conflict") else "good" if fit == "fits" else "dim"
    return TextSpan(f" {fit}", look)


def timeline_line(row: TimelineRow | None, seq: int | None, drawing: Drawing) -> Line:
    """Return the row of a transaction: its number, time, kind, author, files, size, subject, and its undo."""
    width = drawing.width
    if row is None:
        return Line((_cursor(drawing), TextSpan(f"{'' if seq is None else seq:>6} …", "dim")))
    sign = TextSpan("*", "warning") if drawing.is_marked else _cursor(drawing)
    spans = [sign, TextSpan(f"{row.seq:>6} ", "title")]
    is_undone = row.undone_by is not None
    look: Look = "struck" if is_undone else ""
    if width >= TIME_COLUMNS_MIN:
        spans.append(TextSpan(f"{drawing.clock.time_of_day(row.time):<8} ", "dim"))
        spans.append(TextSpan(fit(row.kind, 9), "warning" if row.kind == "outside" else ""))
    elif width >= NAMED_COLUMNS_MIN:
        spans.append(TextSpan(f"{drawing.clock.time_of_day(row.time)[:5]} ", "dim"))
    if width >= NAMED_COLUMNS_MIN:
        spans.append(TextSpan(cut_in_middle("" if row.kind == "outside" else plain(row.who), 9) + " "))
    end = list(_timeline_end(row))
    files, subject = plain(row.files), plain(row.subject)
    if row.undoes and not subject:
        subject = f"of {', '.join(map(str, row.undoes[:3]))}" + (" …" if len(row.undoes) > 3 else "")
    if width >= FULL_COLUMNS_MIN:
        room = width - sum(len(span.text) for span in spans) - 12 - sum(len(one.text) for one in end)
        spans.append(TextSpan(cut_path(files, max(8, room // 2 - 1)) + " ", look))
        spans += _counts(row.added, row.deleted)
        spans.append(TextSpan(subject, look))
    else:
        if COUNTED_COLUMNS_MIN <= width < TIME_COLUMNS_MIN and row.added is not None:
            end[:0] = [TextSpan(f" +{row.added}", "added"), TextSpan(f" -{row.deleted}", "removed")]
        room = width - sum(len(span.text) for span in (*spans, *end)) - 1
        spans.append(TextSpan(subject or cut_path(files, max(8, room)), look))
    return right_aligned(Line(tuple(spans)), Line(tuple(end)), width)


DOES: dict[Doing, tuple[str, str, Look]] = {  # the sign, the words, and their look
    "review": ("◆", "waits for you: {}", "warning"),
    "lease": ("⧗", "waits for the lease on {}", "warning"),
    "command": ("▶", "runs {}", "good"),
    "connected": ("·", "connected", ""),
    "idle": ("·", "not connected", "dim"),
    "closed": ("×", "closed", "dim"),
    "outside": ("·", "other programs", "dim"),
}


def activity(row: AgentRow) -> tuple[str, str, Look]:
    """Return what a session does: a sign, the words, and their look."""
    if row.pause is not None:
        return "‖", plain(f"paused: {row.pause.reason}" if row.pause.reason else row.pause_text), "bad"
    sign, words, look = DOES[row.doing]
    return sign, words.format(plain(row.what)), look


def agent_line(row: AgentRow, drawing: Drawing) -> Line:
    """Return the row of a session: its name, its activity, its newest transaction and its size."""
    width = drawing.width
    sign, text, look = activity(row)
    text = f"{text} {drawing.clock.age(row.since)}".rstrip()
    spans = [_cursor(drawing), TextSpan(cut_in_middle(plain(row.name), 12 if width >= 40 else 11) + " ")]
    if drawing.has_second:
        return Line(tuple(cut((*spans, TextSpan(f"{sign} {text}", look)), width)))
    if width < FULL_COLUMNS_MIN:
        short = text.removeprefix("waits for you: ") if row.doing == "review" else text
        spans.append(TextSpan(f"{sign} {short}", look))
        open_ = f" {len(row.proposals)} open " if row.proposals and row.doing != "review" else " "
        return right_aligned(Line(tuple(spans)), Line((TextSpan(open_, "warning"),)), width)
    spans.append(TextSpan(fit(f"{sign} {text}", width - 54) + " ", look))
    last = "" if row.last_seq is None else str(row.last_seq)
    spans.append(TextSpan(f"{last:>6} {drawing.clock.age(row.last_time):>4}  ", "dim"))
    spans.append(TextSpan(f"{row.edits:>5} "))
    spans += _counts(row.added, row.deleted, 7)
    spans.append(TextSpan(f"{len(row.proposals) or '':>3}", "warning"))
    return Line(tuple(cut(spans, width)))


def agent_work(row: AgentRow, drawing: Drawing) -> Line:
    """Return the second line of a session: its newest transaction, its edits and their lines."""
    spans = [TextSpan(f"   {'' if row.last_seq is None else row.last_seq} ", "dim")]
    spans.append(TextSpan(f"{drawing.clock.age(row.last_time)} · {row.edits}", "dim"))
    if row.added is not None and row.deleted is not None:
        spans += [TextSpan(f" · +{row.added}", "added"), TextSpan(f" -{row.deleted}", "removed")]
    return Line(tuple(cut(spans, drawing.width)))


def agent_heading(width: int) -> Line | None:
    """Return the heading of the agents' columns, if there are any."""
    if width < FULL_COLUMNS_MIN:
        return None
    does = fit("DOES", width - 54)
    text = f" {'AGENT':<12} {does} {'LAST':>6}       {'EDITS':>5} {'LINES':>14}  OPEN"
    return Line((TextSpan(fit(text, width), "dim"),))


def _cursor(drawing: Drawing) -> TextSpan:
    return TextSpan(CURSOR if drawing.is_cursor else " ", "key")


def _counts(added: int | None, deleted: int | None, width: int = 5) -> Iterator[TextSpan]:
    yield TextSpan(f"{'' if added is None else f'+{added}':>{width}} ", "added")
    yield TextSpan(f"{'' if deleted is None else f'-{deleted}':>{width - 1}}  ", "removed")


def _age(time: str, clock: ScreenClock) -> str:
    from datetime import datetime

    return clock.age(datetime.fromisoformat(time))


def _checks(checks: list[CheckReport], *, with_names: bool) -> Iterator[TextSpan]:
    for check in checks[-2:]:
        text = plain(proposals.check_name(check))
        name = f" {fit(text, min(14, len(text)))}" if with_names else ""
        if not check.is_current or (check.hunks and not with_names):
            yield TextSpan(f" ·{name}", "dim")
        elif check.exit == 0:
            yield TextSpan(f" ✓{name}", "good")
        else:
            yield TextSpan(f" ✗{name}", "bad")


def _timeline_end(row: TimelineRow) -> Iterator[TextSpan]:
    if row.undone_by is not None:
        yield TextSpan(f" ~{row.undone_by}", "warning")
    if row.proposal is not None:
        yield TextSpan(f" P{row.proposal}", "good")
    if row.reviewed_by is not None:
        yield TextSpan(" ✓", "good")
    if row.rule is not None:
        yield TextSpan(" ⚑", "dim")
    if row.commit is not None:
        yield TextSpan(f" {row.commit[:7]}", "dim")
    yield TextSpan(" ")
