"""Sessions: `session`, `sessions` and `lease`."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING

import click

from editd_client.cli import output
from editd_client.cli.asker import OptionAsker, converse
from editd_client.cli.options import as_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from editd.wire.messages import SessionEntry
    from editd_client.cli.invocation import Invocation


@click.group("session")
def session_verb() -> None:
    """Open, list and close sessions, each with its own name and scope.

    The work of a session can be undone, rolled back and published alone. editd remembers the
    versions that a session has read, so that an edit over a change by others is refused as stale.
    Only a holder of the session's token can act in its name.

    \b
    Examples:
      eval "$(editctl session open refactoring --write 'src/**' --merge)"
      editctl session list
      editctl session pause claude -m "Wait for the release" --end-leases
      editctl session close refactoring
    """


@session_verb.command("open")
@click.argument("name")
@click.option("--actor", metavar="NAME", help="Default author of its edits.")
@click.option("--write", metavar="GLOB", multiple=True, help="Paths that it may write. Repeatable.")
@click.option("--read", metavar="GLOB", multiple=True, help="Paths that it may read. Repeatable.")
@click.option("--merge", is_flag=True, help="Merge its stale edits, if there is no conflict.")
@click.option("--must-read", is_flag=True, help="Refuse its edits of files that it has not read.")
@click.option("--propose", is_flag=True, help="Have each of its edits wait for a reviewer.")
@click.option("--collect", is_flag=True, help="Collect all its edits in one proposal, and read through it.")
@click.option("--draft", is_flag=True, help="As --collect, as a draft until `proposal submit`.")
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
    propose: bool,
    collect: bool,
    draft: bool,
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
            propose="always" if propose else "policy",
            batch="draft" if draft else "session" if collect else "each",
        )
    text = f"export EDITD_SESSION={shlex.quote(opened.session)} EDITD_TOKEN={opened.token}"
    invocation.say(opened, text)


@session_verb.command("list")
@as_json
@click.pass_obj
def list_sessions(invocation: Invocation) -> None:
    """List the open sessions."""
    with invocation.client(attach=False) as client:
        result = client.session_list()
    if not invocation.say_json(result):
        for entry in result.sessions:
            output.echo(_line(entry))


@session_verb.command("close")
@click.argument("name", required=False)
@click.option(
    "--force", is_flag=True, help="Also close a session without its token, such as an abandoned one."
)
@click.option("--withdraw", is_flag=True, help="Also take back its undecided proposals.")
@as_json
@click.pass_obj
def close_session(invocation: Invocation, name: str | None, force: bool, withdraw: bool) -> None:
    """Close a session, and end its leases.

    NAME defaults to $EDITD_SESSION. The session's work stays. In a terminal of your own, a NAME needs no
    token.
    """
    if force and name is None:
        raise click.UsageError("--force needs the NAME of the session.")
    force = force or (name is not None and name != os.environ.get("EDITD_SESSION"))
    from editd_client.conversations.session_end import CLOSE, WITHDRAW, close

    with invocation.client(attach=not force) as client:
        asker = OptionAsker(client, WITHDRAW if withdraw else CLOSE)
        converse(close(asker, name, force=force))
    invocation.say_json({})


@session_verb.command("pause")
@click.argument("name")
@click.option("-m", "--reason", default="", metavar="TEXT", help="Reason, which the agent is told.")
@click.option("--propose", is_flag=True, help="Make its edits proposals, in place of refusing them.")
@click.option("--end-leases", is_flag=True, help="Also end its leases.")
@as_json
@click.pass_obj
def pause_session(invocation: Invocation, name: str, reason: str, propose: bool, end_leases: bool) -> None:
    """Refuse the edits of a session until `resume`, also after a restart.

    The session can still read. What it runs in its own shell can still write.
    """
    from editd_client.conversations.pause import answer_of, pause

    answer = answer_of("propose" if propose else "refuse", end_leases=end_leases)
    with invocation.reviewer(attach=True) as client:
        result = converse(pause(OptionAsker(client, answer, reason=reason), name))
    assert result is not None, "the options have the answer"
    if not invocation.say_json(result):
        output.echo(
            f"the edits of {output.plain(name)} {'wait for a reviewer' if propose else 'are refused'}"
        )
        if result.leases:
            output.echo(f"leases that have ended: {len(result.leases)}")


@session_verb.command("resume")
@click.argument("name")
@as_json
@click.pass_obj
def resume_session(invocation: Invocation, name: str) -> None:
    """End the pause of a session. The session itself may not do that."""
    from editd_client.conversations.pause import RESUME, resume

    with invocation.reviewer(attach=True) as client:
        converse(resume(OptionAsker(client, RESUME), name))
    if not invocation.say_json({}):
        output.echo(f"{output.plain(name)} is not paused any more")


def _line(entry: SessionEntry) -> str:
    facts = [_pause_text(entry)] if entry.paused is not None else []
    facts += [f"by {output.plain(entry.actor)}"] if entry.actor else []
    facts += [f"{verb_} {' '.join(map(output.plain, globs))}" for verb_, globs in _globs(entry)]
    facts += ["merges"] if entry.on_stale == "merge" else []
    facts += ["must read"] if entry.unread == "reject" or entry.in_doubt else []
    facts.append("connected" if entry.connections else f"last used {output.local_time(entry.used)}")
    return f"{output.paint(output.plain(entry.session), 'cyan')} {', '.join(facts)}"


def _pause_text(entry: SessionEntry) -> str:
    pause = entry.paused
    assert pause is not None, "callers have looked"
    state = "paused" if pause.action == "refuse" else "paused, proposes"
    reason = f": {pause.reason}" if pause.reason else ""
    return output.plain(f"{state} by {pause.by}{reason}")


def _globs(entry: SessionEntry) -> list[tuple[str, list[str]]]:
    scopes = (("writes", entry.scope.write), ("reads", entry.scope.read))
    return [(verb_, globs) for verb_, globs in scopes if globs is not None]


@click.command("sessions")
@click.option("--open", "only_open", is_flag=True, help="Only open sessions.")
@as_json
@click.pass_obj
def sessions_verb(invocation: Invocation, only_open: bool) -> None:
    """List all sessions, closed ones too, the last used first.

    Shows the size of their work: the edits and commands in force, and their files and lines. A
    session is connected, open (without a connection now), or closed.

    \b
    Examples:
      editctl sessions
      editctl sessions --json | jq -r '.sessions[] | select(.state == "closed") | .session'
      editctl rollback "$(editctl sessions --json | jq -r '.sessions[0].session')" --dry-run
    """
    with invocation.client(attach=False) as client:
        result = client.session_list(all=not only_open, stat=True)
    if not invocation.say_json(result):
        output.page(_table(result.sessions))


def _table(sessions: Sequence[SessionEntry]) -> Iterator[str]:
    if not sessions:
        return
    heads = ("session", "actor", "edits", "files", "+/-", "last used", "state")
    rows = [heads, *map(_row, sessions)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for number, row in enumerate(rows):
        cells = [
            f"{cell:>{width}}" if heads[column] in ("edits", "files", "+/-") else f"{cell:<{width}}"
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        line = "  ".join(cells).rstrip()
        yield output.paint(line, None, bold=True) if number == 0 else line


def _row(entry: SessionEntry) -> tuple[str, ...]:
    is_counted = isinstance(entry.added, int) and isinstance(entry.removed, int)
    published = entry.published if isinstance(entry.published, list) else []
    state = str(entry.state) + (f", {_pause_text(entry)}" if entry.paused is not None else "")
    if published:
        commits = ", ".join(f"{one.commit[: output.ID_DIGITS]} on {one.branch}" for one in published)
        state += f", published as {commits}"
    return (
        output.plain(entry.session),
        output.plain(entry.actor or ""),
        str(entry.edits),
        str(entry.files),
        f"+{entry.added} -{entry.removed}" if is_counted else "not counted",
        output.age(entry.used),
        output.plain(state),
    )


TTL_SECONDS = 600.0


@click.group("lease")
def lease_verb() -> None:
    """Lease paths to your session, so that no other session edits them.

    Edits of other sessions to these paths are refused until the lease ends: at its time, with
    `release`, or with its session. A lease needs an open session: see `editctl session open`. Paths
    are globs, relative to the workspace's root.

    \b
    Examples:
      editctl lease acquire 'src/**/*.py' --ttl 300
      editctl lease acquire docs/ --wait 60
      editctl lease list
    """


@lease_verb.command("acquire")
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
    invocation.say(lease, lease.lease)


@lease_verb.command("renew")
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
    invocation.say(renewed, f"until {output.local_time(renewed.expires)}")


@lease_verb.command("release")
@click.argument("lease")
@click.option("--force", is_flag=True, help="Also end a lease of another session.")
@as_json
@click.pass_obj
def release(invocation: Invocation, lease: str, force: bool) -> None:
    """End a lease."""
    with invocation.client(attach=not force) as client:
        client.lease_release(lease, force=force)
    invocation.say_json({})


@lease_verb.command("list")
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
        output.echo(f"{one.lease} {session} {paths}, until {output.local_time(one.expires)}")
    if result.waiting:
        output.echo(f"{result.waiting} waiting")
