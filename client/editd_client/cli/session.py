"""`editctl session`: named sessions with their own scope and memory, over any number of commands."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import click

from editd_client.cli import output
from editd_client.cli.options import as_json
from editd_client.cli.time_arguments import local_time

if TYPE_CHECKING:
    from editd.wire.messages import SessionEntry
    from editd_client.cli.invocation import Invocation


@click.group()
def verb() -> None:
    """Open, list and close sessions, each with its own name and scope.

    The work of a session can be undone, rolled back and published alone. editd remembers the
    versions that a session has read, so that an edit over a change by others is refused as stale.
    Only a holder of the session's token can act in its name.

    \b
    Examples:
      eval "$(editctl session open refactoring --write 'src/**' --merge)"
      editctl session list
      editctl session close refactoring
    """


@verb.command("open")
@click.argument("name")
@click.option("--actor", metavar="NAME", help="Default author of its edits.")
@click.option("--write", metavar="GLOB", multiple=True, help="Paths that it may write. Repeatable.")
@click.option("--read", metavar="GLOB", multiple=True, help="Paths that it may read. Repeatable.")
@click.option("--merge", is_flag=True, help="Merge its stale edits, if there is no conflict.")
@click.option("--must-read", is_flag=True, help="Refuse its edits of files that it has not read.")
@click.option("--ttl", type=float, metavar="SECONDS", help="Life without use (default: a week).")
@as_json
@click.pass_obj
def open_session(
    invocation: Invocation,
    name: str,
    actor: str | None,
    write: tuple[str, ...],
    read: tuple[str, ...],
    merge: bool,
    must_read: bool,
    ttl: float | None,
) -> None:
    """Open a session, and print the shell commands that select it."""
    from editd.wire.messages import Scope

    with invocation.client(attach=False) as client:
        opened = client.session_open(
            name,
            actor=actor,
            scope=Scope(write=list(write) or None, read=list(read) or None),
            on_stale="merge" if merge else None,
            unread="reject" if must_read else "allow",
            ttl=ttl,
        )
    if not invocation.say_json(opened):
        output.echo(f"export EDITD_SESSION={shlex.quote(opened.session)} EDITD_TOKEN={opened.token}")


@verb.command("list")
@as_json
@click.pass_obj
def list_sessions(invocation: Invocation) -> None:
    """List the open sessions."""
    with invocation.client(attach=False) as client:
        result = client.session_list()
    if not invocation.say_json(result):
        for entry in result.sessions:
            output.echo(_line(entry))


@verb.command("close")
@click.argument("name", required=False)
@click.option(
    "--force", is_flag=True, help="Also close a session without its token, such as an abandoned one."
)
@as_json
@click.pass_obj
def close_session(invocation: Invocation, name: str | None, force: bool) -> None:
    """Close a session, and end its leases.

    NAME defaults to $EDITD_SESSION. The session's work stays.
    """
    if force and name is None:
        raise click.UsageError("--force needs the NAME of the session.")
    with invocation.client(attach=not force) as client:
        client.session_close(name, force=force)
    if invocation.json:
        output.echo(output.json_text({}))


def _line(entry: SessionEntry) -> str:
    facts = [f"by {output.plain(entry.actor)}"] if entry.actor else []
    facts += [f"{verb_} {' '.join(map(output.plain, globs))}" for verb_, globs in _globs(entry)]
    facts += ["merges"] if entry.on_stale == "merge" else []
    facts += ["must read"] if entry.unread == "reject" or entry.in_doubt else []
    facts.append("connected" if entry.connections else f"last used {local_time(entry.used)}")
    return f"{output.paint(output.plain(entry.session), 'cyan')} {', '.join(facts)}"


def _globs(entry: SessionEntry) -> list[tuple[str, list[str]]]:
    scopes = (("writes", entry.scope.write), ("reads", entry.scope.read))
    return [(verb_, globs) for verb_, globs in scopes if globs is not None]
