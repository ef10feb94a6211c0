"""Net changes: the transactions of a session, or of a range, as runs of changes for each path. Pure.

The changes of others are left out. If another author changed a file between two of the transactions, the path
has two runs, and each run is merged separately.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from editd.values.path import WorkspacePath
    from editd.values.transaction import Entry, Seq, Touch, Transaction

_SPAN = re.compile(r"\b(\d{1,18})(?:-(\d{1,18}))?\b")


class PathChanges(Struct, frozen=True):
    """A run: the states of one path, first to last, without a change by another author in between.

    If `source` is set, the file was moved from there to `path`, and the first state is that of the source.
    """

    path: WorkspacePath
    states: tuple[Entry | None, ...]
    seqs: tuple[int, ...]  # the transaction of each state except the first
    source: WorkspacePath | None = None


def effective(transactions: Iterable[Transaction]) -> list[Transaction]:
    """Return the transactions that are in force, each with the touches that are in force.

    An undone transaction or path is left out, and its undo as well. An undo of another author's work is kept.
    """
    by_seq = {transaction.seq: transaction for transaction in transactions if transaction.kind != "baseline"}
    in_force: list[Transaction] = []
    for transaction in by_seq.values():
        if transaction.undone_by is not None or _cancels_out(transaction, by_seq):
            continue
        left = tuple(touch for touch in transaction.touches if touch.undone_by is None)
        if left:
            in_force.append(replace(transaction, touches=left))
    return in_force


def path_changes(transactions: Iterable[Transaction]) -> list[PathChanges]:
    """Return the runs of `transactions`, which are in rising order. Merge the runs in their order."""
    runs: list[_GrowingRun] = []
    last: dict[WorkspacePath, _GrowingRun] = {}
    for transaction in transactions:
        by_path = {touch.path: touch for touch in transaction.touches}
        moved = {touch.source for touch in transaction.touches if _is_move(touch, by_path)}
        for touch in transaction.touches:
            if touch.path in moved:
                last.pop(touch.path, None)
                continue
            known = last.get(touch.path)
            if touch.source is not None and touch.source in moved:
                states = [by_path[touch.source].before, touch.after]
                known = _GrowingRun(touch.path, states, [], touch.source)
                runs.append(known)
            elif known is not None and _is_same(known.states[-1], touch.before):
                known.states.append(touch.after)
            else:
                known = _GrowingRun(touch.path, [touch.before, touch.after], [])
                runs.append(known)
            known.seqs.append(int(transaction.seq))
            last[touch.path] = known
    return [PathChanges(run.path, tuple(run.states), tuple(run.seqs), run.source) for run in runs]


def format_ranges(seqs: Iterable[Seq] | Iterable[int]) -> str:
    """Return numbers as text with ranges: `3-5, 9`."""
    parts: list[list[int]] = []
    for seq in sorted(seqs):
        if parts and seq == parts[-1][1] + 1:
            parts[-1][1] = seq
        else:
            parts.append([seq, seq])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


def numbers_in(spans: str, wanted: Sequence[int]) -> set[int]:
    """Return the `wanted` numbers that a text by `format_ranges` has."""
    numbers: set[int] = set()
    for first, last in _SPAN.findall(spans):
        numbers |= {seq for seq in wanted if int(first) <= seq <= int(last or first)}
    return numbers


class _GrowingRun(Struct):
    path: WorkspacePath
    states: list[Entry | None]
    seqs: list[int]
    source: WorkspacePath | None = None


def _cancels_out(transaction: Transaction, by_seq: Mapping[Seq, Transaction]) -> bool:
    """Return whether it only undoes transactions of `by_seq` that are no longer in force."""
    return bool(transaction.undoes) and all(
        seq in by_seq
        and _is_undone(by_seq[seq], {part.path for part in transaction.parts if part.seq == seq})
        for seq in transaction.undoes
    )


def _is_undone(transaction: Transaction, paths: set[WorkspacePath]) -> bool:
    """Return whether these paths of a transaction are undone. An empty set means all paths."""
    return transaction.undone_by is not None or all(
        touch.undone_by is not None for touch in transaction.touches if not paths or touch.path in paths
    )


def _is_move(touch: Touch, by_path: dict[WorkspacePath, Touch]) -> bool:
    """Return whether the file left its path for a free path."""
    source = None if touch.source is None else by_path.get(touch.source)
    return source is not None and source.after is None and touch.before is None and touch.after is not None


def _is_same(first: Entry | None, second: Entry | None) -> bool:
    if first is None or second is None:
        return first is second
    return (first.mode, first.version) == (second.mode, second.version)
