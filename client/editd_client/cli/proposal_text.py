"""A proposal as text: a line of a list, and all of its hunks with their changed words marked."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

import click

from editd_client.cli import output

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from editd.wire.messages import ProposalEntry, ProposalFile, ProposalGetResult, ProposalHunk

MARKS = {"fits": " ", "there": "=", "conflict": "!", "landed": "✓", "rejected": "✗"}
COLOURS = {
    "open": "yellow", "draft": "yellow", "landed": "green", "partly": "cyan", "rejected": "red",
    "fits": None, "there": "cyan", "conflict": "red",
}  # fmt: skip
WORD_LINE_MAX = 500  # characters: comparing words takes the square of a line's length
_WORDS = re.compile(r"\w+|\s+|[^\w\s]")


def one_line(proposal: ProposalEntry) -> str:
    """Return a proposal as a line of a list."""
    state = output.paint(proposal.state, COLOURS.get(proposal.state))
    who = proposal.actor + (f" in {proposal.session}" if proposal.session else "")
    counts = ", ".join(f"{count} {state}" for state, count in proposal.counts.items() if count)
    subject = proposal.message.partition("\n")[0] or _paths(proposal.paths)
    lines = f"+{proposal.lines.added} -{proposal.lines.deleted}"
    name, who = output.paint(f"P{proposal.proposal}", "yellow"), output.paint(output.plain(who), "cyan")
    return (
        f"{name} {state} {who}, {output.age(proposal.created)}: {output.plain(subject)} ({counts}; {lines})"
    )


def lines_of(shown: ProposalGetResult) -> Iterator[str]:
    """Yield a proposal with its hunks, for people."""
    yield one_line(shown)
    yield f"rule: {output.plain(shown.rule)}, revision {shown.revision}, view {shown.view}"
    if shown.lands_after and shown.state == "open":
        yield f"lands by itself once passed: {output.plain(', '.join(shown.lands_after))}"
    if "\n" in shown.message:
        yield from ("    " + output.plain(line) for line in shown.message.splitlines())
    for check in shown.checks:
        result = "passed" if check.exit == 0 else f"failed ({check.exit})"
        is_outdated = shown.state == "open" and not check.is_current
        old = ", on an earlier view" if is_outdated else ""
        name, claims = output.plain(check.name), output.plain(check.by.actor)
        by = "run by the daemon" if check.by.via == "rule" else f"as {claims} claims"
        yield f"check {name}: {result} in {check.seconds:.1f} s, {by}{old}"
    for file in shown.files:
        yield ""
        yield output.paint(file_name(file), None, bold=True)
        for hunk in file.hunks:
            yield from hunk_lines(hunk)
    for said in shown.comments:
        where = said.path or ("a hunk" if said.hunk else "")
        about = f" about {output.plain(where)}" if where else ""
        yield f"{output.plain(said.by.actor)}{about}: {output.plain(said.text)}"


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
            yield output.paint(f"changed since by {', '.join(map(str, by))}; there is now:", "red")
        now = hunk.now_text if isinstance(hunk.now_text, str) else ""
        yield from ("  " + output.plain(line, but="\t") for line in now.splitlines())


def marked_words(diff: str) -> Iterator[str]:
    """Yield the lines of a diff; on a coloured terminal, with the changed words of changed lines marked."""
    if not output.is_coloured(sys.stdout):
        yield from output.diff_lines(diff)
        return
    old: list[str] = []
    new: list[str] = []
    for line in [*diff.removesuffix("\n").split("\n"), ""]:
        if line.startswith("-") and not new:
            old.append(line)
        elif line.startswith("+"):
            new.append(line)
        else:
            yield from _pairs(old, new)
            old, new = ([line], []) if line.startswith("-") else ([], [])
            if line and not line.startswith("-"):
                yield from output.diff_lines(line)


def _pairs(old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    """Yield removed and added lines; if there are as many of both, with their changed words marked."""
    marked = [_marked(*pair) for pair in zip(old, new, strict=False)] if len(old) == len(new) else []
    for side, lines in enumerate((old, new)):
        for at, line in enumerate(lines):
            yield marked[at][side] if marked else output.paint(output.plain(line, but="\t"), _colour(line))


def _marked(old: str, new: str) -> tuple[str, str]:
    import difflib

    if max(len(old), len(new)) > WORD_LINE_MAX:
        return tuple(output.paint(output.plain(line, but="\t"), _colour(line)) for line in (old, new))  # type: ignore[return-value]
    words = [_WORDS.findall(line[1:]) for line in (old, new)]
    parts: tuple[list[str], list[str]] = [old[0]], [new[0]]
    for kind, *ends in difflib.SequenceMatcher(None, words[0], words[1], autojunk=False).get_opcodes():
        for side in (0, 1):
            text = output.plain("".join(words[side][ends[2 * side] : ends[2 * side + 1]]), but="\t")
            parts[side].append(
                click.style(text, reverse=True, reset=False) + "\x1b[27m"
                if text and kind != "equal"
                else text
            )
    return tuple(click.style("".join(side), fg=_colour(side[0])) for side in parts)  # type: ignore[return-value]


def _colour(line: str) -> str | None:
    return output.DIFF_COLOURS.get(line[:1])


def file_name(file: ProposalFile) -> str:
    letter = output.LETTERS[file.change]
    name = output.plain(file.path)
    return (
        f"{letter} {output.plain(file.from_)} -> {name}"
        if isinstance(file.from_, str)
        else f"{letter} {name}"
    )


def _paths(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return (paths[0] if paths else "") + more
