"""What is undone, as the index keeps it: of each transaction, and of each path of it. Rebuilt with the index.

An undo marks what it takes back; when it is undone itself, what it had taken back is in force again, and so
on down. An undo of some paths of a transaction marks these; the transaction counts as undone once all are.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from editd.values.path import WorkspacePath
from editd.values.transaction import Part, Seq, Transaction

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator, Sequence


NOTHING = "[]"  # what most transactions undo


def mark_all(database: sqlite3.Connection, transaction: Transaction) -> None:
    """Mark what `transaction`, which is in the index, takes back."""
    for seq, paths in _each(transaction.undoes, transaction.parts):
        _mark(database, seq, transaction.seq, paths)


def written(transaction: Transaction) -> str:
    """What a transaction undoes, as JSON: a seq, or a seq and its paths as latin-1 of their bytes."""
    if not transaction.undoes:
        return NOTHING
    found = _each(transaction.undoes, transaction.parts)
    return json.dumps(
        [
            seq if paths is None else [seq, *(path.raw.decode("latin-1") for path in paths)]
            for seq, paths in found
        ]
    )


def read(text: str) -> tuple[tuple[Seq, ...], tuple[Part, ...]]:
    """The same, read back."""
    if text == NOTHING:
        return (), ()
    items = [item if isinstance(item, list) else [item] for item in json.loads(text)]
    return tuple(Seq(seq) for seq, *_ in items), tuple(
        Part(Seq(seq), WorkspacePath(os.fsdecode(path.encode("latin-1"))))
        for seq, *paths in items
        for path in paths
    )


def _mark(
    database: sqlite3.Connection, seq: int, by: int | None, paths: Sequence[WorkspacePath] | None = None
) -> None:
    """Mark `seq`, or only `paths` of it, as undone by `by`, or as in force again.

    What it had undone itself there is then the reverse.
    """
    if paths is None:
        database.execute("update touch set undone_by = ? where seq = ?", (by, seq))
        database.execute("update tx set undone_by = ? where seq = ?", (by, seq))
    else:
        database.executemany(
            "update touch set undone_by = ? where seq = ? and path = ?",
            ((by, seq, path.raw) for path in paths),
        )
        database.execute(
            "update tx set undone_by = case when exists"
            " (select 1 from touch where touch.seq = tx.seq and touch.undone_by is null)"
            " then null else ? end where seq = ?",
            (by, seq),
        )
    row = database.execute("select undoes from tx where seq = ?", (seq,)).fetchone()
    if row is None or row[0] == NOTHING:
        return
    for below, own in _each(*read(row[0])):
        reached = own if paths is None else _reached(database, below, own, seq, paths)
        if reached is None or reached:
            _mark(database, below, seq if by is None else None, reached)


def _reached(
    database: sqlite3.Connection,
    below: int,
    own: Sequence[WorkspacePath] | None,
    seq: int,
    paths: Sequence[WorkspacePath],
) -> list[WorkspacePath]:
    """Which paths of `below`, which `seq` undid (only `own` of it), it found at `paths`."""
    if own is None:
        rows = database.execute("select path from touch where seq = ?", (below,)).fetchall()
        own = [WorkspacePath(os.fsdecode(row[0])) for row in rows]
    return [path for path in own if {path, _moved(database, path, below, seq)} & {*paths}]


def _moved(database: sqlite3.Connection, path: WorkspacePath, after: int, before: int) -> WorkspacePath:
    """Where the file that `path` named after one transaction was before another."""
    here, at = path.raw, after
    while row := database.execute(
        "select seq, path from touch where source = ? and seq > ? and seq < ? order by seq limit 1",
        (here, at, before),
    ).fetchone():
        at, here = row
    return WorkspacePath(os.fsdecode(here))


def _each(undoes: Iterable[Seq], parts: Sequence[Part]) -> Iterator[tuple[Seq, list[WorkspacePath] | None]]:
    """Each transaction that is undone, and of those that are undone in part the paths."""
    paths: dict[Seq, list[WorkspacePath]] = {}
    for part in parts:
        paths.setdefault(part.seq, []).append(part.path)
    for seq in undoes:
        yield seq, paths.get(seq)
