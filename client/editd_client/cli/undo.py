"""`editctl undo`: a transaction, taken back by a new one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from editd_client.cli.applying import report
from editd_client.cli.options import Authorship, authored, forcing, transaction_named

if TYPE_CHECKING:
    from editd_client.cli.invocation import Invocation


@click.command()
@click.argument("transaction", required=False, metavar="[TX]")
@click.option("--last", type=click.IntRange(min=1), metavar="N", help="The newest N that are not undone.")
@forcing
@authored
@click.pass_obj
def verb(
    invocation: Invocation, transaction: str | None, last: int | None, force: bool, authorship: Authorship
) -> None:
    """Take back a transaction, the newest or any other.

    Without TX it is the newest edit that is not undone; with TX any, however old. What others
    changed in the same files since stays, by a three-way merge. Where that does not merge cleanly
    nothing is changed, and the transactions in the way are named. An undo is a transaction itself:
    `editctl redo` takes it back.

    \b
    Examples:
      editctl undo
      editctl undo 12
      editctl undo --last 3 --dry-run
      editctl undo 12 --force
    """
    if transaction is not None and last is not None:
        raise click.UsageError("Give a transaction or --last, not both.")
    with invocation.client() as client:
        result = client.undo(
            None if transaction is None else transaction_named(transaction),
            last=last,
            actor=authorship.actor,
            message=authorship.message,
            request_id=authorship.request_id,
            dry_run=authorship.dry_run,
            on_conflict="force" if force else "fail",
        )
    report(invocation, result, dry_run=authorship.dry_run)
