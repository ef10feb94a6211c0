"""A daemon that keeps what only the garbage collector would find, and counts it when it is asked.

`python garbage_daemon.py OUT PYTHON -m editd ARGUMENT...`, as a launcher. SIGUSR2 has it write how many of
which of its own types it has found since the last time, as JSON, into the file OUT, in one step.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
from collections import Counter

from editd.cli import main

OUT = sys.argv[1]


def tell(*_: object) -> None:
    gc.collect()
    names = [f"{type(found).__module__}.{type(found).__qualname__}" for found in gc.garbage]
    gc.garbage.clear()
    with open(f"{OUT}.new", "w") as file:
        json.dump(Counter(name for name in names if name.startswith("editd.")), file)
    os.rename(f"{OUT}.new", OUT)


gc.set_debug(gc.DEBUG_SAVEALL)
signal.signal(signal.SIGUSR2, tell)
sys.argv[1:] = sys.argv[5:]
main()
