"""The screen of `editctl review`, from the start of the daemon to its end."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

from editd_client.cli import output
from editd_client.errors import Unreachable

if TYPE_CHECKING:
    from editd_client.cli.invocation import Invocation
    from editd_client.screen.app import ReviewApp


def open_screen(invocation: Invocation) -> None:
    """Open the screen. Raises Unreachable without Textual, and EditdError without a terminal."""
    gc.disable()  # what the imports make stays: without a collection the start takes a tenth less
    try:
        app = _screen(invocation)
        gc.freeze()  # so a key does not wait for a collection of all of it
    finally:
        gc.enable()
    app.run()


def _screen(invocation: Invocation) -> ReviewApp:
    try:
        from editd_client.screen.app import ReviewApp
        from editd_client.screen.source import DaemonSource
    except ModuleNotFoundError as error:
        raise Unreachable(
            f"`editctl review` needs the extra `review` of editd: {error.name} is not installed.",
            hint="In a checkout, install it: `pipx install --force '.[review]'`.",
        ) from error
    output.check_terminal("`editctl review`", "In a script, use `editctl proposal list` and `editctl log`.")
    invocation.reviewer().close()  # starts the daemon, and names what is wrong before the screen opens
    return ReviewApp(DaemonSource(invocation.workspace))
