"""A daemon with faults of its own: who names `fault` finds one, and what it does by itself fails at first.

Its index gives up early, and so does it where publishing takes long.

`python faulty_daemon.py PYTHON -m editd ARGUMENT...`, as a launcher.
"""

from __future__ import annotations

import errno
import os
import sys
from typing import TYPE_CHECKING, Any

from editd.cli import main
from editd.engine.engine import Engine
from editd.engine.recorder import Recorder
from editd.server import convert
from editd.server.methods import publish
from editd.server.regex_pool import RegexPool
from editd.server.retention import Retention
from editd.server.watcher import WorkspaceWatcher
from editd.store import index

if TYPE_CHECKING:
    from editd.values.content import FileState
    from editd.values.path import WorkspacePath
    from editd.values.transaction import Outcome
    from editd.wire.messages import ApplyResult

_outcome, _read = convert.outcome, Engine.read


def outcome(told: Outcome, **more: Any) -> ApplyResult:
    if any(change.path.text == "fault" for change in told.changes):
        raise ZeroDivisionError
    return _outcome(told, **more)


def read(engine: Engine, path: WorkspacePath, *words: Any) -> tuple[WorkspacePath, FileState]:
    if path.text == "fault":
        raise ZeroDivisionError
    return _read(engine, path, *words)


def failing_once(kind: type, name: str, error: Exception) -> None:
    whole = getattr(kind, name)
    errors = [error]

    def fail(*given: object) -> object:
        if errors:
            raise errors.pop()
        return whole(*given)

    setattr(kind, name, fail)


convert.outcome = outcome  # type: ignore[assignment]
Engine.read = read  # type: ignore[method-assign, assignment]
failing_once(RegexPool, "find", ZeroDivisionError())
failing_once(Recorder, "packing_due", ZeroDivisionError())
failing_once(Retention, "_is_due", ZeroDivisionError())
failing_once(WorkspaceWatcher, "rescan", OSError(errno.EMFILE, os.strerror(errno.EMFILE)))
index.WAITING_MAX, index.BACKLOG_MAX = 500, 600
publish.PUBLISH_SECONDS_MAX = 3.0
sys.argv[1:] = sys.argv[4:]
main()
