"""Care of the history: `check` and `gc`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from editd_client.cli import output, stdio
from editd_client.cli.daemon import wait_for_exit
from editd_client.cli.options import as_json
from editd_client.errors import EditdError

if TYPE_CHECKING:
    from editd.wire.messages import CheckResult
    from editd_client.cli.invocation import Invocation
    from editd_client.client import Client


PROBLEMS_EXIT_CODE = 4
LOST_SHOWN_MAX = 20


@click.command("check")
@click.option(
    "--repair", is_flag=True, help="Repair the history. Damaged files are moved aside, never deleted."
)
@click.option("--yes", is_flag=True, help="Accept losses of --repair without asking.")
@as_json
@click.pass_obj
def check_verb(invocation: Invocation, repair: bool, yes: bool) -> int:
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


MIB = 1024 * 1024


@click.command("gc")
@click.option("--dry-run", is_flag=True, help="Print the space that would be freed, without freeing it.")
@as_json
@click.pass_obj
def gc_verb(invocation: Invocation, dry_run: bool) -> None:
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
