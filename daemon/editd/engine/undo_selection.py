"""Undo selection: the scope of an undo, and the transactions or parts that it selects at present."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from editd.advice import Advice, method_term
from editd.errors import InvalidParams, NothingToUndo, UnknownTransaction, join_names
from editd.store.index_tables import LogQuery, UndoQuery
from editd.store.transaction_record import microseconds
from editd.values.path import WorkspacePath, folders_of, is_among
from editd.values.transaction import Part

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from editd.store.history import History
    from editd.values.content import Change, Entry, Version
    from editd.values.glob import Glob
    from editd.values.transaction import Transaction
    from editd.wire.messages import Kind

WITHOUT_EFFECT_MAX = 100  # transactions without effect that an undo of the newest may include
WILDCARDS = frozenset("*?[")
QUERY_SIZE = 50  # transactions in one query of the index during a search
UNDOABLE: tuple[Kind, ...] = (
    "edit",
    "exec",
    "rollback",
    "restore",
)  # kinds that an undo without a name selects
ROLLED_BACK: tuple[Kind, ...] = ("edit", "exec")
FILTERED: tuple[Kind, ...] = (*UNDOABLE, "outside")  # kinds that a filter selects by default
NO_MATCH = "No transaction that can be undone matches the filter."
_TIME = re.compile(r"\d{4}-\d\d-\d\d")


class ByTransaction(Struct, frozen=True):
    """One transaction. `paths` and `hunks` limit it to paths, with everything below them, and to hunks."""

    tx: int | str
    paths: tuple[WorkspacePath, ...] = ()
    hunks: Mapping[WorkspacePath, tuple[int, ...]] = MappingProxyType({})  # by file, numbers from 1, rising


class Latest(Struct, frozen=True):
    """The newest `last` (None: all) transactions in force, optionally of one session."""

    session: str | None
    last: int | None = 1


class BySession(Struct, frozen=True):
    """All edits and commands of a session, optionally from `since` on. A glob is all sessions that match."""

    session: str
    since: int | str | None = None
    is_published_included: bool = False
    is_by_time_included: bool = False  # also a change that may well be another program's: `spare_by_time`


class ByFilter(Struct, frozen=True):
    """All matching transactions, or the newest `last` of them.

    `since` and `until` are inclusive, and each is a transaction or a time.
    """

    sessions: tuple[str, ...] = ()
    actors: tuple[str, ...] = ()
    since: int | str | None = None
    until: int | str | None = None
    paths: tuple[WorkspacePath | Glob, ...] = ()
    kinds: tuple[Kind, ...] = ()
    last: int | None = None


class LastEditOf(Struct, frozen=True):
    """The newest edit of a file by a session (None: without a session), limited to that file."""

    path: WorkspacePath
    session: str | None


class LastUndoOf(Struct, frozen=True):
    """The newest undo that is not redone, optionally of one session.

    With `is_named`, a request without a session has named the session. Then an undo without a session counts
    too, if it undoes only that session's work: `undo` with a `session` is recorded so.
    """

    session: str | None
    is_named: bool = False


Scope = ByTransaction | Latest | BySession | ByFilter | LastEditOf | LastUndoOf


class UndoTarget(Struct, frozen=True):
    """A transaction to undo. `paths` limits it to some paths.

    `hunks` limits a path to some hunks, by their numbers from 1. Such a path stays in force.
    """

    transaction: Transaction
    paths: frozenset[WorkspacePath] | None = None
    hunks: Mapping[WorkspacePath, tuple[int, ...]] = MappingProxyType({})

    @property
    def touches(self) -> tuple[Change[Entry], ...]:
        """The touches of the transaction that are to be undone."""
        touches = self.transaction.touches
        return touches if self.paths is None else tuple(t for t in touches if t.path in self.paths)

    @property
    def parts(self) -> tuple[Part, ...]:
        """The undone parts, for the undo's commit. Empty for a whole transaction."""
        if self.paths is None:
            return ()
        seq = self.transaction.seq
        return tuple(Part(seq, path, self.hunks.get(path, ())) for path in sorted(self.paths))

    def covers(self, path: WorkspacePath) -> bool:
        """Return whether the whole path is undone."""
        return self.has(path) and path not in self.hunks

    def has(self, path: WorkspacePath) -> bool:
        """Return whether any part of the path is undone."""
        return self.paths is None or path in self.paths

    def without(self, paths: AbstractSet[WorkspacePath]) -> UndoTarget:
        """Return the target without these paths. A move is left out with both of its paths."""
        touches = self.touches
        taken = {touch.path for touch in touches if touch.path in paths or touch.source in paths}
        taken |= {touch.source for touch in touches if touch.path in taken and touch.source is not None}
        if not taken:
            return self
        kept = frozenset(touch.path for touch in touches) - taken
        return UndoTarget(self.transaction, kept, {p: n for p, n in self.hunks.items() if p in kept})

    def only_hunks(self, path: WorkspacePath, numbers: Sequence[int]) -> UndoTarget:
        """Return the target with `path` limited to some hunks, or without it if there are none."""
        if not numbers:
            return self.without({path})
        paths = frozenset(touch.path for touch in self.touches)
        return UndoTarget(self.transaction, paths, {**self.hunks, path: tuple(numbers)})

    def as_whole(self, path: WorkspacePath) -> UndoTarget:
        """Return the target with the whole `path` instead of some hunks."""
        hunks = {other: numbers for other, numbers in self.hunks.items() if other != path}
        is_all = not hunks and self.paths == frozenset(touch.path for touch in self.transaction.touches)
        return UndoTarget(self.transaction, None if is_all else self.paths, hunks)


