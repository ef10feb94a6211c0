"""The commands that reviewers try on proposals from the page, each in a process of `editctl proposal try`.

The daemon keeps the result of a command. Here are only the running commands, and the output of a command that
could not run. All of them end with the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from editd_client.errors import refusal
from editd_client.trial import PIECE_BYTES, OutputEnd, try_argv

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

RUNNING_MAX = 4  # commands at a time, of all proposals
KEPT_MAX = 100  # commands whose end is kept; the oldest goes
STOP_SECONDS = 3.0  # for an interrupted command to end


@dataclass(slots=True)
class PageTrial:
    """A command on a proposal. `exit` is None while it runs."""

    command: str
    began: datetime = field(default_factory=lambda: datetime.now(UTC))
    exit: int | None = None
    output: str = ""  # its end


class Trials:
    """The newest command of each proposal. `on_change` is called when one has begun or ended."""

    def __init__(self, root: str, on_change: Callable[[], None]) -> None:
        self._root = root
        self._on_change = on_change
        self._newest: dict[int, PageTrial] = {}
        self._running: dict[int, tuple[asyncio.subprocess.Process, asyncio.Task[None]]] = {}

    def of(self, proposal: int) -> PageTrial | None:
        """Return the newest command on a proposal."""
        return self._newest.get(proposal)

    async def start(self, proposal: int, command: Sequence[str], hunks: Sequence[int]) -> None:
        """Run a command on a proposal, or on some of its hunks by their numbers.

        Raises EditdError (`overloaded`) if one runs on it already, or too many on others.
        """
        if proposal in self._running:
            raise refusal("overloaded", f"A command runs on P{proposal} already.", hint="Stop it first.")
        if len(self._running) >= RUNNING_MAX:
            raise refusal("overloaded", f"{RUNNING_MAX} commands run already.", hint="Wait for one to end.")
        process = await asyncio.create_subprocess_exec(
            *try_argv(self._root, proposal, hunks, command),
            cwd=self._root, start_new_session=True, stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        self._newest.pop(proposal, None)
        self._newest[proposal] = trial = PageTrial(shlex.join(command))
        while len(self._newest) > KEPT_MAX:
            del self._newest[next(iter(self._newest))]
        self._running[proposal] = process, asyncio.create_task(self._follow(proposal, process, trial))
        self._on_change()

    def stop(self, proposal: int) -> None:
        """Interrupt the command on a proposal, if one runs. Kill it if it does not end."""
        if proposal in self._running:
            process, _ = self._running[proposal]
            _interrupt(process)
            asyncio.get_running_loop().call_later(STOP_SECONDS, _kill, process)

    async def close(self) -> None:
        """Stop all commands."""
        tasks = [task for _, task in self._running.values()]
        for proposal in list(self._running):
            self.stop(proposal)
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self, proposal: int, process: asyncio.subprocess.Process, trial: PageTrial) -> None:
        """Keep the end of the output, and note the exit status."""
        assert process.stdout is not None
        output = OutputEnd()
        while piece := await process.stdout.read(PIECE_BYTES):
            output.add(piece)
        status = await process.wait()
        trial.output = output.text
        trial.exit = status
        del self._running[proposal]
        self._on_change()


def _interrupt(process: asyncio.subprocess.Process) -> None:
    """Interrupt a process and its children, unless it has ended."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)


def _kill(process: asyncio.subprocess.Process) -> None:
    """Kill a process alone, unless it has ended: its worker then ends the command with all its processes."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
