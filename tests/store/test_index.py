"""store.index: what is asked of it is found by its indexes, not by going through all there is."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from editd.errors import HistoryDamaged, IoError
from editd.store.index import LOT, WAITING_MAX, Index
from editd.store.index_tables import SCHEMA, TABLES, LogQuery, without_claim
from editd.values.content import FILE, Change, Entry, Version
from editd.values.path import WorkspacePath
from editd.values.transaction import Authorship, CommitId, Part, Seq, Transaction, TurnMark
from support.workplace import write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from editd.wire.messages import Kind
    from support.workplace import Workplace

SECOND_US = 1_000_000


def transaction(seq: int) -> Transaction:
    """One a second, of one of ten paths, five actors and three sessions."""
    path = WorkspacePath(f"folder-{seq % 5}/file-{seq % 10}")
    after = Entry(FILE, Version(f"{seq:040x}"))
    said = Authorship(f"actor-{seq % 5}", f"session-{seq % 3}", "why")
    kind: Kind = "edit" if seq % 7 else "outside"
    touches = (Change(path, None, after),)
    return Transaction(Seq(seq), CommitId(f"{seq:040x}"), kind, said, seq * SECOND_US, touches)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    made = Index(str(tmp_path_factory.mktemp("index") / "index.db"))
    for seq in range(1000):
        made.add(transaction(seq))
    yield made
    made.close()


def seqs(index: Index, limit: int = 1000, **wanted: Any) -> list[int]:
    return [int(found.seq) for found in index.log(LogQuery(**wanted), limit)]


ASKED: list[dict[str, Any]] = [
    {"paths": (WorkspacePath("folder-3/file-3"),)},
    {"paths": (WorkspacePath("folder-3"),)},
    {"sessions": ("session-1",)},
    {"actors": ("actor-2",)},
    {"sessions": ("session-*",)},
    {"actors": ("actor-[23]",)},
    {"kinds": ("outside",)},
    {"sessions": ("session-1", "session-2"), "actors": ("actor-2", "actor-3")},
    {"since_us": 900 * SECOND_US},
    {"until_us": 100 * SECOND_US},
    {
        "since_us": 300 * SECOND_US,
        "until_us": 400 * SECOND_US,
        "actors": ("actor-2",),
        "sessions": ("session-1",),
    },
]


@pytest.mark.parametrize("asked", ASKED, ids=" ".join)
def test_no_question_of_the_log_goes_through_all_transactions(index: Index, asked: dict[str, Any]) -> None:
    said: list[str] = []
    database = index._database
    database.set_trace_callback(said.append)
    try:
        assert seqs(index, 5, **asked)
    finally:
        database.set_trace_callback(None)
    queries = [query for query in said if query.startswith("select") and "from touch where seq" not in query]
    assert queries
    for query in queries:
        plan = [row[3] for row in database.execute(f"explain query plan {query}")]
        assert not [step for step in plan if step.startswith(("SCAN tx", "SCAN touch"))], (query, plan)


def test_a_question_without_any_condition_would_be_such_a_walk(index: Index) -> None:
    plan = [
        row[3] for row in index._database.execute("explain query plan select * from tx where message = ''")
    ]
    assert plan == ["SCAN tx"]


def test_the_log_is_what_going_through_all_would_find(index: Index) -> None:
    everything = [transaction(seq) for seq in reversed(range(1000))]
    assert seqs(index, sessions=("session-1",)) == [
        tx.seq for tx in everything if tx.authorship.session == "session-1"
    ]
    assert seqs(index, actors=("actor-[!23]", "nobody")) == [
        tx.seq for tx in everything if tx.authorship.actor not in ("actor-2", "actor-3")
    ]
    assert seqs(index, sessions=("*-1",)) == seqs(index, sessions=("session-1",))
    assert seqs(index, sessions=("Session-1*",)) == [], "letters are compared as they are"
    assert seqs(index, kinds=("outside",), actors=("actor-2",)) == [
        tx.seq for tx in everything if tx.kind == "outside" and tx.authorship.actor == "actor-2"
    ]
    assert seqs(index, paths=(WorkspacePath("folder-3"),)) == [
        tx.seq for tx in everything if tx.touches[0].path.folder == "folder-3"
    ]


def test_times_are_included_and_need_not_be_those_of_a_transaction(index: Index) -> None:
    assert seqs(index, since_us=998 * SECOND_US) == [999, 998]
    assert seqs(index, since_us=998 * SECOND_US + 1) == [999]
    assert seqs(index, since_us=2000 * SECOND_US) == []
    assert seqs(index, until_us=1 * SECOND_US) == [1, 0]
    assert seqs(index, until_us=2 * SECOND_US - 1) == [1, 0]
    assert seqs(index, until_us=-1) == []
    assert seqs(index, since_us=5 * SECOND_US, until_us=6 * SECOND_US, before=6) == [5]


def test_what_follows_comes_in_its_order(index: Index, tmp_path: Path) -> None:
    assert [int(tx.seq) for tx in index.following(10, 3)] == [11, 12, 13]
    assert index.following(999, 3) == []
    empty = Index(str(tmp_path / "empty.db"))
    assert empty.following(0, 3) == []
    empty.close()


def test_who_made_a_transaction_is_told_without_what_it_did(index: Index) -> None:
    made = index.origin_of(7)
    assert (made.kind, made.actor, made.session, made.time_us) == (
        "outside", "actor-2", "session-1", 7 * SECOND_US,
    )  # fmt: skip


def test_an_index_of_the_last_version_is_kept_and_takes_turns(tmp_path: Path) -> None:
    path = str(tmp_path / "index.db")
    with contextlib.closing(sqlite3.connect(path)) as database:
        older = TABLES.replace(", turn integer, model text", "")
        older = re.sub("create index tx_by_turn.*?;", "", older)
        database.executescript(f"{older} pragma user_version = {SCHEMA - 1};")
        database.execute(
            "insert into tx (seq, id, kind, actor, message, time_us, undoes, notes)"
            " values (1, 'ab', 'edit', 'a', '', 1, '[]', '')"
        )
        database.commit()
    index = Index(path)
    made = transaction(2)
    turned = replace(made, authorship=replace(made.authorship, turn=TurnMark(3, "gpt-5.5")))
    index.add(turned)
    index.flush()
    index._recent.clear()
    turns = [one.authorship.turn for one in index.transactions([1, 2])]
    assert turns == [None, TurnMark(3, "gpt-5.5")]
    index.close()
    assert not (tmp_path / "damaged").exists()


def test_a_claimed_change_has_the_turn_of_its_claim(tmp_path: Path) -> None:
    index = Index(str(tmp_path / "index.db"))
    made = replace(transaction(1), kind="outside", authorship=Authorship("outside"))
    author = Authorship("a", "s", "edit", turn=TurnMark(3, "gpt-5.5"))
    claim = replace(transaction(2), kind="claim", authorship=author, touches=(), claims=(Seq(1),))
    index.add(made)
    index.add(claim)
    claimed = index.transactions([1])[0]
    assert (claimed.kind, claimed.authorship.turn) == ("exec", author.turn)
    assert without_claim(claimed) == made
    index.close()


@pytest.mark.parametrize("lost", ["table tx", "table touch", "index touch_by_source"])
def test_an_index_without_one_of_its_tables_is_begun_anew(tmp_path: Path, lost: str) -> None:
    path = str(tmp_path / "index.db")
    Index(path).close()
    database = sqlite3.connect(path)
    database.execute(f"drop {lost}")
    database.close()
    index = Index(path)
    index.add(transaction(1))
    assert seqs(index) == [1]
    index.close()
    assert (tmp_path / "index.db").exists()


def test_an_index_that_another_program_has_locked_is_written_when_it_is_free(tmp_path: Path) -> None:
    path = str(tmp_path / "index.db")
    index = Index(path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("begin immediate")
    index.add(transaction(1))
    with pytest.raises(IoError, match="cannot be written") as refusal:
        index.flush()
    assert refusal.value.data["errno_name"] == "EBUSY"
    assert index.flaw is refusal.value
    other.execute("rollback")
    other.close()
    assert seqs(index) == [1]
    assert index.flaw is None
    index.close()


def test_an_index_that_is_damaged_while_it_is_open_says_how_it_is_made_anew(tmp_path: Path) -> None:
    file = tmp_path / "index.db"
    made = Index(str(file))
    for seq in range(1000):
        made.add(transaction(seq))
    made.close()
    content = file.read_bytes()  # its first page has the names of the tables
    file.write_bytes(content[:4096] + bytes(len(content) - 4096))
    damaged = Index(str(file))
    questions: list[Callable[[], object]] = [
        lambda: damaged.last,
        lambda: damaged.transaction(7),
        lambda: damaged.log(LogQuery(sessions=("session-1",)), 10),
        lambda: damaged.by_request("asked before", None),
        lambda: damaged.is_touched(WorkspacePath("folder-1/file-1")),
    ]
    for ask in questions:
        with pytest.raises(HistoryDamaged, match=r"The index .* malformed") as refusal:
            ask()
        assert "check --repair" in refusal.value.hint
    damaged.add(transaction(1000))
    with pytest.raises(HistoryDamaged, match="malformed"):
        damaged.flush()
    damaged.close()  # which does not raise: the history has all of it


def test_a_burst_leaves_its_transactions_to_a_pause_and_no_write_is_long(tmp_path: Path) -> None:
    index = Index(str(tmp_path / "index.db"))
    other = sqlite3.connect(tmp_path / "index.db")

    def written() -> int:
        return int(other.execute("select count(*) from tx").fetchone()[0])

    count = WAITING_MAX + LOT
    for seq in range(count):
        made = transaction(seq)
        said = replace(made.authorship, session=None, request_id=f"request {seq}")
        index.add(replace(made, authorship=said))
        index.flush_if_full()
        assert written() == (0 if seq + 1 < WAITING_MAX else (seq + 1 - WAITING_MAX) // LOT * LOT + LOT)
    while index.write_some():
        assert index.by_request("request 0", None) == 0
        assert index.by_request(f"request {count - 1}", None) == count - 1  # which waits yet
        assert written() % LOT == 0
    assert written() == count
    assert index.by_request(f"request {count - 1}", None) == count - 1
    other.close()
    index.close()


def test_undos_that_are_written_together_mark_what_they_would_one_by_one(tmp_path: Path) -> None:
    undoes = {1: (), 2: (1,), 3: (2,), 4: (3,), 5: (), 6: (5, 4)}
    found: list[dict[int, int | None]] = []
    for name, is_each in (("together", False), ("each", True)):
        index = Index(str(tmp_path / f"{name}.db"))
        for seq, undone in undoes.items():
            index.add(replace(transaction(seq), undoes=tuple(map(Seq, undone))))
            if is_each:
                index.flush()
        found.append({int(one.seq): one.undone_by for one in index.log(LogQuery(), 10)})
        index.close()
    assert found == [{1: None, 2: 3, 3: None, 4: 6, 5: 6, 6: None}] * 2


def undone_after(path: Path, undoes: Mapping[int, Iterable[int]]) -> dict[int, int]:
    """Record transactions that undo others, and return which of them are undone, and by which."""
    index = Index(str(path))
    for seq, undone in undoes.items():
        index.add(replace(transaction(seq), undoes=tuple(map(Seq, undone))))
    found = {
        int(one.seq): int(one.undone_by) for one in index.log(LogQuery(), 100) if one.undone_by is not None
    }
    index.close()
    return found


def test_a_transaction_is_undone_as_long_as_one_of_several_undos_of_it_is_in_force(tmp_path: Path) -> None:
    twice = {1: (), 2: (1,), 3: (2,), 4: (1,), 5: (3,)}  # Both 2 and 4 undo 1; the newest is told.
    assert undone_after(tmp_path / "both", twice) == {1: 4, 3: 5}
    assert undone_after(tmp_path / "the older", {**twice, 6: (4,)}) == {1: 2, 3: 5, 4: 6}
    assert undone_after(tmp_path / "the newer", {**twice, 6: (2,)}) == {1: 4, 2: 6, 3: 5}
    assert undone_after(tmp_path / "neither", {**twice, 6: (4,), 7: (2,)}) == {2: 7, 3: 5, 4: 6}


def test_each_path_is_undone_by_the_newest_undo_that_is_in_force_there(tmp_path: Path) -> None:
    index = Index(str(tmp_path / "index.db"))
    touches = tuple(Change(WorkspacePath(path), None, Entry(FILE, Version("1" * 40))) for path in "ab")
    for seq, undone in {1: (), 2: (1,), 3: (2,), 4: (1,), 5: (3,), 6: (4,)}.items():
        made = replace(transaction(seq), touches=touches, undoes=tuple(map(Seq, undone)))
        is_in_part = seq == 6
        parts = (Part(Seq(4), WorkspacePath("a")),) if is_in_part else ()
        index.add(replace(made, touches=touches[:1] if is_in_part else touches, parts=parts))
    first = index.transaction(1)
    assert first is not None
    assert {touch.path.text: touch.undone_by for touch in first.touches} == {"a": 2, "b": 4}
    assert first.undone_by == 4
    index.close()


def test_only_so_many_paths_are_remembered_also_while_transactions_wait_all_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("editd.store.index.TOUCHED_MAX", 1000)
    index = Index(str(tmp_path / "index.db"))
    paths = [WorkspacePath(f"file-{seq}") for seq in range(2 * WAITING_MAX)]
    for seq, path in enumerate(paths):
        made = transaction(seq)
        index.add(replace(made, touches=(replace(made.touches[0], path=path),)))
        index.flush_if_full()
    assert len(index._touched) <= WAITING_MAX
    assert all(index.is_touched(path) for path in paths)
    index.close()


def test_an_index_that_gave_its_caches_back_still_knows_each_path(tmp_path: Path) -> None:
    index = Index(str(tmp_path / "index.db"))
    paths = [WorkspacePath(f"file-{seq}") for seq in range(20)]
    for seq, path in enumerate(paths):
        made = transaction(seq)
        index.add(replace(made, touches=(replace(made.touches[0], path=path),)))
        if seq == 10:
            index.flush()
    index.give_back()
    assert len(index._touched) == 9  # which wait to be written
    assert all(index.is_touched(path) for path in paths)
    index.close()


def test_the_log_of_a_folder_has_nothing_of_a_file_whose_name_begins_alike(place: Workplace) -> None:
    with place.start() as client:
        client.apply([write("src/a", "1\n")])
        client.apply([write("src.py", "1\n")])
        assert [transaction.seq for transaction in client.log(path="src").transactions] == [1]


def test_the_index_counts_its_bytes_beyond_those_of_an_empty_one(tmp_path: Path) -> None:
    index = Index(str(tmp_path / "index.db"))
    assert index.stored_bytes == 0
    for seq in range(100):
        made = transaction(seq)
        index.add(replace(made, authorship=replace(made.authorship, message="x" * 10_000)))
    index.flush()
    stored = index.stored_bytes
    assert stored > 1_000_000
    index.close()
    again = Index(str(tmp_path / "index.db"))
    assert again.stored_bytes == stored
    again.close()
