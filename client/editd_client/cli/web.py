"""The verb `web`: the review page for a browser on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from editd_client.cli import output
from editd_client.errors import Unreachable, refusal
from editd_client.web.peer import is_known

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
    if not is_known():
        raise Unreachable(
            "This system does not show the user of a connection: it has no /proc/net/tcp.",
            hint="Use `editctl review`, or mount /proc.",
        )
    try:
        from editd_client.web.server import ReviewServer
    except ModuleNotFoundError as error:
        raise Unreachable(
            f"`editctl web` needs the extra `web` of editd: {error.name} is not installed.",
            hint="In a checkout: `pipx install --force '.[web]'` or `uv tool install --force '.[web]'`.",
        ) from error
    invocation.client(attach=False).close()  # starts the daemon, and names what is wrong before it serves
    try:
        server = ReviewServer(invocation.workspace, port)
    except OSError as error:
        raise refusal("io_error", f"Port {port} is not free: {error.strerror}.") from None

    def say_ready() -> None:
        output.echo(f"{server.address}/?t={server.guard.token}")
        output.flush()
        if is_opening:
            import webbrowser

            # The browser's arguments are public for a moment: this token is good for one visit.
            webbrowser.open(f"{server.address}/?t={server.guard.token_for_once()}")

    server.run(say_ready)
