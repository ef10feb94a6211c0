"""Undo: the inverse of a transaction, merged into the present files.

For each file, the base of the merge is the content after the transaction, ours is the present content, and
theirs is the content before the transaction. If the file has not changed since, the result is exactly the old
content.
Several transactions are undone newest first, in one plan. An undo can be limited to some paths of a
transaction, and to some hunks of a path. Only a change of the same lines is a conflict (`merge.merge_lines`).
"""

from __future__ import annotations

from itertools import pairwise
from operator import attrgetter
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from editd.advice import Advice, argument_term, method_term
from editd.edits.line_changes import apply_changes, join, reverse, shown_hunks
from editd.edits.merge import merge_lines, merge_states, resolved_states
from editd.engine.external_changes import blocked_by
from editd.errors import Conflict, InvalidParams
from editd.store.path_history import LOOKED_AHEAD_MIN, HistoryWalker
from editd.values.content import SYMLINK, Change
from editd.values.path import folders_of

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from editd.edits.line_changes import LineChange
    from editd.engine.undo_selection import UndoTarget
    from editd.store.history import History
    from editd.values.content import Decoder, Entry, FileState
    from editd.values.path import WorkspacePath
    from editd.values.transaction import Seq, Transaction
    from editd.wire.messages import OnConflict

_PATH, _TOUCHES = attrgetter("path"), attrgetter("touches")
REPLAYED_MAX = 200  # later changes of a file that a forced undo replays


class ConflictSite(Struct, frozen=True):
    """A place where an undo does not merge: the present path, and the transaction to undo."""

    path: WorkspacePath
    seq: int
    origin: WorkspacePath  # the path in that transaction
    is_taken: bool = False  # another file occupies the path that `origin` needs
    reason: str = "lines"  # a reason of `merge_states`, or `path`
    lines: tuple[Mapping[str, int], ...] = ()  # conflicting lines of the present file
    hunks: tuple[str, ...] = ()  # diffs from the transaction's lines to the present ones


class UndoPlan(Struct, frozen=True):
    """The changes of an undo, and its conflicts (`places`). A path with a conflict has no change.

    `targets` are the parts that are undone. If conflicts are skipped, they are fewer than requested, and
    `places` has the rest.
    """

    changes: tuple[Change[FileState], ...]
    places: tuple[ConflictSite, ...]
    targets: tuple[UndoTarget, ...]
    idle: frozenset[int] = frozenset()  # targets undone separately that change nothing


class _Return(Struct, frozen=True):
    """The move of a file back to its path before a transaction moved it."""

    touch: Change[Entry]
    to: WorkspacePath
    place: ConflictSite
    state: FileState | None
    conflict: ConflictSite | None


