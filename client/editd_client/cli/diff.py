"""`editctl diff`: the changes between two transactions, or since one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from editd_client.cli import output
from editd_client.cli.options import as_json, transaction_named

if TYPE_CHECKING:
    from editd.wire.messages import Tx
    from editd_client.cli.invocation import Invocation
    from editd_client.client import Client

TRANSACTION = r"\d{1,19}|[0-9a-f]{4,40}"
LOG_LIMIT = 1000
RANGE = re.compile(rf"(?P<before>{TRANSACTION})(?:\.\.(?P<after>{TRANSACTION})?)?")
UNTIL = re.compile(rf"\.\.(?P<after>{TRANSACTION})")


@click.command()
@click.argument("words", nargs=-1, metavar="[TX | A..B] [PATH]...")
@as_json
@click.pass_obj
def verb(invocation: Invocation, words: tuple[str, ...]) -> None:
    """Show the changes between transactions, or since the newest.

    A..B is between two transactions, and ..B is from the baseline on. TX alone, or TX.., is from TX
    to the current files. Without either, it is the changes of other programs since the newest
    requested transaction. Off a terminal, the output is a patch for `editctl patch` and `git
    apply`. Write ./12 for a file that is named like a transaction.

    \b
    Examples:
      editctl diff
      editctl diff 12
      editctl diff 12..15 src/
      editctl diff 12 > since.patch
    """
    before, after, paths = _parse(words)
    with invocation.client() as client:
        if before is None:
            before = _newest_asked_for(client)
        result = client.diff(before, after, paths=invocation.paths(paths))
        for path in paths:
            invocation.check_known(client, path)
    if not invocation.say_json(result):
        output.page(output.diff_lines(result.diff))


def _newest_asked_for(client: Client) -> int:
    """Return the newest transaction that a client requested; 0, the baseline, if there is none."""
    before: int | None = None
    while True:
        part = client.log(limit=LOG_LIMIT, before=before)
        for transaction in part.transactions:
            if transaction.kind != "outside":
                return transaction.seq
        if not part.more:
            return 0
        before = part.transactions[-1].seq


def _parse(words: tuple[str, ...]) -> tuple[Tx | None, Tx | None, tuple[str, ...]]:
    """Return the first and the last transaction, each None if not named, and the paths."""
    until = UNTIL.fullmatch(words[0]) if words else None
    if until is not None:
        return 0, transaction_named(until["after"]), words[1:]
    named = RANGE.fullmatch(words[0]) if words else None
    if named is None:
        return None, None, words
    before, after = named["before"], named["after"]
    return transaction_named(before), None if after is None else transaction_named(after), words[1:]
