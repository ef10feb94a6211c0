"""The workspaces of the user, running or not: `workspaces`, and the removal of histories without a folder."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING

import click
from msgspec import Struct, to_builtins

from editd.config import paths
from editd_client.cli import output
from editd_client.cli.options import as_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd_client.cli.invocation import Invocation

MIB = 1024 * 1024


class RunningWorkspace(Struct, frozen=True):
    """One workspace, from its state folder."""

    root: str
    id: str
    state_folder: str
    running: bool
    pid: int | None
    exists: bool  # the workspace's folder; without it only the history remains


@click.command("workspaces")
@click.option("--running", is_flag=True, help="Only workspaces with a running daemon.")
@click.option("--prune", is_flag=True, help="Delete the histories of workspaces whose folder is gone.")
@click.option("--yes", is_flag=True, help="With --prune: delete them without asking.")
@as_json
@click.pass_obj
def workspaces_verb(invocation: Invocation, running: bool, prune: bool, yes: bool) -> None:
    """List your workspaces, and the ones that have a running daemon.

    Lists a workspace as long as its history exists. Starts no daemon. A folder on a disk that is not
    mounted counts as gone.

    \b
    Examples:
      editctl workspaces
      editctl workspaces --prune
      editctl workspaces --running --json | jq -r '.workspaces[].root'
    """
    if yes and not prune:
        raise click.UsageError("--yes goes with --prune.")
    if prune:
        _prune(invocation, yes=yes)
        return
    workspaces = [one for one in _workspaces() if one.running or not running]
    if invocation.say_json({"workspaces": to_builtins(workspaces)}):
        return
    for one in workspaces:
        state = output.paint(f"running, pid {one.pid}", "green") if one.running else "not running"
        gone = "" if one.exists else ", its folder is gone"
        output.echo(f"{output.plain(one.root)}  {state}{gone}")


def _prune(invocation: Invocation, *, yes: bool) -> None:
    """Delete the histories of workspaces whose folder is gone, after a question. Keep a daemon's."""
    gone = [one for one in _workspaces() if not one.exists]
    removed = [one for one in gone if not one.running]
    if removed and not yes:
        if invocation.json or not sys.stdin.isatty():
            raise click.UsageError("`workspaces --prune` asks on a terminal first. Add --yes.")
        for one in removed:
            output.print_error(f"{output.plain(one.root)}  {_bytes_of(one.state_folder) / MIB:.1f} MiB")
        if not click.confirm("Delete these histories for good?", default=False, err=True):
            removed = []
    for one in removed:
        shutil.rmtree(one.state_folder)
    kept = [one for one in gone if one not in removed]
    if invocation.say_json({"removed": to_builtins(removed), "kept": to_builtins(kept)}):
        return
    for one in removed:
        output.echo(f"removed the history of {output.plain(one.root)}")
    for one in kept:
        why = f"its daemon runs, pid {one.pid}: stop it first" if one.running else "not confirmed"
        output.echo(f"kept the history of {output.plain(one.root)} ({why})")
    if not gone:
        output.echo("Nothing to remove: the folder of each workspace exists.")


def _workspaces() -> Iterator[RunningWorkspace]:
    """Yield the workspaces, sorted by their paths."""
    histories = paths.histories_folder()
    try:
        names = os.listdir(histories)
    except OSError:
        return
    roots = {name: paths.root_of(os.path.join(histories, name)) for name in names}
    for name, root in sorted(roots.items(), key=lambda item: item[1]):
        state = os.path.join(histories, name)
        is_attempt = os.path.exists(os.path.join(state, paths.PART)) and not paths.is_separate(root)
        if not root or is_attempt:
            continue
        is_running = paths.is_running(state)
        pid = _lock_holder(state) if is_running else ""
        yield RunningWorkspace(
            root, name, state, is_running, int(pid) if pid.isdecimal() else None, os.path.isdir(root)
        )


def _lock_holder(state: str) -> str:
    """Return the process id in the lock of a running daemon; "" if it cannot be read."""
    try:
        with open(os.path.join(state, "lock"), encoding="ascii", errors="replace") as file:
            return file.readline().split()[0]
    except (OSError, IndexError):
        return ""


def _bytes_of(folder: str) -> int:
    """Return the bytes of all files below a folder."""
    files = (os.path.join(above, name) for above, _, names in os.walk(folder) for name in names)
    return sum(os.lstat(file).st_size for file in files)