class UndoPlanner(Struct):
    """The planned files while transactions are undone one after another."""

    past: HistoryWalker
    current: Callable[[WorkspacePath], FileState | None]
    targets: dict[int, UndoTarget]
    on_conflict: OnConflict
    made: dict[WorkspacePath, FileState | None] = field(default_factory=dict)
    # new path → old paths, that on the disk first
    moved: dict[WorkspacePath, tuple[WorkspacePath, ...]] = field(default_factory=dict)
    places: list[ConflictSite] = field(default_factory=list)
    idle: set[int] = field(default_factory=set)
    seen: dict[WorkspacePath, FileState | None] = field(default_factory=dict)  # results of `current`

    def undo(self, target: UndoTarget) -> None:
        """Undo one transaction on the planned files. Note conflicts in `places`."""
        seq, touches = int(target.transaction.seq), target.touches
        by_path, left = _by_paths(touches)
        located: dict[WorkspacePath, tuple[WorkspacePath, bool]] = {}
        occupied: set[WorkspacePath] = set()
        for touch in touches:
            if touch.path not in left:
                here, exists = located[touch.path] = self._locate(touch, seq)
                if exists:
                    occupied.add(here)
        moves: list[_Return] = []
        created: list[tuple[ConflictSite, Change[Entry]]] = []
        others: list[tuple[ConflictSite, Change[Entry]]] = []
        for touch in touches:
            if touch.path in target.hunks:
                self._revert_hunks(touch, target)
            elif touch.path not in left:
                here, exists = located[touch.path]
                place = ConflictSite(here, seq, touch.path)
                source = None if touch.source is None else by_path.get(touch.source)
                # Another file of this transaction may now have the last path of a deleted one.
                is_gone = touch.after is not None and not exists and here in occupied
                if source is not None:
                    moves.append(self._return(touch, source, place, is_gone=is_gone))
                elif not is_gone:
                    (created if touch.before is None else others).append((place, touch))
                elif touch.before is not None:
                    self._note_conflicts(replace(place, reason="deleted"))
                    self.targets[seq] = self.targets[seq].without({touch.path})
        # First remove created files, so that returning files find their paths free.
        reached: set[WorkspacePath] = set()
        if created:
            self._revert_all(created, reached)
        if moves:
            self._move_back(moves, seq)
        if others:
            self._revert_all(others, reached)

    def _locate(self, touch: Change[Entry], seq: int) -> tuple[WorkspacePath, bool]:
        """Return the path of a file that a transaction changed, and whether it exists.

        A file that the transaction deleted does not exist.
        """
        if touch.after is None:
            return touch.path, False
        return self._path_now(touch.path, seq)

    def _revert_all(
        self, changes: Iterable[tuple[ConflictSite, Change[Entry]]], reached: set[WorkspacePath]
    ) -> None:
        for place, touch in changes:
            # Two files of the transaction have the same path, and the first one is not removed by this undo.
            is_met = place.path in reached and self._now(place.path) is not None
            reached.add(place.path)
            self._revert(place, touch, is_met=is_met)

    def _revert(self, place: ConflictSite, touch: Change[Entry], *, is_met: bool) -> None:
        state, conflict = self._merge(place, touch.after, touch.before)
        if is_met:
            conflict = conflict or replace(place, reason="path")
        if not self._note_conflicts(conflict):
            self._leave(place, touch, range(1, len(_reversed(self.past, self.targets[place.seq], touch)) + 1))
            return
        self.made[place.path] = state
        if state is None:
            self.moved.pop(place.path, None)

    def _revert_hunks(self, touch: Change[Entry], target: UndoTarget) -> None:
        """Undo some hunks of a transaction in a file. The file keeps its path."""
        seq = int(target.transaction.seq)
        here, _ = self._path_now(touch.path, seq)
        place = ConflictSite(here, seq, touch.path)
        part = undone_in_part(self.past, target, touch)
        if touch.source is None and _is(part, touch.before):  # these are all of its hunks
            self.targets[seq] = self.targets[seq].as_whole(touch.path)
            self._revert(place, touch, is_met=False)
            return
        state, conflict = self._merge_onto(place, touch.after, self._now(here), part)
        if self._note_conflicts(conflict):
            self.made[place.path] = state
        else:
            self._leave(place, touch, target.hunks[touch.path])

    def _return(
        self, touch: Change[Entry], source: Change[Entry], place: ConflictSite, *, is_gone: bool
    ) -> _Return:
        state, conflict = (None, None) if is_gone else self._merge(place, touch.after, source.before)
        if state is None:
            conflict = conflict or replace(place, reason="deleted")
        return _Return(touch, source.path, place, state, conflict)

    def _move_back(self, moves: Sequence[_Return], seq: int) -> None:
        """Move files back to their paths before a transaction, all at once."""
        taken: dict[WorkspacePath, list[ConflictSite]] = {}
        while moves:
            leaving = {move.place.path for move in moves if move.state is not None}
            taken = {move.to: self._in_the_way(move, leaving, seq) for move in moves}
            staying = [move for move in moves if not self._note_conflicts(move.conflict, *taken[move.to])]
            if not staying:
                break
            paths = {path for move in staying for path in (move.touch.path, move.to)}
            self.targets[seq] = self.targets[seq].without(paths)
            # A staying file may occupy the path of another move: check the rest again.
            moves = [move for move in moves if move not in staying]
        trails = {move.to: (*self.moved.pop(move.place.path, ()), move.place.path) for move in moves}
        self.made |= {move.place.path: None for move in moves if move.state is not None}
        for move in moves:
            if move.touch.before is not None:  # the file that the move had overwritten
                self.made[move.touch.path] = self.past.state(move.touch.before)
                self.moved.pop(move.touch.path, None)
            is_taken = any(place.path == move.to for place in taken[move.to])
            if move.state is not None or not is_taken:  # a deletion must not delete another file
                self.made[move.to] = move.state
                self.moved[move.to] = trails[move.to]

    def _in_the_way(self, move: _Return, leaving: Container[WorkspacePath], seq: int) -> list[ConflictSite]:
        """Return the files at the paths that a move back needs, except files that leave."""
        wanted = [move.to, *([] if move.touch.before is None else [move.touch.path])]
        return [
            ConflictSite(path, seq, path, is_taken=True, reason="path")
            for path in wanted
            if path not in leaving and self._now(path) is not None
        ]

    def _merge(
        self, place: ConflictSite, base: Entry | None, theirs: Entry | None
    ) -> tuple[FileState | None, ConflictSite | None]:
        """Return the merged state of the place. If it is a conflict, return its description, too."""
        ours = self._now(place.path)
        if _is(ours, theirs):
            return ours, None
        return self._merge_onto(place, base, ours, self.past.state(theirs))

    def _merge_onto(
        self, place: ConflictSite, base: Entry | None, ours: FileState | None, wanted: FileState | None
    ) -> tuple[FileState | None, ConflictSite | None]:
        if _is(ours, base):  # unchanged since: the content of `base` need not be read
            return wanted, None
        made = self.past.state(base)
        try:
            return merge_states(made, ours, wanted, merge=merge_lines), None
        except Conflict as conflict:
            (file,) = conflict.data["files"]
            place = replace(
                place, reason=file["reason"], lines=tuple(file["lines"]), hunks=tuple(file.get("hunks", ()))
            )
            return self._resolved(place, made, ours, wanted), place

    def _resolved(
        self, place: ConflictSite, made: FileState | None, ours: FileState | None, wanted: FileState | None
    ) -> FileState | None:
        """Return the wanted state of the colliding lines, and `ours` of all others.

        Later changes are replayed one by one. So a line that one change added stays, also beside a line
        that another change has altered.
        """
        resolved = resolved_states(made, ours, wanted, "theirs")
        states = [made, *self._later_states(place), ours]
        if resolved is None or not all(map(_is_text, [wanted, *states])):
            return resolved
        state = wanted
        for before, after in pairwise(states):
            state = resolved_states(before, state, after, "ours")
        assert state is not None, "the winner is a file"
        return resolved.with_content(state.content)

    def _later_states(self, place: ConflictSite) -> list[FileState | None]:
        """Return the file after each later transaction, or nothing if it was moved or changed too often."""
        if self.on_conflict != "force" or place.path != place.origin or self.past.left(place.path, place.seq):
            return []
        life = self.past.history.index.life(place.path, place.seq, None)
        return [self.past.state(touch.after) for _, touch in life] if len(life) <= REPLAYED_MAX else []

    def _note_conflicts(self, *conflicts: ConflictSite | None) -> bool:
        """Note the conflicts. Return whether the change is made in spite of them."""
        present = list(filter(None, conflicts))
        if self.on_conflict != "force":
            self.places += present
        return not present or self.on_conflict != "skip"

    def _leave(self, place: ConflictSite, touch: Change[Entry], numbers: Sequence[int]) -> None:
        """Skip a file with a conflict, except the hunks of `numbers` that merge."""
        target, ours = self.targets[place.seq], self._now(place.path)
        made = self.past.state(touch.after)
        fitting: Sequence[int] = ()
        if numbers and made is not None and ours is not None:
            hunks = _reversed(self.past, target, touch)
            joined = join(made.content, ours.content, [hunks[number - 1] for number in numbers])
            if joined.content != ours.content:
                collided = set(joined.collided)
                fitting = [number for number in numbers if hunks[number - 1] not in collided]
                self.made[place.path] = ours.with_content(joined.content)
        self.targets[place.seq] = target.only_hunks(touch.path, fitting)

    def undo_alone(self, target: UndoTarget) -> None:
        """Undo one transaction like a separate undo. Each returning file needs a free path right after it."""
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
        """Return the present files above and below a path."""
        blocking = blocked_by([path], self.past.history)
        blocking |= {other for other in self.made if other in folders_of(path) or path in folders_of(other)}
        return sorted(other for other in blocking if self._now(other) is not None)

    def make_room(self) -> list[ConflictSite]:
        """Return conflicts of returning files with files above or below their paths."""
        made: set[WorkspacePath] = set()
        for path, state in self.made.items():
            if state is not None and self._on_disk(path) is None:
                made.add(path)
        made.difference_update([place.path for place in self.places] if self.places else ())
        if not made:
            return []
        nested = [(path, folder) for path in made for folder in folders_of(path) if folder in made]
        if not (nested or blocked_by(made, self.past.history)):
            return []
        seqs = {touch.path: seq for seq, target in self.targets.items() for touch in target.touches}
        oldest = min(self.targets)  # for a file that another author moved to its present path
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
        """Return the newest transaction outside the targets that created the file at `path`, or -1."""
        made = [
            seq
            for seq, touch in self.past.history.index.life(path, -1, None)
            if touch.before is None and not (seq in self.targets and self.targets[seq].covers(path))
        ]
        return max(made, default=-1)

    def _path_now(self, path: WorkspacePath, seq: int) -> tuple[WorkspacePath, bool]:
        """Return the present or last path of the file that had `path` after `seq`, and whether it exists."""
        now = self.past.follow_path(path, seq, self.targets)
        if now.exists and now.path in self.made and self.made[now.path] is None:
            # This undo may have moved it, from its path on the disk or from a later one.
            places = slice(1, None) if now.is_planned else slice(1)
            found = [to for to, trail in self.moved.items() if now.path in trail[places]]
            return found[0] if len(found) == 1 else now.path, True
        return now.path, now.exists

    def _now(self, path: WorkspacePath) -> FileState | None:
        return self.made[path] if path in self.made else self._on_disk(path)

    def _on_disk(self, path: WorkspacePath) -> FileState | None:
        """Return the present state of a path, which is looked up once."""
        if path not in self.seen:
            self.seen[path] = self.current(path)
        return self.seen[path]


