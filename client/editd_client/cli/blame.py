"""`editctl blame`: the author of each line of a file."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from editd_client.cli import output
from editd_client.cli.options import as_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd.wire.messages import BlameLine, BlameResult
    from editd_client.cli.invocation import Invocation
    from editd_client.client import Client

TRIES_MAX = 10  # while another program keeps writing the file
WHO_CHARACTERS_MAX = 24


@click.command()
@click.argument("path")
@as_json
@click.pass_obj
def verb(invocation: Invocation, *, path: str) -> None:
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
