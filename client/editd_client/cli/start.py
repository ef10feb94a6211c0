"""`editctl start`: start the daemon, if none runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from editd_client.cli import output
from editd_client.cli.options import as_json

if TYPE_CHECKING:
    from editd_client.cli.invocation import Invocation


@click.command()
@as_json
@click.pass_obj
def verb(invocation: Invocation) -> None:
    """Start the daemon, if none runs.

    Other verbs start it, too. Use this in a script to be sure, or to wait for the start separately.

    \b
    Examples:
      editctl start
      editctl -C ~/src/project start
    """
    with invocation.client() as client:
        status = client.status()
    if not invocation.say_json(status):
        output.echo(f"editd {status.version} (pid {status.pid}) serves {output.plain(status.root)}")
