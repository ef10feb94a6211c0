"""`editctl settle`: what other programs have changed, taken into the history now."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from editd_client.cli import output
from editd_client.cli.options import as_json

if TYPE_CHECKING:
    from editd_client.cli.invocation import Invocation


@click.command()
@click.option("--timeout", type=click.FloatRange(min=0), metavar="SECONDS", help="Give up after so long.")
@as_json
@click.pass_obj
def verb(invocation: Invocation, timeout: float | None) -> None:
    """Take in what other programs have changed until now.

    Returns once every change that was made to the files before is in the history, as a transaction
    by `outside`; the first time in a workspace it also waits for the baseline. Then `log` and `diff`
    tell the whole story.

    \b
    Examples:
      git pull && editctl settle && editctl log -n 1
      editctl settle --timeout 5
    """
    with invocation.client() as client:
        result = client.settle(timeout)
    if not invocation.say_json(result):
        output.echo(f"settled at transaction {result.head}" if result.head else "settled at the baseline")
