"""`editctl`: the commands for a person or a script.

Owns the list of verbs, the exit codes and the printing of every error. A verb's module is imported
only when it is used, so that `editctl --help` answers at once.
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
from editd_client.cli import output
from editd_client.cli.invocation import COMPLETE, Invocation
from editd_client.errors import EditdError, Unreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from click.shell_completion import CompletionItem

DONE, REFUSED, USAGE, UNREACHABLE, PROBLEMS, UNWRITTEN, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130

IN_A_SESSION = (
    "exec",
    "mcp",
    "claim",
    "read",
    "acquire",
    "renew",
)  # besides the verbs that take --actor

VERBS: Mapping[str, Mapping[str, str]] = {  # section of the help: verb: its line in the help
    "Edit": {
        "apply": "Apply edits given as JSON, all of them or none.",
        "replace": "Replace exact text in a file.",
        "write": "Write a whole file.",
        "patch": "Apply a patch to any number of files.",
        "rm": "Delete files.",
        "mv": "Move or rename a file.",
        "tool": "Call an edit tool of another system, such as Cline's.",
    },
    "Take back and publish": {
        "undo": "Take back the newest transaction, any other, or part of one.",
        "redo": "Take back the newest undo.",
        "rollback": "Take back all the work of a session.",
        "restore": "Put the workspace, or some paths, back to an earlier state.",
        "publish": "Make one ordinary commit of the work of sessions or of a range.",
    },
    "Sessions and agents": {
        "session": "Open, list and close sessions, each with its own name and scope.",
        "sessions": "List all sessions, closed ones too, the last used first.",
        "lease": "Lease paths to your session, so that no other session edits them.",
        "exec": "Run a command, and record its changes as one transaction.",
        "mcp": "Serve edit tools to an agent over MCP.",
        "integrate": "Have a coding agent's own edits and commands recorded as its own.",
        "hook": "Announce an event of an agent to the daemon.",
        "claim": "Attribute unannounced changes to your session.",
        "proposal": "List, show and decide edits that wait for a reviewer.",
        "review": "Open the reviewers' screen; set a PIN, make grants, mark work.",
        "web": "Serve the review page to a browser on this machine.",
    },
    "Inspect": {
        "log": "List the transactions, newest first.",
        "show": "Show transactions and their changes.",
        "diff": "Show the changes between transactions, or since the newest.",
        "blame": "Show the author and transaction of each line of a file.",
        "why": "Show the transaction, turn and prompt behind a line.",
        "turns": "List the prompts of agents, with their transactions.",
        "watch": "Print each transaction as it happens.",
        "read": "Print a file, current or as of a transaction.",
        "settle": "Wait until the history has all changes of other programs.",
        "dialects": "List the tools of `editctl tool` and their arguments.",
        "tour": "See what editd does, on a throw-away copy of this folder.",
    },
    "Daemon": {
        "start": "Start the daemon, if none runs.",
        "stop": "Stop the daemon, after it has finished its running requests.",
        "status": "Show the status of the daemon and the workspace.",
        "workspaces": "List your workspaces, and the ones that have a running daemon.",
        "socket": "Print the path of the daemon's socket.",
        "check": "Verify that history, journal and files agree.",
        "gc": "Compact the oldest history, and free its space.",
        "forget": "Remove contents, such as a secret, from the history for good.",
        "config": "Show, check and change the configuration.",
        "hooks": "Show and try the hooks for edits.",
        "remote": "Share the workspace with other hosts, through a git repository.",
        "systemd": "Let systemd start and supervise the daemon.",
    },
    "Shell": {
        "completion": "Print the completion script for a shell.",
        "help": "Show the help of editctl, or of a verb.",
        "version": "Print the version.",
    },
}

MODULES: Mapping[str, Sequence[str]] = {  # module: its verbs. Each other verb has a module of the same name.
    "edits": ("apply", "replace", "write", "patch", "rm", "mv", "tool", "dialects"),
    "undo": ("undo", "redo", "rollback", "restore", "publish"),
    "session": ("session", "sessions", "lease"),
    "log": ("log", "show", "watch"),
    "contents": ("read", "diff", "blame"),
    "daemon": ("start", "stop", "status", "socket", "settle", "check", "gc"),
    "config": ("config", "hooks"),
    "agents": ("integrate", "hook", "claim"),
    "why": ("why", "turns"),
    "help": ("help", "version"),
}

EPILOG = """\b
Exit codes:
  0    done
  1    refused: nothing has changed, and standard error has the reason
  2    wrong usage of the command line
  3    no daemon answers, or none can be started
  4    `check` found problems, `forget` left something, or a claim of `tour` failed
  5    done, but the answer could not be written
  130  interrupted
