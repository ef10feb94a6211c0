"""engine.undo: what an undo asks of the history does not grow with the square of the number of files."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from editd.store.index import Index
from editd.store.path_history import HistoryWalker, PathNow
from editd.values.content import FILE, Change, Entry, Version
from editd.values.path import WorkspacePath
from editd.values.transaction import Authorship, CommitId, Part, Seq, Transaction

if TYPE_CHECKING:
    from pathlib import Path

    from editd.store.history import History

FORMER = [WorkspacePath(f"former-{number}") for number in range(100)]
PATHS = [WorkspacePath(f"file-{number}") for number in range(100)]
OLD, NEW = (Entry(FILE, Version(text * 40)) for text in "01")


def recorded(seq: int, touches: list[Change[Entry]], undoes: list[Part]) -> Transaction:
    said = Authorship("actor", None, "why")
    return Transaction(
        Seq(seq),
        CommitId(f"{seq:040x}"),
        "undo" if undoes else "edit",
        said,
        seq,
        tuple(touches),
        undoes=tuple({part.seq: None for part in undoes}),
        parts=tuple(undoes),
    )


def test_what_a_transaction_undid_is_read_once_for_all_its_files(tmp_path: Path) -> None:
    index = Index(str(tmp_path / "index.db"))
    index.add(recorded(0, [], []))
    index.add(recorded(1, [Change(path, None, OLD) for path in FORMER], []))
    moves = [Change(path, None, OLD, former) for path, former in zip(PATHS, FORMER, strict=True)]
    index.add(recorded(2, [*moves, *(Change(path, OLD, None) for path in FORMER)], []))
    index.add(recorded(3, [Change(path, OLD, NEW) for path in PATHS], []))
    half = PATHS[::2]
    index.add(recorded(4, [Change(path, NEW, OLD) for path in half], [Part(Seq(3), path) for path in half]))
    past = HistoryWalker(cast("History", SimpleNamespace(index=index)))
    asked: list[str] = []
    index.flush()
    index._database.set_trace_callback(asked.append)
    assert [past.follow_path(path, 1) for path in FORMER] == [PathNow(path, exists=True) for path in PATHS]
    index._database.set_trace_callback(None)
    assert past.undoes(4) == (3,)
    lists = [query for query in asked if "undoes" in query]
    assert 0 < len(lists) <= 3, "one for each transaction after 1, not one for each of its files"
    index.close()
