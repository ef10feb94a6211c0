"""An agent: `python -m shell_agent NAME SERVERS WORD…` starts that many MCP servers with these words.

Reads one JSON array a line on standard input, `[kind, what]`, and answers each with one line.
"""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from typing import Any


class Server:
    """One MCP server, spoken to in the era of the handshake."""

    def __init__(self, words: list[str], name: str) -> None:
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._last = 0
        about = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": name, "version": "1"},
        }
        self.ask("initialize", about)
        self._send({"method": "notifications/initialized"})
        self.ask("tools/list", {})
        self.ask("ping", {})

    def ask(self, method: str, params: dict[str, Any]) -> Any:
        assert self.process.stdout is not None
        self._last += 1
        self._send({"id": self._last, "method": method, "params": params})
        while (answer := json.loads(self.process.stdout.readline())).get("id") != self._last:
            continue
        return answer.get("result", answer)

    def _send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self.process.stdin.flush()

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(30)


def in_terminal(command: str) -> int:
    """Type a command into an interactive shell at a terminal of its own; return its exit status."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
    os.write(terminal, f"{command}; exit $?\n".encode())
    try:
        while os.read(terminal, 4096):
            continue
    except OSError:  # the shell is gone, and the terminal with it
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return -1


def main() -> None:
    name, servers, words = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    started = [Server(words, name) for _ in range(servers)]
    for line in sys.stdin:
        kind, what = json.loads(line)
        if kind == "call":
            answers = [server.ask("tools/call", what) for server in started]
            answer = answers[0]
        elif kind == "run":
            environment = {**os.environ, **what["variables"]}
            done = subprocess.run(
                ["bash", "-c", '"$@"; exit $?', "bash", *what["words"]],
                env=environment, capture_output=True, text=True, check=False,
            )  # fmt: skip
            answer = {"code": done.returncode, "stderr": done.stderr}
        elif kind == "terminal":
            answer = {"code": in_terminal(what)}
        else:
            for server in started:
                server.process.kill()
                server.process.wait()
            answer = {}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    for server in started:
        server.close()


if __name__ == "__main__":
    main()
