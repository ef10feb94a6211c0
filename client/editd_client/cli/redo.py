"""`editctl redo`: take back an undo."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from editd_client.cli.options import AuthorOptions, authored, forcing
from editd_client.cli.undo_report import report_undo

if TYPE_CHECKING:
    from editd_client.cli.invocation import Invocation


@click.command()
@forcing
@authored
@click.pass_obj
def verb(invocation: Invocation, force: bool, authorship: AuthorOptions) -> int:
    """Take back the newest undo.

    Call it again for the undo before that one, as in an editor. Like an undo, it keeps later
    changes by others, and is a transaction of its own.

    \b
    Examples:
      editctl redo
      editctl redo --dry-run
    """
    with invocation.client() as client:
        result = client.redo(
            actor=authorship.actor,
            message=authorship.message,
            request_id=authorship.request_id,
            dry_run=authorship.dry_run,
            on_conflict="force" if force else "fail",
        )
    return report_undo(invocation, result, dry_run=authorship.dry_run)
