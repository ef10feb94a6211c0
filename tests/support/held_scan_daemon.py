"""A daemon whose first scan begins when another program opens the FIFO at GATE for writing.

`python held_scan_daemon.py GATE PYTHON -m editd ARGUMENT...`, as a launcher.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from editd.cli import main
from editd.server.scanner import Scanner

GATE = Path(sys.argv[1])
_baseline = Scanner.baseline


async def baseline(scanner: Scanner, *arguments: Any) -> dict[str, Any]:
    await asyncio.to_thread(GATE.read_bytes)
    return await _baseline(scanner, *arguments)


Scanner.baseline = baseline  # type: ignore[method-assign, assignment]
sys.argv[1:] = sys.argv[5:]
main()
