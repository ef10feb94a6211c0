"""Scopes: what an undo is about, and the transactions, or parts of them, which that names right now."""

from __future__ import annotations

import re
from functools import partial
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from editd.errors import InvalidParams, NothingToUndo, UnknownTransaction
from editd.store.commit_message import microseconds
from editd.store.index import LogQuery, UndoQuery
from editd.values.path import WorkspacePath, folders_of, is_among
from editd.values.transaction import Part

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from editd.store.history import History
    from editd.values.glob import Glob
    from editd.values.transaction import Kind, Touch, Transaction

WITHOUT_EFFECT_MAX = 100  # transactions that an undo of the newest takes along
LOOKED_AT_ONCE = 50  # transactions of a path, while the last edit of a session is looked for
UNDOABLE: tuple[Kind, ...] = ("edit", "exec", "rollback", "restore")  # what an undo without a name takes
ROLLED_BACK: tuple[Kind, ...] = ("edit", "exec")
FILTERED: tuple[Kind, ...] = (*UNDOABLE, "outside")  # what a filter takes that names no kind
NOTHING_FITS = "Nothing to undo fits the filter."
_TIME = re.compile(r"\d{4}-\d\d-\d\d")


class ByTransaction(Struct, frozen=True):
    """One transaction; with `paths` or `hunks` only these paths, what lies below them, and these hunks."""

    tx: int | str
    paths: tuple[WorkspacePath, ...] = ()
    hunks: Mapping[WorkspacePath, tuple[int, ...]] = MappingProxyType({})  # of files, rising from 1


class Latest(Struct, frozen=True):
    """The newest `last` (None: all) that are not undone, of `session` where it is given."""

    session: str | None
    last: int | None = 1


class BySession(Struct, frozen=True):
    """All edits and commands of a session, from `since` on."""

    session: str
    since: int | str | None = None
    is_published_included: bool = False


class ByFilter(Struct, frozen=True):
    """All matching transactions, or the newest `last` of them.

    `since` and `until` are included, and are transactions or times.
    """

    sessions: tuple[str, ...] = ()
    actors: tuple[str, ...] = ()
    since: int | str | None = None
    until: int | str | None = None
    paths: tuple[WorkspacePath | Glob, ...] = ()
    kinds: tuple[Kind, ...] = ()
    last: int | None = None


class LastEditOf(Struct, frozen=True):
    """The newest edit of a file by a session (None: by nobody's), as far as it changed that file."""

    path: WorkspacePath
    session: str | None


class LastUndoOf(Struct, frozen=True):
    """The newest undo that is not redone, of `session` where it is given."""

    session: str | None


Scope = ByTransaction | Latest | BySession | ByFilter | LastEditOf | LastUndoOf


class UndoTarget(Struct, frozen=True):
    """A transaction that is to be undone; `paths` None means all of it.

    Of some paths only some `hunks` are undone, by their numbers from 1: such a path stays in force.
    """

    transaction: Transaction
    paths: frozenset[WorkspacePath] | None = None
    hunks: Mapping[WorkspacePath, tuple[int, ...]] = MappingProxyType({})

    @property
    def touches(self) -> tuple[Touch, ...]:
        touches = self.transaction.touches
        return touches if self.paths is None else tuple(t for t in touches if t.path in self.paths)

    @property
    def parts(self) -> tuple[Part, ...]:
        """What the undo's commit says of it, where it is not all."""
        seq = self.transaction.seq
        return tuple(Part(seq, path, self.hunks.get(path, ())) for path in sorted(self.paths or ()))

    def covers(self, path: WorkspacePath) -> bool:
        """Whether the path is undone as a whole."""
        return self.has(path) and path not in self.hunks

    def has(self, path: WorkspacePath) -> bool:
        """Whether any of the path is undone."""
        return self.paths is None or path in self.paths

    def without(self, paths: AbstractSet[WorkspacePath]) -> UndoTarget:
        """The same, but for these paths; a move stays at both its ends."""
        touches = self.touches
        taken = {touch.path for touch in touches if touch.path in paths or touch.source in paths}
        taken |= {touch.source for touch in touches if touch.path in taken and touch.source is not None}
        if not taken:
            return self
        kept = frozenset(touch.path for touch in touches) - taken
        return UndoTarget(self.transaction, kept, {p: n for p, n in self.hunks.items() if p in kept})

    def only_hunks(self, path: WorkspacePath, numbers: Sequence[int]) -> UndoTarget:
        """The same, of `path` only some hunks; without the path where there are none."""
        if not numbers:
            return self.without({path})
        paths = frozenset(touch.path for touch in self.touches)
        return UndoTarget(self.transaction, paths, {**self.hunks, path: tuple(numbers)})

    def as_whole(self, path: WorkspacePath) -> UndoTarget:
        """Return the same target with all of `path` instead of some hunks."""
        hunks = {other: numbers for other, numbers in self.hunks.items() if other != path}
        is_all = not hunks and self.paths == frozenset(touch.path for touch in self.transaction.touches)
        return UndoTarget(self.transaction, None if is_all else self.paths, hunks)


