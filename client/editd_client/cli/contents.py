"""The verbs that show contents: `read`, `diff` and `blame`."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

import click

from editd_client.cli import output, stdio
from editd_client.cli.options import as_json, transaction_named

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd.wire.messages import BlameLine, BlameResult, Tx
    from editd_client.cli.invocation import Invocation
    from editd_client.client import Client


@click.command("read")
@click.argument("path")
@click.option(
    "--at", metavar="TX", help="Transaction after which to read the file (default: now). 0 is the baseline."
)
@as_json
@click.pass_obj
def read_verb(invocation: Invocation, path: str, at: str | None) -> None:
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


TRANSACTION = r"\d{1,19}|[0-9a-f]{4,40}"
LOG_LIMIT = 1000
RANGE = re.compile(rf"(?P<before>{TRANSACTION})(?:\.\.(?P<after>{TRANSACTION})?)?")
UNTIL = re.compile(rf"\.\.(?P<after>{TRANSACTION})")


@click.command("diff")
@click.argument("words", nargs=-1, metavar="[TX | A..B] [PATH]...")
@as_json
@click.pass_obj
def diff_verb(invocation: Invocation, words: tuple[str, ...]) -> None:
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


TRIES_MAX = 10  # while another program keeps writing the file
WHO_CHARACTERS_MAX = 24


@click.command("blame")
@click.argument("path")
@as_json
@click.pass_obj
def blame_verb(invocation: Invocation, *, path: str) -> None:
    """Show the author and transaction of each line of a file.

    Follows moves of the file. Transaction 0 is the baseline, the content when editd first scanned the
    workspace. A line that an undo brings back keeps its first author.

    \b
    Examples:
      editctl blame src/app.py
      editctl blame --json src/app.py | jq '.lines[] | select(.actor == "claude") | .line'
    """
    with invocation.client() as client:
        if invocation.json:
            invocation.say_json(client.blame(invocation.path(path)))
        else:
            output.page(_shown(*_with_text(client, invocation.path(path))))


def _with_text(client: Client, path: str) -> tuple[BlameResult, list[str]]:
    """Return the result and the lines of the same version. Ask again if the file changes in between."""
    result, read = client.blame(path), client.read(path)
    for _ in range(TRIES_MAX):
        if read.version == result.version:
            return result, read.content.split("\n")
        result, read = client.blame(path), client.read(path)
    return result, ["" for _ in result.lines]


def _shown(result: BlameResult, texts: list[str]) -> Iterator[str]:
    who = [_who(line) for line in result.lines]
    name_width = min(max(map(len, who), default=0), WHO_CHARACTERS_MAX)
    seq_width = max((len(str(line.seq)) for line in result.lines), default=0)
    number_width = len(str(len(result.lines)))
    for line, name, text in zip(result.lines, who, texts, strict=False):
        seq = output.paint(f"{line.seq:>{seq_width}}", "yellow")
        shown = output.paint(f"{name[:WHO_CHARACTERS_MAX]:<{name_width}}", "cyan")
        yield f"{seq} {shown} {_when(line.time)} {line.line:>{number_width}}) {_on_a_terminal(text)}"


def _on_a_terminal(text: str) -> str:
    return output.plain(text, but="\t") if sys.stdout.isatty() else text


def _who(line: BlameLine) -> str:
    if line.seq == 0:
        return "baseline"
    return output.plain(line.actor if line.session is None else f"{line.actor} in {line.session}")


def _when(time: str) -> str:
    from datetime import datetime

    return f"{datetime.fromisoformat(time).astimezone():%Y-%m-%d %H:%M}"
