"""The scripts `editctl` and `editd-hook` as pip installs them, and the resident process of a place."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from editd_client.resident.channel import peer_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.workplace import Workplace

WAIT_SECONDS = 30.0
REASONS, ANSWER = "EDITD_TEST_REASONS", "EDITD_TEST_ANSWER_SECONDS"
SCRIPT = f"""#!{sys.executable}
import os, sys
from editd_client import caller
from editd_client.resident import entry

entry.ANSWER_SECONDS_MAX = entry.HOOK_ANSWER_SECONDS_MAX = float(os.environ.get("{ANSWER}", {WAIT_SECONDS}))

def note(reason):
    caller.reason = reason
    with open(os.environ["{REASONS}"], "a") as file:
        file.write(reason + "\\n")

caller.note_reason = note
entry.{{name}}()
"""


class Resident:
    """The commands of a place. Each call that the helper does not serve notes its reason in a file."""

    def __init__(self, place: Workplace) -> None:
        self.place = place
        self.folder = place.folder / "scripts"
        self.folder.mkdir()
        self._reasons = self.folder / "reasons"
        place.variables[REASONS] = str(self._reasons)
        for program, name in (("editctl", "editctl"), ("editd-hook", "hook")):
            script = self.folder / program
            script.write_text(SCRIPT.format(name=name))
            script.chmod(0o755)

    @property
    def editctl(self) -> str:
        return str(self.folder / "editctl")

    @property
    def hook(self) -> str:
        return str(self.folder / "editd-hook")

    def run(
        self, *words: str, stdin: str = "", folder: str = "", way: str = "yes", **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run `editctl` to its end; with `way` "no", in a process of its own."""
        return subprocess.run(
            [self.editctl, *words], input=stdin, text=True, capture_output=True, timeout=WAIT_SECONDS,
            cwd=self.place.root / folder, env=self.environment(EDITD_RESIDENT=way, **variables), check=False,
            errors="surrogateescape",
        )  # fmt: skip

    def environment(self, **variables: str) -> dict[str, str]:
        return {**self.place.environment, **variables}

    def reasons(self) -> list[str]:
        """Return the reasons since the last look of the calls that ran in processes of their own."""
        try:
            lines = self._reasons.read_text().splitlines()
            self._reasons.unlink()
        except FileNotFoundError:
            return []
        return lines

    def warm(self) -> int:
        """Have a helper listen, and return its process."""
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            self.run("status")
            if not self.reasons():
                break
            assert time.monotonic() < deadline, "no helper listens"
        (helper,) = self.helpers()
        return helper

    def sockets(self) -> list[Path]:
        folder = self.place.runtime / "editd"
        return sorted(path for path in folder.glob("resident-*") if path.suffix != ".lock")

    def helpers(self) -> list[int]:
        """Return the processes that listen."""
        found = []
        for path in self.sockets():
            with (
                socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stream,
                contextlib.suppress(ConnectionRefusedError, FileNotFoundError),
            ):
                stream.connect(str(path))
                found.append(peer_of(stream)[0])
        return found

    def end(self) -> None:
        for helper in self.helpers():
            if helper != os.getpid():
                end(helper)


def end(process: int) -> None:
    """Kill a process and wait for its end."""
    with contextlib.suppress(ProcessLookupError):
        ended = os.pidfd_open(process)
        try:
            os.kill(process, signal.SIGKILL)
            assert select.select([ended], [], [], WAIT_SECONDS)[0]
        finally:
            os.close(ended)


def children_of(process: int) -> list[int]:
    """Return the running children of a process."""
    with open(f"/proc/{process}/task/{process}/children", encoding="ascii") as file:
        return [child for child in map(int, file.read().split()) if state_letter(child) not in ("Z", "")]


def state_letter(process: int) -> str:
    """Return the letter of proc_pid_stat(5) for the state of a process; "" if it has ended."""
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8") as file:
            return file.read().rpartition(") ")[2][:1]
    except OSError:
        return ""


def until(condition: object) -> None:
    """Wait until a condition holds: a fact about another process, which nothing announces."""
    assert callable(condition)
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "never"
        time.sleep(0.01)


@contextlib.contextmanager
def resident_in(place: Workplace) -> Iterator[Resident]:
    resident = Resident(place)
    try:
        yield resident
    finally:
        resident.end()
