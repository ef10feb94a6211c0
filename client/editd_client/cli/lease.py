"""`editctl lease`: claims on paths that keep other sessions from editing them for a while."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from editd_client.cli import output
from editd_client.cli.options import as_json
from editd_client.cli.time_arguments import local_time

if TYPE_CHECKING:
    from editd_client.cli.invocation import Invocation

TTL_SECONDS = 600.0


@click.group()
def verb() -> None:
    """Lease paths to your session, so that nobody else edits them.

    Edits of other sessions to these paths are refused until the lease ends: at its time, with
    `release`, or with its session. A lease needs an open session: see `editctl session open`. Paths
    are globs, relative to the workspace's root.

    \b
    Examples:
      editctl lease acquire 'src/**/*.py' --ttl 300
      editctl lease acquire docs/ --wait 60
      editctl lease list
    """


@verb.command("acquire")
@click.argument("paths", nargs=-1, required=True, metavar="GLOB…")
@click.option("--ttl", type=float, default=TTL_SECONDS, metavar="SECONDS", help="Duration (default: 600).")
@click.option(
    "--wait", type=float, metavar="SECONDS", help="Time to wait for the paths to become free (default: 0)."
)
@as_json
@click.pass_obj
def acquire(invocation: Invocation, paths: tuple[str, ...], ttl: float, wait: float | None) -> None:
    """Take a lease, and print its name."""
    with invocation.client() as client:
        lease = client.lease_acquire(paths, ttl, wait=wait)
    if not invocation.say_json(lease):
        output.echo(lease.lease)


@verb.command("renew")
@click.argument("lease")
@click.option(
    "--ttl", type=float, default=TTL_SECONDS, metavar="SECONDS", help="Duration from now (default: 600)."
)
@as_json
@click.pass_obj
def renew(invocation: Invocation, lease: str, ttl: float) -> None:
    """Extend a lease."""
    with invocation.client() as client:
        renewed = client.lease_renew(lease, ttl)
    if not invocation.say_json(renewed):
        output.echo(f"until {local_time(renewed.expires)}")


@verb.command("release")
@click.argument("lease")
@click.option("--force", is_flag=True, help="Also end a lease of another session.")
@as_json
@click.pass_obj
def release(invocation: Invocation, lease: str, force: bool) -> None:
    """End a lease."""
    with invocation.client(attach=not force) as client:
        client.lease_release(lease, force=force)
    if invocation.json:
        output.echo(output.json_text({}))


@verb.command("list")
@as_json
@click.pass_obj
def list_leases(invocation: Invocation) -> None:
    """List the held leases."""
    with invocation.client(attach=False) as client:
        result = client.lease_list()
    if invocation.say_json(result):
        return
    for one in result.leases:
        paths = " ".join(map(output.plain, one.paths))
        session = output.paint(output.plain(one.session), "cyan")
        output.echo(f"{one.lease} {session} {paths}, until {local_time(one.expires)}")
    if result.waiting:
        output.echo(f"{result.waiting} waiting")
