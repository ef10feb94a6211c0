"""Undo is a merge: the inverse of a transaction, brought onto what the files hold now.

For each file: base = what the transaction made, ours = what is there now, theirs = what was there before
it. Where nobody touched the file since, that is the old bytes exactly. Several transactions are undone
newest first, in one plan; of a transaction it can be some paths only, and of a path some hunks.
Only a change of the same lines is a conflict (`merge.merge_lines`).
"""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from editd.edits.line_changes import apply_changes, join, reverse, shown_hunks
from editd.edits.merge import merge_lines, merge_states, resolved_states
from editd.engine.external_changes import blocked_by, recorded_state
from editd.errors import Conflict, InvalidParams
from editd.values.changeset import Change
from editd.values.content import SYMLINK
from editd.values.path import folders_of

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from editd.edits.line_changes import LineChange
    from editd.engine.commands import OnConflict
    from editd.engine.undo_selection import UndoTarget
    from editd.store.history import History
    from editd.values.content import FileState
    from editd.values.path import WorkspacePath
    from editd.values.transaction import Entry, Seq, Touch, Transaction


class ConflictSite(Struct, frozen=True):
    """Where an undo does not merge: the path as it is now, and what was to be undone there."""

    path: WorkspacePath
    seq: int
    origin: WorkspacePath  # what that transaction called it
    is_taken: bool = False  # by another file, for which `origin` has no room
    reason: str = "lines"  # what collides, in the words of `merge_states`, or `path`
    lines: tuple[Mapping[str, int], ...] = ()  # of the file now
    hunks: tuple[str, ...] = ()  # what became of the lines of the transaction


class UndoPlan(Struct, frozen=True):
    """What undoing comes to; where there are `places`, their paths are not among `changes`.

    `targets` are what is undone. Where only what fits is asked for, that is less than was given, and
    `places` tell what was left.
    """

    changes: tuple[Change, ...]
    places: tuple[ConflictSite, ...]
    targets: tuple[UndoTarget, ...]
    idle: frozenset[int] = frozenset()  # of those undone one by one, those that change nothing


class PathLeft(Struct, frozen=True):
    """A file leaves a path: another file, or none, is there from then on."""

    at: int
    to: WorkspacePath | None  # None: it is deleted, or overwritten
    undone_by: Seq | None  # what brought it back, if that is in force


