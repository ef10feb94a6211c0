"""What stands in the way of an undo: the later transactions there, and those that would have to go with it.

For `needs` the file is told anew without what is to be undone, one later change after another: a change that
no longer merges depends on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from editd.edits.merge import merge_lines, merge_states
from editd.engine.requests import InTheWay
from editd.engine.scopes import Target, whole_of
from editd.engine.undo import Past, Place, invert, undone_in_part
from editd.errors import Conflict
from editd.store.index import NEVER
from editd.values.path import WorkspacePath

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from editd.errors import NotAFile
    from editd.store.history import History
    from editd.values.content import FileState
    from editd.values.transaction import Seq, Touch

    Current = Callable[[WorkspacePath], FileState | None]

LATER_MAX = 200  # changes of one file that are told anew; behind more of them all are named
SENTENCES_MAX = 3  # of a refusal; its data has all
ROUNDS_MAX = 20  # of taking along what is in the way in the files of those that were taken along


class UndoConflict(Conflict):
    """Later changes collide with what is to be undone; the engine adds which transactions made them."""

    def __init__(self, places: Sequence[Place], targets: Sequence[Target]) -> None:
        super().__init__("The undo does not merge cleanly; nothing was changed.")
        self.places = places
        self.targets = targets

    def explain(self, history: History, current: Current) -> None:
        """Fill in the transactions in the way. Called when the turn is over and all is recorded."""
        found = obstructions(self.places, self.targets, Past(history), current)
        self.message = " ".join([*map(_sentence, found[:SENTENCES_MAX]), "Nothing was changed."])
        needs = sorted({seq for one in found for seq in one.needs}, reverse=True)
        steps = (
            [f"undo {', '.join(map(str, needs))} first{', in this order' * (len(needs) > 1)}"]
            if needs
            else []
        )
        no_room = [place.path.text for place in self.places if place.is_taken and place.path != place.origin]
        if no_room and not needs:
            steps.append(f"move {no_room[0]} away")
        elif not no_room:
            steps.append("use on_conflict: force to put the earlier lines back all the same")
        touched = {touch.path for target in self.targets for touch in target.touches}
        if touched - {place.origin for place in self.places}:
            steps.append("use on_conflict: skip to undo only what fits")
        hint = ", or ".join(steps) or "Look at what is there now"
        self.hint = f"{hint[0].upper()}{hint[1:]}."
        self.data["files"] = [one.told() for one in found]


class NoRoom(Conflict):
    """Something that an undo or a restore does not touch is where a file has to be, or its folder."""

    def __init__(self, refusal: NotAFile, history: History) -> None:
        place = WorkspacePath(refusal.data.get("obstacle", refusal.data["path"]))
        made = history.index.touch_at(place, int(history.head))
        by = () if made is None or made[1].after is None else (made[0],)
        self.files = (InTheWay(place, by, ()),)
        super().__init__(
            f"{refusal.message} Nothing was changed.",
            hint=f"Move {place} away, and try again.",
            data={"files": [file.told() for file in self.files]},
        )


def _sentence(one: InTheWay) -> str:
    by = [seq for seq in one.blocking if seq in one.needs] or one.blocking
    if not by:
        return f"{one.path} is in the way."
    who = f"Transaction{'s' * (len(by) > 1)} {', '.join(map(str, by))}"
    what = {"lines": "changed the same lines of", "deleted": "deleted or changed", "path": "made"}
    return f"{who} {what.get(one.reason, 'changed')} {one.path}."


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

    Where another file stands there, those that made that one. Where those in force do not tell, all
    that came after are named.
    """
    found: list[int] = []
    for seq, touch in _later(past, place, targets):
        if place.is_taken and touch.before is None:
            found.clear()
        found.append(seq)
    if found:
        return found
    life = past.history.index.life(place.path, place.seq, None)
    return [seq for seq, touch in life if not _is_covered(targets, seq, touch)]