def batches_of(scope: Scope, history: History) -> Iterator[list[UndoTarget]]:
    """Yield the targets of a scope, newest first. Raises NothingToUndo, UnknownTransaction, InvalidParams.

    A scope of the newest transaction yields a batch of one target. The next batches have the transactions
    before it, one by one, in case an undo of the first one has no effect.
    """
    match scope:
        case Latest(last=1):
            single = _matches((), newest_of(scope), history, 1)
            nothing = "Nothing to undo."
        case LastUndoOf():
            undos = _matches((), newest_of(scope), history, 1)
            single = (
                target
                for target in undos
                if not _sets_aside(target.transaction) and _is_redone_by(scope, target.transaction, history)
            )
            nothing = "Nothing to redo."
        case ByFilter(last=1):
            single = _matches(scope.paths, _chosen(scope, history), history, QUERY_SIZE)
            nothing = NO_MATCH
        case _:
            yield _targets(scope, history)
            return
    is_empty = True
    for target in islice(single, WITHOUT_EFFECT_MAX):
        is_empty = False
        yield [target]
    if is_empty:
        raise _nothing_left(scope, nothing, history)


def _nothing_left(scope: Scope, text: str, history: History) -> NothingToUndo:
    """Return the refusal of an undo that selects nothing. It names a newest change by another program."""
    hint, data = "Use `log` to see the history.", dict[str, int]()
    if isinstance(scope, Latest):
        outside = history.index.in_force(UndoQuery(("outside",)), 1)
        if outside:
            seq = int(outside[0].seq)
            text = f"There is no edit to undo: the newest change is {seq}, by another program."
            hint, data = f"`editctl undo {seq}` takes it back.", {"seq": seq}
    return NothingToUndo(text, hint=hint, data=data)


def _sets_aside(transaction: Transaction) -> bool:
    """Return whether the exchange with other hosts took back work here that does not merge.

    That work is a proposal now. A redo would land it beside the proposal.
    """
    arrival = transaction.authorship.arrival
    return arrival is not None and arrival.origin is None


