"""`exec`: a command whose changes become one transaction, in the workspace or isolated."""

from __future__ import annotations

import errno
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING

import click

from editd_client.cli import output
from editd_client.cli.options import as_json
from editd_client.errors import EditdError, Unreachable, shorten
from editd_client.locate import current_actor
from editd_client.trial import NOT_FOUND, NOT_RUN, exit_code

if TYPE_CHECKING:
    from collections.abc import Sequence

    from editd.wire.messages import ApplyResult, ExecEndResult
    from editd_client.cli.invocation import Invocation

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
        _warn(_paths_in(command, invocation.workspace.root, began.unrecorded), NEVER_RECORDED)
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
    from editd.wire.redaction import redact
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
            message = f"{redact(shlex.join(command))} (exit status {status})"
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
        output.print_error(output.plain(f"left out, because {reason}: {shorten(paths)}"))
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


def _paths_in(command: Sequence[str], root: str, paths: Sequence[str]) -> list[str]:
    """Return the paths that a word of the command names, or whose folder it names."""
    words = {word.strip("\"'") for argument in command[1:] for word in argument.split()}
    named = {os.path.relpath(os.path.realpath(word), root) for word in words if word}
    return [path for path in paths if any((path + "/").startswith(name + "/") for name in named)]


def _warn(paths: Sequence[str], fact: str) -> None:
    """Print a line about files whose content the history lacks."""
    if paths:
        output.print_error(output.plain(f"editctl: {fact}: {shorten(paths, SHOWN)}"))


def _report(invocation: Invocation, ended: ExecEndResult) -> None:
    """Print the transaction on standard error, because standard output belongs to the command."""
    if invocation.json:
        output.print_error(output.json_text(ended))
    elif ended.transaction is not None:
        output.print_error(output.one_line(ended.transaction, sys.stderr))
