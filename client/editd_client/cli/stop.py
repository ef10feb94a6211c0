"""`editctl stop`: the daemon, once what is under way is finished."""

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
    """All that is asked of a daemon's status, so that one of any version can be ended."""

    pid: int


@click.command()
@as_json
@click.pass_obj
def verb(invocation: Invocation) -> None:
    """Stop the daemon, once what is under way is finished.

    Returns when it is gone. Nothing is lost: the next `editctl` that needs a daemon starts one. Where
    none runs, the exit code is 3.

    \b
    Examples:
      editctl stop
      editctl stop || true     # in a script: gone, whether or not it ran
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