def invert(
    targets: Sequence[UndoTarget],
    past: HistoryWalker,
    current: Callable[[WorkspacePath], FileState | None],
    on_conflict: OnConflict = "fail",
    apart: AbstractSet[int] = frozenset(),
) -> UndoPlan:
    """Return the plan that undoes `targets` in the given order, on the files that `current` returns.

    The transactions of `apart` are undone like separate undos: each result must be possible on its own.
    Raises HistoryDamaged if old content is missing, and InvalidParams for a hunk that does not exist.
    """
    left: list[ConflictSite] = []
    by_seq: dict[int, UndoTarget] = {}
    paths = 0
    for target in targets:
        by_seq[int(target.transaction.seq)] = target
        paths += len(target.touches)
    if paths > LOOKED_AHEAD_MIN:
        past.look_ahead(min(by_seq), paths)
    while True:
        work = UndoPlanner(past, current, by_seq, on_conflict)
        for target in targets:
            undo = work.undo_alone if target.transaction.seq in apart else work.undo
            undo(target)
        no_room = work.make_room()
        work.places += left + no_room
        if on_conflict != "skip" or not no_room:
            return _inverted(work)
        left += no_room
        origins = {place.origin for place in no_room}
        targets = [target.without(origins) for target in targets if target.without(origins).touches]
        by_seq = {int(target.transaction.seq): target for target in targets}


