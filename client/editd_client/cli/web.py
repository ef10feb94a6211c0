"""The verb `web`: the review page for a browser on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from editd_client.optional_part import load_part

if TYPE_CHECKING:
    from editd_client.cli.invocation import Invocation

PORT_MAX = 65535


@click.command("web")
@click.option(
    "--port", type=click.IntRange(0, PORT_MAX), default=0, help="Port to listen on (default: a free one)."
)
@click.option("--open", "is_opening", is_flag=True, help="Open the page in the browser.")
@click.pass_obj
def web_verb(invocation: Invocation, port: int, is_opening: bool) -> None:
    """Serve the review page to a browser on this machine.

    Prints an address with a token, and serves until Ctrl-C. The page lists proposals, transactions and
    agents, decides hunk by hunk, and undoes. Only a browser that has opened that address gets in. Needs the
    extra `web`: in a checkout, `pipx install '.[web]'`.

    \b
    Examples:
      editctl web
      editctl web --open
      editctl web --port 8123
    """
    load_part("web", "editctl web")(invocation, port, is_opening=is_opening)
