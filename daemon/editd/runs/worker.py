"""A worker process of the daemon that runs the user's commands for one request, and then ends.

It watches its own standard input until its answer is complete. If that closes, the daemon is dead or has
given up. Then the commands are killed with all processes that they have started, in any session.
"""

from __future__ import annotations

import os
import resource
import sys
from typing import TYPE_CHECKING

from editd.runs.command import Abandoned
from editd.runs.limits import WRITTEN_BYTES_MAX
from editd.system.frames import read_frame, write_frame
from editd.system.process_tree import kill_descendants, set_subreaper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from editd.system.frames import Frame


def serve(
    count: Callable[[Frame], int],
    answers: Callable[[Frame, list[Frame]], Iterable[Frame]],
    remove: Callable[[str], None],
) -> None:
    """Serve one request: a frame, and `count` more of them. End at once if stdin closes.

    The frames of `answers` go to stdout. At the end no process is left, and `remove` gets the request's
    scratch folder.
    """
    _prepare()
    request = read_frame(sys.stdin.buffer)
    if request is None:
        return
    frames: list[Frame] = []
    for _ in range(count(request)):
        frame = read_frame(sys.stdin.buffer)
        if frame is None:
            return
        frames.append(frame)
    try:
        for answer in answers(request, frames):
            write_frame(sys.stdout.buffer, answer)
    except (BrokenPipeError, Abandoned):
        os.dup2(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), sys.stdout.fileno())
    finally:
        kill_descendants()
        remove(request["folder"])


def _prepare() -> None:
    """Prepare this process: it becomes the parent of all orphans below it, and limits what they write."""
    set_subreaper()
    os.umask(0o077)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # no core dumps of killed commands
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    written = WRITTEN_BYTES_MAX if most == resource.RLIM_INFINITY else min(most, WRITTEN_BYTES_MAX)
    resource.setrlimit(resource.RLIMIT_FSIZE, (written, most))
