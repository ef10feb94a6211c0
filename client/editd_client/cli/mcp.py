"""`editctl mcp`: editd's tools, and those of other systems, for agents that speak MCP."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from editd_client.errors import Unreachable

if TYPE_CHECKING:
    from editd_client.cli.invocation import Invocation


@click.command()
@click.option("--workspace", metavar="DIR", help="The workspace; else the client's root, else the usual one.")
@click.option(
    "--dialect", "dialects", metavar="NAME", multiple=True,
    help="Offer these tools as well, see `editctl dialects`; may be repeated.",
)  # fmt: skip
@click.option("--session", metavar="NAME", help="The session's name; else the client's own name.")
@click.pass_obj
def verb(
    invocation: Invocation, workspace: str | None, dialects: tuple[str, ...], session: str | None
) -> None:
    """Serve an agent's edit tools over MCP, on standard input and output.

    An agent's configuration names this command; docs/mcp.md has it for several. Each connection is
    one session: what an agent did is undone, rolled back and published alone. Needs the extra
    `editd[mcp]`.

    \b
    Examples:
      claude mcp add editd -- editctl mcp
      editctl mcp --workspace ~/src/project --dialect claude
      editctl mcp --session refactoring
    """
    if workspace is not None:
        invocation.named = workspace
    if session is not None:
        invocation.act_in(session)
    try:
        from editd_client.mcp.server import serve
    except ImportError as error:
        raise Unreachable(
            f"The MCP server needs Python's MCP SDK, version 2.3 or later: {error}.",
            hint="pip install 'editd[mcp]'",
        ) from error
    # For good: a token in the environment is one of the session that is named there.
    serve(invocation.named, dialects, os.environ.get("EDITD_SESSION"), os.environ.get("EDITD_TOKEN"))
