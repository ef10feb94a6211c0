"""`editctl`: what a person or a script does with a workspace, one module a verb.

Owns the list of verbs, the exit codes and the last word on every error. A verb's module is imported
when it is used, so that `editctl --help` answers at once.
"""

from __future__ import annotations

import functools
import importlib
import io
import os
import sys
from typing import TYPE_CHECKING, NoReturn

import click

from editd import __version__
from editd_client.cli import refusals, stdio
from editd_client.cli.invocation import Invocation
from editd_client.errors import EditdError, Unreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from click.shell_completion import CompletionItem

DONE, REFUSED, USAGE, UNREACHABLE, PROBLEMS, UNWRITTEN, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130

IN_A_SESSION = (
    "exec",
    "mcp",
    "read",
    "acquire",
    "renew",
)  # besides the verbs that take --actor
COMPLETE = "_EDITCTL_COMPLETE"  # set by the scripts of `editctl completion`

VERBS: Mapping[str, Mapping[str, str]] = {
    # section of the help: verb (its module has the same name): what the help says of it
    "Try it": {
        "tour": "See what editd does, on a throw-away copy of this folder.",
    },
    "Edit": {
        "apply": "Apply edits given as JSON, all of them or none.",
        "replace": "Replace exact text in a file.",
        "write": "Write a whole file.",
        "patch": "Apply a patch, to any number of files.",
        "rm": "Delete files.",
        "mv": "Move or rename a file.",
        "tool": "Call an edit tool of another system, such as Cline's.",
        "undo": "Take back a transaction, the newest or any other, or part of one.",
        "redo": "Take back an undo.",
        "rollback": "Take back all that a session did.",
        "restore": "Put everything, or some paths, back to how they were.",
        "publish": "Make one ordinary commit of what sessions or a range did.",
    },
    "Many hands": {
        "session": "Open, list and close sessions, each with its own name and scope.",
        "sessions": "List sessions, closed ones too, the last used first.",
        "lease": "Lease paths to your session, so that nobody else edits them.",
        "exec": "Run a command, and record what it changes as one transaction.",
        "mcp": "Serve an agent's edit tools over MCP.",
    },
    "Look": {
        "log": "List the transactions, newest first.",
        "show": "Show transactions and what they changed.",
        "blame": "Show who wrote each line of a file, and in which transaction.",
        "watch": "Print each transaction as it happens.",
        "diff": "Show what changed between transactions, or since the newest.",
        "read": "Print a file, as it is or as it was.",
        "dialects": "List the tools of `editctl tool`, and what they take.",
        "settle": "Take in what other programs have changed until now.",
    },
    "The daemon": {
        "start": "Start the daemon, where none runs.",
        "stop": "Stop the daemon, once what is under way is finished.",
        "status": "Show the status of the daemon and the workspace.",
        "workspaces": "List your workspaces, and which have a running daemon.",
        "socket": "Print the path of the daemon's socket.",
        "check": "Prove that history, journal and files agree.",
        "gc": "Compact the oldest history, and free its room.",
        "config": "Show the configuration, check it and change it.",
        "hooks": "Show the hooks that see each edit, and try them.",
        "systemd": "Have systemd start the daemon and look after it.",
    },
    "The shell": {
        "completion": "Print the completion script for a shell.",
    },
}

EPILOG = """\b
Exit codes:
  0    done
  1    refused: nothing has changed, and standard error says why
  2    the command line makes no sense
  3    no daemon answers, or none can be started
  4    `check` found problems, or `tour` something not as claimed
  5    done, but the answer could not be written
  130  interrupted
\b
Environment:
  EDITD_WORKSPACE   a folder of the workspace, if --workspace is not given
  EDITD_SOCKET      the daemon's socket, in place of the usual one
  EDITD_ACTOR       who the edits are by, in place of your login name
  EDITD_SESSION     the session to act in, where --session is not given
  EDITD_TOKEN       that session's token, as `editctl session open` gives it
  EDITD_PAGER       the pager for log, show and diff; else PAGER; else less
  NO_COLOR          no colour
"""


