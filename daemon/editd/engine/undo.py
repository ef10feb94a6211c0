"""Undo is a merge: the inverse of a transaction, brought onto what the files hold now.

For each file: base = what the transaction made, ours = what is there now, theirs = what was there before
it. Where nobody touched the file since, that is the old bytes exactly. Several transactions are undone
newest first, in one plan; of a transaction it can be some paths only.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import itemgetter
from typing import TYPE_CHECKING

from msgspec import Struct, field

from editd.edits.merge import merge_states
from editd.engine.adopt import recorded_state
from editd.errors import Conflict
from editd.values.changeset import Change

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from editd.engine.scopes import Target
    from editd.store.history import History
    from editd.values.content import FileState
    from editd.values.path import WorkspacePath
    from editd.values.transaction import Entry, Touch


class Place(Struct, frozen=True):
    """Where an undo does not merge: the path as it is now, and what was to be undone there."""

    path: WorkspacePath
    seq: int
    origin: WorkspacePath  # what that transaction called it


class Inverted(Struct, frozen=True):
    """What undoing comes to; where there are `places`, their paths are not among `changes`."""

    changes: tuple[Change, ...]
    places: tuple[Place, ...]


class Past:
    """The history while an undo is worked out: it does not change, so a path's moves are asked for once."""

    def __init__(self, history: History) -> None:
        self.history = history
        self._moves: dict[WorkspacePath, list[tuple[int, WorkspacePath]]] = {}

    def moved_to(self, path: WorkspacePath, seq: int) -> tuple[int, WorkspacePath] | None:
        """The first move away from `path` after `seq`: when, and where to."""
        moves = self._moves.get(path)
        if moves is None:
            moves = self._moves[path] = self.history.index.moves_from(path)
        place = bisect_right(moves, seq, key=itemgetter(0))
        return moves[place] if place < len(moves) else None

    def state(self, entry: Entry | None) -> FileState | None:
        """What a path held, with its bytes. Raises HistoryDamaged where they are gone."""
        return recorded_state(entry, self.history)


class Inversion(Struct):
    """The files as they become while transactions are undone one after another."""

    past: Past
    current: Callable[[WorkspacePath], FileState | None]
    targets: Mapping[int, Target]
    force: bool
    made: dict[WorkspacePath, FileState | None] = field(default_factory=dict)
    moved: dict[WorkspacePath, WorkspacePath] = field(default_factory=dict)  # new path → where it came from
    places: list[Place] = field(default_factory=list)

    def take_back(self, target: Target) -> None:
        """Undo one transaction on what there is; what does not merge is noted in `places`."""
        seq = int(target.transaction.seq)
        left = {touch.source: touch for touch in target.touches if touch.source is not None}
        by_path = {touch.path: touch for touch in target.touches}
        for touch in target.touches:
            if touch.source is not None and touch.source in by_path:
                self._move_back(touch, by_path[touch.source], seq)
            elif touch.path not in left:
                here = self._whereabouts(touch.path, seq) if touch.after is not None else touch.path
                place = Place(here, seq, touch.path)
                self.made[here] = self._merge(place, touch.after, touch.before)

    def _move_back(self, touch: Touch, source: Touch, seq: int) -> None:
        here = self._whereabouts(touch.path, seq)
        state = self._merge(Place(here, seq, touch.path), touch.after, source.before)
        if source.path != here and self._now(source.path) is not None and not self.force:
            self.places.append(Place(source.path, seq, source.path))
        self.made[here] = self.past.state(touch.before)
        self.made[source.path] = state
        self.moved[source.path] = here

    def _merge(self, place: Place, base: Entry | None, theirs: Entry | None) -> FileState | None:
        ours = self._now(place.path)
        if _is(ours, theirs):
            return ours
        wanted = self.past.state(theirs)
        if _is(ours, base):  # nobody has been there since: the bytes of `base` need not be read
            return wanted
        try:
            return merge_states(self.past.state(base), ours, wanted)
        except Conflict:
            if not self.force:
                self.places.append(place)
            return wanted

    def _now(self, path: WorkspacePath) -> FileState | None:
        return self.made[path] if path in self.made else self.current(path)

    def _whereabouts(self, path: WorkspacePath, seq: int) -> WorkspacePath:
        """Where the file that `path` named after `seq` is now: later moves are followed."""
        while (move := self.past.moved_to(path, seq)) is not None:
            seq = move[0]
            target = self.targets.get(seq)
            if target is None or not target.covers(move[1]):
                path = move[1]
        return path


def invert(
    targets: Sequence[Target],
    past: Past,
    current: Callable[[WorkspacePath], FileState | None],
    *,
    force: bool = False,
) -> Inverted:
    """The changes that take `targets`, newest first, out of what `current` gives.

    Raises HistoryDamaged where old bytes are missing.
    """
    work = Inversion(past, current, {int(target.transaction.seq): target for target in targets}, force)
    for target in targets:
        work.take_back(target)
    conflicting = {place.path for place in work.places}
    changes = [
        Change(path, current(path), after, _source(work, path, after))
        for path, after in work.made.items()
        if path not in conflicting
    ]
    changed = sorted((c for c in changes if c.before != c.after), key=lambda change: change.path)
    return Inverted(tuple(changed), tuple(work.places))


def _is(state: FileState | None, entry: Entry | None) -> bool:
    """Whether these are the same, permissions aside, as two states are."""
    if state is None or entry is None:
        return (state, entry) == (None, None)
    return (state.version, state.mode) == (entry.version, entry.mode)


def _source(work: Inversion, path: WorkspacePath, after: FileState | None) -> WorkspacePath | None:
    source = work.moved.get(path)
    if source is None or after is None or work.made.get(source) is not None or work.current(path) is not None:
        return None
    return source
