"""`editctl gc`: compact the oldest history, and free its space."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from editd_client.cli import output
from editd_client.cli.options import as_json

if TYPE_CHECKING:
    from editd_client.cli.invocation import Invocation

MIB = 1024 * 1024


@click.command()
@click.option("--dry-run", is_flag=True, help="Print the space that would be freed, without freeing it.")
@as_json
@click.pass_obj
def verb(invocation: Invocation, dry_run: bool) -> None:
    """Compact the oldest history, and free its space.

    Compacts the transactions beyond `history.keep`. A compacted transaction cannot be shown, read
    or undone any more, but the files stay as they are. Without `history.keep` in the configuration,
    keeps all transactions and frees only unused data.

    \b
    Examples:
      editctl config set history.keep '{ age = "90d", count = 10000, bytes = "2GiB" }'
      editctl gc --dry-run
      editctl gc
    """
    with invocation.client() as client:
        result = client.gc(dry_run=dry_run)
    if invocation.say_json(result):
        return
    if result.compacted:
        is_one = result.compacted == 1
        what = "one transaction" if is_one else f"{result.compacted} transactions"
        verb_ = "would be" if dry_run else "is" if is_one else "are"
        output.echo(f"{what} {verb_} compacted: the history begins with {result.oldest}")
    else:
        output.echo("no transaction is beyond the limits of history.keep")
    about = "about " if dry_run else ""
    output.echo(f"{about}{result.freed / MIB:.1f} MiB freed, {result.bytes / MIB:.1f} MiB left")
