"""Undo is a merge: the inverse of a transaction, brought onto what the files hold now.

For each file: base = what the transaction made, ours = what is there now, theirs = what was there before
it. Where nobody touched the file since, that is the old bytes exactly. Several transactions are undone
newest first, in one plan; of a transaction it can be some paths only.
"""

from __future__ import annotations

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


class Inversion(Struct):
    """The files as they become while transactions are undone one after another."""

    history: History
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
        self.made[here] = self._state(touch.before)
        self.made[source.path] = state
        self.moved[source.path] = here

    def _merge(self, place: Place, base: Entry | None, theirs: Entry | None) -> FileState | None:
        ours, wanted = self._now(place.path), self._state(theirs)
        try:
            return merge_states(self._state(base), ours, wanted)
        except Conflict:
            if not self.force:
                self.places.append(place)
            return wanted

    def _now(self, path: WorkspacePath) -> FileState | None:
        return self.made[path] if path in self.made else self.current(path)

    def _whereabouts(self, path: WorkspacePath, seq: int) -> WorkspacePath:
        """Where the file that `path` named after `seq` is now: later moves are followed."""
        while (move := self.history.index.moved_to(path, seq)) is not None:
            seq = move[0]
            target = self.targets.get(seq)
            if target is None or not target.covers(move[1]):
                path = move[1]
        return path

    def _state(self, entry: Entry | None) -> FileState | None:
        return recorded_state(entry, self.history)


def invert(
    targets: Sequence[Target],
    history: History,
    current: Callable[[WorkspacePath], FileState | None],
    *,
    force: bool = False,
) -> Inverted:
    """The changes that take `targets`, newest first, out of what `current` gives.

    Raises HistoryDamaged where old bytes are missing.
    """
    work = Inversion(history, current, {int(target.transaction.seq): target for target in targets}, force)
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


def _source(work: Inversion, path: WorkspacePath, after: FileState | None) -> WorkspacePath | None:
    source = work.moved.get(path)
    if source is None or after is None or work.made.get(source) is not None or work.current(path) is not None:
        return None
    return source
