"""What stands in the way of an undo: the later transactions there, and those that would have to go with it.

For `needs` the file is told anew without what is to be undone, one later change after another: a change that
no longer merges depends on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from editd.edits.merge import merge_states
from editd.engine.requests import InTheWay
from editd.engine.scopes import Target, whole_of
from editd.engine.undo import Past, Place, invert
from editd.errors import Conflict
from editd.store.index import NEVER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from editd.store.history import History
    from editd.values.content import FileState
    from editd.values.path import WorkspacePath
    from editd.values.transaction import Seq, Touch

LATER_MAX = 200  # changes of one file that are told anew; behind more of them all are named
ROUNDS_MAX = 5  # of taking along what is in the way in the files of those that were taken along


class UndoConflict(Conflict):
    """Later changes overlap what is to be undone; the engine adds which transactions made them."""

    def __init__(self, places: Sequence[Place], targets: Sequence[Target]) -> None:
        super().__init__("The undo does not merge cleanly; nothing was changed.")
        self.places = places
        self.targets = _by_seq(targets)

    def explain(self, history: History) -> None:
        """Fill in the transactions in the way. Called when the turn is over and all is recorded."""
        found = blocking_by_path(Past(history), self.places, self.targets)
        files = [{"path": path.text, "blocking": seqs} for path, seqs in found.items()]
        seqs = sorted({seq for in_the_way in found.values() for seq in in_the_way})
        paths = ", ".join(path.text for path in found)
        made_by = f" Transactions in the way: {', '.join(map(str, seqs))}." if seqs else ""
        self.message = f"Later changes to {paths} overlap what is to be undone; nothing was changed.{made_by}"
        self.hint = (
            "A dry run tells which of them depend on it. Undo those first, or use on_conflict: force to put "
            "the earlier text back all the same."
        )
        self.data["files"] = files


def blocking_by_path(
    past: Past, places: Sequence[Place], targets: Mapping[int, Target]
) -> dict[WorkspacePath, list[int]]:
    """Of each path, rising, the transactions in the way of what was to be undone there, rising."""
    found: dict[WorkspacePath, set[int]] = {}
    for place in _oldest(places):
        found.setdefault(place.path, set()).update(blocking(past, place, targets))
    return {path: sorted(seqs) for path, seqs in found.items()}


def blocking(past: Past, place: Place, targets: Mapping[int, Target]) -> list[int]:
    """The transactions after `place.seq` that changed its file and are still in force there, rising.

    Where another file stands there, those that made that one.
    """
    found: list[int] = []
    for seq, touch in _later(past, place, targets):
        if place.is_taken and touch.before is None:
            found.clear()
        found.append(seq)
    return found


def obstructions(
    places: Sequence[Place],
    targets: Sequence[Target],
    past: Past,
    current: Callable[[WorkspacePath], FileState | None],
) -> tuple[InTheWay, ...]:
    """For each file that does not merge: who is in the way, and who would have to be undone as well.

    With all that is needed taken along, the undo is clean, also in the other files of what is taken along.
    Where that cannot be had, because what is there is not in the history, `needs` is as near as it gets.
    """
    taken = Taken(targets)
    found = blocking_by_path(past, places, taken.by_seq)
    needs: dict[WorkspacePath, set[int]] = {path: set() for path in found}
    for attempt in range(ROUNDS_MAX):
        more: set[int] = set()
        brought: dict[int, set[int]] = {}  # by those that were taken along: what their other files need
        for place in _oldest(places):
            again = attempt and place.path in found
            added = [] if again else _dependent(past, place, taken)
            added = added or blocking(past, place, taken.by_seq)
            more.update(added)
            if place.path in needs:
                needs[place.path].update(added)
            else:
                for seq in taken.touching(place.origin):
                    brought.setdefault(seq, set()).update(added)
        if not more:
            break
        for seqs in needs.values():
            seqs.update(*(brought[seq] for seq in seqs & brought.keys()))
        taken.add([whole_of(one) for one in past.history.index.transactions(more)])
        places = invert(taken.newest_first(), past, current).places
    return tuple(InTheWay(path, tuple(found[path]), tuple(sorted(needs[path]))) for path in found)


class Taken:
    """What is to be undone together, by its seq and by the paths that it touched."""

    def __init__(self, targets: Iterable[Target]) -> None:
        self.by_seq: dict[int, Target] = {}
        self._touching: dict[WorkspacePath, list[int]] = {}
        self.add(targets)

    def add(self, targets: Iterable[Target]) -> None:
        for seq, target in _by_seq(targets).items():
            self.by_seq[seq] = target
            for touch in target.touches:
                self._touching.setdefault(touch.path, []).append(seq)

    def touching(self, path: WorkspacePath) -> Sequence[int]:
        """The seqs of those that touched `path`."""
        return self._touching.get(path, ())

    def newest_first(self) -> list[Target]:
        return [self.by_seq[seq] for seq in sorted(self.by_seq, reverse=True)]


def _dependent(past: Past, place: Place, taken: Taken) -> list[int]:
    """Those in the way whose change does not merge into the file as it is without what is `taken`."""
    if place.is_taken:
        return blocking(past, place, taken.by_seq)
    first = min(taken.touching(place.origin))
    index = past.history.index
    touch = index.touch_in(place.origin, first)
    later = list(_later(past, Place(place.path, first, place.origin), taken.by_seq))
    if touch is None or touch.source is not None or len(later) > LATER_MAX:
        return [seq for seq, _ in later if seq > place.seq]
    state = past.state(touch.before)
    depending: list[int] = []
    for seq, change in later:
        before = change.before
        if change.source is not None:
            source = index.touch_in(change.source, seq)
            before = None if source is None else source.before
        try:
            state = merge_states(past.state(before), state, past.state(change.after))
        except Conflict:
            depending.append(seq)
    return depending


def _later(past: Past, place: Place, targets: Mapping[int, Target]) -> Iterator[tuple[int, Touch]]:
    """The changes in force of a file after `place.seq`, in their order, but for those of `targets`."""
    if place.is_taken:
        life: Iterable[tuple[Seq, Touch]] = past.history.index.life(place.path, place.seq, None)
    else:
        life = _life(past, place.origin, place.seq)
    for seq, touch in life:
        target = targets.get(seq)
        if target is not None and target.covers(touch.path):
            continue
        if touch.undone_by is not None and touch.undone_by not in targets:
            continue  # else it is in force again by then
        undone = past.undoes(seq)
        if undone and all(below > place.seq for below in undone):
            continue  # it took back another one that came after: the two cancel out
        yield seq, touch


def _life(past: Past, path: WorkspacePath, seq: int, until: int = NEVER) -> Iterator[tuple[Seq, Touch]]:
    """What happened to the file that `path` named after `seq`, also under the names it had later."""
    life = past.history.index.life
    after = seq
    while (left := past.left(path, seq)) is not None and left.at < until:
        yield from life(path, after, left.at)
        after, seq = left.at - 1, left.at
        if left.undone_by is not None and left.undone_by < until:
            if left.to is not None:
                yield from _life(past, left.to, seq, left.undone_by)
            after, seq = left.undone_by - 1, left.undone_by
        elif left.to is None:
            break  # and now what came in its place is in the way
        else:
            path = left.to
    yield from life(path, after, until)


def _oldest(places: Sequence[Place]) -> list[Place]:
    """The oldest place of each file at each path, by path."""
    oldest: dict[tuple[WorkspacePath, WorkspacePath, bool], Place] = {}
    for place in sorted(places, key=lambda place: place.seq, reverse=True):
        oldest[place.path, place.origin, place.is_taken] = place
    return sorted(oldest.values(), key=lambda place: place.path)


def _by_seq(targets: Iterable[Target]) -> dict[int, Target]:
    return {int(target.transaction.seq): target for target in targets}
