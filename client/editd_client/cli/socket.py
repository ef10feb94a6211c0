"""`editctl socket`: the path of the daemon's socket, for editors and scripts."""

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
    """Print the path of the daemon's socket.

    Starts the daemon if none answers, so that a program can connect to the printed path.

    \b
    Examples:
      echo '{"jsonrpc": "2.0", "id": 1, "method": "status"}' | socat - UNIX:"$(editctl socket)"
      nvim --cmd "let g:editd = sockconnect('pipe', '$(editctl socket)', {'rpc': v:true})"
    """
    invocation.client().close()
    path = invocation.workspace.socket_path
    if invocation.json:
        output.echo(output.json_text({"socket": path}))
    else:
        output.echo(path)
