"""`editctl show`: one transaction and what it changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from editd_client.cli import output
from editd_client.cli.options import as_json, transaction_named

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd.wire.messages import ShowResult
    from editd_client.cli.invocation import Invocation


@click.command()
@click.argument("transaction", required=False, metavar="[TX]")
@as_json
@click.pass_obj
def verb(invocation: Invocation, transaction: str | None) -> None:
    """Show a transaction and what it changed; without TX, the newest.

    TX is a number as `log` shows it, or the beginning of an id.

    \b
    Examples:
      editctl show
      editctl show 12
      editctl show 3f2a9c1
    """
    with invocation.client() as client:
        named = client.status().head if transaction is None else transaction_named(transaction)
        result = client.show(named)
    if not invocation.say_json(result):
        output.page(_lines(result))


def _lines(result: ShowResult) -> Iterator[str]:
    yield from output.paragraph(result.transaction)
    if result.diff:
        yield ""
        yield from output.diff_lines(result.diff)
