"""A daemon on a disk that stalls: while there is a file SLOW, a sync takes as many seconds as it says.

`python slow_disk_daemon.py SLOW PYTHON -m editd ARGUMENT...`, as a launcher. It drains for half a second.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from editd.cli import main
from editd.server import daemon

if TYPE_CHECKING:
    from collections.abc import Sequence

SLOW = Path(sys.argv[1])
_fdatasync, _pwritev = os.fdatasync, os.pwritev


def stall() -> None:
    if SLOW.exists():
        time.sleep(float(SLOW.read_text()))


def fdatasync(descriptor: int) -> None:
    stall()
    _fdatasync(descriptor)


def pwritev(descriptor: int, parts: Sequence[bytes], offset: int, flags: int = 0) -> int:
    stall()
    return _pwritev(descriptor, parts, offset, flags)


os.fdatasync, os.pwritev = fdatasync, pwritev  # type: ignore[assignment]
daemon.DRAIN_SECONDS = 0.5
sys.argv[1:] = sys.argv[5:]
main()
