"""`editctl check`: the proof that history, head, journal and files agree; the mending where they do not."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from editd_client.cli import output, stdio
from editd_client.cli.daemon_exit import wait_for_exit
from editd_client.cli.options import as_json
from editd_client.errors import EditdError

if TYPE_CHECKING:
    from editd.wire.messages import CheckResult
    from editd_client.cli.invocation import Invocation
    from editd_client.client import Client

PROBLEMS_EXIT_CODE = 4
LOST_SHOWN_MAX = 20


@click.command()
@click.option(
    "--repair", is_flag=True, help="Mend what can be; damaged files are moved aside, never deleted."
)
@click.option("--yes", is_flag=True, help="With --repair: do not ask where something would be lost.")
@as_json
@click.pass_obj
def verb(invocation: Invocation, repair: bool, yes: bool) -> int:
    """Prove that history, journal and files agree.

    Changes nothing. Where something does not agree, every problem is a line on standard output and
    the exit code is 4. With --repair a damaged history is mended from all that is left: the packs read
    around the damage, the journal, the index, and the files themselves. What cannot be brought back is
    named first, and you are asked. The daemon is started anew after it, and the check is made again.

    \b
    Examples:
      editctl check
      editctl check --json | jq -r '.problems[]'
      editctl check --repair
      editctl check --repair --yes     # in a script: whatever is lost by it
    """
    if yes and not repair:
        raise click.UsageError("--yes goes with --repair.")
    repaired = _repaired(invocation, yes) if repair else None
    with invocation.client() as client:
        result = client.check()
    if repaired is not None and repaired.repaired:
        result = type(result)(
            ok=result.ok, problems=result.problems, repaired=repaired.repaired, lost=repaired.lost,
            aside=repaired.aside,
        )  # fmt: skip
    if not invocation.say_json(result):
        _say(result)
    return 0 if result.ok else PROBLEMS_EXIT_CODE


def _repaired(invocation: Invocation, yes: bool) -> CheckResult:
    """Have the history repaired, and wait until that daemon is gone."""
    with invocation.client(attach=False) as client:
        pid = client.status().pid
        with wait_for_exit(pid) as wait:
            result = _asked(client, yes)
            if result.repaired:
                wait()
    return result


def _asked(client: Client, yes: bool) -> CheckResult:
    """Ask for the repair, and on a terminal the person where something would be lost."""
    try:
        return client.check(repair=True, lose=yes)
    except EditdError as refusal:
        lost = refusal.data.get("lost")
        if not lost or not sys.stdin.isatty():
            raise
        stdio.print_error("These cannot be brought back:")
        for sentence in lost[:LOST_SHOWN_MAX]:
            stdio.print_error(f"  {output.plain(sentence)}")
        if len(lost) > LOST_SHOWN_MAX:
            stdio.print_error(f"  and {len(lost) - LOST_SHOWN_MAX} more")
        if not click.confirm("Repair all the same?", default=False, err=True):
            raise
    return client.check(repair=True, lose=True)


def _say(result: CheckResult) -> None:
    for sentence in result.repaired:
        output.echo(output.plain(f"repaired: {sentence}"))
    for sentence in result.lost:
        output.echo(output.plain(f"lost: {sentence}"))
    if result.aside is not None:
        output.echo(output.plain(f"the damaged files are in {result.aside}"))
    for problem in result.problems:
        output.echo(output.plain(problem))
    if result.ok:
        output.echo("history, journal and files agree")
