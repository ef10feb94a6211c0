"""`editctl rollback`: take back all the work of a session at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from editd_client.cli.options import AuthorOptions, authored, fitting
from editd_client.cli.undo_report import report_undo, time_named

if TYPE_CHECKING:
    from editd.wire.messages import OnConflict
    from editd_client.cli.invocation import Invocation


@click.command()
@click.argument("session")
@click.option(
    "--since", metavar="WHEN", help="Only work since a transaction or a time, such as 2h or 2026-03-01."
)
@click.option("--include-published", is_flag=True, help="Also take back published work. The commit stays.")
@fitting
@authored
@click.pass_obj
def verb(
    invocation: Invocation,
    session: str,
    since: str | None,
    include_published: bool,
    on_conflict: OnConflict,
    authorship: AuthorOptions,
) -> int:
    """Take back all the work of a session.

    Takes back its edits and commands in force, as one transaction. Keeps the changes of others,
    also in the same files. If later changes of others do not merge, changes nothing and names the
    blocking transactions. --dry-run shows them beforehand, and --what-fits takes back the rest.
    `editctl undo` takes back a rollback. Published work stays in the files unless
    --include-published is given.

    \b
    Examples:
      editctl rollback fix-login --dry-run
      editctl rollback fix-login -m "the agent went astray"
      editctl rollback fix-login --since 30m
      editctl rollback fix-login --what-fits
    """
    with invocation.client() as client:
        result = client.rollback(
            session,
            since=None if since is None else time_named(since),
            actor=authorship.actor,
            message=authorship.message,
            request_id=authorship.request_id,
            dry_run=authorship.dry_run,
            on_conflict=on_conflict,
            include_published=include_published,
        )
    return report_undo(invocation, result, dry_run=authorship.dry_run)
