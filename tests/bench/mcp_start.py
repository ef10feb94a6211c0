"""Measures the start of `editctl mcp`, up to the answer of `initialize` and of `tools/list`, in ms.

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
)


def one_start(words: list[str], folder: str) -> tuple[float, float]:
    """The milliseconds from the start of the process to both answers; it starts no daemon."""
    began = time.perf_counter()
    with subprocess.Popen(
        [os.path.join(os.path.dirname(sys.executable), "editctl"), "mcp", "--workspace", folder, *words],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as server:  # fmt: skip
        assert server.stdin is not None
        assert server.stdout is not None
        for message in ASKED:
            server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        server.stdin.flush()
        times = []
        for _ in range(2):
            assert "result" in json.loads(server.stdout.readline())
            times.append((time.perf_counter() - began) * 1000)
        server.stdin.close()
    return times[0], times[1]


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    with tempfile.TemporaryDirectory() as folder:
        one_start(sys.argv[2:], folder)  # writes the bytecode
        times = [one_start(sys.argv[2:], folder) for _ in range(runs)]
    for name, column in zip(("initialize", "tools/list"), zip(*times, strict=True), strict=True):
        print(f"{name:12} median {median(column):4.0f} ms, {min(column):.0f} to {max(column):.0f}")


if __name__ == "__main__":
    main()
