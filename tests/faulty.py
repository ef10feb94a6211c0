"""A daemon with a fault of its own: whoever names `fault` finds it.

`python faulty.py PYTHON -m editd ARGUMENT...`, as a launcher.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from editd.cli import main
from editd.engine.engine import Engine
from editd.server import translate

if TYPE_CHECKING:
    from editd.engine.engine import Reading
    from editd.engine.requests import Outcome
    from editd.values.path import WorkspacePath
    from editd.wire.messages import ApplyResult

_outcome, _read = translate.outcome, Engine.read


def outcome(told: Outcome, **more: Any) -> ApplyResult:
    if any(change.path.text == "fault" for change in told.changes):
        raise ZeroDivisionError
    return _outcome(told, **more)


def read(engine: Engine, path: WorkspacePath, *words: Any) -> Reading:
    if path.text == "fault":
        raise ZeroDivisionError
    return _read(engine, path, *words)


translate.outcome = outcome  # type: ignore[assignment]
Engine.read = read  # type: ignore[method-assign, assignment]
sys.argv[1:] = sys.argv[4:]
main()
