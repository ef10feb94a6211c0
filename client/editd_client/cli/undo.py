"""`editctl undo`: a transaction, part of one, or all that fits, taken back by a new one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from editd_client.cli.options import Authorship, authored, forcing, transaction_named
from editd_client.cli.undoing import moment_named, report_undo

if TYPE_CHECKING:
    from editd.wire.messages import Filter
    from editd_client.cli.invocation import Invocation


@click.command()
@click.argument("transaction", required=False, metavar="[TX]")
@click.option("--last", type=click.IntRange(min=1), metavar="N", help="The newest N that are not undone.")
@click.option(
    "--path", "paths", multiple=True, metavar="PATH",
    help="Of TX, or of all that fits, only what it did to this file or folder; can be given again.",
)  # fmt: skip
@click.option("--session", metavar="NAME", help="All that this session did.")
@click.option("--by", metavar="NAME", help="All that this actor did; `outside`: what other programs did.")
@click.option(
    "--since", metavar="WHEN", help="All from a transaction or a time on, such as 2h or 2026-03-01."
)
@click.option("--until", metavar="WHEN", help="All up to a transaction or a time.")
@forcing
@authored
@click.pass_obj
def verb(
    invocation: Invocation,
    *,
    transaction: str | None,
    last: int | None,
    paths: tuple[str, ...],
    session: str | None,
    by: str | None,
    since: str | None,
    until: str | None,
    force: bool,
    authorship: Authorship,
) -> int:
    """Take back a transaction, the newest or any other, or part of one.

    Without TX it is the newest edit that is not undone; with TX any, however old. --session, --by,
    --since, --until and --path together name all transactions that fit, which are taken back as
    one. What others changed in the same files since stays, by a three-way merge. Where that does
    not merge cleanly nothing is changed, and the transactions in the way are named; --dry-run tells
    beforehand, and which of them depend on it. An undo is a transaction itself: `editctl redo` takes
    it back.

    \b
    Examples:
      editctl undo
      editctl undo 12 --path src/app.py
      editctl undo --last 3 --dry-run
      editctl undo --by claude --since 2h --path src
    """
    chosen = _filter(invocation, session, by, since, until, () if transaction else paths)
    if sum((transaction is not None, last is not None, chosen is not None)) > 1:
        raise click.UsageError("Give a transaction, --last, or what it has to fit; not several of them.")
    with invocation.client() as client:
        result = client.undo(
            None if transaction is None else transaction_named(transaction),
            paths=invocation.paths(paths) if transaction else None,
            last=last,
            filter=chosen,
            actor=authorship.actor,
            message=authorship.message,
            request_id=authorship.request_id,
            dry_run=authorship.dry_run,
            on_conflict="force" if force else "fail",
        )
    return report_undo(invocation, result, dry_run=authorship.dry_run)


def _filter(
    invocation: Invocation,
    session: str | None,
    by: str | None,
    since: str | None,
    until: str | None,
    paths: tuple[str, ...],
) -> Filter | None:
    from editd.wire.messages import Filter

    if not any((session, by, since, until, paths)):
        return None
    named = invocation.paths(paths)
    if named is None and not any((session, by, since, until)):
        raise click.UsageError("That is everything: `editctl restore` puts the workspace back as a whole.")
    return Filter(
        session=session,
        actor=by,
        since=None if since is None else moment_named(since),
        until=None if until is None else moment_named(until),
        paths=named,
    )
