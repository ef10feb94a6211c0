"""`editctl exec`: a command whose changes belong to the session."""

from __future__ import annotations

import errno
import os
import shlex
import sys
from typing import TYPE_CHECKING

import click

from editd_client.cli import output, refusals, stdio
from editd_client.cli.options import as_json
from editd_client.errors import EditdError, Unreachable
from editd_client.locate import current_actor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from editd.wire.messages import ExecEndResult
    from editd_client.cli.invocation import Invocation

NOT_FOUND, NOT_RUN, SIGNALLED = 127, 126, 128  # the exit codes of a shell
UNREACHABLE = 3  # the exit code of `editctl`


@click.command("exec", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@as_json
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND…")
@click.pass_obj
def exec_verb(invocation: Invocation, command: tuple[str, ...]) -> int:
    """Run a command, and record its changes as one transaction.

    The command has the terminal, and its exit status becomes that of `editctl`. Its changes in the
    workspace are a transaction of kind `exec` in your session, if you have one. The command and its
    exit status are the message. Under an agent that started `editctl mcp`, the session is the
    agent's. Set EDITD_SESSION to an empty text to act in no session. The transaction is printed on
    standard error, even with --json, because standard output belongs to the command. If commands of
    several sessions run at once, their changes belong to no session, and the message names all of
    them.

    \b
    Examples:
      editctl exec -- make format
      editctl exec --session refactoring -- npx prettier --write .
      editctl exec -- sh -c 'sed -i s/old/new/ *.txt' && editctl undo
    """
    with invocation.client() as client:
        if not invocation.session:
            client.hello(current_actor())
        name = client.exec_begin(shlex.join(command)).exec
        status = _run(command)
        try:
            _report(invocation, client.exec_end(name, status))
        except EditdError as refused:
            refusals.print_refusal(refused, as_json=False)
        except Unreachable as error:
            refusals.print_unreachable(error, as_json=False)
            return status or UNREACHABLE
    return status


def _run(command: Sequence[str]) -> int:
    """Run the command and return its exit status, as a shell would. Ctrl-C reaches only the command."""
    import subprocess

    try:
        with output.uninterrupted():
            status = subprocess.Popen(command).wait()
    except OSError as error:
        is_missing = isinstance(error, FileNotFoundError) or _is_nowhere(command[0])
        why = os.strerror(errno.ENOENT) if is_missing else error.strerror
        stdio.print_error(f"editctl: {command[0]}: {why}")
        return NOT_FOUND if is_missing else NOT_RUN
    return status if status >= 0 else SIGNALLED - status


def _is_nowhere(name: str) -> bool:
    """Whether the name is not in PATH: a locked folder in PATH makes it a "permission denied"."""
    import shutil

    return os.sep not in name and shutil.which(name, os.F_OK) is None


def _report(invocation: Invocation, ended: ExecEndResult) -> None:
    """Print the transaction on standard error, because standard output belongs to the command."""
    if invocation.json:
        stdio.print_error(output.json_text(ended))
    elif ended.transaction is not None:
        stdio.print_error(output.one_line(ended.transaction, sys.stderr))
