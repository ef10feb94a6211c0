"""`editctl restore`: the workspace, or a part of it, as of a transaction or a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from editd_client.cli.apply_report import report
from editd_client.cli.options import AuthorOptions, authored
from editd_client.cli.undo_report import time_named

if TYPE_CHECKING:
    from editd_client.cli.invocation import Invocation


@click.command()
@click.argument("when", metavar="WHEN")
@click.argument("paths", nargs=-1, metavar="[PATH]…")
@authored
@click.pass_obj
def verb(invocation: Invocation, when: str, paths: tuple[str, ...], authorship: AuthorOptions) -> None:
    """Put the workspace, or some paths, back to an earlier state.

    The state is that right after WHEN: a transaction, or a time such as 2h (ago) or
    2026-03-01T14:30. 0 is the baseline. Unlike an undo, removes all later changes of these paths,
    whoever made them. The history keeps them, and `editctl undo` brings them back. A file that
    editd never saw stays, and an unchanged file is not touched.

    \b
    Examples:
      editctl restore 40 --dry-run
      editctl restore 40
      editctl restore 40 src/app.py tests
      editctl restore 10m
    """
    with invocation.client() as client:
        result = client.restore(
            time_named(when),
            paths=invocation.paths(paths),
            actor=authorship.actor,
            message=authorship.message,
            request_id=authorship.request_id,
            dry_run=authorship.dry_run,
        )
    report(invocation, result, dry_run=authorship.dry_run)
