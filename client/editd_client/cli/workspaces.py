"""`editctl workspaces`: the workspaces of this user, from their state folders."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click
from msgspec import Struct, to_builtins

from editd.config import paths
from editd_client.cli import output
from editd_client.cli.options import as_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd_client.cli.invocation import Invocation


class RunningWorkspace(Struct, frozen=True):
    """One workspace, from its state folder."""

    root: str
    id: str
    state_folder: str
    running: bool
    pid: int | None
    exists: bool  # the workspace's folder; without it only the history remains


@click.command()
@click.option("--running", is_flag=True, help="Only workspaces with a running daemon.")
@as_json
@click.pass_obj
def verb(invocation: Invocation, running: bool) -> None:
    """List your workspaces, and the ones that have a running daemon.

    Lists a workspace as long as its history exists. Starts no daemon.

    \b
    Examples:
      editctl workspaces
      editctl workspaces --running --json | jq -r '.workspaces[].root'
    """
    workspaces = [one for one in _workspaces() if one.running or not running]
    if invocation.json:
        output.echo(output.json_text({"workspaces": to_builtins(workspaces)}))
        return
    for one in workspaces:
        state = f"running, pid {one.pid}" if one.running else "not running" if one.exists else "gone"
        output.echo(f"{output.plain(one.root)}  {output.paint(state, 'green' if one.running else None)}")


def _workspaces() -> Iterator[RunningWorkspace]:
    """Yield the workspaces, sorted by their paths."""
    histories = paths.histories_folder()
    try:
        names = os.listdir(histories)
    except OSError:
        return
    roots = {name: _first_line(os.path.join(histories, name, "root")) for name in names}
    for name, root in sorted(roots.items(), key=lambda item: item[1]):
        if not root:
            continue
        state = os.path.join(histories, name)
        is_running = paths.is_running(state)
        pid = _first_line(os.path.join(state, "lock")).partition(" ")[0] if is_running else ""
        yield RunningWorkspace(
            root, name, state, is_running, int(pid) if pid.isdecimal() else None, os.path.isdir(root)
        )


def _first_line(path: str) -> str:
    """Return the first line of a file of the state folder, or nothing if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return os.fsdecode(file.readline().rstrip(b"\n"))
    except OSError:
        return ""
