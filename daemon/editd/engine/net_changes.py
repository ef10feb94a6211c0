"""What was done: the transactions of a session, or of a range, as what each path went through.

Pure. What others did in between is not in it: where somebody else changed a file between two
transactions, the path has two runs, and each of them is brought to another place on its own.
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
    """The states that one path went through without anybody else in between, first to last.

    With a `source` the file was moved from there to `path`: the first state is what the source held.
    """

    path: WorkspacePath
    states: tuple[Entry | None, ...]
    seqs: tuple[int, ...]  # of the transaction that led to each state but the first
    source: WorkspacePath | None = None


def effective(transactions: Iterable[Transaction]) -> list[Transaction]:
    """Those that count among all of a session's, with what counts of each.

    What is undone does not count, be it a transaction or some paths of it, nor does the undo of that. An
    undo of what others did is work like any other.
    """
    given = {transaction.seq: transaction for transaction in transactions if transaction.kind != "baseline"}
    found: list[Transaction] = []
    for transaction in given.values():
        if transaction.undone_by is not None or _cancels_out(transaction, given):
            continue
        left = tuple(touch for touch in transaction.touches if touch.undone_by is None)
        if left:
            found.append(replace(transaction, touches=left))
    return found


def path_changes(transactions: Iterable[Transaction]) -> list[PathChanges]:
    """What `transactions`, rising, did to each path; runs are to be carried out in this order."""
    made: list[_Growing] = []
    last: dict[WorkspacePath, _Growing] = {}
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
                known = _Growing(touch.path, states, [], touch.source)
                made.append(known)
            elif known is not None and _is_same(known.states[-1], touch.before):
                known.states.append(touch.after)
            else:
                known = _Growing(touch.path, [touch.before, touch.after], [])
                made.append(known)
            known.seqs.append(int(transaction.seq))
            last[touch.path] = known
    return [PathChanges(run.path, tuple(run.states), tuple(run.seqs), run.source) for run in made]


def format_ranges(seqs: Iterable[Seq] | Iterable[int]) -> str:
    """Numbers as a person writes them: `3-5, 9`."""
    parts: list[list[int]] = []
    for seq in sorted(seqs):
        if parts and seq == parts[-1][1] + 1:
            parts[-1][1] = seq
        else:
            parts.append([seq, seq])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


def numbers_in(spans: str, wanted: Sequence[int]) -> set[int]:
    """Return those of the `wanted` numbers that a text made by `spans` names."""
    found: set[int] = set()
    for first, last in _SPAN.findall(spans):
        found |= {seq for seq in wanted if int(first) <= seq <= int(last or first)}
    return found


class _Growing(Struct):
    path: WorkspacePath
    states: list[Entry | None]
    seqs: list[int]
    source: WorkspacePath | None = None


def _cancels_out(transaction: Transaction, given: Mapping[Seq, Transaction]) -> bool:
    """Is it the undo of what is among the `given`, and does not count there?"""
    return bool(transaction.undoes) and all(
        seq in given and _is_undone(given[seq], {part.path for part in transaction.parts if part.seq == seq})
        for seq in transaction.undoes
    )


def _is_undone(transaction: Transaction, paths: set[WorkspacePath]) -> bool:
    """Are these paths of it, or all where none are named, undone?"""
    return transaction.undone_by is not None or all(
        touch.undone_by is not None for touch in transaction.touches if not paths or touch.path in paths
    )


def _is_move(touch: Touch, by_path: dict[WorkspacePath, Touch]) -> bool:
    """Did the file go to a place that was free, and leave its own?"""
    source = None if touch.source is None else by_path.get(touch.source)
    return source is not None and source.after is None and touch.before is None and touch.after is not None


def _is_same(first: Entry | None, second: Entry | None) -> bool:
    if first is None or second is None:
        return first is second
    return (first.mode, first.version) == (second.mode, second.version)
