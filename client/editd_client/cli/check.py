"""`editctl check`: verification that history, head, journal and files agree, and repair if they do not."""

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
    "--repair", is_flag=True, help="Repair the history. Damaged files are moved aside, never deleted."
)
@click.option("--yes", is_flag=True, help="Accept losses of --repair without asking.")
@as_json
@click.pass_obj
def verb(invocation: Invocation, repair: bool, yes: bool) -> int:
    """Verify that history, journal and files agree.

    Changes nothing. Prints each problem on a line of standard output, and exits with 4 if there is
    one. With --repair, rebuilds a damaged history from the packs (around the damage), the journal,
    the index and the files themselves. Names first what it cannot recover, and asks. Afterwards it
    restarts the daemon and verifies again.

    \b
    Examples:
      editctl check
      editctl check --json | jq -r '.problems[]'
      editctl check --repair
      editctl check --repair --yes     # in a script: accept any loss
    """
    if yes and not repair:
        raise click.UsageError("--yes needs --repair.")
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
    """Have the daemon repair the history, and wait for its exit."""
    with invocation.client(attach=False) as client:
        pid = client.status().pid
        with wait_for_exit(pid) as wait:
            result = _asked(client, yes)
            if result.repaired:
                wait()
    return result


def _asked(client: Client, yes: bool) -> CheckResult:
    """Request the repair. If something would be lost, ask the person on the terminal first."""
    try:
        return client.check(repair=True, lose=yes)
    except EditdError as refusal:
        lost = refusal.data.get("lost")
        if not lost or not sys.stdin.isatty():
            raise
        stdio.print_error("These cannot be recovered:")
        for sentence in lost[:LOST_SHOWN_MAX]:
            stdio.print_error(f"  {output.plain(sentence)}")
        if len(lost) > LOST_SHOWN_MAX:
            stdio.print_error(f"  and {len(lost) - LOST_SHOWN_MAX} more")
        if not click.confirm("Repair anyway?", default=False, err=True):
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