def obstructions(
    places: Sequence[Place], targets: Sequence[Target], past: Past, current: Current
) -> tuple[InTheWay, ...]:
    """For each file that does not merge: who is in the way, and who would have to be undone first.

    With all that is needed taken along, the undo is clean, also in the other files of what is taken along.
    What is to be undone itself and is newer than something that is needed is needed first, too: else it
    would be in the way of that. Where that cannot be had, because what is there is not in the history,
    `needs` is as near as it gets.
    """
    given = _by_seq(targets)
    taken = Taken(targets)
    shown = _newest(places)
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
        for seqs in needs.values():
            seqs.update(*(brought[seq] for seq in seqs & brought.keys()))
            seqs.update(seq for seq in given if seqs and seq > min(seqs))
        more.update(seq for seqs in needs.values() for seq in seqs & given.keys() if taken.is_in_part(seq))
        if not more:
            break
        taken.add([whole_of(one) for one in past.history.index.transactions(more)])
        places = invert(taken.newest_first(), past, current).places
    return tuple(
        InTheWay(
            path, tuple(found[path]), tuple(sorted(needs[path])),
            shown[path].reason, shown[path].lines, shown[path].hunks,
        )
        for path in found
    )  # fmt: skip


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

    def is_in_part(self, seq: int) -> bool:
        """Whether only some of what is in force of it is taken."""
        target = self.by_seq[seq]
        return target != whole_of(target.transaction)

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
    state = undone_in_part(past, taken.by_seq[first], touch)
    depending: list[int] = []
    for seq, change in later:
        before = change.before
        if change.source is not None:
            source = index.touch_in(change.source, seq)
            before = None if source is None else source.before
        try:
            state = merge_states(past.state(before), state, past.state(change.after), merge=merge_lines)
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
        if _is_covered(targets, seq, touch):
            continue
        if touch.undone_by is not None and touch.undone_by not in targets:
            continue  # else it is in force again by then
        undone = past.undoes(seq)
        if undone and all(below > place.seq for below in undone):
            continue  # it took back another one that came after: the two cancel out
        yield seq, touch


def _is_covered(targets: Mapping[int, Target], seq: int, touch: Touch) -> bool:
    return seq in targets and targets[seq].covers(touch.path)


def _life(past: Past, path: WorkspacePath, seq: int, until: int = NEVER) -> Iterator[tuple[Seq, Touch]]:
    """What happened to the file that `path` named after `seq`, also under the names it had later."""
    life = past.history.index.life
    after = seq
    names = [(path, seq)]
    while (left := past.left(path, seq)) is not None and left.at < until:
        yield from life(path, after, left.at)
        after, since, seq = left.at - 1, seq, left.at
        back = past.brought_back(path, left, since)
        if back is not None and left.undone_by is not None and left.undone_by < until:
            if left.to is not None:
                yield from _life(past, left.to, seq, left.undone_by)
            path, after, seq = back, left.undone_by - 1, left.undone_by
        elif left.to is not None:
            path = left.to
        elif (revival := past.revival(names, left.at)) is not None and revival[1] < until:
            yield from life(path, after, left.at + 1)
            path, seq = revival
            after = seq - 1
        else:
            break  # and now what came in its place is in the way
        names.append((path, seq))
    yield from life(path, after, until)


def _oldest(places: Sequence[Place]) -> list[Place]:
    """The oldest place of each file at each path, by path."""
    oldest: dict[tuple[WorkspacePath, WorkspacePath, bool], Place] = {}
    for place in sorted(places, key=lambda place: place.seq, reverse=True):
        oldest[place.path, place.origin, place.is_taken] = place
    return sorted(oldest.values(), key=lambda place: place.path)


def _newest(places: Sequence[Place]) -> dict[WorkspacePath, Place]:
    """The newest place of each path: there it was seen first that something collides."""
    newest: dict[WorkspacePath, Place] = {}
    for place in sorted(places, key=lambda place: place.seq):
        newest[place.path] = place
    return newest


def _by_seq(targets: Iterable[Target]) -> dict[int, Target]:
    return {int(target.transaction.seq): target for target in targets}
