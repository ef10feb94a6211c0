"""`editctl read`: a file, current or as of a transaction."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from editd_client.cli import stdio
from editd_client.cli.options import as_json, transaction_named

if TYPE_CHECKING:
    from editd_client.cli.invocation import Invocation


@click.command()
@click.argument("path")
@click.option(
    "--at", metavar="TX", help="Transaction after which to read the file (default: now). 0 is the baseline."
)
@as_json
@click.pass_obj
def verb(invocation: Invocation, path: str, at: str | None) -> None:
    """Print a file, current or as of a transaction.

    Prints it byte for byte. With --json, also prints its version (for --base of an edit), its
    encoding and its line ends.

    \b
    Examples:
      editctl read src/app.py
      editctl read src/app.py --at 12 | diff - src/app.py
      editctl read src/app.py --json | jq -r .version
    """
    with invocation.client() as client:
        result = client.read(invocation.path(path), at=None if at is None else transaction_named(at))
    if not invocation.say_json(result):
        with stdio.writing():
            sys.stdout.flush()
            sys.stdout.buffer.write(result.content.encode("utf-8", "surrogateescape"))
            sys.stdout.buffer.flush()