class HistoryWalker:
    """The history while an undo is worked out: it does not change, so what befell a path is asked once."""

    def __init__(self, history: History) -> None:
        self.history = history
        self._departures: dict[WorkspacePath, list[PathLeft]] = {}
        self._known_after: dict[WorkspacePath, int] = {}  # from where on the departures of a path are known
        self._moves_from: dict[WorkspacePath, dict[int, WorkspacePath]] = {}
        self._moves_to: dict[WorkspacePath, dict[int, Touch]] = {}
        self._undoes: dict[int, tuple[Seq, ...]] = {}

    def undoes(self, seq: int) -> tuple[Seq, ...]:
        """The transactions that `seq` undid, whole or in part."""
        if seq not in self._undoes:
            self._undoes[seq] = self.history.index.undoes(seq)
        return self._undoes[seq]

    def left(self, path: WorkspacePath, seq: int) -> PathLeft | None:
        """When the file that `path` names after `seq` leaves it for the first time."""
        departures = self._departures.setdefault(path, [])
        known_after = self._known_after.get(path)
        if known_after is None or seq < known_after:
            before = None if known_after is None else known_after + 1
            departures[:0] = self._departures_in(path, seq, before)
            self._known_after[path] = seq
        place = bisect_right(departures, seq, key=attrgetter("at"))
        return departures[place] if place < len(departures) else None

    def _departures_in(self, path: WorkspacePath, after: int, before: int | None) -> Iterator[PathLeft]:
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
                yield PathLeft(at, to, touch.undone_by)

    def brought_back(self, path: WorkspacePath, left: PathLeft, since: int) -> WorkspacePath | None:
        """Where an undo put the file that had left `path`, which it named after `since`; None if nowhere.

        That undo may have taken back older moves of the file, too, or that it was made.
        """
        if left.undone_by is None:
            return None
        here, name = path, path
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
            here = name if is_undone else here
        put = index.touch_in(here, left.undone_by)
        return here if put is not None and put.after is not None else None

    def _comes_back(self, touch: Touch, at: int) -> bool:
        """Whether what was deleted is the next to be at its path again, as after a `restore`."""
        found = self.history.index.touch_after(touch.path, at)
        if found is None or touch.before is None:
            return False
        after, source = found[1].after, found[1].source
        return source is None and after is not None and after.version == touch.before.version

    def _put_back(self, touch: Touch, at: int) -> WorkspacePath | None:
        """Return where an undo put the file that it found at the path of `touch`; None if it moved none.

        After a move onto another file, the undo restores that file, so that the history does not record a
        move back. The undo may have undone several moves of the file, one after another.
        """
        name, put_at = touch.path, None
        for seq in sorted(self.undoes(at), reverse=True):
            move = self._move_to(name, seq)
            if move is None or move.source is None:
                continue
            name = move.source
            put = self.history.index.touch_in(name, at)
            if put is not None and put.before is None and put.after is not None and put.source is None:
                put_at = name
        return put_at

    def _move_to(self, path: WorkspacePath, seq: int) -> Touch | None:
        if path not in self._moves_to:
            self._moves_to[path] = dict(self.history.index.moves_to(path))
        return self._moves_to[path].get(seq)

    def follow_path(
        self, path: WorkspacePath, seq: int, targets: Mapping[int, UndoTarget] = MappingProxyType({})
    ) -> tuple[WorkspacePath, bool]:
        """Where the file that `path` named after `seq` is without `targets`, or was; and whether it is."""
        names = [(path, seq)]
        while (left := self.left(path, seq)) is not None:
            since, seq = seq, left.at
            target = targets.get(seq)
            if target is not None and target.covers(path):
                return path, True  # What it had left for is no matter: the undo puts it back here.
            if (back := self.brought_back(path, left, since)) is not None:
                assert left.undone_by is not None
                path, seq = back, left.undone_by
            elif left.to is not None:
                path = left.to
            elif (revival := self.revival(names, seq, targets)) is not None:
                path, seq = revival
            else:
                return path, False
            names.append((path, seq))
        return path, True

    def revival(
        self,
        names: Iterable[tuple[WorkspacePath, int]],
        deleted: int,
        targets: Mapping[int, UndoTarget] = MappingProxyType({}),
    ) -> tuple[WorkspacePath, int] | None:
        """Where a file came back after it was `deleted`, and in which transaction; None if it did not.

        It comes back under one of its `names`, each from a transaction on, with bytes that it had there.
        """
        index = self.history.index
        found: list[tuple[int, WorkspacePath]] = []
        for name, since in names:
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
            held = [self.history.entry_at(name, since)]
            held += [one.after for _, one in index.life(name, since, deleted)]
            if touch.after.version in {entry.version for entry in held if entry is not None}:
                found.append((at, name))
        if not found:
            return None
        at, name = min(found)
        return name, at

    def state(self, entry: Entry | None) -> FileState | None:
        """What a path held, with its bytes. Raises HistoryDamaged where they are gone."""
        return recorded_state(entry, self.history)


class _Return(Struct, frozen=True):
    """A file that is to go back to where a transaction moved it from."""

    touch: Touch
    to: WorkspacePath
    place: ConflictSite
    state: FileState | None
    conflict: ConflictSite | None


