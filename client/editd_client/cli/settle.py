"""`editctl settle`: wait until the history has all changes of other programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from editd_client.cli import output
from editd_client.cli.options import as_json

if TYPE_CHECKING:
    from editd_client.cli.invocation import Invocation


@click.command()
@click.option("--timeout", type=click.FloatRange(min=0), metavar="SECONDS", help="Time limit (default: 60).")
@as_json
@click.pass_obj
def verb(invocation: Invocation, timeout: float | None) -> None:
    """Wait until the history has all changes of other programs.

    Returns when every earlier change of a file is in the history, as a transaction by `outside`. In a
    new workspace, also waits for the baseline. Afterwards `log` and `diff` are complete.

    \b
    Examples:
      git pull && editctl settle && editctl log -n 1
      editctl settle --timeout 5
    """
    with invocation.client() as client:
        result = client.settle(timeout)
    if not invocation.say_json(result):
        output.echo(f"settled at transaction {result.head}" if result.head else "settled at the baseline")
