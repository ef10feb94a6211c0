"""The lines of the daemon's own log that hold a secret: removed, while the daemon goes on logging."""

from __future__ import annotations

import contextlib
import logging
import os
from typing import TYPE_CHECKING

from editd.system.files import replace_file_durably

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LOG = "log"  # the older files are `log.1`, `log.2` and so on


def drop_lines(folder: str, is_dropped: Callable[[bytes], bool]) -> int:
    """Remove the lines of the logs in the state folder that `is_dropped` accepts; return their number.

    Raises OSError.
    """
    dropped = 0
    names = [name for name in os.listdir(folder) if name == LOG or name.startswith(f"{LOG}.")]
    with _pause(os.path.join(folder, LOG)):
        for name in names:
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                lines = file.readlines()
            kept = [line for line in lines if not is_dropped(line)]
            if len(kept) < len(lines):
                replace_file_durably(path, b"".join(kept))
                dropped += len(lines) - len(kept)
    return dropped


@contextlib.contextmanager
def _pause(path: str) -> Iterator[None]:
    """Hold the handlers that write to this file. The next message opens the new file."""
    handlers = [
        handler
        for handler in logging.getLogger().handlers
        if isinstance(handler, logging.FileHandler) and handler.baseFilename == os.path.abspath(path)
    ]
    with contextlib.ExitStack() as held:
        for handler in handlers:
            handler.acquire()
            held.callback(handler.release)
            handler.close()
        yield