class UndoPlanner(Struct):
    """The files as they become while transactions are undone one after another."""

    past: HistoryWalker
    current: Callable[[WorkspacePath], FileState | None]
    targets: dict[int, UndoTarget]
    on_conflict: OnConflict
    made: dict[WorkspacePath, FileState | None] = field(default_factory=dict)
    moved: dict[WorkspacePath, WorkspacePath] = field(default_factory=dict)  # new path → where it came from
    places: list[ConflictSite] = field(default_factory=list)
    idle: set[int] = field(default_factory=set)

    def undo(self, target: UndoTarget) -> None:
        """Undo one transaction on what there is; what does not merge is noted in `places`."""
        seq = int(target.transaction.seq)
        left = {touch.source: touch for touch in target.touches if touch.source is not None}
        by_path = {touch.path: touch for touch in target.touches}
        found = {touch.path: self._found(touch, seq) for touch in target.touches if touch.path not in left}
        there = {here for here, is_there in found.values() if is_there}
        moves: list[_Return] = []
        changes: list[tuple[ConflictSite, Touch]] = []
        for touch in target.touches:
            if touch.path in target.hunks:
                self._take_back_hunks(touch, target)
            elif touch.path not in left:
                here, is_there = found[touch.path]
                place = ConflictSite(here, seq, touch.path)
                source = None if touch.source is None else by_path.get(touch.source)
                # Another file of this transaction may be by now where one was that is gone.
                is_gone = touch.after is not None and not is_there and here in there
                if source is not None:
                    moves.append(self._return(touch, source, place, is_gone=is_gone))
                elif not is_gone:
                    changes.append((place, touch))
                elif touch.before is not None:
                    self._goes_on(replace(place, reason="deleted"))
                    self.targets[seq] = self.targets[seq].without({touch.path})
        # What comes back finds room where others of the transaction leave, whatever their names are.
        reached: set[WorkspacePath] = set()
        self._change_all_back([one for one in changes if one[1].before is None], reached)
        self._move_back(moves, seq)
        self._change_all_back([one for one in changes if one[1].before is not None], reached)

    def _found(self, touch: Touch, seq: int) -> tuple[WorkspacePath, bool]:
        """Where the file is that a transaction changed, and whether it is; one that it deleted is not."""
        if touch.after is None:
            return touch.path, False
        return self._whereabouts(touch.path, seq)

    def _change_all_back(
        self, changes: Iterable[tuple[ConflictSite, Touch]], reached: set[WorkspacePath]
    ) -> None:
        for place, touch in changes:
            is_met = place.path in reached  # one of the two has been moved to where the other was
            reached.add(place.path)
            self._change_back(place, touch, is_met=is_met)

    def _change_back(self, place: ConflictSite, touch: Touch, *, is_met: bool) -> None:
        state, conflict = self._merge(place, touch.after, touch.before)
        if is_met:
            conflict = conflict or replace(place, reason="path")
        if not self._goes_on(conflict):
            self._leave(place, touch, range(1, len(_reversed(self.past, self.targets[place.seq], touch)) + 1))
            return
        self.made[place.path] = state
        if state is None:
            self.moved.pop(place.path, None)

    def _take_back_hunks(self, touch: Touch, target: UndoTarget) -> None:
        """Undo some hunks of what a transaction did to a file; the file stays where it is."""
        seq = int(target.transaction.seq)
        here, _ = self._whereabouts(touch.path, seq)
        place = ConflictSite(here, seq, touch.path)
        part = undone_in_part(self.past, target, touch)
        if touch.source is None and _is(part, touch.before):  # these are all of its hunks
            self.targets[seq] = self.targets[seq].as_whole(touch.path)
            self._change_back(place, touch, is_met=False)
            return
        state, conflict = self._merge_onto(place, touch.after, part)
        if self._goes_on(conflict):
            self.made[place.path] = state
        else:
            self._leave(place, touch, target.hunks[touch.path])

    def _return(self, touch: Touch, source: Touch, place: ConflictSite, *, is_gone: bool) -> _Return:
        state, conflict = (None, None) if is_gone else self._merge(place, touch.after, source.before)
        if state is None:
            conflict = conflict or replace(place, reason="deleted")
        return _Return(touch, source.path, place, state, conflict)

    def _move_back(self, moves: Sequence[_Return], seq: int) -> None:
        """Move files back to where a transaction moved them from, all at once."""
        taken: dict[WorkspacePath, list[ConflictSite]] = {}
        while moves:
            leaving = {move.place.path for move in moves if move.state is not None}
            taken = {move.to: self._in_the_way(move, leaving, seq) for move in moves}
            staying = [move for move in moves if not self._goes_on(move.conflict, *taken[move.to])]
            if not staying:
                break
            paths = {path for move in staying for path in (move.touch.path, move.to)}
            self.targets[seq] = self.targets[seq].without(paths)
            moves = [
                move for move in moves if move not in staying
            ]  # Those in the place of a staying one stay.
        origins = {move.to: self.moved.pop(move.place.path, move.place.path) for move in moves}
        self.made |= {move.place.path: None for move in moves if move.state is not None}
        for move in moves:
            if move.touch.before is not None:  # what the move had overwritten
                self.made[move.touch.path] = self.past.state(move.touch.before)
                self.moved.pop(move.touch.path, None)
            is_taken = any(place.path == move.to for place in taken[move.to])
            if move.state is not None or not is_taken:  # else there is another file, and nothing to put there
                self.made[move.to] = move.state
                self.moved[move.to] = origins[move.to]

    def _in_the_way(self, move: _Return, leaving: Container[WorkspacePath], seq: int) -> list[ConflictSite]:
        """The files that stand where a move back puts one, but for those that leave."""
        wanted = [move.to, *([] if move.touch.before is None else [move.touch.path])]
        return [
            ConflictSite(path, seq, path, is_taken=True, reason="path")
            for path in wanted
            if path not in leaving and self._now(path) is not None
        ]

    def _merge(
        self, place: ConflictSite, base: Entry | None, theirs: Entry | None
    ) -> tuple[FileState | None, ConflictSite | None]:
        """What the place holds after it, and, where that is a conflict, the place with what collides."""
        ours = self._now(place.path)
        if _is(ours, theirs):
            return ours, None
        return self._merge_onto(place, base, self.past.state(theirs))

    def _merge_onto(
        self, place: ConflictSite, base: Entry | None, wanted: FileState | None
    ) -> tuple[FileState | None, ConflictSite | None]:
        ours = self._now(place.path)
        if _is(ours, base):  # nobody has been there since: the bytes of `base` need not be read
            return wanted, None
        made = self.past.state(base)
        try:
            return merge_states(made, ours, wanted, merge=merge_lines), None
        except Conflict as conflict:
            (file,) = conflict.data["files"]
            place = replace(
                place, reason=file["reason"], lines=tuple(file["lines"]), hunks=tuple(file.get("hunks", ()))
            )
            return resolved_states(made, ours, wanted, "theirs"), place

    def _goes_on(self, *conflicts: ConflictSite | None) -> bool:
        """Note the conflicts; whether the change is made for all that."""
        noted = [conflict for conflict in conflicts if conflict is not None]
        if self.on_conflict != "force":
            self.places += noted
        return not noted or self.on_conflict != "skip"

    def _leave(self, place: ConflictSite, touch: Touch, numbers: Sequence[int]) -> None:
        """Leave a file as it is, but for those hunks of `numbers` that merge there."""
        target, ours = self.targets[place.seq], self._now(place.path)
        made = self.past.state(touch.after)
        fitting: Sequence[int] = ()
        if numbers and made is not None and ours is not None:
            hunks = _reversed(self.past, target, touch)
            joined = join(made.content, ours.content, [hunks[number - 1] for number in numbers])
            if joined.content != ours.content:
                fitting = [number for number in numbers if hunks[number - 1] not in joined.collided]
                self.made[place.path] = ours.with_content(joined.content)
        self.targets[place.seq] = target.only_hunks(touch.path, fitting)

    def undo_alone(self, target: UndoTarget) -> None:
        """The same as an undo of its own, right after which every file that comes back needs room."""
        seq, made, places = int(target.transaction.seq), dict(self.made), len(self.places)
        self.undo(target)
        before = {path: made[path] if path in made else self.current(path) for path in self.made}
        if before == self.made and len(self.places) == places:
            self.idle.add(seq)
        for path, state in self.made.items():
            if state is not None and before[path] is None:
                self.places += [
                    ConflictSite(other, seq - 1, path, is_taken=True, reason="path")
                    for other in self._displaced_by(path)
                ]

    def _displaced_by(self, path: WorkspacePath) -> list[WorkspacePath]:
        """The files above and below a path that are there by now."""
        found = blocked_by([path], self.past.history)
        found |= {other for other in self.made if other in folders_of(path) or path in folders_of(other)}
        return sorted(other for other in found if self._now(other) is not None)

    def make_room(self) -> list[ConflictSite]:
        """The files that stand where a folder has to be, and those in the way of a file."""
        made = {path for path, state in self.made.items() if state is not None and self.current(path) is None}
        made -= {place.path for place in self.places}
        nested = [(path, folder) for path in made for folder in folders_of(path) if folder in made]
        if not (nested or blocked_by(made, self.past.history)):
            return []
        seqs = {touch.path: seq for seq, target in self.targets.items() for touch in target.touches}
        oldest = min(self.targets)  # for a file that others have moved to where it is
        pairs = [tuple(sorted(pair, key=self._made_at)) for pair in nested]
        pairs += [
            (path, other)
            for path in made
            for other in blocked_by([path], self.past.history) - made
            if self._now(other) is not None
        ]
        return [
            ConflictSite(other, seqs.get(path, oldest) - 1, path, is_taken=True, reason="path")
            for path, other in sorted(pairs)
        ]

    def _made_at(self, path: WorkspacePath) -> int:
        """When somebody else made the file that is at `path` without the targets."""
        made = [
            seq
            for seq, touch in self.past.history.index.life(path, -1, None)
            if touch.before is None and not (seq in self.targets and self.targets[seq].covers(path))
        ]
        return max(made, default=-1)

    def _whereabouts(self, path: WorkspacePath, seq: int) -> tuple[WorkspacePath, bool]:
        """Where the file that `path` named after `seq` is by now, or was; and whether it is."""
        here, is_there = self.past.follow_path(path, seq, self.targets)
        if is_there and here in self.made and self.made[here] is None:  # This undo may have moved it on.
            here = next((to for to, origin in self.moved.items() if origin == here), here)
        return here, is_there

    def _now(self, path: WorkspacePath) -> FileState | None:
        return self.made[path] if path in self.made else self.current(path)


