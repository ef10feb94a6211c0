"""What each reader has seen: the version of a path that it last read or wrote."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from editd.values.changeset import Base, ReadMark, merged_ranges

if TYPE_CHECKING:
    from collections.abc import Iterable

    from editd.engine.commands import Reader
    from editd.values.path import WorkspacePath

READERS_MAX = 1_000  # that are not kept: names of sessions that nobody opened; the oldest are forgotten
PATHS_MAX = 50_000  # for one reader; the oldest are forgotten, and an edit there needs its own base again


class ReadVersions:
    """In memory; reports what is new of the kept readers, for `store.read_version_store` to write."""

    def __init__(self) -> None:
        self._seen: dict[Reader, OrderedDict[WorkspacePath, ReadMark]] = {}
        self._passing: OrderedDict[Reader, None] = OrderedDict()  # those that are not kept, the oldest first
        self._kept: set[Reader] = set()
        self._changed: set[tuple[Reader, WorkspacePath]] = set()

    def note(self, reader: Reader, path: WorkspacePath, sight: ReadMark) -> None:
        paths = self._seen.setdefault(reader, OrderedDict())
        paths[path] = sight
        paths.move_to_end(path)
        is_kept = reader in self._kept
        if is_kept:
            self._changed.add((reader, path))
        else:
            self._pass(reader)
        if len(paths) > PATHS_MAX:
            oldest, _ = paths.popitem(last=False)
            if is_kept:
                self._changed.add((reader, oldest))

    def note_lines(self, reader: Reader, path: WorkspacePath, base: Base, first: int, last: int) -> None:
        """Lines `first` to `last`, from 1, have been seen; those seen before of this version still count."""
        known = self.sight(reader, path)
        if known is None or known.base != base:
            self.note(reader, path, ReadMark(base, ((first, last),)))
        elif known.lines is not None:
            self.note(reader, path, ReadMark(base, merged_ranges((*known.lines, (first, last)))))

    def by(self, reader: Reader, path: WorkspacePath) -> Base | None:
        sight = self.sight(reader, path)
        return None if sight is None else sight.base

    def sight(self, reader: Reader, path: WorkspacePath) -> ReadMark | None:
        paths = self._seen.get(reader)
        return None if paths is None else paths.get(path)

    def _pass(self, reader: Reader) -> None:
        """It has come by; whoever has not for longest is forgotten where there are too many."""
        self._passing[reader] = None
        self._passing.move_to_end(reader)
        if len(self._passing) > READERS_MAX:
            oldest, _ = self._passing.popitem(last=False)
            self._seen.pop(oldest, None)

    def forget(self, reader: Reader) -> None:
        self._seen.pop(reader, None)
        self._passing.pop(reader, None)

    def keep(self, reader: Reader, known: Iterable[tuple[WorkspacePath, ReadMark]]) -> None:
        """From now on this reader is kept; `known` is what it has seen until now, the oldest first."""
        self._seen[reader] = OrderedDict(known)
        self._passing.pop(reader, None)
        self._kept.add(reader)

    def keep_no_more(self, reader: Reader) -> None:
        self.forget(reader)
        self._kept.discard(reader)
        self._changed = {entry for entry in self._changed if entry[0] != reader}

    def take_changed(self, limit: int) -> list[tuple[Reader, WorkspacePath, ReadMark | None]]:
        """What kept readers have seen, or forgotten, since this was last asked; `limit` of it at most."""
        keys = [self._changed.pop() for _ in range(min(limit, len(self._changed)))]
        return [(reader, path, self.sight(reader, path)) for reader, path in keys]

    @property
    def has_changed(self) -> bool:
        """Whether `take_changed` would return something."""
        return bool(self._changed)

    def __len__(self) -> int:
        return len(self._seen)
