"""`editctl log`: the transactions, newest first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from editd_client.cli import output
from editd_client.cli.options import as_json
from editd_client.cli.times import moment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd.wire.messages import Kind, LogResult
    from editd_client.cli.invocation import Invocation
    from editd_client.client import Client

LIMIT = 50
KINDS = ["baseline", "edit", "outside", "exec", "undo", "redo", "rollback", "restore"]


@click.command()
@click.argument("path", required=False)
@click.option("-n", "--limit", type=click.IntRange(min=1), help="So many at most. Default: 50.")
@click.option("--oneline", is_flag=True, help="One line a transaction.")
@click.option("-p", "--patch", is_flag=True, help="With what each one changed.")
@click.option("--kind", type=click.Choice(KINDS), help="Only this kind; `outside`: not made through editd.")
@click.option("--actor", metavar="NAME", help="Only those by this actor.")
@click.option("--session", metavar="NAME", help="Only those of this session.")
@click.option("--before", type=int, metavar="SEQ", help="Only those before this one.")
@click.option("--after", type=int, metavar="SEQ", help="Only those after this one.")
@click.option("--since", metavar="TIME", help="Only those made at that time or later.")
@click.option("--until", metavar="TIME", help="Only those made until then.")
@as_json
@click.pass_obj
def verb(
    invocation: Invocation,
    *,
    path: str | None,
    limit: int | None,
    oneline: bool,
    patch: bool,
    kind: Kind | None,
    actor: str | None,
    session: str | None,
    before: int | None,
    after: int | None,
    since: str | None,
    until: str | None,
) -> None:
    """List the transactions, newest first; with PATH, those that changed it.

    A TIME is a time ago (90s, 15m, 2h, 3d, 1w), or a date or time such as 2026-03-01 or "2026-03-01
    14:30", in your own time zone unless it names one.

    What other programs changed is in the list once the daemon has noticed it: `editctl settle` sees
    to that.

    \b
    Examples:
      editctl log --oneline -n 10
      editctl log -p src/app.py
      editctl log --since 2h --kind outside
      editctl log --json | jq -r '.transactions[].message'
    """
    paths = invocation.paths([] if path is None else [path])
    with invocation.client() as client:
        result = client.log(
            limit=limit or LIMIT,
            before=before,
            after=after,
            path=paths[0] if paths else None,
            session=session,
            actor=actor,
            kind=kind,
            since=None if since is None else moment(since),
            until=None if until is None else moment(until),
        )
        if path is not None and not result.transactions:
            invocation.check_known(client, path)
        if not invocation.say_json(result):
            output.page(_lines(client, result, oneline=oneline, patch=patch))
            if result.more and limit is None:
                output.say(f"… more: --before {result.transactions[-1].seq}, or a larger --limit")


def _lines(client: Client, result: LogResult, *, oneline: bool, patch: bool) -> Iterator[str]:
    for number, transaction in enumerate(result.transactions):
        if oneline:
            yield output.one_line(transaction)
        else:
            yield from ([""] if number else [])
            yield from output.paragraph(transaction)
        if patch:
            yield from ([] if oneline else [""])
            yield from output.diff_lines(client.show(transaction.seq).diff or "")