def undone_in_part(past: HistoryWalker, target: UndoTarget, touch: Change[Entry]) -> FileState | None:
    """Return the file right after the transaction, without the hunks or the change that `target` undoes."""
    if touch.path not in target.hunks:
        return past.state(touch.before)
    hunks = _reversed(past, target, touch)
    wrong = [number for number in target.hunks[touch.path] if not 1 <= number <= len(hunks)]
    if wrong:
        raise _no_such_hunk(target.transaction.seq, touch.path, wrong[0], len(hunks))
    made = past.state(touch.after)
    assert made is not None, "an absent file has no hunks"
    return made.with_content(apply_changes(made.content, [hunks[n - 1] for n in target.hunks[touch.path]]))


def _no_such_hunk(seq: Seq, path: WorkspacePath, number: int, count: int) -> InvalidParams:
    if not count:
        return InvalidParams(
            f"The change of {path} by transaction {seq} has no hunks.",
            hint=Advice("Name the path in ", argument_term("paths"), " to undo the whole change."),
        )
    return InvalidParams(
        f"Transaction {seq} has {count} hunk{'s' * (count > 1)} in {path}, and no hunk {number}.",
        hint=Advice("Use ", method_term("show", argument=str(seq), option="hunks"), " to list them."),
    )


def numbered_hunks(
    history: History, transaction: Transaction, decoder: Decoder | None = None
) -> Iterator[tuple[WorkspacePath, int, str]]:
    """Yield the hunks of a transaction that an undo can name: path, number from 1, and diff.

    A `decoder` decodes the diff of a file that is not UTF-8.
    """
    past = HistoryWalker(history)
    for touch in transaction.touches:
        states = hunks_of(past, transaction, touch)
        if states is not None:
            for number, text in enumerate(shown_hunks(states[0].content, states[1].content), 1):
                yield touch.path, number, text if decoder is None else decoder.lines(text, *states)


