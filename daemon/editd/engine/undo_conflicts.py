"""Obstructions of an undo: the later transactions in its way, and those that have to be undone before it.

A later change that no longer merges into the file without the undone lines depends on them. Whether the
undo is clean without these changes is tried out, by the same code that carries it out.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from editd.edits.merge import merge_lines, merge_states
from editd.engine.commands import ConflictReport
from editd.engine.undo import ConflictSite, HistoryWalker, invert, undone_in_part
from editd.engine.undo_selection import BySession, ByTransaction, batches_of, part_of, whole_of, would_name
from editd.errors import Conflict, NothingToUndo
from editd.store.index import NEVER, LogQuery
from editd.values.path import WorkspacePath, folders_of
from editd.values.transaction import Seq

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from editd.engine.undo_selection import Scope, UndoTarget
    from editd.errors import NotAFile
    from editd.store.history import History
    from editd.values.content import FileState
    from editd.values.transaction import Touch, Transaction

    Current = Callable[[WorkspacePath], FileState | None]

LATER_MAX = 200  # changes of one file that are told anew; behind more of them all are named
SENTENCES_MAX = 3  # of a refusal; its data has all
STEPS_MAX = 100  # tried out; beyond that, all that is connected is needed
TRIES_MAX = 500  # steps in all trials together, which take a second
PATHS_AT_ONCE = 100  # in one question to the index


class UndoConflict(Conflict):
    """Later changes collide with what is to be undone; the engine adds which transactions made them."""

    def __init__(self, places: Sequence[ConflictSite], targets: Sequence[UndoTarget], scope: Scope) -> None:
        super().__init__("The undo does not merge cleanly; nothing was changed.")
        self.places = places
        self.targets = targets
        self.scope = scope

    def explain(self, history: History, current: Current) -> None:
        """Fill in the transactions in the way. Called when the turn is over and all is recorded."""
        found = undo_conflicts(self.places, self.targets, self.scope, HistoryWalker(history), current)
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
        self.files = (ConflictReport(place, by, ()),)
        super().__init__(
            f"{refusal.message} Nothing was changed.",
            hint=f"Move {place} away, and try again.",
            data={"files": [file.told() for file in self.files]},
        )


def _sentence(one: ConflictReport) -> str:
    by = [seq for seq in one.blocking if seq in one.needs] or one.blocking
    if not by:
        return f"{one.path} is in the way."
    who = f"Transaction{'s' * (len(by) > 1)} {', '.join(map(str, by))}"
    what = {"lines": "changed the same lines of", "deleted": "deleted or changed", "path": "made"}
    return f"{who} {what.get(one.reason, 'changed')} {one.path}."


def blocking_by_path(
    past: HistoryWalker, places: Sequence[ConflictSite], targets: Mapping[int, UndoTarget]
) -> dict[WorkspacePath, list[int]]:
    """Of each path, rising, the transactions in the way of what was to be undone there, rising."""
    found: dict[WorkspacePath, set[int]] = {}
    for place in _oldest(places):
        found.setdefault(place.path, set()).update(blocking(past, place, targets))
    return {path: sorted(seqs) for path, seqs in found.items()}


def blocking(past: HistoryWalker, place: ConflictSite, targets: Mapping[int, UndoTarget]) -> list[int]:
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


def undo_conflicts(
    places: Sequence[ConflictSite],
    targets: Sequence[UndoTarget],
    scope: Scope,
    past: HistoryWalker,
    current: Current,
) -> tuple[ConflictReport, ...]:
    """For each file that does not merge: the transactions in the way, and those to be undone first.

    Once all that is needed is undone, one by one and newest first, the undo is clean.
    If what is there is not in the history, nothing leads to a clean undo, and `needs` is as near as it gets.
    """
    if not places:
        return ()
    shown = _newest(places)
    found = blocking_by_path(past, places, _by_seq(targets))
    needs = Recipe(past.history, targets, scope, current).find(past, places, found)
    return tuple(
        ConflictReport(
            path, tuple(found[path]), tuple(sorted(needs[path])),
            shown[path].reason, shown[path].lines, shown[path].hunks,
        )
        for path in found
    )  # fmt: skip


class Recipe:
    """The transactions that have to be undone first, found by undoing them in a trial of the history.

    Whatever an undo of the trial collides with is needed, too, and the trial begins anew. If that gets long,
    all that is connected with the files is needed: undone newest first, each finds them as it left them.
    """

    def __init__(
        self, history: History, targets: Iterable[UndoTarget], scope: Scope, current: Current
    ) -> None:
        self._history = history
        self._given = _by_seq(targets)
        self._scope = scope
        self._current = current
        self._head = int(history.head)
        self._left_out: set[int] = set()  # named, and not to be undone
        self._left_out = _by_seq(self._named()).keys() - self._given.keys()
        self._needs: dict[WorkspacePath, set[int]] = {}

    def find(
        self, past: HistoryWalker, places: Sequence[ConflictSite], paths: Iterable[WorkspacePath]
    ) -> dict[WorkspacePath, set[int]]:
        """Return for each of the paths the transactions that its places need."""
        self._needs = {path: set() for path in paths}
        for place in _oldest(places):
            added = _dependent(past, place, self._given) or blocking(past, place, self._given)
            self._needs[place.path].update(added)
        tries, steps = 0, self._steps()
        while steps and len(steps) <= STEPS_MAX and tries <= TRIES_MAX:
            tries += len(steps)
            idle, is_done = self._try_out(steps)
            if is_done:
                return {path: seqs - idle for path, seqs in self._needs.items()}
            if self._steps() == steps:
                break
            steps = self._steps()
        return dict.fromkeys(self._needs, self._everything_since(places)) if steps else self._needs

    def _steps(self) -> list[int]:
        return sorted(set().union(*self._needs.values()), reverse=True)

    def _try_out(self, steps: Sequence[int]) -> tuple[set[int], bool]:
        """Undo the steps and then the targets, up to the first collision, which adds to what is needed.

        Return the steps that change nothing in their turn, and whether there was no collision.
        """
        files: dict[WorkspacePath, FileState | None] = {}

        def current(path: WorkspacePath) -> FileState | None:
            return files[path] if path in files else self._current(path)

        idle: set[int] = set()
        with self._history.trial() as record:
            for seq in steps:
                targets = [target for target in map(whole_of, self._transactions([seq])) if target.touches]
                past = HistoryWalker(self._history)
                inverted = invert(targets, past, current)
                if inverted.places:
                    self._add(past, inverted.places, targets, {p for p, s in self._needs.items() if seq in s})
                    return idle, False
                if not inverted.changes:
                    idle.add(seq)
                    continue
                files |= {change.path: change.after for change in inverted.changes}
                parts = [part for target in inverted.targets for part in target.parts]
                record(inverted.changes, [Seq(seq)], parts)
            past, targets = HistoryWalker(self._history), self._named()
            places = invert(targets, past, current).places
            is_known = self._add(past, places, targets, set())
            return idle, not is_known

    def _add(
        self,
        past: HistoryWalker,
        places: Sequence[ConflictSite],
        targets: Sequence[UndoTarget],
        paths: Collection[WorkspacePath],
    ) -> bool:
        """Add the transactions that these places collide with to the paths; return whether any exist."""
        is_known, by_seq = False, _by_seq(targets)
        for place in _oldest(places):
            in_the_way = blocking(past, place, by_seq)
            is_known = is_known or bool(in_the_way)
            more = self._undoable(past, _dependent(past, place, by_seq), by_seq)
            if more <= set(self._steps()):
                more = self._undoable(past, in_the_way, by_seq)
            for path in paths or [path for path in self._needs if path == place.path] or self._needs:
                self._needs[path] |= more
        return is_known

    def _undoable(self, past: HistoryWalker, in_the_way: Iterable[int], targets: Collection[int]) -> set[int]:
        """Return those in the way that the history has; for an undo of the trial, those that it brought back.

        Targets that are newer than what was undone before them are needed themselves.
        """
        undos = {seq for seq in in_the_way if seq > self._head}
        steps = {int(below) for seq in undos for below in past.undoes(seq)}
        again = {int(below) for seq in steps for below in past.undoes(seq) if below > min(self._given)}
        newer = {seq for seq in targets if steps and seq > min(steps)}
        return (set(in_the_way) - undos) | again | newer

    def _named(self) -> list[UndoTarget]:
        """Return the targets of the scope now, newest first; of a count or a file, those that were given."""
        scope = self._scope
        if not isinstance(scope, ByTransaction | BySession) and getattr(scope, "last", 1) is not None:
            parts = [part_of(one, self._given[int(one.seq)].has) for one in self._transactions(self._given)]
            return [part for part in reversed(parts) if part is not None]
        with contextlib.suppress(NothingToUndo):
            named = next(batches_of(scope, self._history))
            seqs = {seq for seq in _by_seq(named) if seq <= self._head} - self._left_out
            return [target for target in named if target.transaction.seq in seqs]
        return []

    def _transactions(self, seqs: Iterable[int]) -> list[Transaction]:
        return self._history.index.transactions(seqs)

    def _everything_since(self, places: Iterable[ConflictSite]) -> set[int]:
        """Return all that is connected with the places since the oldest transaction to be undone.

        That may be one that is in force again, and named, once a later one is undone.
        """
        index, is_named = self._history.index, would_name(self._scope, self._history)
        paths = {path for place in places for path in (place.path, place.origin)}
        given = set(self._given)
        while True:
            connected = self._connected(paths, min(given))
            below = {one for seq in connected for one in index.undoes(seq)}
            named = {int(one.seq) for one in index.transactions(below) if is_named(one)}
            if min(named, default=NEVER) >= min(given):
                break
            given |= named
        oldest = min((connected - given) or connected, default=NEVER)
        return {seq for seq in connected if seq >= oldest}

    def _connected(self, paths: Iterable[WorkspacePath], first: int) -> set[int]:
        """Return the transactions from `first` on that touch these paths, or others that these touch."""
        index = self._history.index
        found: set[int] = set()
        known: set[WorkspacePath] = set()
        reached = set(paths)
        while reached:
            known |= reached
            waiting: set[int] = set()
            paths = list(reached)
            for start in range(0, len(paths), PATHS_AT_ONCE):
                wanted = LogQuery(after=first - 1, paths=tuple(paths[start : start + PATHS_AT_ONCE]))
                waiting |= {int(one.seq) for one in index.log(wanted, NEVER)}
            for folder in {folder for path in reached for folder in folders_of(path)}:
                waiting.update(index.touches_after(folder, first - 1))
            reached = set()
            while waiting := waiting - found:
                found |= waiting
                transactions = index.transactions(waiting)
                reached |= {touch.path for one in transactions for touch in one.touches} - known
                waiting = {int(below) for one in transactions for below in one.undoes if below >= first}
                waiting |= {
                    int(t.undone_by) for o in transactions for t in o.touches if t.undone_by is not None
                }
        return found


def _dependent(past: HistoryWalker, place: ConflictSite, given: Mapping[int, UndoTarget]) -> list[int]:
    """Those in the way whose change does not merge into the file as it is without what is `given`."""
    if place.is_taken:
        return blocking(past, place, given)
    touching = (seq for seq, one in given.items() if any(t.path == place.origin for t in one.touches))
    first = min(touching, default=place.seq)
    index = past.history.index
    touch = index.touch_in(place.origin, first)
    later = list(_later(past, ConflictSite(place.path, first, place.origin), given))
    if touch is None or touch.source is not None or len(later) > LATER_MAX:
        return [seq for seq, _ in later if seq > place.seq]
    state = undone_in_part(past, given[first], touch)
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


def _later(
    past: HistoryWalker, place: ConflictSite, targets: Mapping[int, UndoTarget]
) -> Iterator[tuple[int, Touch]]:
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


def _is_covered(targets: Mapping[int, UndoTarget], seq: int, touch: Touch) -> bool:
    return seq in targets and targets[seq].covers(touch.path)


def _life(
    past: HistoryWalker, path: WorkspacePath, seq: int, until: int = NEVER
) -> Iterator[tuple[Seq, Touch]]:
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


def _oldest(places: Sequence[ConflictSite]) -> list[ConflictSite]:
    """The oldest place of each file at each path, by path."""
    oldest: dict[tuple[WorkspacePath, WorkspacePath, bool], ConflictSite] = {}
    for place in sorted(places, key=lambda place: place.seq, reverse=True):
        oldest[place.path, place.origin, place.is_taken] = place
    return sorted(oldest.values(), key=lambda place: place.path)


def _newest(places: Sequence[ConflictSite]) -> dict[WorkspacePath, ConflictSite]:
    """The newest place of each path: there it was seen first that something collides."""
    newest: dict[WorkspacePath, ConflictSite] = {}
    for place in sorted(places, key=lambda place: place.seq):
        newest[place.path] = place
    return newest


def _by_seq(targets: Iterable[UndoTarget]) -> dict[int, UndoTarget]:
    return {int(target.transaction.seq): target for target in targets}
