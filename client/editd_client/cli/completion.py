"""`editctl completion`: the completion script for a shell."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Literal

import click
from click.shell_completion import CompletionItem
from click.types import StringParamType

from editd.config import paths
from editd_client.cli import output
from editd_client.connect import connect
from editd_client.errors import EditdError, Unreachable
from editd_client.locate import find_workspace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from editd_client.locate import Workspace

    Ask = Callable[..., dict[str, Any]]
    Values = Callable[[Ask, click.Context], Iterable[tuple[str, str]]]


# Completion of values, such as transactions, sessions, proposals and tools, from the running daemon.
#
# The shell asks at each press of a key, so a daemon is never started, and a busy one is not waited for: the
# list is then empty. Prints nothing on standard error, which shows the line being typed.

ANSWER_SECONDS_MAX = 0.4
TRANSACTIONS_MAX = 50
SUBJECT_LENGTH_MAX = 60  # characters
REOPENED = ("rejected", "withdrawn", "expired", "partly")  # the states that `proposal reopen` takes


class DaemonValueArgument(StringParamType):
    """Words from a list that only the daemon has."""

    def __init__(self, values: Values, *, or_files: bool = False) -> None:
        self._values = values
        self._or_files = or_files

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        del param
        try:
            with _Question(_workspace(ctx)) as ask:
                known = list(self._values(ask, ctx))
        except (EditdError, Unreachable, OSError, ValueError, LookupError):
            known = []
        matches = [CompletionItem(word, help=about) for word, about in known if word.startswith(incomplete)]
        return matches or ([CompletionItem(incomplete, type="file")] if self._or_files else [])


class PathArgument(StringParamType):
    """Paths, which the shell itself completes."""

    def __init__(self, kind: Literal["file", "dir"]) -> None:
        self._kind = kind

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        del ctx, param
        return [CompletionItem(incomplete, type=self._kind)]


class VerbArgument(StringParamType):
    """Verbs of `editctl`, and the commands below each."""

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        del param
        group, above = ctx.find_root().command, ctx.find_root()
        for word in ctx.params.get("words") or ():
            command = group.get_command(above, word) if isinstance(group, click.Group) else None
            if command is None:
                return []
            group = command
        names = group.list_commands(above) if isinstance(group, click.Group) else []
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def attach(verb: click.Command) -> None:
    """Add completion to the parameters of the verb, and of the commands below it, by their names."""
    for param in verb.params:
        kind = _kind_of(verb, param)
        if kind is not None:
            param.type = kind
    if isinstance(verb, click.Group):
        for command in verb.commands.values():
            attach(command)


def _kind_of(verb: click.Command, param: click.Parameter) -> StringParamType | None:
    if isinstance(param, click.Argument):
        if param.name == "name" and verb.name == "open":
            return None  # a session that does not exist yet
        if verb.name == "help":
            return VERBS
        return ARGUMENTS.get(param.name or "")
    if {"--session", "--of"} & {*param.opts}:
        return SESSIONS
    if "--dialect" in param.opts:
        return DIALECTS
    metavar = param.metavar if isinstance(param, click.Option) else None
    return OPTIONS.get(metavar or "")


def _transactions(ask: Ask, ctx: click.Context) -> Iterator[tuple[str, str]]:
    del ctx
    for made in ask("log", limit=TRANSACTIONS_MAX)["transactions"]:
        message = made["message"] if isinstance(made["message"], str) else ""
        subject = message.partition("\n")[0][:SUBJECT_LENGTH_MAX]
        yield str(made["seq"]), _plain(f"{made['kind']} by {made['actor']}: {subject}".removesuffix(": "))


def _hunks(ask: Ask, ctx: click.Context) -> Iterator[tuple[str, str]]:
    """Yield the hunks of the given transaction, each with its first changed line."""
    # click leaves the arguments unparsed before an option that still lacks its value.
    transaction = str(ctx.params.get("transaction") or ctx.args[0])
    shown = ask(
        "show", tx=int(transaction) if transaction.isdecimal() else transaction, diff=False, hunks=True
    )
    root = _workspace(ctx).root
    for hunk in shown["hunks"]:
        lines = str(hunk["diff"]).splitlines()[1:]
        changed = next((line for line in lines if line[:1] in "+-"), "")
        path = os.path.relpath(os.path.join(root, str(hunk["path"])))
        yield f"{path}:{hunk['hunk']}", _plain(changed[:SUBJECT_LENGTH_MAX])


def _sessions(ask: Ask, ctx: click.Context) -> Iterator[tuple[str, str]]:
    del ctx
    for session in ask("session.list", all=True)["sessions"]:
        by = f" by {session['actor']}" if session["actor"] else ""
        yield session["session"], _plain(f"{session['state']}{by}")


def _leases(ask: Ask, ctx: click.Context) -> Iterator[tuple[str, str]]:
    del ctx
    for lease in ask("lease.list")["leases"]:
        yield lease["lease"], _plain(", ".join(map(str, lease["paths"])))


def _proposals(ask: Ask, ctx: click.Context) -> Iterator[tuple[str, str]]:
    wanted = REOPENED if ctx.info_name == "reopen" else ("draft", "open")
    for one in ask("proposal.list", state=list(wanted))["proposals"]:
        subject = (one["message"] or " ".join(one["paths"])).partition("\n")[0][:SUBJECT_LENGTH_MAX]
        yield str(one["proposal"]), _plain(f"{one['state']} by {one['session'] or one['actor']}: {subject}")


def _grants(ask: Ask, ctx: click.Context) -> Iterator[tuple[str, str]]:
    del ctx
    for grant in ask("review.grants")["grants"]:
        yield str(grant["grant"]), _plain(" ".join(grant["paths"]))


def _dialects(ask: Ask, ctx: click.Context) -> Iterator[tuple[str, str]]:
    del ctx
    for dialect in ask("dialects")["dialects"]:
        yield dialect["name"], _plain(dialect["description"])


def _tools(ask: Ask, ctx: click.Context) -> Iterator[tuple[str, str]]:
    for dialect in ask("dialects")["dialects"]:
        if dialect["name"] == ctx.params.get("dialect"):
            for tool in dialect["tools"]:
                yield tool["name"], _plain(tool["description"].partition("\n")[0][:SUBJECT_LENGTH_MAX])


TRANSACTIONS = DaemonValueArgument(_transactions)
SESSIONS = DaemonValueArgument(_sessions)
DIALECTS = DaemonValueArgument(_dialects)
FILES = PathArgument("file")

VERBS = VerbArgument()
ARGUMENTS: dict[str, StringParamType] = {
    "transaction": TRANSACTIONS,
    "transactions": TRANSACTIONS,
    "when": TRANSACTIONS,
    "words": DaemonValueArgument(_transactions, or_files=True),
    "path": FILES,
    "paths": FILES,
    "source": FILES,
    "target": FILES,
    "session": SESSIONS,
    "name": SESSIONS,
    "lease": DaemonValueArgument(_leases),
    "proposal": DaemonValueArgument(_proposals),
    "grant": DaemonValueArgument(_grants),
    "dialect": DIALECTS,
    "tool": DaemonValueArgument(_tools),
}
OPTIONS: dict[str, StringParamType] = {
    "TX": TRANSACTIONS,
    "WHEN": TRANSACTIONS,
    "SEQ": TRANSACTIONS,
    "PATH": FILES,
    "PATH:K": DaemonValueArgument(_hunks),
    "DIR": PathArgument("dir"),
}


def _workspace(ctx: click.Context) -> Workspace:
    params = ctx.find_root().params
    return find_workspace(params.get("workspace"), nested=bool(params.get("nested")))


class _Question:
    """A connection to a running daemon, by lines of JSON: imports no more than that needs."""

    def __init__(self, workspace: Workspace) -> None:
        stream = connect(workspace.socket_path) if paths.is_running(workspace.state_folder) else None
        if stream is None:
            raise Unreachable("No daemon runs.")
        stream.settimeout(ANSWER_SECONDS_MAX)
        self._stream = stream

    def __enter__(self) -> Ask:
        return self._ask

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def _ask(self, method: str, **params: object) -> dict[str, Any]:
        """Return the result. Raises LookupError for a refusal, OSError if no answer comes."""
        self._stream.sendall(json.dumps({"id": 1, "method": method, "params": params}).encode() + b"\n")
        with self._stream.makefile("rb") as answers:
            result: dict[str, Any] = json.loads(answers.readline())["result"]
        return result


def _plain(text: str) -> str:
    """Return the text on one line, because the shell reads the list by lines."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


SHELLS = ["bash", "zsh", "fish"]


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion_verb(context: click.Context, shell: str) -> None:
    """Print the completion script for a shell.

    Completes verbs, options, paths, and values from the running daemon: transactions, sessions,
    leases, proposals, dialects and their tools. Never starts a daemon. docs/shell.md has a line to
    install it.

    \b
    Examples:
      editctl completion bash > ~/.local/share/bash-completion/completions/editctl
      editctl completion zsh > "${fpath[1]}/_editctl"
      editctl completion fish > ~/.config/fish/completions/editctl.fish
    """
    from click.shell_completion import get_completion_class

    from editd_client.cli.invocation import COMPLETE

    kind = get_completion_class(shell)
    assert kind is not None, "click knows every shell that SHELLS names"
    output.echo(kind(context.find_root().command, {}, "editctl", COMPLETE).source())