def batches_of(scope: Scope, history: History) -> Iterator[list[UndoTarget]]:
    """What a scope names right now, newest first. Raises NothingToUndo, UnknownTransaction, InvalidParams.

    Where it names only the newest, those before it follow one by one: for who finds it without effect.
    """
    match scope:
        case Latest(last=1):
            single = _matches((), UndoQuery(UNDOABLE, _one(scope.session)), history, 1)
            nothing = "Nothing to undo."
        case LastUndoOf():
            single = _matches((), UndoQuery(("undo",), _one(scope.session)), history, 1)
            nothing = "Nothing to redo."
        case ByFilter(last=1):
            single = _matches(scope.paths, _chosen(scope, history), history, LOOKED_AT_ONCE)
            nothing = NOTHING_FITS
        case _:
            yield _targets(scope, history)
            return
    found = False
    for target in islice(single, WITHOUT_EFFECT_MAX):
        found = True
        yield [target]
    if not found:
        raise NothingToUndo(nothing, hint="`log` shows the history.")


def would_name(scope: Scope, history: History) -> Callable[[Transaction], bool]:
    """Whether a scope names a transaction, too, once that is in force again; of what is counted, none."""
    match scope:
        case BySession():
            chosen = _between(UndoQuery(ROLLED_BACK, (scope.session,)), scope.since, history)
        case Latest(last=None):
            chosen = UndoQuery(UNDOABLE, _one(scope.session))
        case ByFilter(last=None):
            chosen = _chosen(scope, history)
        case _:
            return lambda _: False
    return partial(_is_chosen, chosen)


def _is_chosen(chosen: UndoQuery, transaction: Transaction) -> bool:
    seq, time_us, authorship = transaction.seq, transaction.time_us, transaction.authorship
    return (
        transaction.kind in chosen.kinds
        and (not chosen.sessions or authorship.session in chosen.sessions)
        and (not chosen.actors or authorship.actor in chosen.actors)
        and (chosen.since is None or seq >= chosen.since)
        and (chosen.until is None or seq <= chosen.until)
        and (chosen.since_us is None or time_us >= chosen.since_us)
        and (chosen.until_us is None or time_us <= chosen.until_us)
    )


def without_effect(targets: Sequence[UndoTarget]) -> NothingToUndo:
    """The refusal of an undo that would change nothing."""
    newest = targets[0].transaction.seq
    seqs = ", ".join(str(target.transaction.seq) for target in targets[:10])
    several = "s" * (len(targets) > 1)
    return NothingToUndo(
        f"An undo of transaction{several} {seqs} would change nothing. What was done there is not in the "
        "files any more.",
        hint=f"`show` with tx {newest} shows what it did, `log` the history.",
        data={"seqs": [int(target.transaction.seq) for target in targets]},
    )


def _targets(scope: Scope, history: History) -> list[UndoTarget]:
    match scope:
        case ByTransaction():
            return [_named(scope, history)]
        case Latest():
            _check_last(scope.last)
            chosen = UndoQuery(UNDOABLE, _one(scope.session))
            found = history.index.in_force(chosen, -1 if scope.last is None else scope.last)
            nothing = "Nothing to undo."
        case BySession():
            found = history.index.in_force(
                _between(UndoQuery(ROLLED_BACK, (scope.session,)), scope.since, history)
            )
            nothing = f"Nothing to undo of session {scope.session}."
        case ByFilter():
            return _filtered(scope, history)
        case LastEditOf():
            return [_last_of(scope, history)]
        case LastUndoOf():
            raise AssertionError("`batches_of` takes the undos one by one")
    if not found:
        raise NothingToUndo(nothing, hint="`log` shows the history.")
    return [whole_of(transaction) for transaction in found]


