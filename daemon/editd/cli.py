"""`editd`: the daemon's own command. `editctl` starts it when needed; people rarely do."""

from __future__ import annotations

import asyncio
import faulthandler
import importlib
import logging
import logging.handlers
import os
import subprocess
import sys
import time
from functools import partial
from typing import TYPE_CHECKING

import click

import editd
from editd.config.environment import drop_others
from editd.config.load import read_config
from editd.errors import Refused
from editd.server.daemon import Daemon
from editd.server.ownership import AlreadyRunning, PartOfOuter, WorkspacePaths
from editd.server.systemd import SystemdNotifier
from editd.system.native import SYSTEMS, VARIABLE
from editd.words import Face, sentence

if TYPE_CHECKING:
    from collections.abc import Callable

# Python's own interval is ten times as long. An edit releases Python's lock at each of its forty system
# calls. Under a flood of outside changes it waits this long each time for the thread that reads them.
SWITCH_SECONDS = 0.0005
SEGMENT_BYTES_MIN = 4096


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "-C", "--workspace", default=".", metavar="DIR", help="A folder of the workspace (default: this one)."
)
@click.option(
    "--nested", is_flag=True, help="Own DIR itself, even inside a workspace that another daemon owns."
)
@click.option(
    "--exact", is_flag=True, hidden=True, help="Own DIR itself, if no workspace around it covers it."
)
@click.option("--foreground", is_flag=True, help="Stay in the foreground and log to stderr.")
@click.option(
    "--idle", type=float, metavar="SECONDS", help="Seconds without a client before the end (default: never)."
)
@click.option(
    "--ready-fd", type=int, hidden=True, help="Descriptor for `ready`, `busy`, `part …` or `error …`."
)
@click.option(
    "--segment-bytes", type=click.IntRange(min=SEGMENT_BYTES_MIN), hidden=True,
    help="Size of the journal's new segments. A test with small ones writes less.",
)  # fmt: skip
@click.version_option(editd.__version__, prog_name="editd")
def main(
    workspace: str,
    nested: bool,
    exact: bool,
    foreground: bool,
    idle: float | None,
    ready_fd: int | None,
    segment_bytes: int | None,
) -> None:
    """Own a workspace: apply edits that come over its socket as durable, undoable transactions.

    Without --foreground the daemon goes to the background and prints the socket's path.
    Exit status: 0 after a clean end, 1 after an error, 3 if another daemon has the workspace.

    \b
    Examples:
      editd --foreground -C ~/src/project
      editctl start                        # the usual way
    """
    drop_others(os.environ)
    wish = os.environ.get(VARIABLE, "linux")
    if wish not in SYSTEMS:
        raise click.UsageError(f"{VARIABLE} is {wish!r}. It may be {' or '.join(SYSTEMS)}.")
    if not foreground and ready_fd is None:
        sys.exit(_in_background(workspace, idle, nested=nested))
    say = _Teller(ready_fd)
    try:
        places = WorkspacePaths.of(workspace, exact=nested or exact)
        daemon = partial(Daemon, idle_seconds=idle, segment_bytes=segment_bytes)
        _serve(places, daemon, say, nested=nested, foreground=foreground)
    except AlreadyRunning as running:
        say.say("busy")
        click.echo(f"editd: another daemon has {running}.", err=True)
        sys.exit(3)
    except Refused as refusal:
        say.say(f"{'part' if isinstance(refusal, PartOfOuter) else 'error'} {refusal.text()}")
        hint = sentence(refusal.advice, Face.COMMAND_LINE)
        click.echo(f"editd: {refusal.message}\nhint: {hint}", err=True)
        sys.exit(1)
    except OSError as error:
        say.say(f"error {error}")
        click.echo(f"editd: {error}", err=True)
        sys.exit(1)


def _serve(
    places: WorkspacePaths, make: Callable[..., Daemon], say: _Teller, *, nested: bool, foreground: bool
) -> None:
    """Own the workspace until the daemon's end. Raises AlreadyRunning, Refused, OSError."""
    notifier = SystemdNotifier.of(os.environ)
    if notifier.is_there:
        faulthandler.enable()  # a watchdog's SIGABRT leaves the stack of each thread in the journal
    # One after the other, because makedirs gives the mode to the last folder only.
    os.makedirs(os.path.dirname(places.state), 0o700, exist_ok=True)
    os.makedirs(places.state, 0o700, exist_ok=True)
    if nested:
        places.allow_nesting()
    os.chdir("/")  # keeps no workspace from being unmounted, and imports nothing from it
    set_up_log(None if foreground else os.path.join(places.state, "log"))
    config = read_config(places.name).config
    daemon = make(places, config, notifier=notifier)
    sys.setswitchinterval(SWITCH_SECONDS)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(daemon.run(lambda: say.say("ready")))


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's event loop if that is installed (`editd[uvloop]`); None for asyncio's."""
    try:
        factory: Callable[[], asyncio.AbstractEventLoop] = importlib.import_module("uvloop").new_event_loop
    except ImportError:
        return None
    return factory


class _Teller:
    """A message to the starter of the daemon, sent once: started, busy or failed."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    def say(self, line: str) -> None:
        if self._descriptor is not None:
            os.write(self._descriptor, line.replace("\n", " ").encode() + b"\n")
            os.close(self._descriptor)
            self._descriptor = None


def _in_background(workspace: str, idle: float | None, *, nested: bool) -> int:
    """Start the daemon in its own session, and wait until it answers."""
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
        answer = pipe.readline().strip()
    if answer == "ready":
        click.echo(WorkspacePaths.of(workspace, exact=nested).socket)
        return 0
    if answer == "busy":
        click.echo(f"editd: another daemon has {workspace}.", err=True)
        return 3
    problem = answer.removeprefix("error ") or "the daemon did not start. See its log."
    click.echo(f"editd: {problem}", err=True)
    return 1


# The log: a rotated file. A repeated message is written a few times, then counted.
#
# A client can make the daemon complain as often as it likes, and must not push everything else out of the
# log. Messages are alike if their text before formatting is the same.

ALIKE_MAX = 100  # in one period: a traceback of a child comes line by line
PERIOD_SECONDS = 60.0
LOG_BYTES = 1024 * 1024
LOG_FILES = 3


class RateLimitFilter(logging.Filter):
    """Lets `ALIKE_MAX` alike messages pass in each period; the next one has the number of those dropped."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._monotonic = monotonic
        self._said: dict[tuple[str, str], tuple[float, int]] = {}  # begin of its period, count since then

    def filter(self, record: logging.LogRecord) -> bool:
        alike = (record.name, str(record.msg))
        now = self._monotonic()
        began, count = self._said.get(alike, (now, 0))
        if now - began >= PERIOD_SECONDS:
            if count > ALIKE_MAX:
                record.msg = f"{record.msg} (and {count - ALIKE_MAX} more like it, not logged)"
            began, count = now, 0
        self._said[alike] = (began, count + 1)
        return count < ALIKE_MAX


def set_up_log(path: str | None) -> None:
    """Log to a file that is rotated, or to stderr."""
    handler: logging.Handler
    if path is None:
        handler = logging.StreamHandler()
    else:
        handler = logging.handlers.RotatingFileHandler(
            path, maxBytes=LOG_BYTES, backupCount=LOG_FILES, encoding="utf-8", errors="backslashreplace"
        )  # names need not be UTF-8
        os.chmod(path, 0o600)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    handler.addFilter(RateLimitFilter())
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.INFO)
