"""`editctl stop`: stop the daemon, after it has finished its running requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from editd.wire.messages import Result, Status
from editd_client import requests
from editd_client.cli import output
from editd_client.cli.daemon_exit import wait_for_exit
from editd_client.cli.options import as_json

if TYPE_CHECKING:
    from editd_client.cli.invocation import Invocation


class Pid(Result):
    """The only field of a daemon's status that is needed, so that a daemon of any version can be stopped."""

    pid: int


@click.command()
@as_json
@click.pass_obj
def verb(invocation: Invocation) -> None:
    """Stop the daemon, after it has finished its running requests.

    Returns when the process has exited. Nothing is lost: the next `editctl` that needs a daemon
    starts one. If none runs, exits with 3.

    \b
    Examples:
      editctl stop
      editctl stop || true     # in a script: also if none runs
    """
    with invocation.client(start=False) as client:
        pid = client.ask(requests.call(Status(), Pid)).pid
        with wait_for_exit(pid) as wait:
            client.shutdown()
            wait()
    if invocation.json:
        output.echo(output.json_text({}))
    else:
        output.echo(f"editd (pid {pid}) has ended")
