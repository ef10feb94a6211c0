"""Measures `editctl mcp` up to the answers of `initialize`, of `tools/list` and of the first call, in ms.

The CPU time is the server's alone, from its start to its end after the call.

python tests/bench/mcp_start.py [RUNS] [WORD OF editctl mcp …]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from statistics import median

ASKED = (
    {
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "bench", "version": "1"},
        },
    },
    {"method": "notifications/initialized"},
    {"id": 2, "method": "tools/list"},
    {"id": 3, "method": "tools/call", "params": {"name": "status", "arguments": {}}},
)
ROWS = ("initialize", "tools/list", "first call", "CPU time")
EDITCTL = os.path.join(os.path.dirname(sys.executable), "editctl")


def one_start(words: list[str], folder: str) -> list[float]:
    """Return the milliseconds from the start of the process to each answer, and those of its CPU time."""
    began = time.perf_counter()
    with subprocess.Popen(
        [EDITCTL, "mcp", "--workspace", folder, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        times = []
        for message in ASKED:
            server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
            server.stdin.flush()
            if "id" in message:
                assert "result" in json.loads(server.stdout.readline())
                times.append((time.perf_counter() - began) * 1000)
        server.stdin.close()
        _, _, usage = os.wait4(server.pid, 0)
        server.returncode = 0
    return [*times, (usage.ru_utime + usage.ru_stime) * 1000]


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"HOME": folder, "XDG_RUNTIME_DIR": folder, "XDG_STATE_HOME": f"{folder}/state"}
        os.mkdir(f"{folder}/workspace")
        subprocess.run([EDITCTL, "-C", f"{folder}/workspace", "start"], check=True)
        try:
            one_start(sys.argv[2:], f"{folder}/workspace")  # writes the bytecode
            times = [one_start(sys.argv[2:], f"{folder}/workspace") for _ in range(runs)]
        finally:
            subprocess.run([EDITCTL, "-C", f"{folder}/workspace", "stop"], check=True)
    print(f"load {os.getloadavg()[0]:.1f}")
    for name, column in zip(ROWS, zip(*times, strict=True), strict=True):
        print(f"{name:12} median {median(column):4.0f} ms, {min(column):.0f} to {max(column):.0f}")


if __name__ == "__main__":
    main()
