"""store.recent_transactions: answers from memory are those of the index, or there is none."""

from __future__ import annotations

import tempfile
from contextlib import closing
from itertools import count
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from editd.store.index import Index
from editd.store.index_tables import UndoQuery
from editd.store.recent_transactions import KEPT_MAX, TOUCHES_MAX, RecentTransactions
from editd.values.content import FILE, Change, Entry, Version
from editd.values.path import WorkspacePath
from editd.values.transaction import Authorship, CommitId, Part, Seq, Transaction

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from editd.wire.messages import Kind

PATHS = [WorkspacePath(name) for name in ("b", "a", "d/c")]
SESSIONS = ["one", "two", None]
EDITS: tuple[Kind, ...] = ("edit", "restore")
ENTRY = Entry(FILE, Version("1" * 40))
AUTHORSHIP = Authorship("actor", None, "")

steps = st.lists(
    st.tuples(
        st.sets(st.sampled_from(PATHS), min_size=1),
        st.sampled_from(SESSIONS),
        st.integers(0, 4),  # how far back the undone transaction is; 0: it is an edit
        st.booleans(),  # a part of it only
    ),
    max_size=12,
)


def transaction(
    seq: int, paths: Sequence[WorkspacePath], session: str | None = None, undoes: Sequence[Seq] = ()
) -> Transaction:
    return Transaction(
        Seq(seq), CommitId(f"{seq:040x}"), "undo" if undoes else "edit", replace(AUTHORSHIP, session=session),
        seq, tuple(Change(path, None, ENTRY) for path in paths), tuple(undoes),
    )  # fmt: skip


@given(steps)
@settings(deadline=None)
def test_the_newest_in_force_is_that_of_the_index_or_unknown(
    made: list[tuple[set[WorkspacePath], str | None, int, bool]],
) -> None:
    with tempfile.TemporaryDirectory() as folder, closing(Index(f"{folder}/index.db")) as index:
        for seq, (paths, session, back, is_part) in zip(count(10), made, strict=False):
            below = seq - back
            undone = index.transactions([below]) if back else []
            if undone and undone[0].undone_by is None:
                touched = [touch.path for touch in undone[0].touches]
                parts = (Part(Seq(below), touched[0]),) if is_part else ()
                index.add(replace(transaction(seq, touched, session, [Seq(below)]), parts=parts))
            else:
                index.add(transaction(seq, list(paths), session))
            for chosen in (
                UndoQuery(EDITS), UndoQuery(("undo",)), UndoQuery(EDITS, ("one",)),
                UndoQuery(("undo",), ("two",)), UndoQuery(EDITS, until=seq - 1),
            ):  # fmt: skip
                known = index.newest_in_force(chosen)
                assert known is None or [known] == index.in_force(chosen, -1)[:1]
            for number in range(10, seq + 1):
                assert index.transaction(number) == index.transactions([number])[0]
            for path in PATHS:
                for since in range(9, seq + 1):
                    assert not (index.has_stayed(path, since) and index.touches_after(path, since))


def test_an_undo_leaves_the_edit_before_it_as_the_newest_in_force() -> None:
    recent = RecentTransactions()
    for made in (
        transaction(1, PATHS[:1], "one"),
        transaction(2, PATHS[1:2], "two"),
        transaction(3, PATHS[1:2], "one", [Seq(2)]),
    ):
        recent.news.append(made)
    newest = recent.newest_in_force(UndoQuery(EDITS))
    assert newest is not None
    assert newest.seq == 1
    assert recent.newest_in_force(UndoQuery(EDITS, ("two",))) is None
    assert recent.has_stayed(PATHS[0], 1)
    assert not recent.has_stayed(PATHS[1], 2)
    assert not recent.has_stayed(PATHS[0], 0)
    assert not recent.has_stayed(PATHS[2], -1)  # transaction 0 is not known
    assert recent.has_stayed(PATHS[2], 0)


def test_no_more_is_kept_than_the_limits_allow() -> None:
    recent = RecentTransactions()
    for seq in range(KEPT_MAX + 1):
        recent.news.append(transaction(seq, PATHS[:1]))
    assert not recent.has_stayed(PATHS[1], -1)
    assert recent.has_stayed(PATHS[1], 0)
    many = [WorkspacePath(str(number)) for number in range(TOUCHES_MAX + 1)]
    recent.news.append(transaction(KEPT_MAX + 1, many))
    assert recent.newest_in_force(UndoQuery(EDITS)) is None
    assert not recent.has_stayed(PATHS[1], KEPT_MAX + 1)  # transaction of too many paths


def test_a_gap_ends_the_memory() -> None:
    recent = RecentTransactions()
    recent.news.append(transaction(1, PATHS[:1]))
    recent.news.append(transaction(3, PATHS[1:2]))
    assert not recent.has_stayed(PATHS[2], 1)
    assert recent.has_stayed(PATHS[2], 3)


def test_a_trial_of_the_index_ends_the_memory(tmp_path: Path) -> None:
    with closing(Index(str(tmp_path / "index.db"))) as index:
        index.add(transaction(1, PATHS[:1]))
        index.add(transaction(2, PATHS[:1]))
        with index.trial() as add:
            add(transaction(3, PATHS[:1], None, [Seq(2)]))
            (newest,) = index.in_force(UndoQuery(EDITS), 1)
            assert newest.seq == 1
        (newest,) = index.in_force(UndoQuery(EDITS), 1)
        assert newest.seq == 2
