"""`editctl watch`: each transaction as it happens."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import click

from editd_client.cli import output, stdio
from editd_client.cli.options import as_json

if TYPE_CHECKING:
    from editd_client.cli.invocation import Invocation
    from editd_client.events import Happening

WILDCARD = re.compile(r"[*?\[]")


@click.command()
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option(
    "--since",
    type=click.IntRange(min=0),
    metavar="SEQ",
    help="Transaction to begin after (default: the newest).",
)
@click.option(
    "--of", "--session", "sessions", multiple=True, metavar="SESSION",
    help="Only transactions of this session. Repeatable.",
)  # fmt: skip
@as_json
@click.pass_obj
def verb(
    invocation: Invocation, *, paths: tuple[str, ...], since: int | None, sessions: tuple[str, ...]
) -> None:
    """Print each transaction as it happens.

    Prints one a line, until Ctrl-C. With PATHs, only transactions that touch one of them or a path
    below. A PATH with * or ? or [ is a glob, such as 'src/**/*.py'. With --json, each line is an
    event as the daemon sends it.

    \b
    Examples:
      editctl watch
      editctl watch src --of refactoring
      editctl watch --since 0 --json | jq -r .transaction.message
    """
    with invocation.client() as client:
        globs = [_glob(invocation, path) for path in paths]
        for happening in client.subscribe(paths=globs or None, since=since):
            transaction = happening.transaction
            if sessions and transaction is not None and transaction.session not in sessions:
                continue
            line = _json(happening) if invocation.json else _line(happening)
            if line is not None:
                output.echo(line)
                stdio.flush()
    stdio.print_error("editctl: the daemon has ended")


def _glob(invocation: Invocation, given: str) -> str:
    """Return the glob for an argument: an existing path, or a glob relative to the current folder."""
    if WILDCARD.search(given) and not os.path.lexists(invocation.absolute(given)):
        return invocation.path(given)
    if invocation.absolute(given) == invocation.workspace.root:
        return "**"
    return re.sub(r"^!|[*?\[\]\\]", r"\\\g<0>", invocation.path(given))


def _json(happening: Happening) -> str:
    from editd.wire.codec import encode_json

    about = {} if happening.transaction is None else {"transaction": happening.transaction}
    return encode_json({"event": happening.event, **about, **happening.data}).decode()


def _line(happening: Happening) -> str | None:
    """Return the line for a person, or None for an event that is only for programs."""
    if happening.transaction is not None:
        return output.one_line(happening.transaction)
    if happening.event == "resync":
        start, head = happening.data.get("from"), happening.data.get("head")
        if happening.data.get("reason") != "behind" or start == head:
            return None
        return output.paint(f"… {start} to {head} went by too fast: editctl log --after {start}", "magenta")
    return None
