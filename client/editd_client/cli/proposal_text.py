"""A proposal as text: a line of a list, and all of its hunks with their changed words marked."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from editd.words import in_the_way
from editd_client.cli import output
from editd_client.review.patch import parts_of, rows_of
from editd_client.review.proposals import MARKS, check_text, running_text, subject

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd.wire.messages import ProposalEntry, ProposalFile, ProposalGetResult, ProposalHunk
    from editd_client.review.patch import RowPart

COLOURS = {
    "open": "yellow", "draft": "yellow", "landed": "green", "partly": "cyan", "rejected": "red",
    "fits": None, "there": "cyan", "conflict": "red",
}  # fmt: skip


def one_line(proposal: ProposalEntry) -> str:
    """Return a proposal as a line of a list."""
    state = output.paint(proposal.state, COLOURS.get(proposal.state))
    who = proposal.actor + (f" in {proposal.session}" if proposal.session else "")
    counts = ", ".join(f"{count} {state}" for state, count in proposal.counts.items() if count)
    lines = f"+{proposal.lines.added} -{proposal.lines.deleted}"
    name, who = output.paint(f"P{proposal.proposal}", "yellow"), output.paint(output.plain(who), "cyan")
    title = output.plain(subject(proposal))
    return f"{name} {state} {who}, {output.age(proposal.created)}: {title} ({counts}; {lines})"


def lines_of(shown: ProposalGetResult) -> Iterator[str]:
    """Yield a proposal with its hunks, for people."""
    yield one_line(shown)
    yield f"rule: {output.plain(shown.rule)}, revision {shown.revision}, view {shown.view}"
    if shown.lands_after and shown.state == "open":
        yield f"lands by itself once passed: {output.plain(', '.join(shown.lands_after))}"
    if "\n" in shown.message:
        yield from ("    " + output.plain(line) for line in shown.message.splitlines())
    for check in shown.checks:
        result = check_text(check, shown)
        yield output.plain(f"check {check.name}: {result}")
    for running in shown.running:
        yield output.plain(f"check {running.name}: {running_text(running)}")
    for file in shown.files:
        yield ""
        yield output.paint(file_name(file), None, bold=True)
        for hunk in file.hunks:
            yield from hunk_lines(hunk)
    numbers = {hunk.hunk: f"hunk {hunk.number}" for file in shown.files for hunk in file.hunks}
    for comment in shown.comments:
        where = comment.path or (numbers.get(comment.hunk, "an earlier hunk") if comment.hunk else "")
        where += f" line {comment.line}" if comment.line is not None else ""
        about = f" about {output.plain(where)}" if where else ""
        yield f"{output.plain(comment.by.actor)}{about}: {output.plain(comment.text)}"


def hunk_lines(hunk: ProposalHunk) -> Iterator[str]:
    head = f"{MARKS[hunk.state]} hunk {hunk.number}"
    if hunk.state != "fits":
        head += f" ({hunk.state})"
    if hunk.kind != "lines":
        head += f": {hunk.kind}"
    yield output.paint(head, COLOURS.get(hunk.state), bold=True)
    yield from marked_words(hunk.text)
    if hunk.state == "conflict":
        by = hunk.blocking if isinstance(hunk.blocking, list) else []
        if by:
            yield output.paint(f"{in_the_way(by)}; there is now:", "red")
        now = hunk.now_text if isinstance(hunk.now_text, str) else ""
        yield from ("  " + output.plain(line, but="\t") for line in now.splitlines())


def marked_words(diff: str) -> Iterator[str]:
    """Yield the lines of a diff; on a coloured terminal, with the changed words of changed lines marked."""
    if not output.is_coloured(sys.stdout):
        yield from output.diff_lines(diff)
        return
    for row in rows_of(diff):
        if row.kind in ("header", "place", "note"):
            colour = "cyan" if row.kind == "place" else None
            text = output.plain(row.text, but="\t")
            yield output.paint(text, colour, bold=row.kind == "header")
        else:
            text, colour = row.sign + "".join(map(_mark, parts_of(row))), output.DIFF_COLOURS.get(row.sign)
            yield text if colour is None else output.style(text, fg=colour)


def _mark(part: RowPart) -> str:
    text = output.plain(part.text, but="\t")
    if not part.is_changed:
        return text
    return output.style(text, reverse=True, reset=False) + output.style("", reverse=False, reset=False)


def file_name(file: ProposalFile) -> str:
    letter = output.LETTERS[file.change]
    name = output.plain(file.path)
    return (
        f"{letter} {output.plain(file.from_)} -> {name}"
        if isinstance(file.from_, str)
        else f"{letter} {name}"
    )
