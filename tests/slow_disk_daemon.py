"""A daemon on a disk that stalls: while there is a file SLOW, a sync takes as many seconds as it says.

`python slow_disk_daemon.py SLOW PYTHON -m editd ARGUMENT...`, as a launcher. It drains for half a second.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from editd.cli import main
from editd.server import daemon

SLOW = Path(sys.argv[1])
_fdatasync = os.fdatasync


def fdatasync(descriptor: int) -> None:
    if SLOW.exists():
        time.sleep(float(SLOW.read_text()))
    _fdatasync(descriptor)


os.fdatasync = fdatasync  # type: ignore[assignment]
daemon.DRAIN_SECONDS = 0.5
sys.argv[1:] = sys.argv[5:]
main()
