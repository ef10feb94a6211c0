"""`editctl status`: how the daemon and its workspace are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from editd_client.cli import output
from editd_client.cli.options import as_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd.wire.messages import StatusResult
    from editd_client.cli.invocation import Invocation

MIB = 1024 * 1024


@click.command()
@as_json
@click.pass_obj
def verb(invocation: Invocation) -> None:
    """Tell how the daemon and its workspace are.

    Starts no daemon: where none runs, the exit code is 3.

    \b
    Examples:
      editctl status
      editctl status --json | jq .head
      editctl status >/dev/null && echo running
    """
    with invocation.client(start=False) as client:
        status = client.status()
    if not invocation.say_json(status):
        for title, value in _rows(status, invocation.workspace.socket_path):
            output.say(output.paint(f"{title:<12}", "cyan") + output.plain(value))


def _rows(status: StatusResult, socket_path: str) -> Iterator[tuple[str, str]]:
    yield "workspace", status.root
    yield "state", status.state + (f": {status.reason}" if status.reason else "")
    yield "head", f"transaction {status.head}" if status.head else "the baseline: nothing was changed yet"
    yield "daemon", f"editd {status.version}, pid {status.pid}, up {_duration(status.uptime)}"
    yield "clients", f"{status.clients}, with {status.sessions} sessions"
    yield "watcher", _pairs(status.watcher)
    yield "journal", _pairs(status.journal)
    yield "history", _pairs(status.history)
    yield "socket", socket_path
    for sentence in status.weaker:
        yield "weaker", sentence
    for sentence in status.uncovered:
        yield "not covered", sentence


def _pairs(facts: dict[str, object] | dict[str, int]) -> str:
    """Facts as `name value`, bytes as MiB."""
    return ", ".join(
        f"{value / MIB:.1f} MiB" if name == "bytes" and isinstance(value, int) else f"{name} {value}"
        for name, value in facts.items()
    )


def _duration(seconds: float) -> str:
    minutes, hours, days = int(seconds // 60), int(seconds // 3600), int(seconds // 86400)
    if minutes < 2:
        return f"{seconds:.0f} s"
    if hours < 2:
        return f"{minutes} min"
    return f"{hours} h" if days < 2 else f"{days} days"