def _is_redone_by(scope: LastUndoOf, undo: Transaction, history: History) -> bool:
    """Return whether the undo is the session's, or has no session and undoes only that session's work."""
    session = undo.authorship.session
    if not scope.is_named or session == scope.session:
        return True
    floor = history.floor.seq  # the history no longer knows whose work was before it
    return session is None and all(
        seq > floor and history.index.origin_of(seq).session == scope.session for seq in undo.undoes
    )


def newest_of(scope: Latest | LastUndoOf) -> UndoQuery:
    """Return the query whose newest result an undo of the newest transaction takes back first."""
    if isinstance(scope, LastUndoOf):
        return UndoQuery(("undo",), () if scope.is_named else _as_tuple(scope.session))
    return UndoQuery(UNDOABLE, _as_tuple(scope.session))


def message_of(scope: Scope, session: str | None) -> str:
    """Return the message of an undo in `session` whose author gave none: it names another session."""
    if isinstance(scope, BySession):
        return f"Roll back session {scope.session}"
    if isinstance(scope, Latest) and scope.session not in (None, session):
        return f"Undo of session {scope.session}"
    return ""


def rests(targets: Sequence[UndoTarget]) -> tuple[str, ...]:
    """Return a warning for each host that keeps further files of these transactions to itself."""
    seqs: dict[str, list[str]] = {}
    for target in targets:
        arrival = target.transaction.authorship.arrival
        if arrival is not None and arrival.shared:
            seqs.setdefault(arrival.host, []).append(str(target.transaction.seq))
    if not seqs:
        return ()
    return tuple(
        f"Undone in part: {host} keeps further files of {join_names(named)}, "
        "and an undo there takes them back."
        for host, named in sorted(seqs.items())
    )


def without_effect(targets: Sequence[UndoTarget], warnings: Sequence[str] = ()) -> NothingToUndo:
    """Return the refusal of an undo that would change nothing. `warnings` name the changes left alone."""
    newest = targets[0].transaction.seq
    seqs = join_names([str(target.transaction.seq) for target in targets])
    several = "s" * (len(targets) > 1)
    undo, hint = "An undo", f"Use `show` with tx {newest} to see the change, and `log` to see the history."
    if warnings:
        undo, hint = "An undo of the rest", "Use include_by_time to take these changes back as well."
    nothing = f"{undo} of transaction{several} {seqs} would change nothing."
    return NothingToUndo(
        " ".join((*warnings, nothing, "The changes are no longer in the files.")),
        hint=hint,
        data={"seqs": [int(target.transaction.seq) for target in targets]},
    )


def _targets(scope: Scope, history: History) -> list[UndoTarget]:
    match scope:
        case ByTransaction():
            return [_named(scope, history)]
        case Latest():
            _check_last(scope.last)
            chosen = UndoQuery(UNDOABLE, _as_tuple(scope.session))
            selected = history.index.in_force(chosen, -1 if scope.last is None else scope.last)
            nothing = "Nothing to undo."
        case BySession():
            selected = history.index.in_force(
                _between(UndoQuery(ROLLED_BACK, sessions_of(scope, history)), scope.since, history)
            )
            nothing = f"Nothing to undo of session {scope.session}."
        case ByFilter():
            return _filtered(scope, history)
        case LastEditOf():
            return [_last_of(scope, history)]
        case LastUndoOf():
            raise AssertionError("`batches_of` takes the undos one by one")
    if not selected:
        raise _nothing_left(scope, nothing, history)
    return [whole_of(transaction) for transaction in selected]


def is_glob(scope: BySession | Latest) -> bool:
    return isinstance(scope, BySession) and bool(WILDCARDS & {*scope.session})


def sessions_of(scope: BySession, history: History) -> tuple[str, ...]:
    """Return the session of this name, or the sessions that match it as a glob."""
    if not is_glob(scope) or history.index.first_of(scope.session) is not None:
        return (scope.session,)
    matching = [one.name for one in history.index.sessions() if fnmatchcase(one.name, scope.session)]
    return tuple(matching) or (scope.session,)


