"""engine.queries: what a session or a range did to each path, as runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from editd.engine.queries import PathChanges, effective, format_ranges, numbers_in, path_changes
from editd.values.content import EXECUTABLE, FILE, Change, Entry, version_of
from editd.values.path import WorkspacePath
from editd.values.transaction import Authorship, CommitId, Part, Seq, Transaction

if TYPE_CHECKING:
    from editd.wire.messages import Kind

A, B = WorkspacePath("a"), WorkspacePath("b")


def entry(text: str | None) -> Entry | None:
    return None if text is None else Entry(FILE, version_of(text.encode()))


def touch(path: WorkspacePath, before: str | None, after: str | None, **more: object) -> Change[Entry]:
    return Change(path, entry(before), entry(after), **more)  # type: ignore[arg-type]


def made(
    seq: int,
    *touches: Change[Entry],
    kind: Kind = "edit",
    undoes: tuple[int, ...] = (),
    undone_by: int | None = None,
    parts: tuple[Part, ...] = (),
) -> Transaction:
    return Transaction(
        Seq(seq), CommitId(f"{seq:040}"), kind, Authorship("x"), seq, touches, tuple(map(Seq, undoes)),
        None if undone_by is None else Seq(undone_by), parts,
    )  # fmt: skip


def run(path: WorkspacePath, *texts: str | None, source: WorkspacePath | None = None) -> PathChanges:
    return PathChanges(path, tuple(map(entry, texts)), (), source)


def bare(transactions: list[Transaction]) -> list[PathChanges]:
    """Return the runs without the numbers of their transactions."""
    return [replace(found, seqs=()) for found in path_changes(transactions)]


def test_what_follows_on_itself_is_one_run() -> None:
    done = [made(1, touch(A, "0", "1"), touch(B, None, "b")), made(2, touch(A, "1", "2"))]
    assert bare(done) == [run(A, "0", "1", "2"), run(B, None, "b")]


def test_where_somebody_else_came_in_between_another_run_begins() -> None:
    assert bare([made(1, touch(A, "0", "1")), made(3, touch(A, "2", "3"))]) == [
        run(A, "0", "1"),
        run(A, "2", "3"),
    ]


def test_where_somebody_else_changed_the_mode_in_between_another_run_begins() -> None:
    first, executable = made(1, touch(A, "0", "1")), Entry(EXECUTABLE, version_of(b"1"))
    second = made(3, Change(A, executable, entry("2")))
    assert bare([first, second]) == [run(A, "0", "1"), PathChanges(A, (executable, entry("2")), (), None)]


def test_a_move_goes_on_from_what_the_source_held() -> None:
    moving = made(2, touch(A, "1", None), touch(B, None, "1+", source=A))
    done = [made(1, touch(A, "0", "1")), moving, made(3, touch(B, "1+", "2")), made(4, touch(A, None, "new"))]
    assert bare(done) == [run(A, "0", "1"), run(B, "1", "1+", "2", source=A), run(A, None, "new")]


def test_files_that_change_places_are_two_changes() -> None:
    swap = made(1, touch(A, "a", "b", source=B), touch(B, "b", "a", source=A))
    assert bare([swap]) == [run(A, "a", "b"), run(B, "b", "a")]


def test_neither_what_is_undone_nor_its_undo_is_in_force() -> None:
    first = made(1, touch(A, "0", "1"), undone_by=3)
    second = made(2, touch(B, "0", "1"))
    undo = made(3, touch(A, "1", "0"), kind="undo", undoes=(1,))
    baseline = made(4, touch(B, None, "x"), kind="baseline")
    assert [found.seq for found in effective([first, second, undo, baseline])] == [2]


def test_an_undo_of_what_others_did_is_work() -> None:
    undo = made(3, touch(A, "1", "0"), kind="undo", undoes=(1,))
    assert effective([undo]) == [undo]


def test_after_a_redo_the_first_is_in_force_and_the_redo_adds_nothing() -> None:
    first = made(1, touch(A, "0", "1"))
    undo = made(2, touch(A, "1", "0"), kind="undo", undoes=(1,), undone_by=3)
    redo = made(3, touch(A, "0", "1"), kind="redo", undoes=(2,))
    assert [found.seq for found in effective([first, undo, redo])] == [1]


def test_of_what_is_undone_in_part_the_rest_is_in_force() -> None:
    first = made(1, touch(A, "0", "1"), touch(B, "0", "1", undone_by=Seq(2)))
    undo = made(2, touch(B, "1", "0"), kind="undo", undoes=(1,), parts=(Part(Seq(1), B),))
    assert bare(effective([first, undo])) == [run(A, "0", "1")]


def test_numbers_are_written_as_spans() -> None:
    assert format_ranges(map(Seq, [9, 3, 4, 5, 11, 12])) == "3-5, 9, 11-12"


def test_a_run_knows_the_transaction_of_each_step() -> None:
    done = [made(1, touch(A, "0", "1")), made(4, touch(A, "1", "2")), made(7, touch(A, "3", "4"))]
    assert [found.seqs for found in path_changes(done)] == [(1, 4), (7,)]


def test_numbers_are_found_in_what_a_trailer_says_of_them() -> None:
    assert numbers_in(format_ranges(map(Seq, (3, 4, 5, 9))), [2, 3, 5, 6, 9]) == {3, 5, 9}
    assert numbers_in("nonsense, 7-", [1, 7]) == {7}
