"""The verb `remote`: one workspace on several hosts, through a git repository."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from editd_client.cli import output
from editd_client.cli.options import as_json
from editd_client.errors import EditdError, refusal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from editd.wire.messages import NamedEntry, RemoteResult
    from editd_client.cli.invocation import Invocation
    from editd_client.client import Client

MIB = 1024 * 1024
ref = click.option("--ref", metavar="REF", help="The ref of the log (default: the only one that there is).")

host_option = click.option(
    "--host",
    metavar="NAME",
    help="The name of this host in the log, of at most 100 bytes (default: the machine's).",
)


@click.group("remote")
def remote_verb() -> None:
    """Share the workspace with other hosts, through a git repository.

    Edits are answered as fast as before, and the exchange follows in the background.

    \b
    Examples:
      editctl remote init ssh://server/srv/work.git     # on the first host
      editctl remote join ssh://server/srv/work.git     # on each other one
      editctl remote status
      editctl remote now
    """


@remote_verb.command("init")
@click.argument("url")
@click.option("--ref", metavar="REF", help="The ref of the log (default: a new branch).")
@host_option
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@as_json
@click.pass_obj
def init(invocation: Invocation, url: str, ref: str | None, host: str | None, yes: bool) -> None:
    """Begin a log of this workspace in an empty git repository.

    Sends all files that the history knows, and from then on all changes. Files that match
    `history.exclude` or `remote.exclude` in the configuration never leave this host.

    \b
    Examples:
      git init --bare /srv/work.git && editctl remote init /srv/work.git
      editctl remote init --yes ssh://server/srv/work.git
    """
    url = _as_url(url)
    with invocation.client() as client:
        counted = client.remote_init(url, ref=ref, dry_run=True)
        files = f"{counted.files} file{'s' * (counted.files != 1)}"
        if not yes:
            size = f"{files}, {int(counted.bytes or 0) / MIB:.1f} MiB"
            if not sys.stdin.isatty():
                raise refusal(
                    "invalid_params", f"`remote init` sends {size}, and all later changes.",
                    hint="Confirm it with `--yes`.",
                )  # fmt: skip
            output.echo(f"{size} and all later changes go to {output.plain(url)}.")
            output.echo(
                "`editctl config show` has the files that stay here: `history.exclude` and `remote.exclude`."
            )
            click.confirm("Send them?", abort=True, err=True)
        result = client.remote_init(url, ref=ref, host=host)
    invocation.say(result, output.plain(f"the log {result.ref} begins with {files} of {result.host}"))


@remote_verb.command("join")
@click.argument("url")
@ref
@host_option
@click.option(
    "--take", type=click.Choice(["log"]),
    help="Replace or delete files that differ. The history keeps them.",
)  # fmt: skip
@click.option("--keep", type=click.Choice(["mine"]), help="Make the files that differ an edit of this host.")
@as_json
@click.pass_obj
def join(
    invocation: Invocation, url: str, ref: str | None, host: str | None, take: str | None, keep: str | None
) -> None:
    """Take the files of a log, and exchange with its hosts from then on.

    The folder is empty, or has exactly the files of the log. Otherwise the differing files are
    listed, and `--take log` or `--keep mine` is needed.

    \b
    Examples:
      editctl -C ~/work remote join ssh://server/srv/work.git
      editctl remote join --take log /srv/work.git
    """
    with invocation.client() as client:
        result = client.remote_join(
            _as_url(url), ref=ref, host=host, take="log" if take else None, keep="mine" if keep else None
        )
    invocation.say(
        result, output.plain(f"this host is {result.host} in {result.ref}, at entry {result.number}")
    )


@remote_verb.command("status")
@as_json
@click.pass_obj
def status(invocation: Invocation) -> None:
    """Show the state of the exchange.

    \b
    Examples:
      editctl remote status
      editctl remote status --json | jq .tentative
    """
    with invocation.client() as client:
        result = client.remote_status()
    _say(invocation, result)


@remote_verb.command("now")
@click.option("--timeout", type=float, default=30.0, metavar="SECONDS", help="Time to wait (default: 30).")
@as_json
@click.pass_obj
def now(invocation: Invocation, timeout: float) -> None:
    """Exchange at once, and wait until all edits of this host are in the log.

    Exits with 1 if they are not within the time.

    \b
    Examples:
      editctl remote now
      editctl remote now --timeout 5 || echo offline
    """
    with invocation.client() as client:
        result = client.remote_now(timeout=timeout)
    _say(invocation, result)
    if result.state != "current" or result.tentative:
        raise click.exceptions.Exit(1)


@remote_verb.command("land")
@click.argument("tx", required=False)
@click.option("--timeout", type=float, default=30.0, metavar="SECONDS", help="Time to wait (default: 30).")
@as_json
@click.pass_obj
def land(invocation: Invocation, tx: str | None, timeout: float) -> None:
    """Wait until a transaction is in the log (default: the newest).

    Prints its entry. Exits with 1 if it is set aside.

    \b
    Examples:
      editctl remote land
      editctl remote land 17 --timeout 5
    """
    with invocation.client() as client:
        result = client.remote_land(tx, timeout=timeout)
    words = "is set aside" if result.outcome == "aside" else "has landed"
    invocation.say(result, f"{result.seq} {words} as @{result.number}")
    if result.outcome == "aside":
        raise click.exceptions.Exit(1)


@remote_verb.command("pause")
@as_json
@click.pass_obj
def pause(invocation: Invocation) -> None:
    """Stop the exchange until `resume`. Edits go on.

    \b
    Examples:
      editctl remote pause
      editctl remote pause && make release; editctl remote resume
    """
    with invocation.client() as client:
        _say(invocation, client.remote_pause())


@remote_verb.command("resume")
@as_json
@click.pass_obj
def resume(invocation: Invocation) -> None:
    """Go on with the exchange.

    \b
    Examples:
      editctl remote resume
      editctl remote resume && editctl remote now
    """
    with invocation.client() as client:
        _say(invocation, client.remote_resume())


@remote_verb.command("repair")
@as_json
@click.pass_obj
def repair(invocation: Invocation) -> None:
    """Follow the log on the server if it is gone, or does not continue the known one.

    A log that is gone is made again. If others have landed on an older state of it, this host takes
    that in, and lands again what it lacks.

    \b
    Examples:
      editctl remote status && editctl remote repair
      editctl remote repair --json | jq .number
    """
    with invocation.client() as client:
        _say(invocation, client.remote_repair())


@remote_verb.command("leave")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@as_json
@click.pass_obj
def leave(invocation: Invocation, yes: bool) -> None:
    """End the exchange for good.

    The files and the history stay. Edits that are not in the log are listed first, because no other
    host gets them.

    \b
    Examples:
      editctl remote now && editctl remote leave
      editctl remote leave --yes
    """
    with invocation.client() as client:
        _say(invocation, _leave(client, yes))


def _leave(client: Client, yes: bool) -> RemoteResult:
    """Leave the log. If it lacks transactions, ask the person on the terminal first."""
    try:
        return client.remote_leave(lose=yes)
    except EditdError as refusal:
        lacking = refusal.data.get("transactions")
        if not lacking or not sys.stdin.isatty():
            raise
        output.print_error("These are not in the log, and no other host gets them:")
        for one in lacking:
            about = one["message"].partition("\n")[0] or " ".join(one["files"])
            output.print_error(output.plain(f"  {one['seq']} by {one['actor']}: {about}"))
        if not click.confirm("Leave anyway?", default=False, err=True):
            raise
    return client.remote_leave(lose=True)


def _as_url(url: str) -> str:
    """Return the URL; a path with all of its folders, because the daemon runs in another folder.

    No link is resolved here, because the daemon refuses some of them, such as those of /proc.
    """
    return os.path.join(os.getcwd(), url) if os.path.exists(url) else url


def _say(invocation: Invocation, result: RemoteResult) -> None:
    if not invocation.say_json(result):
        for title, value in _rows(result):
            output.echo(output.paint(f"{title:<12}", "cyan") + output.plain(value))


def _rows(result: RemoteResult) -> Iterator[tuple[str, str]]:
    if result.state == "none":
        yield "state", "this workspace is on this host alone"
        return
    yield "state", result.state + (f": {result.error}" if result.error else "")
    yield "log", f"{result.ref} of {result.url}"
    yield "host", f"{result.host}"
    if result.number is not None:
        behind = "" if result.number == result.head else f" of {result.head}"
        yield "entry", f"{result.number}{behind}"
    if result.tentative:
        age = "" if result.oldest is None else f", the oldest {result.oldest:.0f} s old"
        yield "tentative", f"{result.tentative} not in the log yet{age}"
    if result.aside:
        yield "set aside", f"{result.aside} do not merge: `editctl proposal list` lists them"
    if result.in_part:
        yield "in part", f"{_numbers(result.in_part)}: undone elsewhere, but for the files that stay here"
    if result.returned:
        yield "returned", f"{_numbers(result.returned)}: files of this host returned to the log's"
    for seq in result.kept_back:
        yield "kept back", f"{seq}: {result.reasons.get(str(seq), '')}"
    yield from _entry_rows("unusable", result.unusable, result.unusable_entries)
    yield from _entry_rows("newer", result.newer, result.newer_entries)
    if result.exclude:
        yield "stay here", ", ".join(result.exclude)
    if result.stays:
        yield "of these", ", ".join(result.stays)
    if result.held:
        yield "held", ", ".join(result.held)


def _numbers(seqs: Sequence[int]) -> str:
    return ", ".join(map(str, seqs))


def _entry_rows(title: str, entries: Sequence[NamedEntry], number: int) -> Iterator[tuple[str, str]]:
    """Yield a row for each entry that this host cannot use whole, the newest last."""
    if number > len(entries):
        yield title, f"{number - len(entries)} earlier entries"
    for entry in entries:
        yield title, f"entry {entry.number} of {entry.host or 'an unknown host'}: {entry.reason}"