def spare_dropped(targets: list[UndoTarget], history: History) -> tuple[list[UndoTarget], tuple[str, ...]]:
    """Return the targets of an undo without files whose content was forgotten or is excluded, and warnings.

    Raises ContentForgotten or ContentExcluded if nothing else is left.
    """
    left: list[UndoTarget] = []
    spared: dict[str, Version] = {}
    for target in targets if history.has_gaps else ():
        gaps = {
            touch.path: side.version
            for touch in target.touches
            for side in (touch.before, touch.after)
            if side is not None and history.is_dropped(side.version)
        }
        spared |= {f"{path} ({target.transaction.seq})": version for path, version in sorted(gaps.items())}
        kept = target.without(gaps.keys())
        if kept.touches:
            left.append(kept)
    if not spared:
        return targets, ()
    if not left:
        raise history.missing(next(iter(spared.values())))
    excluded = [name for name, version in spared.items() if history.is_excluded(version)]
    forgotten = [name for name in spared if name not in excluded]
    reasons = ("the content was forgotten", forgotten), ("the file is excluded", excluded)
    return left, tuple(f"Not undone, because {why}: {join_names(names)}." for why, names in reasons if names)


def check_not_excluded(targets: Sequence[UndoTarget], history: History) -> None:
    """Raise ContentExcluded if a target changes a file whose content is excluded.

    An undo may need no content, as when it deletes the file. But nothing could bring that file back.
    """
    for target in targets if history.excluded.paths else ():
        for touch in target.touches:
            for side in (touch.before, touch.after):
                if side is not None and history.is_excluded(side.version):
                    raise history.missing(side.version)


def whole_of(transaction: Transaction, without: Container[int] = ()) -> UndoTarget:
    """Return all of a transaction that is in force, or would be without the undos in `without`."""
    for touch in transaction.touches:
        if touch.undone_by is not None and touch.undone_by not in without:
            break
    else:
        return UndoTarget(transaction)
    in_force = (t.path for t in transaction.touches if t.undone_by is None or t.undone_by in without)
    return UndoTarget(transaction, frozenset(in_force))


def part_of(transaction: Transaction, is_wanted: Callable[[WorkspacePath], bool]) -> UndoTarget | None:
    """Return the wanted paths of a transaction that are in force. A move is undone at both or no paths."""
    in_force = {touch.path: touch for touch in transaction.touches if touch.undone_by is None}
    paths = {path for path in in_force if is_wanted(path)}
    for path, touch in in_force.items():
        if touch.source in in_force and paths & {path, touch.source}:
            paths |= {path, touch.source}
    if not paths:
        return None
    return UndoTarget(transaction, None if len(paths) == len(transaction.touches) else frozenset(paths))


def times_warning(since: int | str | None, until: int | str | None, history: History) -> tuple[str, ...]:
    """Return a warning if either reference is a time, and times near it are not in order."""
    if since is None and until is None:
        return ()
    times = [None if reference is None else _time(reference) for reference in (since, until)]
    seqs = history.index.set_back(*times) if any(time_us is not None for time_us in times) else []
    if not seqs:
        return ()
    cause = f"the clock was set back before transaction {join_names([*map(str, seqs)])}"
    return (f"Times are not in order: {cause}. Each transaction counts by its own time; name one instead.",)


def seq_at(reference: int | str, history: History) -> int:
    """Return the seq of a transaction, or of the newest one at a time.

    Raises UnknownTransaction or InvalidParams.
    """
    time_us = _time(reference)
    if time_us is None:
        return history.find(reference).seq
    seq = history.index.at_time(time_us)
    if seq is None:
        raise UnknownTransaction(
            f"The history does not go back to {reference}.",
            hint=Advice("Use ", method_term("log"), " to see the oldest transaction."),
            data={"tx": reference, "head": int(history.head)},
        )
    return seq