def invert(
    targets: Sequence[UndoTarget],
    past: HistoryWalker,
    current: Callable[[WorkspacePath], FileState | None],
    on_conflict: OnConflict = "fail",
    apart: AbstractSet[int] = frozenset(),
) -> UndoPlan:
    """The changes that take `targets`, one after another, out of what `current` gives.

    Those of `apart` are undone one by one, so that after each of them every file needs room.
    Raises HistoryDamaged where old bytes are missing, and InvalidParams for a hunk that is not there.
    """
    left: list[ConflictSite] = []
    while True:
        work = UndoPlanner(
            past, current, {int(target.transaction.seq): target for target in targets}, on_conflict
        )
        for target in targets:
            take_back = work.undo_alone if target.transaction.seq in apart else work.undo
            take_back(target)
        no_room = work.make_room()
        work.places += left + no_room
        if on_conflict != "skip" or not no_room:
            return _inverted(work)
        left += no_room
        origins = {place.origin for place in no_room}
        targets = [target.without(origins) for target in targets if target.without(origins).touches]


def undone_in_part(past: HistoryWalker, target: UndoTarget, touch: Touch) -> FileState | None:
    """What the file holds right after the transaction without what the target takes back of it."""
    if touch.path not in target.hunks:
        return past.state(touch.before)
    hunks = _reversed(past, target, touch)
    wrong = [number for number in target.hunks[touch.path] if not 1 <= number <= len(hunks)]
    if wrong:
        raise _no_such_hunk(target.transaction.seq, touch.path, wrong[0], len(hunks))
    made = past.state(touch.after)
    assert made is not None, "a file that is not there has no hunks"
    return made.with_content(apply_changes(made.content, [hunks[n - 1] for n in target.hunks[touch.path]]))


