"""The verb `forget`: contents removed from the history for good."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from editd_client.cli import output
from editd_client.cli.options import as_json

if TYPE_CHECKING:
    from editd.wire.messages import ForgetResult
    from editd_client.cli.invocation import Invocation
    from editd_client.client import Client

LEFT_EXIT_CODE = 4  # something still has such a content
SHOWN_MAX = 20


@click.command("forget")
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option("--matching", metavar="GLOB", multiple=True, help="Files that match. Repeatable.")
@click.option("--content", metavar="VERSION", multiple=True, help="The content with this id. Repeatable.")
@click.option(
    "--text", metavar="-", type=click.Choice(["-"]),
    help="Every content that has the text on standard input, without its last line end.",
)  # fmt: skip
@click.option(
    "--prompts", metavar="SESSION", help="The prompts of a session and its sub-agents, and no content."
)
@click.option("--dry-run", is_flag=True, help="Print the contents, without removing them.")
@click.option("--yes", is_flag=True, help="Remove them without asking.")
@as_json
@click.pass_obj
def forget_verb(
    invocation: Invocation,
    paths: tuple[str, ...],
    matching: tuple[str, ...],
    content: tuple[str, ...],
    text: str | None,
    prompts: str | None,
    dry_run: bool,
    yes: bool,
) -> int:
    """Remove contents, such as a secret, from the history for good.

    Of a file, removes every content but the present one, also from earlier paths of it. Removes them from
    the packs, the journal, the databases, settled proposals, refusals, logs and leftovers. Then searches
    the whole state folder, and exits with 4 if something still has such a content.
    The transactions stay in the log, and name what was removed. Shows the contents first, and asks.

    With --prompts, removes the prompts of an agent's session from the file beside the history.

    Invalidate a secret at its service first: backups and other hosts may have it.

    \b
    Examples:
      editctl forget config/production.env
      editctl forget --matching '**/*.pem' --dry-run
      pass show db/password | editctl forget --text - --yes
      editctl forget --prompts codex-1a2b3c4d
    """
    ways = [bool(way) for way in (paths, matching, content, text, prompts)]
    if sum(ways) != 1:
        raise click.UsageError("Give just one: paths, --matching, --content, --text or --prompts.")
    secret = None if text is None else _secret()
    is_asked = not (yes or dry_run)
    if is_asked and (invocation.json or not sys.stdin.isatty()):
        raise click.UsageError("`forget` asks on a terminal first. Add --yes, or --dry-run.")
    if prompts is not None:
        return _forget_prompts(invocation, prompts, dry_run=dry_run, is_asked=is_asked)
    with invocation.client() as client:
        names = [invocation.path(path) for path in paths]
        if is_asked:
            _say(_answer(client, names, matching, content, secret, dry_run=True), "would be forgotten")
            if not click.confirm("Forget them for good?", default=False, err=True):
                return 1
        result = _answer(client, names, matching, content, secret, dry_run=dry_run)
    if not invocation.say_json(result):
        _say(result, "would be forgotten" if dry_run else "forgotten")
        if not dry_run:
            _say_proof(result)
    return LEFT_EXIT_CODE if result.remaining else 0


def _forget_prompts(invocation: Invocation, session: str, *, dry_run: bool, is_asked: bool) -> int:
    with invocation.client() as client:
        if is_asked:
            count = client.forget(prompts=session, dry_run=True).prompts
            output.echo(f"{_counted(count)} would be forgotten")
            if not click.confirm("Forget them for good?", default=False, err=True):
                return 1
        result = client.forget(prompts=session, dry_run=dry_run)
    if not invocation.say_json(result):
        output.echo(f"{_counted(result.prompts)} {'would be forgotten' if dry_run else 'forgotten'}")
    return 0


def _counted(prompts: int) -> str:
    return f"{prompts} prompt{'s' * (prompts != 1)}"


def _secret() -> str:
    """Read the text: hidden from a terminal, otherwise all of standard input."""
    if sys.stdin.isatty():
        return str(click.prompt("Text to forget", hide_input=True, err=True))
    return sys.stdin.read().removesuffix("\n").removesuffix("\r")


def _answer(
    client: Client,
    paths: list[str],
    matching: tuple[str, ...],
    content: tuple[str, ...],
    text: str | None,
    *,
    dry_run: bool,
) -> ForgetResult:
    return client.forget(
        paths or None, matching=matching or None, content=content or None, text=text, dry_run=dry_run
    )


def _say(result: ForgetResult, verb: str) -> None:
    for one in result.removed[:SHOWN_MAX]:
        seqs = ", ".join(map(str, one.transactions)) or "the baseline"
        files = ", ".join(one.paths)
        output.echo(output.plain(f"{one.version[:12]}  {one.size:,} bytes  {files}  in {seqs}"))
    if len(result.removed) > SHOWN_MAX:
        output.echo(f"and {len(result.removed) - SHOWN_MAX} more")
    count = len(result.removed)
    output.echo(f"{count} content{'s' * (count != 1)} {verb}")
    if result.proposals:
        output.echo(f"settled proposals {verb}: {', '.join(map(str, result.proposals))}")
    for path in result.kept[:SHOWN_MAX]:
        output.echo(output.plain(f"the present content of {path} stays"))
    if result.borrowed:
        output.echo(f"your own git repository has {len(result.borrowed)} of such contents")
    if result.shared:
        output.echo(f"the log of all hosts, its server and the other hosts have {len(result.shared)} of them")


def _say_proof(result: ForgetResult) -> None:
    for sentence in result.remaining:
        output.echo(output.plain(sentence))
    if not result.remaining:
        output.echo(f"searched {result.searched:,} contents of the state folder: none has them")
