"""A daemon whose clock is wrong by as many seconds as a file CLOCK says, at each moment.

`python wrong_clock_daemon.py CLOCK PYTHON -m editd ARGUMENT...`, as a launcher.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from editd.cli import main

CLOCK = Path(sys.argv[1])
_time_ns = time.time_ns


def time_ns() -> int:
    return _time_ns() + int(CLOCK.read_text()) * 1_000_000_000


time.time_ns = time_ns
sys.argv = ["editd", *sys.argv[5:]]
main()
