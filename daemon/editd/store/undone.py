"""What is undone, as the index keeps it: of each transaction, and of each path of it. Rebuilt with the index.

An undo marks what it takes back; when it is undone itself, what it had taken back is in force again, and so
on down. An undo of some paths of a transaction marks these; the transaction counts as undone once all are.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

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
    """What a transaction undoes, as JSON.

    A seq, or a seq and its paths as latin-1 of their bytes; a path of which only hunks are undone is a list
    with their numbers.
    """
    if not transaction.undoes:
        return NOTHING
    parts: dict[Seq, list[Any]] = {}
    for part in transaction.parts:
        path = part.path.raw.decode("latin-1")
        parts.setdefault(part.seq, []).append([path, *part.hunks] if part.hunks else path)
    return json.dumps([[seq, *parts[seq]] if seq in parts else seq for seq in transaction.undoes])


def read(text: str) -> tuple[tuple[Seq, ...], tuple[Part, ...]]:
    """The same, read back."""
    if text == NOTHING:
        return (), ()
    items = [item if isinstance(item, list) else [item] for item in json.loads(text)]
    return tuple(Seq(seq) for seq, *_ in items), tuple(
        _part(Seq(seq), *(path if isinstance(path, list) else [path]))
        for seq, *paths in items
        for path in paths
    )


def whole(text: str) -> tuple[Seq, ...]:
    """The transactions of which some path at least is undone, and not only hunks."""
    undoes, parts = read(text)
    return tuple(seq for seq, paths in _each(undoes, parts) if paths != [])


def _part(seq: Seq, path: str, *hunks: int) -> Part:
    return Part(seq, WorkspacePath(os.fsdecode(path.encode("latin-1"))), hunks)


def _mark(
    database: sqlite3.Connection,
    seq: int,
    by: int | None,
    paths: Sequence[WorkspacePath] | None = None,
    was: int | None = None,
) -> None:
    """Mark `seq`, or only `paths` of it, as undone by `by`, or as in force again where it `was` undone by.

    What it had undone itself there is then the reverse.
    """
    row = database.execute("select undoes, undone_by from tx where seq = ?", (seq,)).fetchone()
    if row is None or paths == []:
        return
    is_named = "" if paths is None else " and path = ?"
    database.executemany(
        f"update touch set undone_by = ? where seq = ? and undone_by is coalesce(?, undone_by){is_named}",  # noqa: S608
        [(by, seq, was)] if paths is None else [(by, seq, was, path.raw) for path in paths],
    )
    marks = [mark for (mark,) in database.execute("select undone_by from touch where seq = ?", (seq,))]
    now = None if None in marks else by if by is not None or not marks else max(marks)
    database.execute("update tx set undone_by = ? where seq = ?", (now, seq))
    if row[0] == NOTHING:
        return
    is_whole_changed = (row[1] is None) != (now is None)
    for below, own in _each(*read(row[0])):
        reached = (
            own if paths is None else _reached(database, below, own, seq, paths, all_else=is_whole_changed)
        )
        if by is None:
            _mark(database, below, seq, reached)
        else:
            _mark(database, below, None, reached, was=seq)


def _reached(
    database: sqlite3.Connection,
    below: int,
    own: Sequence[WorkspacePath] | None,
    seq: int,
    paths: Sequence[WorkspacePath],
    *,
    all_else: bool,
) -> list[WorkspacePath]:
    """Which paths of `below`, which `seq` undid (only `own` of it), it found at `paths`.

    With `all_else` also those for which it had nothing to change: they are in force when all of it is undone.
    """
    if own is None:
        rows = database.execute("select path from touch where seq = ?", (below,)).fetchall()
        own = [WorkspacePath(os.fsdecode(row[0])) for row in rows]
    wanted = {*paths}
    touched = set[WorkspacePath]()
    if all_else:
        rows = database.execute("select path from touch where seq = ?", (seq,)).fetchall()
        touched = {WorkspacePath(os.fsdecode(row[0])) for row in rows}
    found = []
    for path in own:
        places = {path, _moved(database, path, below, seq)}
        if places & wanted or (all_else and not places & touched):
            found.append(path)
    return found


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
        known = paths.setdefault(part.seq, [])
        if not part.hunks:  # else the path stays in force
            known.append(part.path)
    for seq in undoes:
        yield seq, paths.get(seq)
