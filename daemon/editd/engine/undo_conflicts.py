"""Conflicts of an undo: the later transactions in its way, and the transactions to undo first.

A later change depends on the undone lines if it does not merge into the file without them. The transactions
to undo first are tried out in the history, with the code of a real undo.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from editd.advice import Advice, option_term
from editd.edits.merge import merge_lines, merge_states
from editd.engine.undo import ConflictSite, invert, undone_in_part
from editd.engine.undo_selection import BySession, ByTransaction, batches_of, part_of, whole_of
from editd.errors import Conflict, NothingToUndo, join_names
from editd.store.index import NEVER
from editd.store.path_history import HistoryWalker
from editd.values.path import WorkspacePath
from editd.values.transaction import ConflictReport, Seq

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from editd.advice import Part
    from editd.engine.undo_selection import Scope, UndoTarget
    from editd.errors import NotAFile
    from editd.store.history import History
    from editd.values.content import Change, Entry, FileState
    from editd.values.transaction import Transaction

    Current = Callable[[WorkspacePath], FileState | None]

LATER_MAX = 200  # changes of one file that are merged anew; if there are more, all count as dependent
SENTENCES_MAX = 3  # in a message; the error's data has all files
COST_MAX = 2_000  # undos in all trials of a recipe, about a second
COST_SELECTIVE_MAX = 500  # above it, a recipe has all transactions that are connected with the files
COLLISION_COST = 10  # undos that take as long as the search for the causes of a collision


class UndoConflict(Conflict):
    """Later changes collide with the undo. The engine makes it anew with their transactions: `explained`."""

    def __init__(self, places: Sequence[ConflictSite], targets: Sequence[UndoTarget], scope: Scope) -> None:
        super().__init__("The undo does not merge cleanly; nothing was changed.")
        self.places = places
        self.targets = targets
        self.scope = scope

    def explained(self, history: History, current: Current) -> UndoConflict:
        """Return it with the transactions in the way, once the turn is over and its changes are recorded."""
        reports = undo_conflicts(self.places, self.targets, self.scope, HistoryWalker(history), current)
        needs = sorted({seq for report in reports for seq in report.needs}, reverse=True)
        return self.revise(
            message=" ".join([*map(_sentence, reports[:SENTENCES_MAX]), "Nothing was changed."]),
            hint=self._advice(needs),
            data={"files": [report.as_data() for report in reports]},
        )

    def _advice(self, needs: Sequence[int]) -> Advice:
        parts: list[Part] = []
        if needs:
            order = ", in this order" if len(needs) > 1 else ""
            parts.append(f"Undo {', '.join(map(str, needs))} first{order}")
        no_room = [place.path.text for place in self.places if place.is_taken and place.path != place.origin]
        if no_room and not needs:
            parts.append(f"Move {no_room[0]} away")
        elif not no_room:
            use = ", or use " if parts else "Use "
            parts += [use, option_term("on_conflict", "force"), " to put the earlier lines back anyway"]
        touched = {touch.path for target in self.targets for touch in target.touches}
        if touched - {place.origin for place in self.places}:
            purpose = " to undo only what fits"
            use = ", or use " if parts else "Use "
            parts.append(option_term("on_conflict", "skip", lead=use, purpose=purpose))
        return Advice(*parts or ["Look at what is there now"], ".")


class NoRoom(Conflict):
    """A file that is not part of an undo or a restore occupies a path that it needs."""

    def __init__(self, refusal: NotAFile, history: History) -> None:
        place = WorkspacePath(refusal.data.get("obstacle", refusal.data["path"]))
        made = history.index.touch_at(place, int(history.head))
        by = () if made is None or made[1].after is None else (made[0],)
        self.files = (ConflictReport(place, by, ()),)
        super().__init__(
            f"{refusal.message} Nothing was changed.",
            hint=f"Move {place} away, and try again.",
            data={"files": [file.as_data() for file in self.files]},
        )


def _sentence(report: ConflictReport) -> str:
    seqs = [seq for seq in report.blocking if seq in report.needs] or report.blocking
    if not seqs:
        return f"{report.path} is in the way."
    transactions = f"Transaction{'s' * (len(seqs) > 1)} {join_names([*map(str, seqs)])}"
    verbs = {"lines": "changed the same lines of", "deleted": "deleted or changed", "path": "made"}
    return f"{transactions} {verbs.get(report.reason, 'changed')} {report.path}."


def blocking_by_path(
    past: HistoryWalker, places: Sequence[ConflictSite], targets: Mapping[int, UndoTarget]
) -> dict[WorkspacePath, list[int]]:
    """Return each path with a conflict, and the transactions in the way there, all in order."""
    by_path: dict[WorkspacePath, set[int]] = {}
    for place in _oldest(places):
        by_path.setdefault(place.path, set()).update(blocking(past, place, targets))
    return {path: sorted(seqs) for path, seqs in by_path.items()}


def blocking(past: HistoryWalker, place: ConflictSite, targets: Mapping[int, UndoTarget]) -> list[int]:
    """Return the transactions after `place.seq` whose changes of its file are in force, in order.

    If another file occupies the path, return the transactions that made that file. If none is in force,
    return all transactions that changed the path.
    """
    seqs: list[int] = []
    for seq, touch in _later(past, place, targets):
        if place.is_taken and touch.before is None:
            seqs.clear()
        seqs.append(seq)
    if seqs:
        return seqs
    life = past.history.index.life(place.path, place.seq, None)
    return [seq for seq, touch in life if not _is_covered(targets, seq, touch)]


def undo_conflicts(
    places: Sequence[ConflictSite],
    targets: Sequence[UndoTarget],
    scope: Scope,
    past: HistoryWalker,
    current: Current,
) -> tuple[ConflictReport, ...]:
    """Return for each file with a conflict the transactions in the way, and those to undo first.

    After undos of all these, one by one and newest first, the undo of `targets` is clean, except for files
    that the history does not know. If no such transactions are found, `needs` is empty for every file.
    """
    if not places:
        return ()
    shown = _newest(places)
    by_path = blocking_by_path(past, places, _by_seq(targets))
    needs = Recipe(past.history, targets, scope, current).find(past, places, by_path)
    return tuple(
        ConflictReport(
            path, tuple(seqs), tuple(sorted(needs[path])),
            shown[path].reason, shown[path].lines, shown[path].hunks,
        )
        for path, seqs in by_path.items()
    )  # fmt: skip


class Recipe:
    """The transactions to undo first ("needed"), found in trials of the history.

    A trial undoes them, newest first, and then the targets. If an undo collides with another transaction,
    that is needed, too, and is undone next. The recipe is complete when a trial is clean in its order.
    """

    def __init__(
        self, history: History, targets: Iterable[UndoTarget], scope: Scope, current: Current
    ) -> None:
        self._history = history
        self._given = _by_seq(targets)
        self._scope = scope
        self._current = current
        self._head = int(history.head)
        self._left_out: set[int] = set()  # in the scope, but not among the targets
        self._left_out = _by_seq(self._named()).keys() - self._given.keys()
        self._needs: dict[WorkspacePath, set[int]] = {}
        self._cost = 0

    def find(
        self, past: HistoryWalker, places: Sequence[ConflictSite], paths: Iterable[WorkspacePath]
    ) -> dict[WorkspacePath, set[int]]:
        """Return the needed transactions of each path, or none for all paths if no trial is clean."""
        self._needs = {path: set() for path in paths}
        for place in _oldest(places):
            added = _dependent(past, place, self._given) or blocking(past, place, self._given)
            self._needs[place.path].update(added)
        tried = None
        while (steps := self._steps()) != tried and self._cost + len(steps) < COST_MAX:
            idle = self._try_out()
            if idle is not None:
                return {path: seqs - idle for path, seqs in self._needs.items()}
            tried = steps
        return {path: set() for path in self._needs}

    def _steps(self) -> set[int]:
        return set().union(*self._needs.values())

    def _try_out(self) -> set[int] | None:
        """Undo all needed transactions and then the targets, and add the transactions in the way of these.

        Return the needed transactions without effect, or None if there was a collision.
        """
        files: dict[WorkspacePath, FileState | None] = {}

        def current(path: WorkspacePath) -> FileState | None:
            return files[path] if path in files else self._current(path)

        steps, done, idle = self._steps(), list[int](), set[int]()
        places: Sequence[ConflictSite] = ()
        with self._history.trial() as record:
            while self._cost < COST_MAX:
                self._cost += 1
                seq = max(self._steps().difference(done), default=None)
                targets = self._named() if seq is None else self._whole(seq)
                by_seq, past = _by_seq(targets), HistoryWalker(self._history)
                plan = invert(targets, past, current)
                places = plan.places
                if places and self._add(past, places, by_seq, seq) and self._cost <= COST_SELECTIVE_MAX:
                    continue
                if places and (seq is not None or any(blocking_by_path(past, places, by_seq).values())):
                    break
                if seq is None:
                    return idle if done == sorted(done, reverse=True) else None
                done.append(seq)
                if plan.changes:
                    files |= {change.path: change.after for change in plan.changes}
                    record(plan.changes, [Seq(seq)], [part for one in plan.targets for part in one.parts])
                else:
                    idle.add(seq)
        if self._cost > COST_SELECTIVE_MAX or self._steps() == steps:
            self._add_connected(places)
        return None

    def _whole(self, seq: int) -> list[UndoTarget]:
        return [target for target in map(whole_of, self._transactions([seq])) if target.touches]

    def _add(
        self,
        past: HistoryWalker,
        places: Sequence[ConflictSite],
        targets: Mapping[int, UndoTarget],
        step: int | None,
    ) -> bool:
        """Add the transactions that an undo of `step` (None: of the targets) collides with at these places.

        Return whether any of them is new.
        """
        self._cost += COLLISION_COST
        before = self._steps()
        paths = [path for path, seqs in self._needs.items() if step in seqs]
        for place in _oldest(places):
            more = self._undoable(past, _dependent(past, place, targets), targets)
            if more <= before:
                more = self._undoable(past, blocking(past, place, targets), targets)
            for path in paths or [path for path in self._needs if path == place.path] or self._needs:
                self._needs[path] |= more
        return self._steps() != before

    def _undoable(self, past: HistoryWalker, in_the_way: Iterable[int], targets: Collection[int]) -> set[int]:
        """Replace the undos of the trial by the transactions that they brought back.

        Add the targets that are newer than a transaction that the trial undid.
        """
        undos = {seq for seq in in_the_way if seq > self._head}
        steps = {int(below) for seq in undos for below in past.undoes(seq)}
        again = {int(below) for seq in steps for below in past.undoes(seq) if below > min(self._given)}
        newer = {seq for seq in targets if steps and seq > min(steps)}
        return (set(in_the_way) - undos) | again | newer

    def _add_connected(self, places: Iterable[ConflictSite]) -> None:
        """Add all transactions since the oldest step that changed these paths, or paths connected with them.

        Undone newest first, each of them finds the files as it left them.
        """
        index, steps, first = self._history.index, self._steps(), min(self._steps())
        paths = {path for place in places for path in (place.path, place.origin)}
        known: set[WorkspacePath] = set()
        while paths := paths - known:
            known |= paths
            steps.update(seq for path in paths for seq in index.touches_after(path, first))
            paths = {touch.path for one in self._transactions(steps) for touch in one.touches}
        self._needs = {path: seqs | steps for path, seqs in self._needs.items()}

    def _named(self) -> list[UndoTarget]:
        """Return the present targets of the scope, newest first. Those of a count or a file do not change."""
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


def _dependent(past: HistoryWalker, place: ConflictSite, given: Mapping[int, UndoTarget]) -> list[int]:
    """Return the transactions in the way that do not merge into the file without the `given` ones."""
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
) -> Iterator[tuple[int, Change[Entry]]]:
    """Yield the changes of a file after `place.seq` that are in force, in order, without `targets`."""
    if place.is_taken:
        life: Iterable[tuple[Seq, Change[Entry]]] = past.history.index.life(place.path, place.seq, None)
    else:
        life = _life(past, place.origin, place.seq)
    for seq, touch in life:
        if _is_covered(targets, seq, touch):
            continue
        if touch.undone_by is not None and touch.undone_by not in targets:
            continue  # undone, and its undo is not among the targets
        undone = past.undoes(seq)
        if undone and all(below > place.seq for below in undone):
            continue  # the undone change came later as well: the two cancel out
        yield seq, touch


def _is_covered(targets: Mapping[int, UndoTarget], seq: int, touch: Change[Entry]) -> bool:
    return seq in targets and targets[seq].covers(touch.path)


def _life(
    past: HistoryWalker, path: WorkspacePath, seq: int, until: int = NEVER
) -> Iterator[tuple[Seq, Change[Entry]]]:
    """Yield the changes of the file that had `path` after `seq`, under its later paths as well."""
    life = past.history.index.life
    after = seq
    stays: list[tuple[WorkspacePath, int, int]] = []
    while (left := past.left(path, seq)) is not None and left.at < until:
        yield from life(path, after, left.at)
        after, since, seq = left.at - 1, seq, left.at
        stays.append((path, since, left.at))
        back = past.brought_back(path, left, since)
        if back is not None and left.undone_by is not None and left.undone_by < until:
            if left.to is not None:
                yield from _life(past, left.to, seq, left.undone_by)
            path, after, seq = back, left.undone_by - 1, left.undone_by
        elif left.to is not None:
            path = left.to
        elif (revival := past.revival(stays, left.at)) is not None and revival[1] < until:
            yield from life(path, after, left.at + 1)
            path, seq = revival
            after = seq - 1
        else:
            break  # the file is gone, so its successor at the path is in the way
    yield from life(path, after, until)


def _oldest(places: Sequence[ConflictSite]) -> list[ConflictSite]:
    """Return the oldest place of each file at each path, ordered by path."""
    oldest: dict[tuple[WorkspacePath, WorkspacePath, bool], ConflictSite] = {}
    for place in sorted(places, key=lambda place: place.seq, reverse=True):
        oldest[place.path, place.origin, place.is_taken] = place
    return sorted(oldest.values(), key=lambda place: place.path)


def _newest(places: Sequence[ConflictSite]) -> dict[WorkspacePath, ConflictSite]:
    """Return the newest place of each path: the undo collided there first."""
    newest: dict[WorkspacePath, ConflictSite] = {}
    for place in sorted(places, key=lambda place: place.seq):
        newest[place.path] = place
    return newest


def _by_seq(targets: Iterable[UndoTarget]) -> dict[int, UndoTarget]:
    return {int(target.transaction.seq): target for target in targets}