\b
Environment:
  EDITD_WORKSPACE   a folder of the workspace (default: the current folder)
  EDITD_SOCKET      the daemon's socket (default: the workspace's socket)
  EDITD_ACTOR       the author of edits (default: your login name)
  EDITD_SESSION     the session to act in, if --session is not given
  EDITD_TOKEN       the token of that session, as `editctl session open` prints it
  EDITD_RESIDENT    no: use no resident command process
  EDITD_PAGER       the pager for log, show and diff (default: $PAGER, then less)
  NO_COLOR          disables colour
"""


class Verbs(click.Group):
    """A group that imports the module of a verb on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [verb for section in VERBS.values() for verb in section]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if not any(cmd_name in section for section in VERBS.values()):
            _suggest(ctx, cmd_name, self.list_commands(ctx))
            return None
        verb = command_of(cmd_name)
        _accept_session(verb)
        return _completing(verb) if ctx.resilient_parsing else verb

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete verbs from the list, without importing their modules; options as usual."""
        from click.shell_completion import CompletionItem

        if incomplete.startswith("-"):
            return click.Command.shell_complete(self, ctx, incomplete)
        verbs = [pair for section in VERBS.values() for pair in section.items()]
        return [CompletionItem(verb, help=text) for verb, text in verbs if verb.startswith(incomplete)]

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
@click.option("--nested", is_flag=True, help="Make the folder itself a workspace, even inside a workspace.")
@click.option("--session", metavar="NAME", help="The session to act in (default: $EDITD_SESSION).")
@click.version_option(__version__, prog_name="editctl")
@click.pass_obj
def editctl(invocation: Invocation, workspace: str | None, nested: bool, session: str | None) -> None:
    """Edit a workspace through its daemon: atomic, durable, each edit undoable alone.

    A verb that needs the daemon starts it, except `status` and `stop`, which exit with 3 without one.
    Paths are relative to the current folder.
    """
    invocation.named = workspace
    invocation.is_nested = nested
    if session is not None:
        invocation.act_in(session)


def command_of(verb: str) -> click.Command:
    """Import the module of a verb of VERBS, and return its command."""
    module = next((module for module, verbs in MODULES.items() if verb in verbs), verb)
    command: click.Command = getattr(importlib.import_module(f"editd_client.cli.{module}"), f"{verb}_verb")
    return command


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


def _suggest(ctx: click.Context, word: str, verbs: list[str]) -> None:
    """Raise a usage error if `word` looks like a misspelt verb."""
    import difflib

    near = difflib.get_close_matches(word, verbs, 1)
    if near and not ctx.resilient_parsing:
        raise click.UsageError(f"No such command {word!r}. Did you mean {near[0]!r}?", ctx)


def _completing(verb: click.Command) -> click.Command:
    """Return the verb with completion of its values."""
    from editd_client.cli import completion

    completion.attach(verb)
    return verb


def main() -> NoReturn:
    """Run the command `editctl`."""
    output.open_closed_descriptors()
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run the command line and return the exit code, with every error already printed."""
    invocation = Invocation()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Write content and names as raw bytes in any locale.
            stream.reconfigure(encoding="utf-8", errors="surrogateescape")
    if COMPLETE in os.environ:  # the shell asks for a completion
        _completing(editctl)
    code, report = _carry_out(arguments, invocation)
    try:
        report()
        output.flush()
    except output.OutputError as error:
        output.print_error(f"editctl: the answer could not be written: {error}")
    except OSError:
        pass  # The reader has closed its end.
    output.abandon()
    return code


def _carry_out(arguments: Sequence[str], invocation: Invocation) -> tuple[int, Callable[[], None]]:
    """Run the command line; return the exit code and a function that prints the error, if any."""
    try:
        with output.writing():  # click writes its help, and the version
            code = editctl.main(list(arguments), "editctl", standalone_mode=False, obj=invocation)
        output.flush()
    except click.ClickException as error:
        return error.exit_code, error.show
    except EditdError as error:
        return REFUSED, functools.partial(output.print_refusal, error, as_json=invocation.json)
    except Unreachable as error:
        return UNREACHABLE, functools.partial(output.print_unreachable, error, as_json=invocation.json)
    except output.OutputError as error:
        output.abandon()
        text = f"editctl: done, but the answer could not be written: {error}"
        return UNWRITTEN, functools.partial(output.print_error, text)
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED, _print_nothing
    except (SystemExit, BrokenPipeError):
        # Click exits this way after completing a shell's word; a pipe breaks if its reader stops early.
        output.abandon()
        return DONE, _print_nothing
    return code if isinstance(code, int) else DONE, _print_nothing


def _print_nothing() -> None:
    """Print no error."""
