"""What each reader has seen: the version of a path that it last read or wrote."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from editd.engine.requests import Reader
    from editd.values.changeset import Base
    from editd.values.path import WorkspacePath

PATHS_MAX = 50_000  # for one reader; the oldest are forgotten, and an edit there needs its own base again


class Seen:
    """Kept in memory: a daemon that restarts has to be read from again."""

    def __init__(self) -> None:
        self._seen: dict[Reader, OrderedDict[WorkspacePath, Base]] = {}

    def note(self, reader: Reader, path: WorkspacePath, base: Base) -> None:
        paths = self._seen.setdefault(reader, OrderedDict())
        paths[path] = base
        paths.move_to_end(path)
        if len(paths) > PATHS_MAX:
            paths.popitem(last=False)

    def by(self, reader: Reader, path: WorkspacePath) -> Base | None:
        paths = self._seen.get(reader)
        return None if paths is None else paths.get(path)

    def forget(self, reader: Reader) -> None:
        self._seen.pop(reader, None)

    def __len__(self) -> int:
        return len(self._seen)