def _named(scope: ByTransaction, history: History) -> UndoTarget:
    transaction = history.find(scope.tx)
    if 0 < transaction.seq == history.floor.seq:
        raise history.compaction_refusal(scope.tx)
    _check_undoable(transaction)
    if not scope.paths and not scope.hunks:
        return whole_of(transaction)
    paths: dict[WorkspacePath, list[Change[Entry]]] = {path: [] for path in scope.paths}
    files: dict[WorkspacePath, list[Change[Entry]]] = {path: [] for path in scope.hunks}
    for touch in transaction.touches:
        if touch.path in files:
            files[touch.path].append(touch)
        for ancestor in (touch.path, *folders_of(touch.path)):
            if ancestor in paths:
                paths[ancestor].append(touch)
    for path, touches in (*paths.items(), *files.items()):
        _check_in_force(transaction, path, touches)
    target = part_of(transaction, lambda path: is_among(path, paths.keys()))
    if not scope.hunks:
        assert target is not None, "each path was changed and is in force"
        return target
    whole = frozenset[WorkspacePath]() if target is None else {touch.path for touch in target.touches}
    twice = sorted(whole & files.keys())
    if twice:
        raise InvalidParams(
            f"`paths` and `hunks` both name {twice[0]}.",
            hint="Name each file in one list only.",
        )
    return UndoTarget(transaction, frozenset(whole | files.keys()), scope.hunks)


def _check_in_force(transaction: Transaction, path: WorkspacePath, touches: Sequence[Change[Entry]]) -> None:
    """Raise NothingToUndo if there are no `touches` of the path, or if all of them are undone."""
    if not touches:
        raise NothingToUndo(
            f"Transaction {transaction.seq} did not change {path}.",
            hint=Advice("Use ", method_term("show", argument=str(transaction.seq)), " to list its changes."),
            data={"path": path.text, "seq": int(transaction.seq)},
        )
    if all(touch.undone_by is not None for touch in touches):
        by = touches[0].undone_by
        raise NothingToUndo(
            f"The change of {path} by transaction {transaction.seq} is already undone, by {by}.",
            hint=f"Undo {by} to restore it.",
            data={"path": path.text, "undone_by": by},
        )


def _filtered(scope: ByFilter, history: History) -> list[UndoTarget]:
    _check_last(scope.last)
    at_once = None if scope.last is None else QUERY_SIZE
    targets = list(islice(_matches(scope.paths, _chosen(scope, history), history, at_once), scope.last))
    if not targets:
        raise NothingToUndo(NO_MATCH, hint=Advice("Use ", method_term("log"), " to see the history."))
    return targets


def _chosen(scope: ByFilter, history: History) -> UndoQuery:
    kinds = scope.kinds or FILTERED
    if kinds == ("baseline",):
        raise NothingToUndo("A baseline cannot be undone.")
    if kinds == ("claim",):
        raise NothingToUndo("A claim changed no file.", hint="Undo the claimed transactions.")
    chosen = UndoQuery(kinds, scope.sessions, scope.actors, below=_folders(scope.paths))
    return _between(chosen, scope.since, history, scope.until)


def _matches(
    paths: Sequence[WorkspacePath | Glob], chosen: UndoQuery, history: History, at_once: int | None
) -> Iterator[UndoTarget]:
    """Yield the parts of the chosen transactions that the paths match, newest first.

    `at_once` is the number of transactions in the first query of the index. None: all.
    """
    while batch := history.index.in_force(chosen, -1 if at_once is None else at_once):
        for transaction in batch:
            part = part_of(transaction, _wanted(paths)) if paths else whole_of(transaction)
            if part is not None:
                yield part
        if at_once is None:
            return
        at_once = QUERY_SIZE
        until = int(batch[-1].seq) - 1
        chosen = replace(chosen, until=until if chosen.until is None else min(until, chosen.until))


