"""MCP clients that speak to `editctl mcp` by lines: in this process, and as an agent with a shell."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from typing import IO, TYPE_CHECKING, Any

from support.fork_server import server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.fork_server import Forked
    from support.workplace import Workplace

EDITCTL = [sys.executable, "-P", "-m", "editd_client"]
SED = ("exec", "--", "sed", "-i", "s/one/1/", "a.txt")


class RawClient:
    """A client that sends lines and reads lines, and knows nothing of MCP.

    Its server is a child of the fork server, or of this process if it is exec'ed.
    """

    def __init__(
        self,
        place: Workplace,
        *words: str,
        folder: Path | None = None,
        is_forked: bool = True,
        **variables: str,
    ) -> None:
        editctl = [str(place.provide_editctl() / "editctl")] if is_forked else EDITCTL
        self.process = subprocess.Popen(
            [*editctl, "mcp", *words], env=place.environment | variables, cwd=folder or place.root,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def send(self, *messages: dict[str, Any]) -> None:
        for message in messages:
            self.send_line(json.dumps({"jsonrpc": "2.0", **message}).encode())

    def send_line(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        message: dict[str, Any] = json.loads(self.process.stdout.readline())
        assert message.pop("jsonrpc") == "2.0"
        return message

    def ask(self, number: int | str, method: str, **params: Any) -> dict[str, Any]:
        """The message that answers a request."""
        self.send({"id": number, "method": method, "params": params})
        message = self.receive()
        assert message.pop("id") == number
        return message

    def end(self) -> bytes:
        """Close the input; return what the server has still written, and check that it ends well."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        rest = self.process.stdout.read()
        assert self.process.wait(30) == 0
        return rest


@contextlib.contextmanager
def raw_client(
    place: Workplace, *words: str, folder: Path | None = None, is_forked: bool = True, **variables: str
) -> Iterator[RawClient]:
    made = RawClient(place, *words, folder=folder, is_forked=is_forked, **variables)
    try:
        yield made
    finally:
        made.process.kill()
        with made.process:  # closes its streams
            made.process.wait()


def hello(name: str = "raw", version: str = "2025-06-18", **capabilities: Any) -> dict[str, Any]:
    """The parameters of `initialize`."""
    info = {"name": name, "version": "1"}
    return {"protocolVersion": version, "capabilities": capabilities, "clientInfo": info}


class ShellAgent:
    """An agent in a process of its own: an MCP client that runs commands, as told line by line.

    Its process forks its servers. With a `wrapper`, they are exec'ed, as is each command in its shell.
    """

    def __init__(self, place: Workplace, *wrapper: str, name: str = "coder", servers: int = 1) -> None:
        words = [*wrapper, *EDITCTL, "mcp"]
        requests, self._requests = _pipe()
        self._answers, answers = _pipe()
        self._process: Forked = server().start(
            ["-m", "support.shell_agent", name, str(servers), *words], place.environment,
            {0: requests.fileno(), 1: answers.fileno(), 2: 2}, place.root,
        )  # fmt: skip
        requests.close()
        answers.close()

    def ask(self, kind: str, what: Any) -> Any:
        self._requests.write(json.dumps([kind, what]).encode() + b"\n")
        self._requests.flush()
        return json.loads(self._answers.readline())

    def edit(self, path: str, content: str) -> None:
        arguments = {"edits": [{"op": "write", "path": path, "content": content}]}
        answer = self.ask("call", {"name": "apply_edits", "arguments": arguments})
        assert not answer.get("isError"), answer

    def run(self, *words: str, code: int = 0, **variables: str) -> str:
        """The standard error of `editctl` with these words, in a shell of the agent's."""
        answer = self.ask("run", {"words": [*EDITCTL, *words], "variables": variables})
        assert answer["code"] == code, answer
        said: str = answer["stderr"]
        return said

    def close(self) -> None:
        self._requests.close()
        assert self._process.wait(30) == 0
        self._answers.close()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._requests.close()
        self._answers.close()


def _pipe() -> tuple[IO[bytes], IO[bytes]]:
    reading, writing = os.pipe()
    return os.fdopen(reading, "rb"), os.fdopen(writing, "wb")


def newest(place: Workplace) -> tuple[str, str, str | None]:
    with place.client() as client:
        made = client.log(limit=1).transactions[0]
    return made.kind, made.actor, made.session
