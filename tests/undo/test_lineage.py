"""Undo of files that were moved, deleted and overwritten: which file is meant, and where it is now.

A path can name one file after another. Newest first, undo leads back to the beginning all the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from editd.wire.messages import Chmod, Delete, Filter, Move
from editd_client.errors import EditdError
from support.workplace import replace, write

if TYPE_CHECKING:
    from editd.wire.messages import AnyEdit, OnConflict
    from editd_client.client import Client
    from support.workplace import Workplace

LINES = "".join(f"line {n}\n" for n in range(1, 21))
SWAP = ("line 5\n", "line five\n")

Files = dict[str, str]


def delete(path: str) -> Delete:
    return Delete(path=path)


def move(path: str, to: str, *, overwrite: bool = False) -> Move:
    return Move(path=path, to=to, overwrite=overwrite)


def begin(place: Workplace, files: Files, *steps: AnyEdit, session: str | None = None) -> Client:
    """A daemon on `files`, and each of the steps a transaction."""
    place.write(files)
    client = place.start()
    for step in steps:
        made = client.apply([step], session=session).transaction
        assert made is not None
    return client


def check(place: Workplace, client: Client, files: Files) -> None:
    assert place.files() == {path: text.encode() for path, text in files.items()}
    assert client.check().problems == []


def shell_move(place: Workplace, client: Client, path: str, to: str) -> None:
    (place.root / path).rename(place.root / to)
    client.settle()


def refused(client: Client, seq: int) -> dict[str, list[int]]:
    """The paths at which the undo of a transaction does not merge, each with those in the way."""
    with pytest.raises(EditdError) as error:
        client.undo(seq)
    assert error.value.name == "conflict"
    blocking = {file["path"]: file["blocking"] for file in error.value.data["files"]}
    conflicts = client.undo(seq, dry_run=True).conflicts
    assert isinstance(conflicts, list)
    assert {one.path: one.blocking for one in conflicts} == blocking
    return blocking


def lineage(client: Client) -> dict[str, tuple[str, object]]:
    """What the newest transaction says of its files."""
    (newest,) = client.log(limit=1).transactions
    return {
        file.path: (file.change, file.from_ if isinstance(file.from_, str) else None) for file in newest.files
    }


# ── Back to the beginning ──────────────────────────────────────────────────────────────────────


HISTORIES: dict[str, tuple[Files, list[AnyEdit]]] = {
    "another file came": (
        {"pkg/__init__.py": ""},
        [write("new.py", ""), delete("new.py"), move("pkg/__init__.py", "new.py")],
    ),
    "another new file came": ({}, [write("P", "A"), delete("P"), write("f", "F"), move("f", "P")]),
    "overwritten": ({}, [write("z", "Z"), write("s", "S"), move("z", "s", overwrite=True)]),
    "a file from the baseline came": ({"f": "F"}, [write("P", "A"), delete("P"), move("f", "P")]),
    "one that is alike came": (
        {"f": LINES, "P": LINES},
        [replace("P", *SWAP), delete("P"), move("f", "P")],
    ),
    "there and back": ({"a": "A"}, [move("a", "b"), write("b", "B"), move("b", "a"), delete("a")]),
    "onto each other": (
        {"a": "A", "b": "B"},
        [move("a", "b", overwrite=True), move("b", "c"), write("b", "new"), move("c", "b", overwrite=True)],
    ),
}


@pytest.mark.parametrize("name", HISTORIES)
def test_newest_first_undo_leads_back_to_the_beginning(place: Workplace, name: str) -> None:
    files, steps = HISTORIES[name]
    with begin(place, files, *steps) as client:
        for _ in steps:
            assert client.undo().files, "none of them is undone already"
        check(place, client, files)


@pytest.mark.parametrize("name", HISTORIES)
def test_all_at_once_lead_back_to_the_beginning(place: Workplace, name: str) -> None:
    files, steps = HISTORIES[name]
    with begin(place, files, *steps) as client:
        client.undo(last=len(steps))
        check(place, client, files)


# ── Where the file is now ──────────────────────────────────────────────────────────────────────


def test_an_undone_move_over_another_file_is_followed_back(place: Workplace) -> None:
    steps: list[AnyEdit] = [move("z", "s", overwrite=True), replace("s", *SWAP)]
    with begin(place, {"z": LINES, "s": "S"}, *steps) as client:
        client.undo(1)
        check(place, client, {"z": LINES.replace(*SWAP), "s": "S"})
        client.undo(2)
        check(place, client, {"z": LINES, "s": "S"})


def test_a_file_is_followed_back_through_moves_over_others_that_were_undone_at_once(place: Workplace) -> None:
    steps: list[AnyEdit] = [
        move("a", "c", overwrite=True),
        move("c", "e", overwrite=True),
        replace("e", *SWAP),
    ]
    with begin(place, {"a": LINES, "c": "C", "e": "E"}, *steps) as client:
        client.undo(filter=Filter(kind=["edit"], paths=["a", "c"]))
        swapped = LINES.replace(*SWAP)
        check(place, client, {"a": swapped, "c": "C", "e": "E"})
        client.undo(3)
        check(place, client, {"a": LINES, "c": "C", "e": "E"})


def test_a_file_is_followed_back_to_where_another_one_gave_way_to_it(place: Workplace) -> None:
    """One undo moves `a` back, and what was in its place, and what it had displaced."""
    with begin(place, {"a": LINES, "f": "F"}) as client:
        client.apply([move("f", "b"), move("a", "f")])
        client.apply([move("b", "a")])
        client.apply([Chmod(path="f", executable=True)])
        client.undo(filter=Filter(until=2))
        check(place, client, {"a": LINES, "f": "F"})
        client.apply([Chmod(path="f", executable=True)])
        client.undo(3)
        assert [bool((place.root / path).stat().st_mode & 0o100) for path in ("a", "f")] == [False, True]
        check(place, client, {"a": LINES, "f": "F"})


def test_what_a_move_had_overwritten_comes_back_at_its_own_path(place: Workplace) -> None:
    steps: list[AnyEdit] = [move("a", "b", overwrite=True), move("b", "c")]
    with begin(place, {"a": "A", "b": "B"}, *steps) as client:
        client.undo(1)
        check(place, client, {"a": "A", "b": "B"})


def test_what_a_move_had_overwritten_comes_back_where_the_file_itself_is_back(place: Workplace) -> None:
    steps: list[AnyEdit] = [move("a", "b", overwrite=True), move("b", "a")]
    with begin(place, {"a": "A", "b": "B"}, *steps) as client:
        assert [file.path for file in client.undo(1).files] == ["b"]
        check(place, client, {"a": "A", "b": "B"})


def test_what_a_move_had_overwritten_does_not_come_back_over_another_file(place: Workplace) -> None:
    steps: list[AnyEdit] = [move("a", "b", overwrite=True), move("b", "c"), write("b", "new")]
    with begin(place, {"a": "A", "b": "B"}, *steps) as client:
        assert refused(client, 1) == {"b": [3]}
        check(place, client, {"c": "A", "b": "new"})
        client.undo(1, on_conflict="force")
        check(place, client, {"a": "A", "b": "B"})


def test_force_does_not_delete_a_file_that_came_later(place: Workplace) -> None:
    steps: list[AnyEdit] = [move("a", "b"), delete("b"), write("a", "new")]
    with begin(place, {"a": "A"}, *steps) as client:
        with pytest.raises(EditdError) as error:
            client.undo(1, on_conflict="force")
        assert error.value.name == "nothing_to_undo"
        check(place, client, {"a": "new"})


def test_a_move_of_a_file_that_was_deleted_since_is_not_taken_back(place: Workplace) -> None:
    with begin(place, {"a": "A"}, move("a", "b"), delete("b")) as client:
        assert refused(client, 1) == {"b": [2]}
        client.undo(2)
        client.undo(1)
        check(place, client, {"a": "A"})


def test_another_file_that_took_a_deleted_ones_path_is_not_taken_for_it(place: Workplace) -> None:
    other = write("a", LINES.replace(*SWAP) + "another\n")
    with begin(place, {"a": LINES}, replace("a", *SWAP), delete("a"), other, move("a", "b")) as client:
        assert refused(client, 1) == {"a": [2, 3, 4]}
        check(place, client, {"b": LINES.replace(*SWAP) + "another\n"})


def test_a_later_file_at_a_path_that_it_had_left_is_not_taken_for_a_deleted_one(place: Workplace) -> None:
    """`e` has been at `a`, and so has its content: that it gets it again is no return of the first file."""
    steps: list[AnyEdit] = [Chmod(path="a", executable=True), move("a", "b"), move("e", "a")]
    steps += [replace("a", "E", "F"), delete("b"), replace("a", "F", "E")]
    with begin(place, {"a": "A", "e": "E"}, *steps) as client:
        assert refused(client, 1) == {"b": [2, 5]}
        check(place, client, {"a": "E"})


def test_a_copy_that_takes_the_path_of_a_deleted_file_is_not_that_file(place: Workplace) -> None:
    steps: list[AnyEdit] = [replace("a", "A", "B"), move("a", "b"), move("x", "a"), delete("b")]
    with begin(place, {"a": "A", "x": "B"}, *steps, Chmod(path="a", executable=True)) as client:
        assert refused(client, 1) == {"b": [2, 4]}
        check(place, client, {"a": "B"})


@pytest.mark.parametrize("edits", [[write("a", LINES)], [write("a", "x\n"), replace("a", "x\n", LINES)]])
def test_a_file_is_followed_through_a_restore(place: Workplace, edits: list[AnyEdit]) -> None:
    with begin(place, {}, *edits, move("a", "b"), replace("b", *SWAP)) as client:
        client.restore(len(edits))
        assert lineage(client) == {"a": ("renamed", "b")}
        client.undo(len(edits))
        check(place, client, {"a": "x\n"} if len(edits) > 1 else {})


def test_files_that_were_moved_over_others_are_restored_from_where_they_are(place: Workplace) -> None:
    steps: list[AnyEdit] = [move("a", "c"), move("b", "c", overwrite=True), move("d", "b")]
    with begin(place, {"a": "A", "b": "B", "d": "D"}, *steps) as client:
        client.restore(0)
        kinds = {"a": "added", "b": "modified", "c": "deleted", "d": "added"}
        assert lineage(client) == {path: (kind, None) for path, kind in kinds.items()}
        client.undo(4)
        check(place, client, {"b": "D", "c": "B"})


@pytest.mark.parametrize("to", ["a", "c"])
def test_a_file_is_followed_through_a_move_by_the_shell(place: Workplace, to: str) -> None:
    with begin(place, {}, write("a", LINES), replace("a", *SWAP), move("a", "b")) as client:
        shell_move(place, client, "b", to)
        assert lineage(client) == {to: ("renamed", "b")}
        client.undo(2)
        check(place, client, {to: LINES})
        client.undo(1)
        check(place, client, {})


def test_a_move_by_the_shell_over_another_file_is_taken_back(place: Workplace) -> None:
    with begin(place, {"a": LINES, "b": "B"}) as client:
        client.settle()
        shell_move(place, client, "a", "b")
        client.apply([replace("b", *SWAP)])
        client.undo(1)
        check(place, client, {"a": LINES.replace(*SWAP), "b": "B"})


def test_a_file_is_followed_back_past_where_it_was_changed(place: Workplace) -> None:
    with begin(place, {"a": LINES}, move("a", "b"), session="s") as client:
        client.apply([replace("b", *SWAP)])
        client.apply([move("b", "c")], session="s", on_stale="merge")
        client.rollback("s")
        client.undo(2)
        check(place, client, {"a": LINES})


def test_who_took_back_that_a_file_was_made_and_moved_is_in_the_way(place: Workplace) -> None:
    with begin(place, {}, write("a", "A"), session="s") as client:
        client.apply([move("a", "b")])
        client.apply([move("b", "c")], session="s")
        client.rollback("s")
        assert refused(client, 2) == {"c": [4]}


def test_a_file_is_looked_for_where_the_same_undo_has_moved_it(place: Workplace) -> None:
    with begin(place, {"a": LINES}, replace("a", *SWAP)) as client:
        client.apply([move("a", "b"), write("x", "X")])
        client.apply([move("b", "a")])
        client.undo(2)
        client.undo(last=2)
        check(place, client, {"b": LINES})


def test_a_rollback_that_is_undone_leaves_no_trace_in_the_place_of_a_conflict(place: Workplace) -> None:
    """Before and after, the work in force is the same: `a` was moved to `b`, and overwritten there."""
    with begin(place, {"a": "A", "c": "C"}, Chmod(path="a", executable=True)) as client:
        client.apply([move("a", "b")], session="s")
        client.apply([move("c", "b", overwrite=True)], session="s")
        client.apply([delete("b")], session="s")
        before = refused(client, 1)
        client.rollback("s")
        check(place, client, {"a": "A", "c": "C"})
        client.undo(5)
        check(place, client, {})
        assert refused(client, 1) == before == {"b": [2, 3, 4]}
        client.undo(1, on_conflict="force")
        check(place, client, {"b": "A"})
        assert not (place.root / "b").stat().st_mode & 0o100


def test_what_was_deleted_and_restored_is_followed_on(place: Workplace) -> None:
    with begin(place, {}, write("a", "A"), delete("a")) as client:
        client.restore(1)
        client.apply([move("a", "b")])
        client.undo(1)
        check(place, client, {})


def test_what_changed_the_file_while_it_was_moved_is_in_the_way(place: Workplace) -> None:
    five = ("line five\n", "line 5, again\n")
    steps: list[AnyEdit] = [replace("a", *SWAP), move("a", "b"), replace("b", *five)]
    with begin(place, {"a": LINES}, *steps) as client:
        client.undo(2)
        assert refused(client, 1) == {"a": [3]}
        (conflict,) = client.undo(1, dry_run=True).conflicts  # type: ignore[misc]
        assert (conflict.path, conflict.blocking, conflict.needs) == ("a", [3], [3])
        check(place, client, {"a": LINES.replace(SWAP[0], five[1])})


# ── What the log says of it ────────────────────────────────────────────────────────────────────


def test_a_file_that_is_back_after_all_was_not_renamed(place: Workplace) -> None:
    steps: list[AnyEdit] = [move("a", "b"), move("b", "a"), delete("a")]
    with begin(place, {"a": "A"}, *steps, session="s") as client:
        client.rollback("s")
        assert lineage(client) == {"a": ("added", None)}
        check(place, client, {"a": "A"})


def test_a_file_that_comes_back_was_not_renamed_from_one_that_stood_there_meanwhile(place: Workplace) -> None:
    with begin(place, {"a": "A"}, delete("a"), write("a", "new"), move("a", "b")) as client:
        client.undo(last=3)
        assert lineage(client) == {"a": ("added", None), "b": ("deleted", None)}
        check(place, client, {"a": "A"})


def test_an_overwritten_file_that_is_forced_back_was_not_renamed_from_the_one_that_gives_way(
    place: Workplace,
) -> None:
    with begin(place, {"a": "A", "b": "B"}) as client:
        client.apply([move("a", "b", overwrite=True)], actor="ann")
        client.apply([move("b", "c")])
        client.apply([write("b", "new")])
        client.apply([move("b", "d")], actor="ann")
        client.undo(filter=Filter(actor="ann"), on_conflict="force")
        assert lineage(client) == {"a": ("renamed", "c"), "b": ("added", None), "d": ("deleted", None)}
        check(place, client, {"a": "A", "b": "B"})


def test_several_moves_undone_at_once_are_one_from_where_the_file_is_now(place: Workplace) -> None:
    steps: list[AnyEdit] = [move("z", "s", overwrite=True), move("s", "t")]
    with begin(place, {"z": "Z", "s": "S"}, *steps) as client:
        client.undo(last=2)
        assert lineage(client) == {"s": ("added", None), "z": ("renamed", "t")}
        check(place, client, {"z": "Z", "s": "S"})


# ── What stands in the way ─────────────────────────────────────────────────────────────────────


def test_only_who_made_the_file_that_stands_there_now_is_in_the_way(place: Workplace) -> None:
    steps: list[AnyEdit] = [move("a", "b"), write("a", "new"), move("a", "c"), write("a", "newer")]
    with begin(place, {"a": "A"}, *steps) as client:
        assert refused(client, 1) == {"a": [4]}


def test_a_file_is_in_the_way_of_a_folder(place: Workplace) -> None:
    with begin(place, {"x/y/z": "Z"}, delete("x/y/z"), write("x", "X"), replace("x", "X", "XX")) as client:
        assert refused(client, 1) == {"x": [2, 3]}
        check(place, client, {"x": "XX"})
        for seq in (3, 2, 1):
            client.undo(seq)
        check(place, client, {"x/y/z": "Z"})


def test_a_file_that_was_moved_to_where_another_has_to_come_back_is_in_the_way(place: Workplace) -> None:
    with begin(place, {"a": "A", "b": "B"}, move("a", "b", overwrite=True)) as client:
        client.undo(1)
        client.undo(2)
        client.apply([move("b", "a")])
        assert refused(client, 3) == {"a": [4]}
        check(place, client, {"a": "A"})


def test_one_file_is_in_the_way_and_another_is_gone(place: Workplace) -> None:
    with begin(place, {"a": LINES, "x/y": "Y"}) as client:
        client.apply([replace("a", *SWAP), delete("x/y")])
        for edit in (move("a", "b"), delete("b"), write("x", "X")):
            client.apply([edit])
        assert refused(client, 1) == {"b": [2, 3], "x": [4]}


def test_the_files_of_a_folder_are_in_the_way_of_a_file(place: Workplace) -> None:
    steps: list[AnyEdit] = [delete("x"), write("x/y", "Y"), write("x/z", "Z")]
    with begin(place, {"x": "X"}, *steps) as client:
        assert refused(client, 1) == {"x/y": [2], "x/z": [3]}
        client.undo(3)
        client.undo(2)
        client.undo(1)
        check(place, client, {"x": "X"})


def test_a_transaction_is_in_its_own_way_where_only_some_paths_are_undone(place: Workplace) -> None:
    place.write({"x": "X"})
    with place.start() as client:
        client.apply([delete("x"), write("x/y", "Y")])
        (conflict,) = client.undo(filter=Filter(paths=["?"]), dry_run=True).conflicts  # type: ignore[misc]
        assert (conflict.path, conflict.blocking, conflict.needs) == ("x/y", [1], [1])


def test_what_changed_a_file_before_several_moves_were_undone_at_once_is_in_the_way(place: Workplace) -> None:
    five = ("line five\n", "line 5, again\n")
    steps: list[AnyEdit] = [replace("a", *SWAP), move("a", "b"), move("b", "c"), replace("c", *five)]
    with begin(place, {"a": LINES}, *steps[:3], session="s") as client:
        client.apply([steps[3]])
        client.rollback("s", since=2)
        assert refused(client, 1) == {"a": [4]}


def test_what_is_in_force_again_without_those_in_the_way_is_needed_too(place: Workplace) -> None:
    with begin(place, {"a": "A"}, delete("a"), session="s") as client:
        client.restore(0)
        client.apply([move("a", "b")])
        client.apply([delete("b")], session="s")
        client.rollback("s")
        (conflict,) = client.undo(3, dry_run=True).conflicts  # type: ignore[misc]
        assert (conflict.path, conflict.blocking, conflict.needs) == ("a", [5], [4, 5])
        for seq in (5, 4, 3):
            client.undo(seq)
        check(place, client, {"a": "A"})


def test_a_change_that_the_same_undo_puts_in_force_again_is_in_its_way(place: Workplace) -> None:
    with begin(place, {"a": LINES}) as client:
        client.apply([replace("a", *SWAP)], actor="ann")
        client.apply([replace("a", "line five\n", "line 5, again\n")])
        client.undo(2, actor="ann")
        client.apply([replace("a", "line 15\n", "line fifteen\n")])
        both = Filter(actor="ann", kind=["edit", "undo"])
        (conflict,) = client.undo(filter=both, dry_run=True).conflicts  # type: ignore[misc]
        assert (conflict.path, conflict.blocking) == ("a", [2, 4])


# ── A dry run ──────────────────────────────────────────────────────────────────────────────────


def test_a_dry_run_tells_of_conflicts_where_the_rest_would_not_fit(place: Workplace) -> None:
    place.write({"x": "X", "k": "0"})
    with place.start() as client:
        client.apply([delete("x"), write("x/y", "Y"), write("k", "1")])
        client.apply([write("x/z", "Z"), write("k", "2")])
        assert refused(client, 1) == {"k": [2], "x/z": [2]}
        check(place, client, {"x/y": "Y", "x/z": "Z", "k": "2"})


def test_a_path_of_an_undo_is_followed_to_where_the_file_was_moved(place: Workplace) -> None:
    steps = [write("a", "1\n")]
    with begin(place, {}, *steps) as client:
        both = client.apply([write("a", "2\n"), write("x", "x\n")]).transaction
        assert both is not None
        client.apply([move("a", "b")])
        undone = client.undo(both.seq).transaction
        assert undone is not None
        check(place, client, {"b": "1\n"})
        client.undo(undone.seq, paths=["b"])
        check(place, client, {"b": "2\n"})
        client.undo(both.seq)
        check(place, client, {"b": "1\n"})


def test_a_change_of_mode_alone_is_undone(place: Workplace) -> None:
    with begin(place, {"a": "1\n"}, Chmod(path="a", executable=True)) as client:
        assert (place.root / "a").stat().st_mode & 0o100
        client.undo(1)
        assert not (place.root / "a").stat().st_mode & 0o100
        check(place, client, {"a": "1\n"})


def test_a_part_of_a_transaction_is_not_all_of_it_when_a_file_is_followed(place: Workplace) -> None:
    """Half of the transaction that moved `a` is undone; then a filter takes all of it."""
    with begin(place, {"a": "1\n2\n3\n4\n5\n"}, replace("a", "1\n", "one\n")) as client:
        client.apply([move("a", "b"), write("c", "c\n")])
        client.apply([write("a", "1\nother\n")])
        client.apply([move("a", "z")])
        client.undo(2, paths=["b"])
        check(place, client, {"a": "one\n2\n3\n4\n5\n", "c": "c\n", "z": "1\nother\n"})
        client.apply([move("a", "d")])
        client.undo(filter=Filter(since=1, until=2))
        check(place, client, {"d": "1\n2\n3\n4\n5\n", "z": "1\nother\n"})


# ── Several files of one transaction ───────────────────────────────────────────────────────────


@pytest.mark.parametrize("on_conflict", ["fail", "skip"])
@pytest.mark.parametrize("names", [("a", "b", "c"), ("c", "b", "a"), ("b", "a", "c")])
def test_a_file_comes_back_to_where_another_of_the_same_transaction_is_by_now(
    place: Workplace, names: tuple[str, str, str], on_conflict: OnConflict
) -> None:
    first, second, third = names
    with begin(place, {first: "1", second: "2"}) as client:
        client.apply([move(first, "x"), move(second, third)])
        client.apply([move(third, first)])
        client.undo(1, on_conflict=on_conflict)
        check(place, client, {first: "1", second: "2"})


def test_a_deleted_file_comes_back_to_where_another_of_the_same_transaction_is_by_now(
    place: Workplace,
) -> None:
    with begin(place, {"a": "A", "b": "B"}) as client:
        client.apply([delete("a"), move("b", "c")])
        client.apply([move("c", "a")])
        client.undo(1)
        check(place, client, {"a": "A", "b": "B"})


def test_a_deleted_file_comes_back_to_where_one_is_that_the_same_transaction_made(place: Workplace) -> None:
    with begin(place, {"a": "A"}) as client:
        client.apply([delete("a"), write("n", "N")])
        client.apply([move("n", "a")])
        client.undo(1)
        check(place, client, {"a": "A"})


def test_a_file_comes_back_to_where_one_is_that_the_same_transaction_made(place: Workplace) -> None:
    with begin(place, {"a": "A"}) as client:
        client.apply([move("a", "b"), write("n", "N")])
        client.apply([move("n", "a")])
        client.undo(1)
        check(place, client, {"a": "A"})


def test_what_stays_where_it_is_leaves_no_room_for_what_would_come_back(place: Workplace) -> None:
    with begin(place, {"a": LINES, "b": "B"}) as client:
        client.apply([move("a", "x"), replace("x", *SWAP), move("b", "c")])
        client.apply([move("x", "b"), replace("b", "five\n", "5, again\n")])
        with pytest.raises(EditdError) as error:
            client.undo(1, on_conflict="skip")
        assert error.value.name == "conflict"
        check(place, client, {"b": LINES.replace("line 5\n", "line 5, again\n"), "c": "B"})


def test_a_deleted_file_is_not_taken_for_the_one_that_the_same_undo_moves_away_from_there(
    place: Workplace,
) -> None:
    with begin(place, {"a": "A", "c": "C"}, Chmod(path="c", executable=True), session="s") as client:
        client.apply([delete("c")])
        client.apply([move("a", "c")], session="s")
        with pytest.raises(EditdError) as error:
            client.rollback("s")
        assert (error.value.name, error.value.data["files"][0]["path"]) == ("conflict", "c")
        assert not (place.root / "c").stat().st_mode & 0o100
        check(place, client, {"c": "A"})


def test_a_file_that_the_same_undo_takes_away_again_is_not_taken_for_another_that_was_there(
    place: Workplace,
) -> None:
    """The file at `b` on the disk goes to `e`, and the one that was made there anew goes altogether."""
    with begin(place, {"b": "B", "e": "E"}, Chmod(path="e", executable=True)) as client:
        client.apply([Chmod(path="b", executable=True)], actor="ann")
        client.apply([delete("b")])
        client.apply([write("b", "B")], actor="ann")
        client.apply([move("e", "b", overwrite=True)], actor="ann")
        scope = Filter(actor="ann")
        (conflict,) = client.undo(filter=scope, dry_run=True).conflicts  # type: ignore[misc]
        assert (conflict.path, conflict.reason) == ("b", "deleted")
        client.undo(filter=scope, on_conflict="skip")
        assert (place.root / "e").stat().st_mode & 0o100
        check(place, client, {"e": "E"})


def test_a_deleted_file_is_not_taken_for_another_of_the_same_transaction(place: Workplace) -> None:
    with begin(place, {"a": "A", "b": "B"}) as client:
        client.apply([move("a", "c"), write("d", "A")])
        client.apply([delete("c")])
        client.apply([move("d", "c")])
        assert refused(client, 1) == {"c": [2, 3]}
        check(place, client, {"b": "B", "c": "A"})


def test_a_file_is_followed_where_the_same_undo_moves_it_more_than_once(place: Workplace) -> None:
    with begin(place, {"a": LINES}) as client:
        client.apply([replace("a", *SWAP)], actor="ann")
        client.apply([move("a", "b")])
        client.apply([move("b", "c")], actor="ann")
        client.undo(2)
        client.apply([move("a", "d")], actor="ann")
        client.undo(filter=Filter(actor="ann", kind="edit"))
        check(place, client, {"b": LINES})


def test_a_file_that_was_brought_back_and_moved_back_at_once_is_followed(place: Workplace) -> None:
    with begin(place, {"a": LINES, "b": "B"}) as client:
        client.apply([move("a", "c")], actor="ann")
        client.apply([replace("c", *SWAP)])
        client.apply([move("b", "c", overwrite=True)], actor="ann")
        client.undo(filter=Filter(actor="ann"))
        client.apply([write("c", "another\n")])
        client.undo(2)
        check(place, client, {"a": LINES, "b": "B", "c": "another\n"})