def _check_last(last: int | None) -> None:
    if last is not None and last < 1:
        raise InvalidParams("`last` must be 1 or more.")


def _as_tuple(session: str | None) -> tuple[str, ...]:
    return () if session is None else (session,)


def _folders(paths: Sequence[WorkspacePath | Glob]) -> tuple[WorkspacePath, ...] | None:
    """Return the paths for a query of the index, or None if there are none or one is a glob."""
    literal = tuple(path for path in paths if isinstance(path, WorkspacePath))
    return literal if paths and len(literal) == len(paths) else None


def _wanted(paths: Sequence[WorkspacePath | Glob]) -> Callable[[WorkspacePath], bool]:
    """Return a predicate: whether a path is in `paths`, is below a path there, or matches a glob."""
    literal = frozenset(path for path in paths if isinstance(path, WorkspacePath))
    globs = tuple(path for path in paths if not isinstance(path, WorkspacePath))

    def is_wanted(path: WorkspacePath) -> bool:
        # A glob may also be a file name, as in Next.js: `[id].tsx`.
        return is_among(path, literal) or any(g.matches(path) or g.text == path.text for g in globs)

    return is_wanted


def _between(
    chosen: UndoQuery, since: int | str | None, history: History, until: int | str | None = None
) -> UndoQuery:
    """Return the query limited by transactions or times, both inclusive."""
    if since is not None:
        seq, time_us = _bound(since, history)
        chosen = replace(chosen, since=seq, since_us=time_us)
    if until is not None:
        seq, time_us = _bound(until, history)
        chosen = replace(chosen, until=seq, until_us=time_us)
    return chosen


def _bound(reference: int | str, history: History) -> tuple[int | None, int | None]:
    """Return a seq and None, or None and a time."""
    time_us = _time(reference)
    return (None, time_us) if time_us is not None else (history.find(reference).seq, None)


def _time(reference: int | str) -> int | None:
    """Return a time in microseconds since the epoch, or None if `reference` is a transaction."""
    if isinstance(reference, int) or _TIME.match(reference) is None:
        return None
    try:
        return microseconds(reference)
    except (ValueError, OverflowError):
        raise InvalidParams(
            f"{reference[:60]!r} is not a time.", hint="Write it in RFC 3339, as in 2026-01-31T12:00:00Z."
        ) from None


def _last_of(scope: LastEditOf, history: History) -> UndoTarget:
    """Return the newest edit of `path` by the session that is in force, limited to that file."""
    path, session = scope.path, scope.session
    before: int | None = None
    while batch := history.index.log(
        LogQuery(before=before, paths=(path,), sessions=_as_tuple(session)), QUERY_SIZE
    ):
        for transaction in batch:
            if transaction.kind != "edit" or transaction.authorship.session != session:
                continue
            target = part_of(transaction, path.__eq__)
            if target is not None:
                return target
        before = int(batch[-1].seq)
    raise NothingToUndo(
        f"Nothing to undo: this session has no edit of {path} in force.",
        hint=Advice("Use ", method_term("log"), " with this path to see its changes."),
        data={"path": path.text},
    )


def _check_undoable(transaction: Transaction) -> None:
    if transaction.kind == "baseline":
        raise NothingToUndo(f"Transaction {transaction.seq} is a baseline, which cannot be undone.")
    if transaction.kind == "claim":
        raise NothingToUndo(
            f"Transaction {transaction.seq} is a claim, which changed no file.",
            hint=f"Undo the claimed ones: {join_names([*map(str, transaction.claims)])}.",
        )
    if transaction.undone_by is not None:
        raise NothingToUndo(
            f"Transaction {transaction.seq} is already undone, by {transaction.undone_by}.",
            hint=f"Undo {transaction.undone_by} to restore it.",
            data={"undone_by": transaction.undone_by},
        )
