"""The process in which a `check` verifies the whole history, while packing goes on.

`python -m editd.store.verify_worker STATE_FOLDER`, framed messages on stdin and stdout (`system.frames`).
Each check starts one. It writes nothing but an index of its own beside the verified one. It ends with the
daemon, however long the check would have taken.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading

from editd.store.manifest import shared_lock
from editd.store.verify import MADE, verify_full
from editd.system.fast_exit import exit_fast
from editd.system.frames import read_frame, write_frame


def main() -> None:
    """Serve one request: `{through}` → `{problems, damaged}`, as `verify_full` has them."""
    request = read_frame(sys.stdin.buffer)
    if request is None:
        return
    folder = sys.argv[1]
    threading.Thread(target=_end_with_the_daemon, daemon=True).start()
    with shared_lock(os.path.join(folder, "store.git")):
        for name in os.listdir(folder):
            if name.startswith(MADE):  # left by an interrupted check
                shutil.rmtree(os.path.join(folder, name), ignore_errors=True)
        problems, is_damaged = verify_full(folder, request["through"])
    write_frame(sys.stdout.buffer, {"problems": problems, "damaged": is_damaged})


def _end_with_the_daemon() -> None:
    while os.read(sys.stdin.fileno(), 1):
        continue
    os._exit(0)  # the next check removes the temporary index


if __name__ == "__main__":
    main()
    exit_fast()
