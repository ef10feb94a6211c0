"""The history of paths: the moves and deletions of files, and files as of a transaction."""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from editd.store.index_tables import LogQuery
from editd.store.recorded_state import recorded_state
from editd.values.name_key import other_forms
from editd.values.path import WorkspacePath

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from editd.store.history import History
    from editd.values.content import Change, Entry, FileState
    from editd.values.transaction import Seq

LOOKED_AHEAD_MIN = 1  # paths; for a single one its own queries are as fast
LOOKED_AHEAD_SHARE = 4  # transactions to go through for each path


class SelectedWork(Protocol):
    """The part of a transaction that is about to be undone."""

    def covers(self, path: WorkspacePath) -> bool:
        """Return whether all of the path is undone."""
        ...


class PathLeft(Struct, frozen=True):
    """The transaction `at` which a file leaves its path."""

    at: int
    to: WorkspacePath | None  # None: deleted or overwritten
    undone_by: int | None  # the undo that brought it back, if that is in force


class PathNow(Struct, frozen=True):
    """The present path of a file, or its last one."""

    path: WorkspacePath
    exists: bool
    is_planned: bool = False  # the file is elsewhere, and the undo that is planned returns it to this path


class HistoryWalker:
    """Moves and deletions of files in the history, cached while one undo is planned."""

    def __init__(self, history: History) -> None:
        self.history = history
        self._departures: dict[WorkspacePath, list[PathLeft]] = {}
        self._known_after: dict[
            WorkspacePath, int
        ] = {}  # the seq after which the departures of a path are known
        self._moves_from: dict[WorkspacePath, dict[int, WorkspacePath]] = {}
        self._known_moves_to: dict[WorkspacePath, dict[int, Change[Entry]]] = {}
        self._undoes: dict[int, tuple[Seq, ...]] = {}
        self._leaving: set[bytes] | None = None  # all paths that files left after `_leaving_after`
        self._leaving_after = 0

    def look_ahead(self, seq: int, paths: int) -> None:
        """Find the paths that files left after `seq`, for questions about so many paths, with one query.

        Its time rises with the transactions after `seq`, so do nothing if there are too many of them.
        """
        if paths > LOOKED_AHEAD_MIN and self.history.head - seq <= LOOKED_AHEAD_SHARE * paths:
            self._leaving, self._leaving_after = self.history.index.leaving(seq), seq

    def undoes(self, seq: int) -> tuple[Seq, ...]:
        """Return the transactions that `seq` undid, in whole or in part."""
        if seq not in self._undoes:
            self._undoes[seq] = self.history.index.undoes(seq)
        return self._undoes[seq]

    def left(self, path: WorkspacePath, seq: int) -> PathLeft | None:
        """Return when the file that has `path` after `seq` first leaves it, or None."""
        if self._leaving is not None and seq >= self._leaving_after and path.raw not in self._leaving:
            return None
        if self.history.index.has_stayed(path, seq):
            return None
        departures = self._departures.setdefault(path, [])
        known_after = self._known_after.get(path)
        if known_after is None or seq < known_after:
            before = None if known_after is None else known_after + 1
            departures[:0] = self._departures_in(path, seq, before)
            self._known_after[path] = seq
        index = bisect_right(departures, seq, key=attrgetter("at"))
        return departures[index] if index < len(departures) else None

    def _departures_in(self, path: WorkspacePath, after: int, before: int | None) -> Iterator[PathLeft]:
        index = self.history.index
        if path not in self._moves_from:
            self._moves_from[path] = dict(index.moves_from(path))
        is_moved = self._moves_from[path] or self._moves_to(path)
        touches = index.life if is_moved else index.deletions  # others are no departures then
        for at, touch in touches(path, after, before):
            to = self._moves_from[path].get(at)
            if to is None and touch.after is not None:
                to = self._put_back(touch, at)
            if to is None and touch.after is None and self._comes_back(touch, at):
                continue
            if to is not None or touch.after is None or touch.source is not None:
                yield PathLeft(at, to, touch.undone_by)

    def brought_back(self, path: WorkspacePath, left: PathLeft, since: int) -> WorkspacePath | None:
        """Return the new path of the file that left `path` and came back by an undo, or None.

        The file had `path` after `since`. The same undo may have taken back older moves of the file, or its
        creation.
        """
        if left.undone_by is None:
            return None
        restored, name = path, path
        index = self.history.index
        oldest, before = min(self.undoes(left.undone_by), default=since), since + 1
        while arrival := next(
            (
                (at, touch)
                for at, touch in reversed(index.life(name, oldest - 1, before))
                if touch.before is None or touch.source is not None
            ),
            None,
        ):
            before, touch = arrival
            is_undone = touch.undone_by == left.undone_by
            if touch.source is None:
                if is_undone:
                    return None
                break
            name = touch.source
            restored = name if is_undone else restored
        put = index.touch_in(restored, left.undone_by)
        return restored if put is not None and put.after is not None else None

    def _comes_back(self, touch: Change[Entry], at: int) -> bool:
        """Return whether a deleted file is the next one at its path again, as after a `restore`."""
        later = self.history.index.touch_after(touch.path, at)
        if later is None or touch.before is None:
            return False
        after, source = later[1].after, later[1].source
        return source is None and after is not None and after.version == touch.before.version

    def _put_back(self, touch: Change[Entry], at: int) -> WorkspacePath | None:
        """Return the path that the undo `at` gave the file at the path of `touch`, or None.

        If the undone move had overwritten another file, the undo restores that file, and so the history does
        not record a move back. The undo may have undone several moves of the file, one after another.
        """
        name, put_at = touch.path, None
        for seq in sorted(self.undoes(at), reverse=True):
            move = self._moves_to(name).get(seq)
            if move is None or move.source is None:
                continue
            name = move.source
            put = self.history.index.touch_in(name, at)
            if put is None or put.after is None or put.source is not None:
                continue
            if put.before is None or self._has_undone(at, seq, name):
                put_at = name
        return put_at

    def _has_undone(self, at: int, seq: int, path: WorkspacePath) -> bool:
        """Return whether the undo `at` undid the change of `path` by `seq`, not only others of `seq`."""
        (undo,) = self.history.index.transactions([at])
        parts = [part for part in undo.parts if part.seq == seq]
        return not parts or any(part.path == path and not part.hunks for part in parts)

    def _moves_to(self, path: WorkspacePath) -> dict[int, Change[Entry]]:
        """Return the moves to `path` by their transactions."""
        if path not in self._known_moves_to:
            self._known_moves_to[path] = dict(self.history.index.moves_to(path))
        return self._known_moves_to[path]

    def follow_path(
        self, path: WorkspacePath, seq: int, targets: Mapping[int, SelectedWork] = MappingProxyType({})
    ) -> PathNow:
        """Return the present or last path of the file that had `path` after `seq`.

        The effects of `targets`, which are about to be undone, are ignored.
        """
        stays: list[tuple[WorkspacePath, int, int]] = []
        while (left := self.left(path, seq)) is not None:
            since, seq = seq, left.at
            stays.append((path, since, left.at))
            target = targets.get(seq)
            if target is not None and target.covers(path):
                return PathNow(path, exists=True, is_planned=True)
            if (back := self.brought_back(path, left, since)) is not None:
                assert left.undone_by is not None
                path, seq = back, left.undone_by
            elif left.to is not None:
                path = left.to
            elif (revival := self.revival(stays, seq, targets)) is not None:
                path, seq = revival
            else:
                return PathNow(path, exists=False)
        return PathNow(path, exists=True)

    def revival(
        self,
        stays: Iterable[tuple[WorkspacePath, int, int]],
        deleted: int,
        targets: Mapping[int, SelectedWork] = MappingProxyType({}),
    ) -> tuple[WorkspacePath, int] | None:
        """Return the path and the transaction of a file's return after `deleted`, or None.

        `stays` are the paths of the file, each with two transactions: the file had the path after the first,
        and left it with the second. The file comes back if a path gets a content that the file had there.
        """
        index = self.history.index
        revivals: list[tuple[int, WorkspacePath]] = []
        for name, since, until in stays:
            at, touch = index.touch_after(name, deleted) or (0, None)
            if (
                touch is None
                or touch.after is None
                or touch.source is not None
                or touch.undone_by is not None
            ):
                continue
            if at in targets and targets[at].covers(name):
                continue
            if touch.before is not None and touch.before.version == touch.after.version:
                continue  # a change of mode alone: the path had this content
            entries = [self.history.entry_at(name, since)]
            entries += [earlier.after for _, earlier in index.life(name, since, until)]
            if touch.after.version in {entry.version for entry in entries if entry is not None}:
                revivals.append((at, name))
        if not revivals:
            return None
        at, name = min(revivals)
        return name, at

    def state(self, entry: Entry | None) -> FileState | None:
        """Return the state of an entry, with its content. Raises HistoryDamaged if that is missing."""
        return recorded_state(entry, self.history)


def in_recorded_form(path: WorkspacePath, history: History) -> WorkspacePath:
    """Return the path in the Unicode form that the history has, or as it is if the history has none."""
    forms = [path] if path.text.isascii() else [path, *map(WorkspacePath, other_forms(path.text))]
    recorded = (form for form in forms if len(forms) > 1 and is_recorded(form, history))
    return next(recorded, path)


def is_recorded(path: WorkspacePath, history: History) -> bool:
    """Return whether the history has a file or a folder of this path, also a deleted one."""
    if history.entry(path) is not None or any(history.folder_at_head(path.text)):
        return True
    return bool(history.index.log(LogQuery(paths=(path,)), 1, files=False))


def entry_after(path: WorkspacePath, seq: int, history: History) -> Entry | None:
    """Return the recorded content of `path` right after `seq`, or None.

    A file that entered the history later (kind `baseline`) is assumed to have had that content before.
    """
    index = history.index
    if index.touch_at(path, seq) is None:
        later = index.touch_after(path, seq)
        if later is not None and later[1].before is None and index.kind_of(later[0]) == "baseline":
            return later[1].after
    return history.entry_at(path, seq)
