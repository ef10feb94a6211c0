"""What stands in the way of an undo: the later transactions there, and those that would have to go with it.

For `needs` the file is told anew without what is to be undone, one later change after another: a change that
no longer merges depends on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from editd.edits.merge import merge_lines, merge_states
from editd.engine.requests import InTheWay
from editd.engine.scopes import Target, whole_of, would_name
from editd.engine.undo import Past, Place, invert, undone_in_part
from editd.errors import Conflict
from editd.store.index import NEVER, Wanted
from editd.values.path import WorkspacePath, folders_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from editd.engine.scopes import Scope
    from editd.errors import NotAFile
    from editd.store.history import History
    from editd.values.content import FileState
    from editd.values.transaction import Seq, Touch, Transaction

    Current = Callable[[WorkspacePath], FileState | None]

LATER_MAX = 200  # changes of one file that are told anew; behind more of them all are named
SENTENCES_MAX = 3  # of a refusal; its data has all
ROUNDS_MAX = 20  # of taking along what is in the way in the files of those that were taken along


class UndoConflict(Conflict):
    """Later changes collide with what is to be undone; the engine adds which transactions made them."""

    def __init__(self, places: Sequence[Place], targets: Sequence[Target], scope: Scope) -> None:
        super().__init__("The undo does not merge cleanly; nothing was changed.")
        self.places = places
        self.targets = targets
        self.scope = scope

    def explain(self, history: History, current: Current) -> None:
        """Fill in the transactions in the way. Called when the turn is over and all is recorded."""
        found = obstructions(self.places, self.targets, self.scope, Past(history), current)
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
    places: Sequence[Place], targets: Sequence[Target], scope: Scope, past: Past, current: Current
) -> tuple[InTheWay, ...]:
    """For each file that does not merge: who is in the way, and who would have to be undone first.

    Once all that is needed is undone, one by one and newest first, the undo is clean. That is carried out
    here, in memory. Targets that are newer than something that is needed are needed themselves.
    If what is there is not in the history, nothing leads to a clean undo, and `needs` is as near as it gets.
    """
    shown = _newest(places)
    taken = Taken(past.history, targets, would_name(scope, past.history))
    found = blocking_by_path(past, places, taken.by_seq)
    needs = _needed(places, taken, past, current, found)
    return tuple(
        InTheWay(
            path, tuple(found[path]), tuple(sorted(needs[path])),
            shown[path].reason, shown[path].lines, shown[path].hunks,
        )
        for path in found
    )  # fmt: skip


def _needed(
    places: Sequence[Place], taken: Taken, past: Past, current: Current, found: Collection[WorkspacePath]
) -> dict[WorkspacePath, set[int]]:
    """For each path of `found` what has to be undone first: as few as a change after the other tells."""
    needs: dict[WorkspacePath, set[int]] = {path: set() for path in found}
    first = places
    for attempt in range(ROUNDS_MAX):
        more: set[int] = set()
        brought: dict[int, set[int]] = {}  # by those that were taken along: what their other files need
        for place in _oldest(places):
            again = attempt and place.path in needs
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
            seqs.update(seq for seq in taken.given if seqs and seq > min(seqs))
        if not taken.take_along(more.union(*needs.values())):
            break
        places = taken.carried_out(past, current)
        if not places:
            needed = taken.needed()
            rest = needed.difference(*needs.values())
            return {path: (seqs & needed) | rest or needed for path, seqs in needs.items()}
    return dict.fromkeys(found, taken.everything_since(first))


class Taken:
    """What is to be undone together, by its seq and by the paths that it touched.

    Beside the `given` targets these are others that are taken `along`, whole, each on its own.
    """

    def __init__(
        self, history: History, targets: Iterable[Target], is_named: Callable[[Transaction], bool]
    ) -> None:
        """`is_named` tells whether the undo takes a transaction as well, once that is in force again."""
        self.given = _by_seq(targets)
        self._first_given = frozenset(self.given)
        self.along: set[int] = set()
        self.idle: set[int] = set()
        self.by_seq: dict[int, Target] = dict(self.given)
        self._history = history
        self._is_named = is_named
        self._touching: dict[WorkspacePath, list[int]] = {}
        self._take_up()

    def take_along(self, seqs: Iterable[int]) -> bool:
        """Take these along, and what is in force again without them. Returns whether that is any more."""
        index, before = self._history.index, len(self.along)
        waiting = set(seqs) - self.along
        while waiting:
            self.along |= waiting
            below = index.transactions({one for seq in waiting for one in index.undoes(seq)} - self.along)
            self.given |= {int(one.seq): Target(one) for one in below if self._is_named(one)}
            first = min(self.given)
            waiting = {int(one.seq) for one in below if one.seq > first and one.seq not in self.given}
            waiting |= {seq for seq in self.given if seq > min(self.along)} - self.along
        if len(self.along) == before:
            return False
        transactions = index.transactions(self.along | (self.given.keys() - self._first_given))
        self.by_seq |= {int(one.seq): whole_of(one, self.along) for one in transactions}
        self._take_up()
        return True

    def _take_up(self) -> None:
        self._touching.clear()
        for seq, target in self.by_seq.items():
            for touch in target.touches:
                self._touching.setdefault(touch.path, []).append(seq)

    def touching(self, path: WorkspacePath) -> Sequence[int]:
        """The seqs of those that touched `path`."""
        return self._touching.get(path, ())

    def needed(self) -> set[int]:
        """What has to be undone first."""
        return self.along - self.idle

    def carried_out(self, past: Past, current: Current) -> tuple[Place, ...]:
        """Where it does not merge if all that is needed is undone first, one by one, and then the given.

        What would change nothing in its turn cannot be undone then: it stays, or goes with the given.
        """
        self.idle.clear()
        while True:
            first = self.needed()
            last = self.given.keys() - first
            targets = [self.by_seq[seq] for seqs in (first, last) for seq in sorted(seqs, reverse=True)]
            inverted = invert(targets, past, current, apart=first)
            if not inverted.idle:
                return inverted.places
            self.idle |= inverted.idle

    def everything_since(self, places: Iterable[Place]) -> set[int]:
        """All that has to do with the places, by any path, since the first that was given.

        Undone newest first, each of them finds the files as it left them.
        """
        index, first = self._history.index, min(self.given)
        paths = {path for place in places for path in (place.path, place.origin)}
        found: set[int] = set()
        reached = set(paths)
        while reached:
            wanted = Wanted(after=first - 1, paths=tuple(reached))
            seqs = {int(one.seq) for one in index.log(wanted, NEVER)}
            for path in reached:
                for folder in folders_of(path):
                    seqs.update(index.touches_after(folder, first - 1))
            waiting = seqs - found
            reached = set()
            while waiting:
                found |= waiting
                more: set[int] = set()
                for one in index.transactions(waiting):
                    reached.update(touch.path for touch in one.touches)
                    more.update(int(t.undone_by) for t in one.touches if t.undone_by is not None)
                    more.update(int(below) for below in one.undoes if below >= first)
                waiting = more - found
            reached -= paths
            paths |= reached
        others = found - self.given.keys()
        return {seq for seq in found if seq in others or (others and seq > min(others))}


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
