"""Sessions and agents: `session`, `sessions`, `lease`, `exec` and `mcp`."""

from __future__ import annotations

import errno
import importlib.util
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING, NoReturn

import click

from editd_client.cli import output
from editd_client.cli.options import as_json
from editd_client.errors import EditdError, Unreachable, shortened
from editd_client.locate import current_actor
from editd_client.mcp import Options
from editd_client.trial import NOT_FOUND, NOT_RUN, exit_code

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from editd.wire.messages import ApplyResult, ExecEndResult, PauseAction, SessionEntry
    from editd_client.cli.invocation import Invocation

TERMINATED = 128 + signal.SIGTERM


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
    with invocation.client(attach=not force) as client:
        client.session_close(name, force=force, withdraw=withdraw)
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
    action: PauseAction = "propose" if propose else "refuse"
    with invocation.reviewer(attach=True) as client:
        result = client.session_pause(name, action=action, reason=reason, end_leases=end_leases)
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
    with invocation.reviewer(attach=True) as client:
        client.session_resume(name)
    if not invocation.say_json({}):
        output.echo(f"{output.plain(name)} is not paused any more")


def _line(entry: SessionEntry) -> str:
    facts = [_paused(entry)] if entry.paused is not None else []
    facts += [f"by {output.plain(entry.actor)}"] if entry.actor else []
    facts += [f"{verb_} {' '.join(map(output.plain, globs))}" for verb_, globs in _globs(entry)]
    facts += ["merges"] if entry.on_stale == "merge" else []
    facts += ["must read"] if entry.unread == "reject" or entry.in_doubt else []
    facts.append("connected" if entry.connections else f"last used {output.local_time(entry.used)}")
    return f"{output.paint(output.plain(entry.session), 'cyan')} {', '.join(facts)}"


def _paused(entry: SessionEntry) -> str:
    pause = entry.paused
    assert pause is not None, "callers have looked"
    what = "paused" if pause.action == "refuse" else "paused, proposes"
    reason = f": {pause.reason}" if pause.reason else ""
    return output.plain(f"{what} by {pause.by}{reason}")


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
    state = str(entry.state) + (f", {_paused(entry)}" if entry.paused is not None else "")
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


# ── Commands ──────────────────────────────────────────────────────────────────────────────────


SHOWN = 3  # files in a line
NEVER_RECORDED = "never recorded, so no undo brings it back"
LOST = "deleted or changed, and never recorded, so no undo brings it back"
REFUSED, UNREACHABLE = 1, 3  # exit codes of `editctl`


