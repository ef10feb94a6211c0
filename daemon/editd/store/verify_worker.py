"""The process of a `check` that verifies the whole history, while packing goes on.

`python -m editd.store.verify_worker STATE_FOLDER`, framed messages on stdin and stdout (`system.frames`).
Each check starts one. It writes nothing. It ends with the daemon, however long the check would have taken.
"""

from __future__ import annotations

import os
import sys
import threading

from editd.store.git_repository import shared_lock
from editd.store.verify_history import verify_full
from editd.system.confinement import confine
from editd.system.fast_exit import exit_fast
from editd.system.frames import read_frame, write_frame


def main() -> None:
    """Serve one request: `{through}` → `{problems, damaged}`, as `verify_full` has them."""
    request = read_frame(sys.stdin.buffer)
    if request is None:
        return
    folder = sys.argv[1]
    confine([folder])
    threading.Thread(target=_end_with_the_daemon, daemon=True).start()
    with shared_lock(os.path.join(folder, "store.git")):
        problems, is_damaged = verify_full(folder, request["through"])
    write_frame(sys.stdout.buffer, {"problems": problems, "damaged": is_damaged})


def _end_with_the_daemon() -> None:
    while os.read(sys.stdin.fileno(), 1):
        continue
    os._exit(0)


if __name__ == "__main__":
    main()
    exit_fast()
