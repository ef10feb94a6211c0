"""The server of `editctl web`, from the start of the daemon to Ctrl-C."""

from __future__ import annotations

from typing import TYPE_CHECKING

from editd_client.cli import output
from editd_client.errors import Unreachable, refusal
from editd_client.web.peer import is_known

if TYPE_CHECKING:
    from editd_client.cli.invocation import Invocation


def serve(invocation: Invocation, port: int, *, is_opening: bool) -> None:
    """Serve the page of a workspace until Ctrl-C; open it in the browser if `is_opening`."""
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

    def announce() -> None:
        output.echo(f"{server.address}/?t={server.guard.token}")
        output.flush()
        if is_opening:
            import webbrowser

            # The browser's arguments are public for a moment: this token is good for one visit.
            webbrowser.open(f"{server.address}/?t={server.guard.token_for_once()}")

    server.run(announce)