def hunks_of(
    past: HistoryWalker, transaction: Transaction, touch: Change[Entry]
) -> tuple[FileState, FileState] | None:
    """Return the file before and after a change of its lines, or None if it was not such a change."""
    before = touch.before
    if touch.source is not None:
        moved = next((other for other in transaction.touches if other.path == touch.source), None)
        before = None if moved is None else moved.before
    if before is None or touch.after is None or SYMLINK in (before.mode, touch.after.mode):
        return None
    if any(past.history.is_dropped(side.version) for side in (before, touch.after)):
        return None
    old, new = past.state(before), past.state(touch.after)
    if old is None or new is None or b"\0" in old.content or b"\0" in new.content:
        return None
    return old, new


def _reversed(past: HistoryWalker, target: UndoTarget, touch: Change[Entry]) -> list[LineChange]:
    """Return the inverse hunks of a file's change, none for a file that is not text."""
    states = hunks_of(past, target.transaction, touch)
    return [] if states is None else reverse(states[0].content, states[1].content)


def _by_paths(
    touches: Iterable[Change[Entry]],
) -> tuple[dict[WorkspacePath, Change[Entry]], set[WorkspacePath]]:
    """Return the touches by their paths, and the paths that a move has left."""
    by_path: dict[WorkspacePath, Change[Entry]] = {}
    left: set[WorkspacePath] = set()
    for touch in touches:
        by_path[touch.path] = touch
        if touch.source is not None:
            left.add(touch.source)
    return by_path, left


def _inverted(work: UndoPlanner) -> UndoPlan:
    conflicting: set[WorkspacePath] = set()
    if work.places and work.on_conflict != "skip":  # otherwise `made` has no conflicting results
        conflicting = {place.path for place in work.places}
        conflicting |= {place.origin for place in work.places if place.is_taken}
    changes: list[Change[FileState]] = []
    for path, after in work.made.items():
        before = work.seen[path] if path in work.seen else work.current(path)
        if path not in conflicting and before != after:
            source = _source(work, path, after) if work.moved else None
            changes.append(Change(path, before, after, source))
    changes.sort(key=_PATH)
    targets = tuple(filter(_TOUCHES, work.targets.values()))
    return UndoPlan(tuple(changes), tuple(work.places), targets, frozenset(work.idle))


def _is_text(state: FileState | None) -> bool:
    return state is not None and not state.is_symlink and b"\0" not in state.content


def _is(state: FileState | None, entry: Entry | None) -> bool:
    """Return whether the state has the content and the mode of the entry."""
    if state is None or entry is None:
        return (state, entry) == (None, None)
    return (state.version, state.mode) == (entry.version, entry.mode)


def _source(work: UndoPlanner, path: WorkspacePath, after: FileState | None) -> WorkspacePath | None:
    source, *_ = work.moved.get(path, (None,))
    if source is None or source == path or after is None or work.made.get(source) is not None:
        return None
    return source if work.current(source) is not None else None