def _no_such_hunk(seq: Seq, path: WorkspacePath, number: int, count: int) -> InvalidParams:
    if not count:
        return InvalidParams(
            f"What transaction {seq} did to {path} has no hunks.",
            hint="Name it in `paths` to undo all of it.",
        )
    return InvalidParams(
        f"Transaction {seq} has {count} hunk{'s' * (count > 1)} in {path}, and no hunk {number}.",
        hint=f"`show` with tx {seq} and `hunks` lists them.",
    )


def numbered_hunks(history: History, transaction: Transaction) -> Iterator[tuple[WorkspacePath, int, str]]:
    """Yield each hunk by which an undo can name a part of a transaction: path, number from 1, and diff."""
    past = HistoryWalker(history)
    for touch in transaction.touches:
        states = hunks_of(past, transaction, touch)
        if states is not None:
            for number, text in enumerate(shown_hunks(states[0].content, states[1].content), 1):
                yield touch.path, number, text


def hunks_of(
    past: HistoryWalker, transaction: Transaction, touch: Touch
) -> tuple[FileState, FileState] | None:
    """The file before and after, where a transaction changed lines of a file; None where it did not."""
    before = touch.before
    if touch.source is not None:
        moved = next((one for one in transaction.touches if one.path == touch.source), None)
        before = None if moved is None else moved.before
    if before is None or touch.after is None or SYMLINK in (before.mode, touch.after.mode):
        return None
    old, new = past.state(before), past.state(touch.after)
    if old is None or new is None or b"\0" in old.content or b"\0" in new.content:
        return None
    return old, new


