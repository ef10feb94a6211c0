"""The verbs about the prompts of agents: `why` of a line, and `turns` of a session."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

import click

from editd_client.cli import output
from editd_client.cli.options import as_json, parse_transaction
from editd_client.errors import EditdError
from editd_client.file_text import text_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from editd.wire.messages import TurnEntry, TurnTransaction, Tx, WhyLine, WhyResult
    from editd_client.cli.invocation import Invocation
    from editd_client.client import Client

TURNS = 20
TURNS_MAX = 200  # with the lines of each transaction
PROMPT_CHARACTERS = 100  # in a title
_PLACE = re.compile(r"(?P<path>.+):(?P<first>\d{1,9})(?:-(?P<last>\d{1,9}))?", re.DOTALL)


@click.command("why")
@click.argument("place", metavar="FILE:LINE[-LINE]")
@click.option("--at", metavar="TX", help="Transaction after which to look at the file (default: now).")
@as_json
@click.pass_obj
def why_verb(invocation: Invocation, place: str, at: str | None) -> None:
    """Show the transaction, turn and prompt behind a line.

    Follows moves, undos and merges as `blame` does. The prompt is known if the agent's integration tells
    editd of it, and shown to you and to the turn's own session.

    \b
    Examples:
      editctl why src/app.py:10
      editctl why src/app.py:10-20 --json
      editctl why src/app.py:10 --at 12
    """
    named = _PLACE.fullmatch(place)
    if named is None:
        raise click.BadParameter(
            f"{place!r} is no line of a file, such as src/app.py:10 or src/app.py:10-20."
        )
    path, first = invocation.path(named["path"]), int(named["first"])
    last = first if named["last"] is None else int(named["last"])
    if not 1 <= first <= last:
        raise click.BadParameter(f"{place!r}: lines count from 1, and the first comes first.")
    tx = None if at is None else parse_transaction(at)
    with invocation.client() as client:
        result = client.why(path, first, end_line=last, at=tx)
        if not invocation.say_json(result):
            output.page(_reasons(result, _texts(client, path, result, tx)))


def _texts(client: Client, path: str, result: WhyResult, at: Tx | None) -> list[str]:
    """Return the texts of the lines; empty ones if the file has changed meanwhile, or is no text."""
    first, last = result.lines[0].line, result.lines[-1].line
    try:
        read = client.read(path, start_line=first, end_line=last, at=at)
    except EditdError:
        return [""] * len(result.lines)
    if read.version != result.version:
        return [""] * len(result.lines)
    texts = text_of(read).split("\n")
    return (texts + [""] * len(result.lines))[: len(result.lines)]


def _reasons(result: WhyResult, texts: Sequence[str]) -> Iterator[str]:
    """Yield the lines of each transaction, and its reason below them."""
    width = len(str(result.lines[-1].line))
    pairs = zip(result.lines, texts, strict=True)
    for number, (_, group) in enumerate(itertools.groupby(pairs, key=lambda pair: pair[0].transaction)):
        lines = list(group)
        yield from [""] if number else []
        for line, text in lines:
            yield f"{output.paint(f'{line.line:>{width}}', 'yellow')}  {output.plain(text, but=chr(9))}"
        for name, value in _facts(lines[0][0]):
            first, *rest = value.split("\n")
            yield f"{name:>12}  {output.plain(first)}"
            yield from (f"{'':>12}  {output.plain(one)}" for one in rest)


def _facts(line: WhyLine) -> Iterator[tuple[str, str]]:
    """Yield the name and the value of each known fact."""
    subject = line.message.partition("\n")[0]
    yield "transaction", f"{line.transaction} {line.kind}{f': {subject}' if subject else ''}"
    on_host = "" if line.host is None else f" on {line.host}"
    yield "author", f"{line.actor}{'' if line.session is None else f' in {line.session}'}{on_host}"
    yield "time", output.local_time(line.time)
    if line.agent is not None or line.model is not None:
        yield "agent", ", ".join(part for part in (line.agent, line.model) if part is not None)
    if line.turn is not None:
        yield "turn", f"{line.turn}{'' if line.began is None else f', {output.local_time(line.began)}'}"
    if line.session is not None:
        yield "prompt", _prompt(line)
    if line.transcript is not None:
        yield "transcript", line.transcript
    if line.reviewed is not None:
        yield "reviewed", f"by {line.reviewed.actor}, {output.local_time(line.reviewed.time)}"


def _prompt(line: WhyLine) -> str:
    if line.prompt is not None:
        return line.prompt
    if line.turn is None:
        return "not known: its agent told no prompt"
    if line.characters is None:
        return "not kept on this host"
    return f"{line.characters} characters, not kept any more or not for you"


@click.command("turns")
@click.argument("session", required=False)
@click.option(
    "-n", "--limit", type=click.IntRange(1, TURNS_MAX), default=TURNS, help="Number of turns (default: 20)."
)
@as_json
@click.pass_obj
def turns_verb(invocation: Invocation, session: str | None, limit: int) -> None:
    """List the prompts of agents, with their transactions.

    Without SESSION, lists the prompts of all sessions. With it, also those of its sub-agents. Each
    transaction has its lines, and says whether it is undone. A proposal of the turn that waits is named.

    \b
    Examples:
      editctl turns
      editctl turns codex-1a2b3c4d
      editctl turns codex-1a2b3c4d --json | jq '.turns[].prompt'
    """
    with invocation.client() as client:
        result = client.turns(session=session, limit=limit, stat=True)
        if not invocation.say_json(result):
            lines = (line for turn in reversed(result.turns) for line in _turn_lines(turn))
            more = ["… earlier turns: a larger --limit shows them"] if result.more else []
            output.page(itertools.chain(more, lines))


def _turn_lines(turn: TurnEntry) -> Iterator[str]:
    facts = [turn.session, f"turn {turn.turn}", _counts(turn.transactions), turn.model or "", _state(turn)]
    yield output.paint("  ".join(output.plain(fact) for fact in facts if fact), "yellow")
    yield f"  {output.local_time(turn.began)}  {output.plain(_title(turn))}"
    for one in turn.transactions:
        lines = f"+{one.added} -{one.deleted}" if isinstance(one.added, int) else ""
        undone = "" if one.undone_by is None else f"undone by {one.undone_by}"
        parts = [f"{one.seq:>6} {one.kind}", lines, one.message.partition("\n")[0], undone]
        yield "  ".join(output.plain(part) for part in parts if part)
    for proposal in turn.proposals:
        yield f"       proposal {proposal} waits"


def _title(turn: TurnEntry) -> str:
    """Return the beginning of a prompt, or the reason why there is none."""
    if turn.prompt is not None:
        words = " ".join(turn.prompt.split())
        return words if len(words) <= PROMPT_CHARACTERS else f"{words[: PROMPT_CHARACTERS - 1]}…"
    return "no prompt" if turn.characters is None else f"a prompt of {turn.characters} characters"


def _state(turn: TurnEntry) -> str:
    if turn.parent is None:
        return "" if turn.ended is not None else "under way"
    number = "" if turn.parent.turn is None else f" turn {turn.parent.turn}"
    return f"of {turn.parent.session}{number}"


def _counts(transactions: Sequence[TurnTransaction]) -> str:
    """Return the lines of all transactions that are not undone, if they are counted."""
    kept = [one for one in transactions if one.undone_by is None]
    added = [one.added for one in kept if isinstance(one.added, int)]
    deleted = [one.deleted for one in kept if isinstance(one.deleted, int)]
    return f"+{sum(added)} -{sum(deleted)}" if len(added) == len(deleted) == len(kept) else ""
