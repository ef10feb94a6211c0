"""Changes by time: the changes found while a command ran. A person may have saved the file meanwhile.

A rollback leaves such a change alone if another author had written the file shortly before. Three changes are
the session's own even then: of a file that it also changed by path, of a file that its commands made and
deleted again, and of a file that only sessions of the same rollback wrote. A change in doubt, by a command
that an agent had first asked its user about, is always left alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from editd.advice import Advice, option_term
from editd.engine.undo_selection import BySession, sessions_of
from editd.errors import NothingToUndo, join_names
from editd.values.transaction import Part

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from editd.engine.undo_selection import Scope, UndoTarget
    from editd.store.history import History
    from editd.store.index_tables import PathStep
    from editd.values.path import WorkspacePath
    from editd.values.transaction import Transaction

ANOTHERS_SECONDS = 600  # after a save by another author, the author of the next change is in doubt
STEPS_MAX = 200  # of one file, compared for that


def by_time(targets: Sequence[UndoTarget]) -> tuple[Part, ...]:
    """Return the changes of the targets that were found while a command ran."""
    return tuple(
        Part(target.transaction.seq, touch.path)
        for target in targets
        if target.transaction.authorship.is_by_time
        for touch in target.touches
    )


def spare_by_time(
    scope: Scope, targets: list[UndoTarget], history: History
) -> tuple[list[UndoTarget], tuple[str, ...]]:
    """Return the targets of a rollback without changes that others may have made, and warnings.

    These are the changes in doubt, and changes that another program may have made. Raises NothingToUndo if
    nothing else is left.
    """
    if not isinstance(scope, BySession) or scope.is_by_time_included:
        return targets, ()
    sessions = sessions_of(scope, history)
    left: list[UndoTarget] = []
    spared: list[str] = []
    asked: list[str] = []
    for target in targets:
        if _is_in_doubt(target.transaction):
            doubtful = {touch.path for touch in target.touches}
            asked += _name(target, doubtful)
        else:
            doubtful = _doubtful(target, sessions, history)
            spared += _name(target, doubtful)
        kept = target.without(doubtful)
        if kept.touches:
            left.append(kept)
    reasons = {
        "another program wrote these files shortly before": spared,
        "the user may have written these files while the agent asked": asked,
    }
    warnings = tuple(
        f"Left alone, because {why}: {join_names(some)}." for why, some in reasons.items() if some
    )
    if not warnings:
        return targets, ()
    if not left:
        hint = Advice("Use ", option_term("include_by_time"), " to take these changes back as well.")
        raise NothingToUndo(" ".join(warnings), hint=hint)
    return left, warnings


def _name(target: UndoTarget, paths: set[WorkspacePath]) -> list[str]:
    return [f"{path} ({target.transaction.seq})" for path in sorted(paths)]


def _is_in_doubt(transaction: Transaction) -> bool:
    """Return whether a command changed the files that an agent had first asked its user about."""
    evidence = transaction.authorship.attribution
    return transaction.kind == "exec" and evidence is not None and bool(evidence.candidates)


def _doubtful(target: UndoTarget, sessions: Collection[str], history: History) -> set[WorkspacePath]:
    """Return the paths of a target whose change another program may have made."""
    if not target.transaction.authorship.is_by_time:
        return set()
    return {
        touch.path
        for touch in target.touches
        if _may_be_anothers(target.transaction, history.index.steps(touch.path, STEPS_MAX), sessions)
    }


def _may_be_anothers(transaction: Transaction, steps: Sequence[PathStep], sessions: Collection[str]) -> bool:
    """Return whether another author may have made a transaction's change of the file with these steps."""
    since_us = transaction.time_us - ANOTHERS_SECONDS * 1_000_000
    is_anothers = False
    for step in steps:
        if step.session in sessions:
            if not step.is_by_time:
                return False
        elif step.seq < transaction.seq and step.time_us >= since_us and step.kind != "baseline":
            is_anothers = True
    return is_anothers and not _is_within_own_life(transaction.seq, steps, sessions)


def _is_within_own_life(seq: int, steps: Sequence[PathStep], sessions: Collection[str]) -> bool:
    """Return whether a step belongs to a life of the file, all by `sessions`."""
    life: list[int] = []
    for step in steps:
        is_first = not step.was_there
        if step.session not in sessions or not (life or is_first):
            life = []
            continue
        life = [step.seq] if is_first else [*life, step.seq]
        if not step.is_there:
            if seq in life:
                return True
            life = []
    return False
