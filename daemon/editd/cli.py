"""`editd`: the daemon's own command. `editctl` starts it when it is needed; people rarely do."""

from __future__ import annotations

import asyncio
import faulthandler
import os
import subprocess
import sys

import click

import editd
from editd.config.load import read_config
from editd.errors import Refused
from editd.server.daemon import AlreadyRunning, Daemon, set_up_log
from editd.server.paths import WorkspacePaths
from editd.system.systemd_notify import SystemdNotifier

# Of Python's lock between threads; its own is ten times as long. An edit gives the lock up at each of its
# forty system calls, and waits so long for the thread that takes in what others write, where that is much.
SWITCH_SECONDS = 0.0005


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "-C", "--workspace", default=".", metavar="DIR", help="A folder of the workspace. Default: this one."
)
@click.option(
    "--nested", is_flag=True, help="Own DIR itself, even inside a workspace that another daemon owns."
)
@click.option("--foreground", is_flag=True, help="Stay in the foreground and log to stderr.")
@click.option(
    "--idle", type=float, metavar="SECONDS", help="End after so long without a client. Default: never."
)
@click.option("--ready-fd", type=int, hidden=True, help="Say `ready`, `busy` or `error …` here.")
@click.version_option(editd.__version__, prog_name="editd")
def main(workspace: str, nested: bool, foreground: bool, idle: float | None, ready_fd: int | None) -> None:
    """Own a workspace: apply edits that come over its socket as durable, undoable transactions.

    Without --foreground the daemon goes to the background and the socket's path is printed.
    Exit status: 0 ended as told, 1 refused, 3 another daemon has the workspace.

    \b
    Examples:
      editd --foreground -C ~/src/project
      editctl start                        # what most people want
    """
    if not foreground and ready_fd is None:
        sys.exit(_in_background(workspace, idle, nested=nested))
    say = _Teller(ready_fd)
    try:
        notifier = SystemdNotifier.of(os.environ)
        if notifier.is_there:
            faulthandler.enable()  # a watchdog's SIGABRT leaves in the journal where each thread stood
        places = WorkspacePaths.of(workspace, nested=nested)
        # One after the other: the mode is given to the last folder alone.
        os.makedirs(os.path.dirname(places.state), 0o700, exist_ok=True)
        os.makedirs(places.state, 0o700, exist_ok=True)
        if nested:
            places.allow_nesting()
        os.chdir("/")  # no workspace is kept from being unmounted, and nothing is imported from it
        set_up_log(None if foreground else os.path.join(places.state, "log"))
        config = read_config(places.name).config
        daemon = Daemon(places, config, idle_seconds=idle, notifier=notifier)
        sys.setswitchinterval(SWITCH_SECONDS)
        asyncio.run(daemon.run(lambda: say.say("ready")))
    except AlreadyRunning as running:
        say.say("busy")
        click.echo(f"editd: another daemon has {running}.", err=True)
        sys.exit(3)
    except Refused as refusal:
        say.say(f"error {refusal.text()}")
        click.echo(f"editd: {refusal.message}\nhint: {refusal.hint}", err=True)
        sys.exit(1)
    except OSError as error:
        say.say(f"error {error}")
        click.echo(f"editd: {error}", err=True)
        sys.exit(1)


class _Teller:
    """Tells who started the daemon, once, how that went."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    def say(self, what: str) -> None:
        if self._descriptor is not None:
            os.write(self._descriptor, what.replace("\n", " ").encode() + b"\n")
            os.close(self._descriptor)
            self._descriptor = None


def _in_background(workspace: str, idle: float | None, *, nested: bool) -> int:
    """Start the daemon in a session of its own, and wait until it answers."""
    reading, writing = os.pipe()
    argv = [sys.executable, "-P", "-m", "editd", "-C", workspace, "--ready-fd", str(writing)]
    if nested:
        argv.append("--nested")
    if idle is not None:
        argv += ["--idle", str(idle)]
    nothing = subprocess.DEVNULL
    subprocess.Popen(
        argv, start_new_session=True, pass_fds=[writing], stdin=nothing, stdout=nothing, stderr=nothing
    )
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as pipe:
        said = pipe.readline().strip()
    if said == "ready":
        click.echo(WorkspacePaths.of(workspace, nested=nested).socket)
        return 0
    if said == "busy":
        click.echo(f"editd: another daemon has {workspace}.", err=True)
        return 3
    click.echo(f"editd: {said.removeprefix('error ') or 'the daemon did not start; see its log.'}", err=True)
    return 1
