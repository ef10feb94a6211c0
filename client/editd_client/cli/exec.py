"""`editctl exec`: a command whose changes are the session's."""

from __future__ import annotations

import errno
import os
import shlex
import sys
from typing import TYPE_CHECKING

import click

from editd_client.author import current_actor
from editd_client.cli import output, refusals, stdio
from editd_client.cli.options import as_json
from editd_client.errors import EditdError, Unreachable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from editd.wire.messages import ExecEndResult
    from editd_client.cli.invocation import Invocation

NOT_FOUND, NOT_RUN, SIGNALLED = 127, 126, 128  # as a shell has them
UNREACHABLE = 3  # as `editctl` has it


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@as_json
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND…")
@click.pass_obj
def verb(invocation: Invocation, command: tuple[str, ...]) -> int:
    """Run a command, and record what it changes as one transaction.

    It has the terminal, and its exit status is handed on. What it changes in the workspace is a
    transaction of kind `exec`, by your session where you have one, with the command and its exit
    status as the message. Below an agent that started `editctl mcp` it is the agent's session. Set
    EDITD_SESSION to an empty text to act in none. It is printed on standard error, with --json too,
    for standard output is the command's. Where commands of several sessions run at once, what changes
    is nobody's, and the message names them.

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
    """The command's exit status, as a shell would have it; what interrupts it does not interrupt us."""
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
    """Whether it is not in PATH: a folder of that which is locked makes a "permission denied" of it."""
    import shutil

    return os.sep not in name and shutil.which(name, os.F_OK) is None


def _report(invocation: Invocation, ended: ExecEndResult) -> None:
    """Say on standard error what was recorded: standard output is the command's."""
    if invocation.json:
        stdio.print_error(output.json_text(ended))
    elif ended.transaction is not None:
        stdio.print_error(output.one_line(ended.transaction, sys.stderr))
