"""What each reader has seen: the version of a path that it last read or wrote."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from editd.values.changeset import Base, Sight

if TYPE_CHECKING:
    from editd.engine.requests import Reader
    from editd.values.path import WorkspacePath

PATHS_MAX = 50_000  # for one reader; the oldest are forgotten, and an edit there needs its own base again


class Seen:
    """Kept in memory: a daemon that restarts has to be read from again."""

    def __init__(self) -> None:
        self._seen: dict[Reader, OrderedDict[WorkspacePath, Sight]] = {}

    def note(self, reader: Reader, path: WorkspacePath, sight: Sight) -> None:
        paths = self._seen.setdefault(reader, OrderedDict())
        paths[path] = sight
        paths.move_to_end(path)
        if len(paths) > PATHS_MAX:
            paths.popitem(last=False)

    def note_lines(self, reader: Reader, path: WorkspacePath, base: Base, first: int, last: int) -> None:
        """Lines `first` to `last`, from 1, have been seen; those seen before of this version still count."""
        known = self.sight(reader, path)
        if known is None or known.base != base:
            self.note(reader, path, Sight(base, ((first, last),)))
        elif known.lines is not None:
            self.note(reader, path, Sight(base, (*known.lines, (first, last))))

    def by(self, reader: Reader, path: WorkspacePath) -> Base | None:
        sight = self.sight(reader, path)
        return None if sight is None else sight.base

    def sight(self, reader: Reader, path: WorkspacePath) -> Sight | None:
        paths = self._seen.get(reader)
        return None if paths is None else paths.get(path)

    def forget(self, reader: Reader) -> None:
        self._seen.pop(reader, None)

    def __len__(self) -> int:
        return len(self._seen)