class Verbs(click.Group):
    """A group that imports a verb when it is called for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [verb for section in VERBS.values() for verb in section]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if not any(cmd_name in section for section in VERBS.values()):
            _suggest(ctx, cmd_name, self.list_commands(ctx))
            return None
        verb: click.Command = importlib.import_module(f"editd_client.cli.{cmd_name}").verb
        _accept_session(verb)
        return _completing(verb) if ctx.resilient_parsing else verb

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Verbs from the list, and so without importing them all; options as everywhere."""
        from click.shell_completion import CompletionItem

        if incomplete.startswith("-"):
            return click.Command.shell_complete(self, ctx, incomplete)
        known = [pair for section in VERBS.values() for pair in section.items()]
        return [CompletionItem(verb, help=about) for verb, about in known if verb.startswith(incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, section in VERBS.items():
            with formatter.section(title):
                formatter.write_dl(list(section.items()), col_max=12)


@click.group(
    cls=Verbs,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "-C", "--workspace", metavar="DIR",
    help="A folder of the workspace (default: $EDITD_WORKSPACE, then this folder). The workspace is the git "
    "top level above it, or the folder itself.",
)  # fmt: skip
@click.option("--nested", is_flag=True, help="Make the folder itself a workspace, even inside another one.")
@click.option("--session", metavar="NAME", help="The session to act in (default: $EDITD_SESSION).")
@click.version_option(__version__, prog_name="editctl")
@click.pass_obj
def editctl(invocation: Invocation, workspace: str | None, nested: bool, session: str | None) -> None:
    """Edit a workspace through its daemon: atomic, durable, and each edit undoable alone.

    The daemon is started when it is needed. Paths are relative to the current folder.
    """
    invocation.named = workspace
    invocation.is_nested = nested
    if session is not None:
        invocation.act_in(session)


def _accept_session(verb: click.Command) -> None:
    """Let the verb, and the commands below it, take `--session` as `editctl` itself does.

    The help shows it for commands that act in a session. A verb that has the option already keeps its own.
    """
    if isinstance(verb, click.Group):
        for command in verb.commands.values():
            _accept_session(command)
        return
    options = {name for param in verb.params for name in param.opts}
    if "--session" not in options:
        option = click.Option(
            ["--session", "acting_session"], metavar="NAME",
            help="The session to act in (default: $EDITD_SESSION).",
            hidden="--actor" not in options and verb.name not in IN_A_SESSION, expose_value=False,
            callback=_act_in,
        )  # fmt: skip
        verb.params.append(option)


def _act_in(context: click.Context, option: click.Parameter, session: str | None) -> None:
    invocation = context.find_object(Invocation)
    if session is not None and invocation is not None:
        invocation.act_in(session)


def _suggest(ctx: click.Context, given: str, verbs: list[str]) -> None:
    """Raises a usage error where one of the verbs may be meant."""
    import difflib

    near = difflib.get_close_matches(given, verbs, 1)
    if near and not ctx.resilient_parsing:
        raise click.UsageError(f"No such command {given!r}. Did you mean {near[0]!r}?", ctx)


def _completing(verb: click.Command) -> click.Command:
    """The verb, which now knows of values, too."""
    from editd_client.cli import value_completion

    value_completion.attach(verb)
    return verb


def main() -> NoReturn:
    """The command `editctl`."""
    stdio.open_closed_descriptors()
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Do what the arguments say and return the exit code; every error has been told by then."""
    invocation = Invocation()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Content and names go out as the bytes that they are, whatever the locale says.
            stream.reconfigure(encoding="utf-8", errors="surrogateescape")
    if COMPLETE in os.environ:  # a shell asks what may come next
        _completing(editctl)
    code, tell = _carried_out(arguments, invocation)
    try:
        tell()
        stdio.flush()
    except stdio.OutputError as error:
        stdio.print_error(f"editctl: the answer could not be written: {error}")
    except OSError:
        pass  # Whoever was to read it is gone.
    stdio.abandon()
    return code


def _carried_out(arguments: Sequence[str], invocation: Invocation) -> tuple[int, Callable[[], None]]:
    """Do what the arguments say; the exit code, and what tells why it is not as it should be."""
    try:
        with stdio.writing():  # click writes its help, and the version
            code = editctl.main(list(arguments), "editctl", standalone_mode=False, obj=invocation)
        stdio.flush()
    except click.ClickException as error:
        return error.exit_code, error.show
    except EditdError as error:
        return REFUSED, functools.partial(refusals.print_refusal, error, as_json=invocation.json)
    except Unreachable as error:
        return UNREACHABLE, functools.partial(refusals.print_unreachable, error, as_json=invocation.json)
    except stdio.OutputError as error:
        stdio.abandon()
        text = f"editctl: done, but the answer could not be written: {error}"
        return UNWRITTEN, functools.partial(stdio.print_error, text)
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED, _tell_nothing
    except (SystemExit, BrokenPipeError):
        # Click's own way out: a shell's word is completed. Or whoever read our output has enough.
        stdio.abandon()
        return DONE, _tell_nothing
    return code if isinstance(code, int) else DONE, _tell_nothing


def _tell_nothing() -> None:
    """All has been said."""
