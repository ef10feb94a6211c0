"""`editctl status`: the status of the daemon and the workspace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from editd_client.cli import output
from editd_client.cli.options import as_json
from editd_client.cli.time_arguments import local_time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd.wire.messages import StatusResult
    from editd_client.cli.invocation import Invocation

MIB = 1024 * 1024
TROUBLED = ("holding", "partial", "rescanning", "down")  # states of the watcher to report
BYTES = ("bytes", "quota")


@click.command()
@click.option(
    "-v", "--verbose", is_flag=True, help="The watcher, the journal, the history and the socket as well."
)
@as_json
@click.pass_obj
def verb(invocation: Invocation, verbose: bool) -> None:
    """Show the status of the daemon and the workspace.

    Starts no daemon. If none runs, exits with 3.

    \b
    Examples:
      editctl status
      editctl status -v
      editctl status --json | jq .head
      editctl status >/dev/null && echo running
    """
    with invocation.client(start=False) as client:
        status = client.status()
    if not invocation.say_json(status):
        inside = {"socket": invocation.workspace.socket_path} if verbose else {}
        for title, value in _rows(status, inside):
            output.echo(output.paint(f"{title:<12}", "cyan") + output.plain(value))


def _rows(status: StatusResult, inside: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the usual rows; with `inside`, also the internals."""
    yield "workspace", status.root
    files = status.watcher.get("files") if status.state == "scanning" else None
    scanned = f", {files:,} files so far" if files else ""
    yield "state", status.state + scanned + (f": {status.reason}" if status.reason else "")
    yield "head", f"transaction {status.head}" if status.head else "the baseline, no changes yet"
    yield "daemon", f"editd {status.version}, pid {status.pid}, up {_duration(status.uptime)}"
    if inside or status.sessions or status.leases:
        yield "sessions", f"{status.sessions}, leases {status.leases}"
    if inside:
        yield "clients", str(status.clients)
        yield "watcher", _pairs(status.watcher)
        yield "journal", _pairs(status.journal)
        yield "history", _pairs(status.history)
        yield from inside.items()
    elif status.watcher.get("state") in TROUBLED:
        yield "watcher", str(status.watcher["state"])
    if not inside and status.history.get("is_full"):
        yield "history", "full, edits are refused: `editctl gc` frees space"
    if status.config["problem"]:
        yield "config", f"invalid, the previous one stays in force: {status.config['problem']}"
    if status.config["restart"]:
        yield "config", f"waiting for a restart: {', '.join(status.config['restart'])}"
    for hook in status.hooks:
        failed = "" if hook["failure"] is None else f", failed last at {local_time(hook['failure']['time'])}"
        yield "hook", f"{hook['name']}, has run {hook['runs']} times{failed}"
    if missing := status.system.get("missing"):
        yield "does without", ", ".join(missing)
    for sentence in status.weaker:
        yield "weaker", sentence
    for sentence in status.uncovered:
        yield "not covered", sentence


def _pairs(facts: dict[str, Any]) -> str:
    """Return facts as `name value`, bytes in MiB, a true one by its name only; omit false and None."""
    return ", ".join(
        _pair(name, value) for name, value in facts.items() if value is not None and value is not False
    )


def _pair(name: str, value: object) -> str:
    if value is True:
        return name.removeprefix("is_")
    if name in BYTES and isinstance(value, int):
        return f"{name} {value / MIB:.1f} MiB".removeprefix("bytes ")
    return f"{name} {value}"


def _duration(seconds: float) -> str:
    minutes, hours, days = int(seconds // 60), int(seconds // 3600), int(seconds // 86400)
    if minutes < 2:
        return f"{seconds:.0f} s"
    if hours < 2:
        return f"{minutes} min"
    return f"{hours} h" if days < 2 else f"{days} days"