def whole_of(transaction: Transaction, without: Container[int] = ()) -> UndoTarget:
    """All of a transaction that is not undone yet, or would not be `without` these later ones."""
    in_force = [t.path for t in transaction.touches if t.undone_by is None or t.undone_by in without]
    return UndoTarget(transaction, None if len(in_force) == len(transaction.touches) else frozenset(in_force))


def part_of(transaction: Transaction, is_wanted: Callable[[WorkspacePath], bool]) -> UndoTarget | None:
    """What is not undone yet of the wanted paths; a move is taken back at both its ends or not at all."""
    in_force = {touch.path: touch for touch in transaction.touches if touch.undone_by is None}
    paths = {path for path in in_force if is_wanted(path)}
    for path, touch in in_force.items():
        if touch.source in in_force and paths & {path, touch.source}:
            paths |= {path, touch.source}
    if not paths:
        return None
    return UndoTarget(transaction, None if len(paths) == len(transaction.touches) else frozenset(paths))


def seq_at(reference: int | str, history: History) -> int:
    """The seq of a transaction, or of the newest one at a time. Raises UnknownTransaction, InvalidParams."""
    time_us = _time(reference)
    if time_us is None:
        return history.find(reference).seq
    seq = history.index.at_time(time_us)
    if seq is None:
        raise UnknownTransaction(
            f"The history does not go back to {reference}.",
            hint="`log` shows how far it goes.",
            data={"tx": reference, "head": int(history.head)},
        )
    return seq


def _named(scope: ByTransaction, history: History) -> UndoTarget:
    transaction = history.find(scope.tx)
    if 0 < transaction.seq == history.floor.seq:
        raise history.compacted(scope.tx)
    _check_undoable(transaction)
    if not scope.paths and not scope.hunks:
        return whole_of(transaction)
    found: dict[WorkspacePath, list[Touch]] = {given: [] for given in scope.paths}
    files: dict[WorkspacePath, list[Touch]] = {given: [] for given in scope.hunks}
    for touch in transaction.touches:
        if touch.path in files:
            files[touch.path].append(touch)
        for place in (touch.path, *folders_of(touch.path)):
            if place in found:
                found[place].append(touch)
    for given, here in (*found.items(), *files.items()):
        if not here:
            raise NothingToUndo(
                f"Transaction {transaction.seq} did not change {given}.",
                hint=f"`show` with tx {transaction.seq} lists what it changed.",
                data={"path": given.text, "seq": int(transaction.seq)},
            )
        if all(touch.undone_by is not None for touch in here):
            by = here[0].undone_by
            raise NothingToUndo(
                f"What transaction {transaction.seq} did to {given} is undone already, by {by}.",
                hint=f"Undo {by} to have it back.",
                data={"path": given.text, "undone_by": by},
            )
    target = part_of(transaction, lambda path: is_among(path, found.keys()))
    if not scope.hunks:
        assert target is not None, "each path is there, and in force"
        return target
    whole = frozenset[WorkspacePath]() if target is None else {touch.path for touch in target.touches}
    twice = sorted(whole & files.keys())
    if twice:
        raise InvalidParams(
            f"`paths` names all of {twice[0]}, and `hunks` some hunks of it.",
            hint="Name a file in one of the two.",
        )
    return UndoTarget(transaction, frozenset(whole | files.keys()), scope.hunks)


def _filtered(scope: ByFilter, history: History) -> list[UndoTarget]:
    _check_last(scope.last)
    at_once = None if scope.last is None else LOOKED_AT_ONCE
    targets = list(islice(_matches(scope.paths, _chosen(scope, history), history, at_once), scope.last))
    if not targets:
        raise NothingToUndo(NOTHING_FITS, hint="`log` shows the history.")
    return targets