def _reversed(past: HistoryWalker, target: UndoTarget, touch: Touch) -> list[LineChange]:
    """The hunks that lead back from what the transaction made of a file; none where it is not text."""
    states = hunks_of(past, target.transaction, touch)
    return [] if states is None else reverse(states[0].content, states[1].content)


def _inverted(work: UndoPlanner) -> UndoPlan:
    conflicting = {place.path for place in work.places}
    conflicting |= {place.origin for place in work.places if place.is_taken}
    if work.on_conflict == "skip":
        conflicting = set()  # what they would have become is not in it
    changes = [
        Change(path, work.current(path), after, _source(work, path, after))
        for path, after in work.made.items()
        if path not in conflicting
    ]
    changed = sorted((c for c in changes if c.before != c.after), key=lambda change: change.path)
    targets = tuple(target for target in work.targets.values() if target.touches)
    return UndoPlan(tuple(changed), tuple(work.places), targets, frozenset(work.idle))


def _is(state: FileState | None, entry: Entry | None) -> bool:
    """Whether these are the same, permissions aside, as two states are."""
    if state is None or entry is None:
        return (state, entry) == (None, None)
    return (state.version, state.mode) == (entry.version, entry.mode)


def _source(work: UndoPlanner, path: WorkspacePath, after: FileState | None) -> WorkspacePath | None:
    source = work.moved.get(path)
    if source is None or source == path or after is None or work.made.get(source) is not None:
        return None
    return source if work.current(source) is not None else None
