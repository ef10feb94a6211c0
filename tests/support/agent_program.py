"""An agent whose tools are programs below it, each with a connection of its own, as an agent's shell has."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.workplace import Workplace

SHELL = """
import json, subprocess, sys
for line in sys.stdin:
    line = "".join(json.dumps(request) + chr(10) for request in json.loads(line))
    asked = [sys.executable, sys.argv[1], sys.argv[2]]
    done = subprocess.run(asked, input=line, text=True, stdout=subprocess.PIPE)
    print(done.stdout, end="", flush=True)
"""
WALK = Path(__file__).parent / "permission_walk.py"


class ProgramOfAgent:
    """An agent that asks each request by a new process below it, as its shell does."""

    def __init__(self, place: Workplace, process: subprocess.Popen[str]) -> None:
        self.pid = process.pid
        self._process = process
        self._place = place

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        return self._answers([[method, params]])[0]

    def ask_in(self, session: str, token: str | None, method: str, **params: Any) -> dict[str, Any]:
        """Ask on a connection that acts in a session."""
        hello = {"session": session} | ({} if token is None else {"token": token})
        return self._answers([["hello", hello], [method, params]])[1]

    def _answers(self, requests: list[list[Any]]) -> list[dict[str, Any]]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(requests) + "\n")
        self._process.stdin.flush()
        lines = [self._process.stdout.readline() for _ in requests]
        return [json.loads(line)[1] for line in lines]


@contextmanager
def agent_program(place: Workplace, socket: str | None = None) -> Iterator[ProgramOfAgent]:
    with subprocess.Popen(
        [sys.executable, "-c", SHELL, str(WALK), socket or place.socket],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        yield ProgramOfAgent(place, process)
        process.terminate()