def _chosen(scope: ByFilter, history: History) -> UndoQuery:
    kinds = scope.kinds or FILTERED
    if kinds == ("baseline",):
        raise NothingToUndo("What was there when editd first looked cannot be undone.")
    chosen = UndoQuery(kinds, scope.sessions, scope.actors, below=_folders(scope.paths))
    return _between(chosen, scope.since, history, scope.until)


def _matches(
    paths: Sequence[WorkspacePath | Glob], chosen: UndoQuery, history: History, at_once: int | None
) -> Iterator[UndoTarget]:
    """Yield the parts of the chosen transactions that the paths match, newest first.

    The index is asked for `at_once` of them at first; None is all.
    """
    while found := history.index.in_force(chosen, -1 if at_once is None else at_once):
        for transaction in found:
            part = part_of(transaction, _wanted(paths)) if paths else whole_of(transaction)
            if part is not None:
                yield part
        if at_once is None:
            return
        at_once = LOOKED_AT_ONCE
        until = int(found[-1].seq) - 1
        chosen = replace(chosen, until=until if chosen.until is None else min(until, chosen.until))


def _check_last(last: int | None) -> None:
    if last is not None and last < 1:
        raise InvalidParams("`last` is the number of transactions to undo, 1 or more.")


def _one(session: str | None) -> tuple[str, ...]:
    return () if session is None else (session,)


def _folders(paths: Sequence[WorkspacePath | Glob]) -> tuple[WorkspacePath, ...] | None:
    """The paths, for the index to begin with; None where one of them is a glob, or there are none."""
    literal = tuple(path for path in paths if isinstance(path, WorkspacePath))
    return literal if paths and len(literal) == len(paths) else None


def _wanted(paths: Sequence[WorkspacePath | Glob]) -> Callable[[WorkspacePath], bool]:
    """Whether a path is one of these, lies below one, or fits a glob."""
    literal = frozenset(path for path in paths if isinstance(path, WorkspacePath))
    globs = tuple(path for path in paths if not isinstance(path, WorkspacePath))

    def is_wanted(path: WorkspacePath) -> bool:
        # A glob may be a name, too, as in Next.js: `[id].tsx`.
        return is_among(path, literal) or any(g.matches(path) or g.text == path.text for g in globs)

    return is_wanted


def _between(
    chosen: UndoQuery, since: int | str | None, history: History, until: int | str | None = None
) -> UndoQuery:
    """The same, bounded by transactions or times, both included."""
    if since is not None:
        seq, time_us = _bound(since, history)
        chosen = replace(chosen, since=seq, since_us=time_us)
    if until is not None:
        seq, time_us = _bound(until, history)
        chosen = replace(chosen, until=seq, until_us=time_us)
    return chosen


def _bound(reference: int | str, history: History) -> tuple[int | None, int | None]:
    """A seq or a time, the other being None."""
    time_us = _time(reference)
    return (None, time_us) if time_us is not None else (history.find(reference).seq, None)


def _time(reference: int | str) -> int | None:
    """Microseconds since the epoch where this is a time, None where it names a transaction."""
    if isinstance(reference, int) or _TIME.match(reference) is None:
        return None
    try:
        return microseconds(reference)
    except (ValueError, OverflowError):
        raise InvalidParams(
            f"{reference[:60]!r} is not a time.", hint="RFC 3339, as in 2026-01-31T12:00:00Z."
        ) from None


def _last_of(scope: LastEditOf, history: History) -> UndoTarget:
    """The newest edit in force of `path` by the session, as far as it changed that file."""
    path, session = scope.path, scope.session
    before: int | None = None
    while found := history.index.log(
        LogQuery(before=before, paths=(path,), sessions=_one(session)), LOOKED_AT_ONCE
    ):
        for transaction in found:
            if transaction.kind != "edit" or transaction.authorship.session != session:
                continue
            target = part_of(transaction, path.__eq__)
            if target is not None:
                return target
        before = int(found[-1].seq)
    raise NothingToUndo(
        f"Nothing to undo: this session has no edit of {path} in force.",
        hint="`log` with this path shows who changed it.",
        data={"path": path.text},
    )


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
