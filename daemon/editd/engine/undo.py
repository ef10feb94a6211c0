"""Undo is a merge: the inverse of a transaction, brought onto what the files hold now.

For each file: base = what the transaction made, ours = what is there now, theirs = what was there before
it. Where nobody touched the file since, that is the old bytes exactly. Several transactions are undone
newest first, in one plan.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from editd.edits.merge import merge_states
from editd.errors import Conflict, HistoryDamaged, InvalidParams, NothingToUndo
from editd.store.index import Wanted
from editd.values.changeset import Change
from editd.values.content import FileState

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from editd.engine.requests import Undo
    from editd.store.history import History
    from editd.values.path import WorkspacePath
    from editd.values.transaction import Entry, Touch, Transaction

LOOKED_AT_ONCE = 50  # transactions of a path, while the last edit of a session is looked for


@dataclass(frozen=True, slots=True)
class Place:
    """Where an undo does not merge: the path, and the transaction that was to be undone there."""

    path: WorkspacePath
    seq: int


class UndoConflict(Conflict):
    """Later changes overlap what is to be undone; the engine adds which transactions made them."""

    def __init__(self, places: Sequence[Place], seqs: Sequence[int]) -> None:
        super().__init__("The undo does not merge cleanly; nothing was changed.")
        self.places = tuple(places)
        self.seqs = frozenset(seqs)

    def explain(self, history: History) -> None:
        """Fill in the transactions in the way. Called when the turn is over and all is recorded."""
        found = [(place.path.text, blocking(history, place, self.seqs)) for place in self.places]
        files = [{"path": path, "blocking": in_the_way} for path, in_the_way in found]
        seqs = sorted({seq for _, in_the_way in found for seq in in_the_way})
        paths = ", ".join(place.path.text for place in self.places)
        made_by = f" Transactions in the way: {', '.join(map(str, seqs))}." if seqs else ""
        self.message = f"Later changes to {paths} overlap what is to be undone; nothing was changed.{made_by}"
        self.hint = "Undo those first, or use on_conflict: force to put the earlier text back all the same."
        self.data["files"] = files


@dataclass
class Inversion:
    """The files as they become while transactions are undone one after another."""

    history: History
    current: Callable[[WorkspacePath], FileState | None]
    seqs: frozenset[int]
    force: bool
    made: dict[WorkspacePath, FileState | None] = field(default_factory=dict)
    moved: dict[WorkspacePath, WorkspacePath] = field(default_factory=dict)  # new path → where it came from
    places: list[Place] = field(default_factory=list)

    def take_back(self, transaction: Transaction) -> None:
        """Undo one transaction on what there is; what does not merge is noted in `places`."""
        left = {touch.source: touch for touch in transaction.touches if touch.source is not None}
        by_path = {touch.path: touch for touch in transaction.touches}
        for touch in transaction.touches:
            if touch.source is not None and touch.source in by_path:
                self._move_back(touch, by_path[touch.source], transaction.seq)
            elif touch.path not in left:
                here = (
                    self._whereabouts(touch.path, transaction.seq) if touch.after is not None else touch.path
                )
                merged = self._merge(here, touch.after, touch.before, transaction.seq)
                self.made[here] = merged

    def _move_back(self, touch: Touch, source: Touch, seq: int) -> None:
        here = self._whereabouts(touch.path, seq)
        state = self._merge(here, touch.after, source.before, seq)
        if source.path != here and self._now(source.path) is not None and not self.force:
            self.places.append(Place(source.path, seq))
        self.made[here] = self._state(touch.before)
        self.made[source.path] = state
        self.moved[source.path] = here

    def _merge(
        self, path: WorkspacePath, base: Entry | None, theirs: Entry | None, seq: int
    ) -> FileState | None:
        ours, wanted = self._now(path), self._state(theirs)
        try:
            return merge_states(self._state(base), ours, wanted)
        except Conflict:
            if not self.force:
                self.places.append(Place(path, seq))
            return wanted

    def _now(self, path: WorkspacePath) -> FileState | None:
        return self.made[path] if path in self.made else self.current(path)

    def _whereabouts(self, path: WorkspacePath, seq: int) -> WorkspacePath:
        """Where the file that `path` named after `seq` is now: later moves are followed."""
        while (move := self.history.index.moved_to(path, seq)) is not None:
            seq = move[0]
            if seq not in self.seqs:
                path = move[1]
        return path

    def _state(self, entry: Entry | None) -> FileState | None:
        if entry is None:
            return None
        content = self.history.content(entry.version)
        if content is None:
            raise HistoryDamaged(
                f"The history no longer has the content {entry.version[:12]}, so this cannot be undone.",
                hint="It was only in the repository's own git objects, and those were removed.",
                data={"version": entry.version},
            )
        return FileState(content, entry.mode, entry.permissions, entry.version)


def invert(
    transactions: Sequence[Transaction],
    history: History,
    current: Callable[[WorkspacePath], FileState | None],
    *,
    force: bool = False,
) -> tuple[Change, ...]:
    """The changes that take `transactions`, newest first, out of what `current` gives.

    Raises UndoConflict, or HistoryDamaged where old bytes are missing.
    """
    seqs = frozenset(int(transaction.seq) for transaction in transactions)
    work = Inversion(history, current, seqs, force)
    for transaction in transactions:
        work.take_back(transaction)
    if work.places:
        raise UndoConflict(work.places, sorted(seqs))
    changes = [
        Change(path, current(path), after, _source(work, path, after)) for path, after in work.made.items()
    ]
    return tuple(sorted((c for c in changes if c.before != c.after), key=lambda change: change.path))


def targets_of(request: Undo, history: History) -> list[Transaction]:
    """What an undo or redo is about, newest first. Raises NothingToUndo, UnknownTransaction."""
    index = history.index
    if request.redo:
        undone = index.redoable(request.session)
        if undone is None:
            raise NothingToUndo("There is no undo to take back.", hint="`log` shows what can be undone.")
        return [undone]
    if request.tx is not None:
        transaction = history.find(request.tx)
        _check_undoable(transaction)
        return [transaction]
    if request.path is not None:
        return [_last_of(request.path, request.session, history)]
    last = request.last if request.last is not None else -1  # SQLite's limit: -1 is all
    if request.last is not None and last < 1:
        raise InvalidParams("`last` is the number of transactions to undo, 1 or more.")
    found = index.undoable(request.session, last)
    if not found:
        raise NothingToUndo("There is no edit that is not undone already.", hint="`log` shows the history.")
    return found


def _last_of(path: WorkspacePath, session: str | None, history: History) -> Transaction:
    """The newest edit in force of `path` by `session` (None: by nobody's session), which is all it does."""
    before: int | None = None
    while found := history.index.log(Wanted(before=before, path=path, session=session), LOOKED_AT_ONCE):
        for transaction in found:
            by = transaction.authorship.session
            if transaction.kind != "edit" or transaction.undone_by is not None or by != session:
                continue
            if {touch.path for touch in transaction.touches} != {path}:
                raise NothingToUndo(
                    f"The last edit of {path}, transaction {transaction.seq}, changed other files as well.",
                    hint=f"Undo it as a whole: `undo` with tx {transaction.seq}.",
                    data={"path": path.text, "seq": int(transaction.seq)},
                )
            return transaction
        before = int(found[-1].seq)
    raise NothingToUndo(
        f"There is no edit of {path} by this session that is not undone already.",
        hint="`log` with this path shows who changed it.",
        data={"path": path.text},
    )


def blocking(history: History, place: Place, undone: frozenset[int]) -> list[int]:
    """The transactions after `place.seq` that changed its path and are still in force, rising."""
    found: list[int] = []
    for seq in history.index.touches_after(place.path, place.seq):
        later = history.index.transaction(seq)
        if later is None or seq in undone or later.undone_by is not None:
            continue
        if later.undoes and all(below > place.seq for below in later.undoes):
            continue  # it took back another one that came after: the two cancel out
        found.append(seq)
    return found


def _source(work: Inversion, path: WorkspacePath, after: FileState | None) -> WorkspacePath | None:
    source = work.moved.get(path)
    if source is None or after is None or work.made.get(source) is not None or work.current(path) is not None:
        return None
    return source


def _check_undoable(transaction: Transaction) -> None:
    if transaction.kind == "baseline":
        raise NothingToUndo(
            f"Transaction {transaction.seq} is what was there when editd first looked; it cannot be undone."
        )
    if transaction.undone_by is not None:
        raise NothingToUndo(
            f"Transaction {transaction.seq} is undone already, by {transaction.undone_by}.",
            hint=f"Undo {transaction.undone_by} to have it back.",
            data={"undone_by": transaction.undone_by},
        )
