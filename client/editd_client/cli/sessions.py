"""`editctl sessions`: every session in the history, and the size of its work."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from editd_client.cli import output
from editd_client.cli.options import as_json
from editd_client.cli.time_arguments import age

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from editd.wire.messages import SessionEntry
    from editd_client.cli.invocation import Invocation


@click.command()
@click.option("--open", "only_open", is_flag=True, help="Only open sessions.")
@as_json
@click.pass_obj
def verb(invocation: Invocation, only_open: bool) -> None:
    """List all sessions, closed ones too, the last used first.

    Shows the size of their work: the edits and commands in force, and their files and lines. A
    session is connected, open (without a connection now), or closed.

    \b
    Examples:
      editctl sessions
      editctl sessions --json | jq -r '.sessions[] | select(.state == "closed") | .session'
      editctl rollback "$(editctl sessions --json | jq -r '.sessions[0].session')" --dry-run
    """
    with invocation.client(attach=False) as client:
        result = client.session_list(all=not only_open, stat=True)
    if not invocation.say_json(result):
        output.page(_table(result.sessions))


def _table(sessions: Sequence[SessionEntry]) -> Iterator[str]:
    if not sessions:
        return
    heads = ("session", "actor", "edits", "files", "+/-", "last used", "state")
    rows = [heads, *map(_row, sessions)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for number, row in enumerate(rows):
        cells = [
            f"{cell:>{width}}" if heads[column] in ("edits", "files", "+/-") else f"{cell:<{width}}"
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        line = "  ".join(cells).rstrip()
        yield output.paint(line, None, bold=True) if number == 0 else line


def _row(entry: SessionEntry) -> tuple[str, ...]:
    is_counted = isinstance(entry.added, int) and isinstance(entry.removed, int)
    published = entry.published if isinstance(entry.published, list) else []
    state = str(entry.state)
    if published:
        commits = ", ".join(f"{one.commit[: output.ID_DIGITS]} on {one.branch}" for one in published)
        state += f", published as {commits}"
    return (
        output.plain(entry.session),
        output.plain(entry.actor or ""),
        str(entry.edits),
        str(entry.files),
        f"+{entry.added} -{entry.removed}" if is_counted else "not counted",
        age(entry.used),
        output.plain(state),
    )