@click.command("exec", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--isolated", is_flag=True, help="Run it in an overlay, and apply its changes as an edit.")
@click.option("--propose", is_flag=True, help="With --isolated: its changes wait for a reviewer.")
@as_json
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND…")
@click.pass_obj
def exec_verb(invocation: Invocation, command: tuple[str, ...], isolated: bool, propose: bool) -> int:
    """Run a command, and record its changes as one transaction.

    The command has the terminal, and `editctl` exits with its status. Its changes in the
    workspace are a transaction of kind `exec` in your session, if you have one. The command and its
    exit status are the message. Under an agent that started `editctl mcp`, the session is the
    agent's. Set EDITD_SESSION to an empty text to act in no session. The transaction is printed on
    standard error, even with --json, because standard output belongs to the command. If commands of
    several sessions run at once, their changes belong to no session, and the message names all of
    them.

    With --isolated, the command sees an overlay over the workspace. Its changes are exactly its own,
    even if other programs write meanwhile. At its end they become one edit, which is merged and checked,
    and no process that it has started outlives it.
    It does not see later edits of others reliably. Files that git ignores are left out, and pipes,
    sockets and devices too. If the history lacks the earlier content of a file, its change is refused if
    others changed the file meanwhile. It needs Linux with unprivileged user namespaces.

    \b
    Examples:
      editctl exec -- make format
      editctl exec --session refactoring -- npx prettier --write .
      editctl exec -- sh -c 'sed -i s/old/new/ *.txt' && editctl undo
      editctl exec --isolated -- npm run codegen
    """
    if propose and not isolated:
        raise click.UsageError("--propose needs --isolated: otherwise the changes are in the files already.")
    if isolated:
        return _exec_isolated(invocation, command, propose=propose)
    with invocation.client() as client:
        if not invocation.session:
            client.hello(current_actor())
        began = client.exec_begin(shlex.join(command))
        _warn(_named_in(command, invocation.workspace.root, began.unrecorded), NEVER_RECORDED)
        status = _run(command)
        try:
            ended = client.exec_end(began.exec, status)
            _report(invocation, ended)
            _warn(ended.unrecorded, LOST)
        except EditdError as refused:
            output.print_refusal(refused, as_json=False)
        except Unreachable as error:
            output.print_unreachable(error, as_json=False)
            return status or UNREACHABLE
    return status


def _exec_isolated(invocation: Invocation, command: Sequence[str], *, propose: bool) -> int:
    from editd.wire.redaction import redacted
    from editd_client.isolated import Start, changes_of
    from editd_client.trial import NoOverlay, run_in_overlay

    root, status = invocation.workspace.root, 0
    with invocation.client() as client:
        head = client.settle().head
        scratch = tempfile.mkdtemp(prefix="editd-isolated-")
        start = Start(head, os.stat(scratch).st_ctime_ns)  # The time as file systems have it.
        upper = os.path.join(scratch, "upper")
        try:
            with output.uninterrupted():
                status = run_in_overlay(root, scratch, command)
            changes = changes_of(client, root, upper, start)
            message = f"{redacted(shlex.join(command))} (exit status {status})"
            if changes.edits:
                applied = client.apply(
                    changes.edits, message=message, on_stale="merge", propose=propose or None
                )
                _report_edit(invocation, applied)
        except NoOverlay:
            shutil.rmtree(scratch, ignore_errors=True)
            output.print_error("editctl: this system has no overlay for an unprivileged user")
            return NOT_RUN
        except OSError as error:
            output.print_error(f"editctl: the changes cannot be read, and are kept in {upper}: {error}")
            return status or REFUSED
        except (EditdError, Unreachable) as error:
            output.print_error(f"editctl: the changes are not applied, and are kept in {upper}")
            if isinstance(error, Unreachable):
                output.print_unreachable(error, as_json=False)
                return status or UNREACHABLE
            output.print_refusal(error, as_json=False)
            return status or REFUSED
    shutil.rmtree(scratch, ignore_errors=True)
    for reason, paths in changes.left_out.items():
        output.print_error(output.plain(f"left out, because {reason}: {shortened(paths)}"))
    return status


def _report_edit(invocation: Invocation, applied: ApplyResult) -> None:
    if invocation.json:
        output.print_error(output.json_text(applied))
        return
    for line in output.applied(applied, dry_run=False):
        output.print_error(line)


def _run(command: Sequence[str]) -> int:
    """Run the command and return its exit status, as a shell would. Ctrl-C reaches only the command."""
    try:
        with output.uninterrupted():
            status = subprocess.Popen(command).wait()
    except OSError as error:
        is_missing = isinstance(error, FileNotFoundError) or _is_nowhere(command[0])
        why = os.strerror(errno.ENOENT) if is_missing else error.strerror
        output.print_error(f"editctl: {command[0]}: {why}")
        return NOT_FOUND if is_missing else NOT_RUN
    return exit_code(status)


def _is_nowhere(name: str) -> bool:
    """Whether the name is not in PATH: a locked folder in PATH makes it a "permission denied"."""
    return os.sep not in name and shutil.which(name, os.F_OK) is None


def _named_in(command: Sequence[str], root: str, paths: Sequence[str]) -> list[str]:
    """Return the paths that a word of the command names, or whose folder it names."""
    words = {word.strip("\"'") for argument in command[1:] for word in argument.split()}
    named = {os.path.relpath(os.path.realpath(word), root) for word in words if word}
    return [path for path in paths if any((path + "/").startswith(name + "/") for name in named)]


def _warn(paths: Sequence[str], fact: str) -> None:
    """Print a line about files whose content the history lacks."""
    if paths:
        output.print_error(output.plain(f"editctl: {fact}: {shortened(paths, SHOWN)}"))


def _report(invocation: Invocation, ended: ExecEndResult) -> None:
    """Print the transaction on standard error, because standard output belongs to the command."""
    if invocation.json:
        output.print_error(output.json_text(ended))
    elif ended.transaction is not None:
        output.print_error(output.one_line(ended.transaction, sys.stderr))


# ── Agents ────────────────────────────────────────────────────────────────────────────────────


@click.command("mcp")
@click.option(
    "--workspace", metavar="DIR", help="The workspace (default: the client's root, then the usual one)."
)
@click.option(
    "--dialect", "dialects", metavar="NAME", multiple=True,
    help="Another system with tools to offer as well, see `editctl dialects`. Repeatable.",
)  # fmt: skip
@click.option(
    "--session", metavar="NAME", help="The session's name (default: a new one, named after the client)."
)
@click.option(
    "--tools",
    "tools",
    metavar="NAME,…",
    multiple=True,
    help="Only tools to offer (default: all). Repeatable.",
)
@click.option("--read-only", is_flag=True, help="Offer only the tools that change nothing.")
@click.option("--may-undo-others", is_flag=True, help="Allow undo and rollback of the work of others.")
@click.option(
    "--wait", type=click.FloatRange(0, 600), default=50.0, metavar="SECONDS",
    help="Longest wait of a call for a reviewer's decision (default: 50).",
)  # fmt: skip
@click.pass_obj
def mcp_verb(
    invocation: Invocation,
    workspace: str | None,
    dialects: tuple[str, ...],
    session: str | None,
    tools: tuple[str, ...],
    read_only: bool,
    may_undo_others: bool,
    wait: float,
) -> None:
    """Serve edit tools to an agent over MCP.

    Uses standard input and output. Name this command in the agent's configuration: docs/mcp.md has
    it for several agents. Its calls act in the session of the agent's hooks, if it has them, and
    otherwise in a separate session. So an agent's work can be undone, rolled back and published
    alone. Needs the extra `mcp`: in a checkout,
    `pipx install '.[mcp]'`.

    \b
    Examples:
      claude mcp add editd -- editctl mcp
      editctl mcp --workspace ~/src/project --dialect claude
      editctl mcp --session reviewer --read-only
      editctl mcp --tools apply_edits,read_file,undo
    """
    if workspace is not None:
        invocation.named = workspace
    if session is not None:
        invocation.act_in(session)
    # Permanently: a token in the environment belongs to the session that is named there.
    _serve(
        Options(
            workspace=invocation.named,
            dialects=dialects,
            session=os.environ.get("EDITD_SESSION") or None,
            token=os.environ.get("EDITD_TOKEN"),
            tools=_tools_named(tools, dialects),
            is_read_only=read_only,
            may_undo_others=may_undo_others,
            wait=wait,
        )
    )


def _serve(options: Options) -> None:
    """Serve one client until it closes standard input, then close the session; its edits stay."""
    from editd_client.mcp.client_sessions import ClientSessions
    from editd_client.mcp.handshake import Handshake, Wire

    _check_sdk()
    sessions, wire = ClientSessions(options), Wire()

    def leave_now(*_: object) -> NoReturn:
        # The SDK reads standard input in a thread that cannot be cancelled: a signal ends the process.
        sessions.close()
        os._exit(TERMINATED)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, leave_now)
    try:
        if Handshake(options, sessions, wire).serve():
            try:
                from editd_client.mcp.server import serve
            except ImportError as error:
                raise _without_sdk(str(error)) from error
            serve(options, sessions, wire)
    finally:
        sessions.close()


def _check_sdk() -> None:
    """Raise Unreachable if the SDK is not installed, without importing it."""
    for module in ("mcp", "mcp_types"):
        try:
            is_there = importlib.util.find_spec(module) is not None
        except ValueError:  # As Python says for a module that may not be imported.
            is_there = False
        if not is_there:
            raise _without_sdk(f"no module {module}")


def _without_sdk(reason: str) -> Unreachable:
    return Unreachable(
        f"The MCP server needs Python's MCP SDK, version 2.3 or later: {reason}.",
        hint="In a checkout: `pipx install --force '.[mcp]'` or `uv tool install --force '.[mcp]'`.",
    )


def _tools_named(given: tuple[str, ...], dialects: tuple[str, ...]) -> tuple[str, ...]:
    """Return the tool names in `given`. Raises EditdError for an unknown tool or dialect."""
    from editd_client.mcp.conversion import unknown_name
    from editd_client.mcp.tools import offered_names

    offered = offered_names(dialects)
    names = tuple(name.strip() for words in given for name in words.split(",") if name.strip())
    for name in names:
        if name not in offered:
            raise unknown_name("tool", name, offered)
    return names
