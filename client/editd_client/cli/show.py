"""`editctl show`: transactions and their changes."""

from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING

import click

from editd_client.cli import diffstat, output
from editd_client.cli.hunk_choice import hunk_lines
from editd_client.cli.options import as_json, range_named, transaction_named

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from editd.wire.messages import ShowResult, Tx
    from editd_client.cli.invocation import Invocation
    from editd_client.client import Client


@click.command()
@click.argument("transactions", nargs=-1, metavar="[TX | A..B]...")
@click.option("--stat", is_flag=True, help="The number of changed lines of each file, in place of the diff.")
@click.option("--hunks", is_flag=True, help="Each hunk under its name PATH:K, for `undo --hunk`.")
@as_json
@click.pass_obj
def verb(invocation: Invocation, transactions: tuple[str, ...], stat: bool, hunks: bool) -> None:
    """Show transactions and their changes.

    Without TX, shows the newest. TX is a number from `log`, or the beginning of an id. A..B are all
    transactions from A to B, both included, in order. With --json, each transaction is a document
    on its own line.

    \b
    Examples:
      editctl show 12
      editctl show 24..27 --stat
      editctl show 12 --hunks
      editctl show 3f2a9c1
    """
    if stat and hunks:
        raise click.UsageError("Use --stat or --hunks, not both.")
    with invocation.client() as client:
        results = _results(client, transactions, hunks=hunks)
        if invocation.json:
            for result in results:
                invocation.say_json(result)
        else:
            output.page(_lines(invocation, results, stat=stat))


def _results(client: Client, transactions: tuple[str, ...], *, hunks: bool) -> Iterator[ShowResult]:
    """Request each transaction that the arguments name, the first one at once."""
    named: Sequence[Tx] = [tx for given in transactions for tx in _named(client, given)]
    named = named or [client.status().head]
    show = functools.partial(client.show, hunks=hunks, diff=not hunks)
    return itertools.chain([show(named[0])], map(show, named[1:]))


def _named(client: Client, given: str) -> Sequence[Tx]:
    ends = range_named(given)
    if ends is None:
        return [transaction_named(given)]
    first, last = (client.show(end, diff=False).transaction.seq for end in ends)
    if first > last:
        raise click.BadParameter(f"{given} is empty: the first one is newer than the last.")
    return range(first, last + 1)


def _lines(invocation: Invocation, results: Iterator[ShowResult], *, stat: bool) -> Iterator[str]:
    for number, result in enumerate(results):
        yield from [""] if number else []
        yield from output.paragraph(result.transaction, files=not stat)
        if result.diff:
            yield ""
            yield from diffstat.stat_lines(result.diff) if stat else output.diff_lines(result.diff)
        if isinstance(result.hunks, list):
            yield from hunk_lines(invocation, result)
