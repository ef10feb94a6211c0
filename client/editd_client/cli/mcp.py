"""`mcp`: the edit tools, served to an agent."""

from __future__ import annotations

import importlib.util
import os
import signal
import threading
from typing import TYPE_CHECKING, NoReturn

import click

from editd_client.cli import output
from editd_client.errors import Unreachable
from editd_client.mcp import Options

if TYPE_CHECKING:
    from editd.wire.messages import DialectEntry
    from editd_client.cli.invocation import Invocation

TERMINATED = 128 + signal.SIGTERM
UNREACHABLE = 3  # the exit code without a daemon, or without the SDK


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
    described = _described(invocation, dialects)
    # Permanently: a token in the environment belongs to the session that is named there.
    _serve(
        Options(
            workspace=invocation.named,
            dialects=dialects,
            session=os.environ.get("EDITD_SESSION") or None,
            token=os.environ.get("EDITD_TOKEN"),
            tools=_tools_named(tools, dialects, described),
            described=described,
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

    def start_sdk(request_ids: dict[int | str, str]) -> threading.Thread:
        try:
            from editd_client.mcp.server import serve
        except ImportError as error:
            if threading.current_thread() is threading.main_thread():
                raise _without_sdk(str(error)) from error
            output.print_unreachable(_without_sdk(str(error)), as_json=False)
            sessions.close()
            os._exit(UNREACHABLE)  # the main thread reads standard input, and cannot be interrupted
        sdk = threading.Thread(target=serve, args=(options, sessions, wire, request_ids), daemon=True)
        sdk.start()
        return sdk

    try:
        Handshake(options, sessions, wire, start_sdk).serve()
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


def _described(invocation: Invocation, dialects: tuple[str, ...]) -> tuple[DialectEntry, ...]:
    """Return the chosen dialects of other packages: the daemon describes them. Starts one only for these."""
    from editd_client.mcp.tools import known_dialects

    if not dialects:
        return ()
    others = set(dialects) - {entry.name for entry in known_dialects()}
    if not others:
        return ()
    with invocation.client(attach=False) as client:
        return tuple(entry for entry in client.dialects().dialects if entry.name in others)


def _tools_named(
    words: tuple[str, ...], dialects: tuple[str, ...], described: tuple[DialectEntry, ...]
) -> tuple[str, ...]:
    """Return the tool names in `words`. Raises EditdError for an unknown tool or dialect."""
    from editd_client.mcp.conversion import unknown_name
    from editd_client.mcp.tools import offered_names

    offered = offered_names(dialects, described)
    names = tuple(name.strip() for text in words for name in text.split(",") if name.strip())
    for name in names:
        if name not in offered:
            raise unknown_name("tool", name, offered)
    return names
