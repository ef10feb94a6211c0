"""Undo is a merge: the inverse of a transaction, brought onto what the files hold now.

For each file: base = what the transaction made, ours = what is there now, theirs = what was there before
it. Where nobody touched the file since, that is the old bytes exactly. Several transactions are undone
newest first, in one plan; of a transaction it can be some paths only.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING

from msgspec import Struct, field

from editd.edits.merge import merge_states
from editd.engine.adopt import displaced, recorded_state
from editd.errors import Conflict
from editd.values.changeset import Change

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from editd.engine.scopes import Target
    from editd.store.history import History
    from editd.values.content import FileState
    from editd.values.path import WorkspacePath
    from editd.values.transaction import Entry, Seq, Touch


class Place(Struct, frozen=True):
    """Where an undo does not merge: the path as it is now, and what was to be undone there."""

    path: WorkspacePath
    seq: int
    origin: WorkspacePath  # what that transaction called it
    is_taken: bool = False  # by another file, for which `origin` has no room


class Inverted(Struct, frozen=True):
    """What undoing comes to; where there are `places`, their paths are not among `changes`."""

    changes: tuple[Change, ...]
    places: tuple[Place, ...]


class Departure(Struct, frozen=True):
    """A file leaves a path: another file, or none, is there from then on."""

    at: int
    to: WorkspacePath | None  # None: it is deleted, or overwritten
    undone_by: Seq | None  # what brought it back, if that is in force


class Past:
    """The history while an undo is worked out: it does not change, so what befell a path is asked once."""

    def __init__(self, history: History) -> None:
        self.history = history
        self._departures: dict[WorkspacePath, list[Departure]] = {}
        self._known_after: dict[WorkspacePath, int] = {}  # from where on the departures of a path are known
        self._moves_from: dict[WorkspacePath, dict[int, WorkspacePath]] = {}
        self._moves_to: dict[WorkspacePath, dict[int, Touch]] = {}
        self._undoes: dict[int, tuple[Seq, ...]] = {}

    def undoes(self, seq: int) -> tuple[Seq, ...]:
        """The transactions that `seq` undid, whole or in part."""
        if seq not in self._undoes:
            self._undoes[seq] = self.history.index.undoes(seq)
        return self._undoes[seq]

    def left(self, path: WorkspacePath, seq: int) -> Departure | None:
        """When the file that `path` names after `seq` leaves it for the first time."""
        departures = self._departures.setdefault(path, [])
        known_after = self._known_after.get(path)
        if known_after is None or seq < known_after:
            before = None if known_after is None else known_after + 1
            departures[:0] = self._departures_in(path, seq, before)
            self._known_after[path] = seq
        place = bisect_right(departures, seq, key=attrgetter("at"))
        return departures[place] if place < len(departures) else None

    def _departures_in(self, path: WorkspacePath, after: int, before: int | None) -> Iterator[Departure]:
        index = self.history.index
        for at, touch in index.life(path, after, before):
            if path not in self._moves_from:
                self._moves_from[path] = dict(index.moves_from(path))
            to = self._moves_from[path].get(at)
            if to is None and touch.after is not None:
                to = self._put_back(touch, at)
            if to is None and touch.after is None and self._comes_back(touch, at):
                continue
            if to is not None or touch.after is None or touch.source is not None:
                yield Departure(at, to, self._brought_back(touch))

    def _brought_back(self, touch: Touch) -> Seq | None:
        """What undid `touch`, unless the file is not at its path for all that: others were undone with it."""
        if touch.undone_by is None:
            return None
        put = self.history.index.touch_in(touch.path, touch.undone_by)
        return None if put is None or put.after is None else touch.undone_by

    def _comes_back(self, touch: Touch, at: int) -> bool:
        """Whether what was deleted is the next to be at its path again, as after a `restore`."""
        found = self.history.index.touch_after(touch.path, at)
        if found is None or touch.before is None:
            return False
        after, source = found[1].after, found[1].source
        return source is None and after is not None and after.version == touch.before.version

    def _put_back(self, touch: Touch, at: int) -> WorkspacePath | None:
        """Where the undo of a move that had overwritten something put the file that it found here.

        It restores what was overwritten, so that the history does not tell it as a move.
        """
        index = self.history.index
        undone = self.undoes(at)
        if undone and touch.path not in self._moves_to:
            self._moves_to[touch.path] = dict(index.moves_to(touch.path))
        for seq in undone:
            move = self._moves_to[touch.path].get(seq)
            if move is None or move.source is None:
                continue
            put = index.touch_in(move.source, at)
            if put is not None and put.before is None and put.after is not None and put.source is None:
                return move.source
        return None

    def whereabouts(
        self, path: WorkspacePath, seq: int, targets: Mapping[int, Target] = MappingProxyType({})
    ) -> tuple[WorkspacePath, bool]:
        """Where the file that `path` named after `seq` is without `targets`, or was; and whether it is."""
        while (left := self.left(path, seq)) is not None:
            seq = left.at
            target = targets.get(seq)
            if target is not None and target.covers(path):
                continue
            if left.undone_by is not None:
                seq = left.undone_by
            elif left.to is None:
                return path, False
            else:
                path = left.to
        return path, True

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
        reached: set[WorkspacePath] = set()
        for touch in target.touches:
            if touch.source is not None and touch.source in by_path:
                self._move_back(touch, by_path[touch.source], seq)
            elif touch.path not in left:
                here = touch.path if touch.after is None else self._whereabouts(touch.path, seq)
                place = Place(here, seq, touch.path)
                if here in reached and not self.force:  # one of the two has been moved to where the other was
                    self.places.append(place)
                reached.add(here)
                self.made[here] = self._merge(place, touch.after, touch.before)
                if self.made[here] is None:
                    self.moved.pop(here, None)

    def _move_back(self, touch: Touch, source: Touch, seq: int) -> None:
        here = self._whereabouts(touch.path, seq)
        place = Place(here, seq, touch.path)
        state = self._merge(place, touch.after, source.before)
        if state is None and not self.force:  # it was deleted meanwhile
            self.places.append(place)
        is_taken = source.path != here and self._now(source.path) is not None
        if is_taken and not self.force:
            self.places.append(Place(source.path, seq, source.path, is_taken=True))
        origin = self.moved.pop(here, here)
        self.made[here] = None
        if touch.before is not None:  # what the move had overwritten
            if self._now(touch.path) is not None and not self.force:
                self.places.append(Place(touch.path, seq, touch.path, is_taken=True))
            self.made[touch.path] = self.past.state(touch.before)
            self.moved.pop(touch.path, None)
        if state is not None or not is_taken:  # else there is another file, and nothing to put in its place
            self.made[source.path] = state
            self.moved[source.path] = origin

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

    def make_room(self) -> None:
        """Note in `places` the files that stand where a folder has to be, and those in the way of a file."""
        made = {path for path, state in self.made.items() if state is not None and self.current(path) is None}
        made -= {place.path for place in self.places}
        if not displaced(made, self.past.history):
            return
        seqs = {touch.path: seq for seq, target in self.targets.items() for touch in target.touches}
        for path in made:
            for other in displaced([path], self.past.history):
                if self._now(other) is not None:
                    self.places.append(Place(other, seqs[path] - 1, path, is_taken=True))

    def _whereabouts(self, path: WorkspacePath, seq: int) -> WorkspacePath:
        here, _ = self.past.whereabouts(path, seq, self.targets)
        if here in self.made and self.made[here] is None:  # it may have been moved on from there by this undo
            return next((to for to, origin in self.moved.items() if origin == here), here)
        return here

    def _now(self, path: WorkspacePath) -> FileState | None:
        return self.made[path] if path in self.made else self.current(path)


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
    if not force:
        work.make_room()
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
    if source is None or source == path or after is None or work.made.get(source) is not None:
        return None
    return source if work.current(source) is not None else None
