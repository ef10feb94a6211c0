"""The workspace of a tour: its files, its printed text and its commands.

Its files, history, daemon and socket are in one temporary folder, which `remove` deletes. Commands run
exactly as they are printed, by the real `editctl`.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from typing import TYPE_CHECKING

import click

from editd_client.cli import output
from editd_client.client import Client
from editd_client.locate import Workspace

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMAND_SECONDS_MAX = 30.0
WIDTH_MAX = 88  # characters of a line of prose


class TourFailed(Exception):
    """A claim of the tour is wrong."""


class TourWorkspace:
    """A throw-away workspace, with methods to print text and to run commands in it."""

    def __init__(self, name: str, *, pause: bool) -> None:
        """Make the workspace `name`. With `pause`, wait for a key before each step."""
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(
                number, signal.default_int_handler
            )  # a KeyboardInterrupt, so that the tour cleans up
        self.temporary = os.path.realpath(tempfile.mkdtemp(prefix="editd-tour-"))
        self.root = os.path.join(self.temporary, name)
        self.others: list[str] = []  # folders of more workspaces, each with a daemon
        self._pause = pause
        self._steps = 0
        self._is_running = False
        self._has_run = False  # a command has run since the last text
        self._runtime = os.path.join(self.temporary, "run")
        os.makedirs(self.root)
        os.mkdir(self._runtime, 0o700)
        self._environment = {
            **{name: value for name, value in os.environ.items() if name != "EDITD_SOCKET"},
            "EDITD_WORKSPACE": self.root,
            "EDITD_PAGER": "cat",
            "XDG_STATE_HOME": os.path.join(self.temporary, "state"),
            "XDG_RUNTIME_DIR": self._runtime,
        }
        if path := os.environ.get("PYTHONPATH"):  # relative entries would name another folder there
            absolute = (os.path.abspath(entry) for entry in path.split(os.pathsep) if entry)
            self._environment["PYTHONPATH"] = os.pathsep.join(absolute)

    @property
    def client(self) -> Client:
        """Return a client of the workspace's daemon."""
        return self.client_of(Workspace(self.root, "named"))

    def client_of(self, workspace: Workspace) -> Client:
        """Return a client of the daemon of this or another workspace of the tour."""
        return Client(os.path.join(self._runtime, "editd", f"{workspace.id}.sock"))

    def step(self, title: str, text: str) -> None:
        """Print the title and the text of the next step."""
        self._steps += 1
        if self._pause:
            click.pause("\n(Enter goes on)")
        output.echo(output.paint(f"\n{self._steps}. {title}", None, bold=True))
        self.tell(text)

    def tell(self, text: str) -> None:
        """Print a text, at a readable width."""
        self._has_run = False
        width = min(WIDTH_MAX, shutil.get_terminal_size().columns)
        output.echo(textwrap.fill(text, width, initial_indent="   ", subsequent_indent="   "))

    def editctl(self, *words: str, expected: int = 0) -> None:
        """Print a command and run it, as a shell would."""
        self._is_running = self._has_run = True
        self._print(["editctl", *words])
        code = self._run(words).returncode
        self._is_running = words[0] != "stop"
        if code != expected:
            raise TourFailed(f"that command's exit code should be {expected}, and is {code}")

    def cat(self, path: str) -> None:
        """Print a text file as a shell would."""
        self._print(["cat", path])
        output.echo(self.text(path).rstrip("\n"))

    def append(self, line: str, path: str) -> None:
        """Append a line to a file without editd, as an editor or a script would."""
        output.echo(output.paint(f"\n   $ echo {shlex.quote(line)} >> {shlex.quote(path)}", "green"))
        with open(os.path.join(self.root, path), "a", encoding="utf-8") as file:
            file.write(line + "\n")

    def claim(self, sentence: str, holds: bool) -> None:
        """Print the claim, or end the tour if it does not hold."""
        if not holds:
            raise TourFailed(f"this claim does not hold: {sentence}")
        if self._has_run:
            output.echo("")
        self._has_run = False
        output.echo(output.paint("   ✓ ", "green") + sentence)

    def text(self, path: str) -> str:
        """Return the content of a file of the workspace."""
        with open(os.path.join(self.root, path), encoding="utf-8", newline="") as file:
            return file.read()

    def remove(self) -> None:
        """Stop the daemon and delete all files, in any state."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        try:
            # `start` first: it waits for a daemon that is still starting, so that it can be stopped.
            for folder in (self.root, *self.others) if self._is_running else ():
                for word in ("start", "stop"):
                    self._run(["-C", folder, word], stdout=subprocess.DEVNULL)
        finally:
            shutil.rmtree(self.temporary, ignore_errors=True)

    def _print(self, command: Sequence[str]) -> None:
        output.echo(output.paint(f"\n   $ {shlex.join(command)}", "green"))

    def _run(self, words: Sequence[str], stdout: int | None = None) -> subprocess.CompletedProcess[bytes]:
        output.flush()
        return subprocess.run(
            [sys.executable, "-P", "-m", "editd_client", *words],
            cwd=self.root, env=self._environment, timeout=COMMAND_SECONDS_MAX, check=False,
            stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.STDOUT,
        )  # fmt: skip
