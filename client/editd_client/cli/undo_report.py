"""The report of undo, redo and rollback, and the arguments that name a moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from editd_client.cli import output
from editd_client.cli.options import transaction_named
from editd_client.cli.time_arguments import is_time, parse_time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd.wire.messages import InTheWay, Tx, UndoResult
    from editd_client.cli.invocation import Invocation

REFUSED_EXIT_CODE = 1


def time_named(text: str) -> Tx:
    """Return a transaction, or a time as RFC 3339: `2h` is two hours ago, without a zone it is local."""
    return parse_time(text) if is_time(text) else transaction_named(text.strip())


def report_undo(invocation: Invocation, result: UndoResult, *, dry_run: bool) -> int:
    """Print the result. Return the exit code, REFUSED for a dry run with conflicts."""
    conflicts = result.conflicts if isinstance(result.conflicts, list) else []
    if not invocation.say_json(result):
        lines = output.applied(result, dry_run=dry_run)
        if conflicts:
            output.echo(next(lines))
            for line in _in_the_way(conflicts, is_left=result.transaction is not None):
                output.echo(line)
        for line in lines:
            output.echo(line)
    return REFUSED_EXIT_CODE if conflicts else 0


def _in_the_way(conflicts: list[InTheWay], *, is_left: bool) -> Iterator[str]:
    for one in conflicts:
        later = f": changed since by {_listed(one.blocking)}" if one.blocking else ""
        what = "keeps the parts that do not merge" if is_left else "does not merge"
        yield f" {output.paint('!', 'red')} {output.plain(one.path)} {what}{later}"
        for hunk in one.hunks if isinstance(one.hunks, list) else ():
            yield from output.diff_lines(hunk)
    needs = sorted({seq for one in conflicts for seq in one.needs}, reverse=True)
    order = ", in this order" if len(needs) > 1 else ""
    if is_left and needs:
        yield output.paint(f"to take back the rest: undo {_listed(needs)} first{order}", "red")
    elif not is_left:
        first = f"undo {_listed(needs)} first{order}, or " if needs else ""
        yield output.paint(f"it would be refused: {first}use --force", "red")


def _listed(seqs: list[int]) -> str:
    return ", ".join(map(str, seqs))
