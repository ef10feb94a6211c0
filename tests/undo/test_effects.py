"""An undo changes something, can be carried out as planned, and is itself undone without a trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from editd.wire.messages import Delete, Filter, Move
from editd_client.errors import EditdError
from support.workplace import replace, write

if TYPE_CHECKING:
    from collections.abc import Callable

    from editd.wire.messages import UndoResult
    from editd_client.client import Client
    from support.workplace import Workplace

LINES = "".join(f"line {n}\n" for n in range(1, 21))


@pytest.fixture
def client(place: Workplace) -> Client:
    place.write({"kept": LINES})
    return place.start()


def change(client: Client, *edits: object, session: str | None = None) -> int:
    made = client.apply(list(edits), session=session).transaction  # type: ignore[arg-type]
    assert made is not None
    return made.seq


def texts(place: Workplace) -> dict[str, str]:
    return {path: content.decode() for path, content in place.files().items()}


def refused(attempt: Callable[[], object]) -> EditdError:
    with pytest.raises(EditdError) as error:
        attempt()
    return error.value


def conflicts(result: UndoResult) -> dict[str, list[int]]:
    assert isinstance(result.conflicts, list)
    return {one.path: one.blocking for one in result.conflicts}


# ── An undo by force ───────────────────────────────────────────────────────────────────────────


def test_a_forced_undo_keeps_what_others_added_beside_the_lines_that_it_puts_back(
    place: Workplace, client: Client
) -> None:
    target = change(client, replace("kept", "line 5\n", "five\n"))
    change(client, replace("kept", "five\n", "FIVE\n"))
    change(client, replace("kept", "FIVE\n", "FIVE\nmine\n"))
    change(client, replace("kept", "line 4\n", "line 4\nmine too\n"))
    assert refused(lambda: client.undo(target)).name == "conflict"
    client.undo(target, on_conflict="force")
    assert texts(place)["kept"] == LINES.replace("line 5\n", "mine too\nline 5\nmine\n")


# ── An undo that would change nothing ──────────────────────────────────────────────────────────


def test_an_undo_finds_a_file_that_was_moved_and_deleted_and_restored_under_its_first_name(
    place: Workplace, client: Client
) -> None:
    created = change(client, write("f", "F\n"), session="s")
    change(client, Move(path="f", to="g"))
    change(client, Delete(path="g"))
    client.restore(created)
    undone = client.undo(created)
    assert [file.path for file in undone.files] == ["f"]
    assert texts(place) == {"kept": LINES}


def test_an_undo_finds_a_file_that_was_changed_before_it_was_deleted_and_restored(
    place: Workplace, client: Client
) -> None:
    created = change(client, write("f", LINES))
    change(client, Move(path="f", to="g"))
    changed = change(client, replace("g", "line 5\n", "line five\n"))
    moved = change(client, Move(path="g", to="h"))
    change(client, Delete(path="h"))
    client.restore(moved, paths=["h"])
    client.undo(changed)
    assert texts(place)["h"] == LINES
    client.undo(created)
    assert texts(place) == {"kept": LINES}


def test_an_undo_that_would_change_nothing_is_refused_and_leaves_no_transaction(
    place: Workplace, client: Client
) -> None:
    created = change(client, write("f", "F\n"))
    change(client, Delete(path="f"))
    head = client.status().head
    for attempt in (client.undo, lambda seq: client.undo(seq, dry_run=True)):
        error = refused(lambda attempt=attempt: attempt(created))  # type: ignore[misc]
        assert error.name == "nothing_to_undo"
        assert error.message.startswith(f"An undo of transaction {created} would change nothing.")
    assert client.status().head == head
    assert client.show(created).transaction.undone_by is None


def test_a_rollback_and_a_filter_that_would_change_nothing_are_refused(
    place: Workplace, client: Client
) -> None:
    change(client, write("kept", "x\n"), session="s")
    change(client, write("kept", LINES), session="s")
    head = client.status().head
    assert refused(lambda: client.rollback("s")).name == "nothing_to_undo"
    assert refused(lambda: client.undo(filter=Filter(session="s"))).name == "nothing_to_undo"
    assert refused(lambda: client.undo(session="s", on_conflict="force")).name == "nothing_to_undo"
    assert client.status().head == head


def test_an_undo_of_the_newest_takes_along_what_has_no_effect_any_more(
    place: Workplace, client: Client
) -> None:
    first = change(client, replace("kept", "line 5\n", "line five\n"))
    gone = change(client, write("f", "F\n"))
    (place.root / "f").unlink()
    client.settle()
    undone = client.undo()
    assert undone.transaction is not None
    assert undone.transaction.undoes == [gone, first]
    assert texts(place) == {"kept": LINES}
    client.redo()
    assert texts(place) == {"kept": LINES.replace("line 5\n", "line five\n")}


# ── An undo that is undone ─────────────────────────────────────────────────────────────────────


def test_nothing_stays_undone_by_an_undo_that_is_undone_part_by_part(
    place: Workplace, client: Client
) -> None:
    two = change(client, write("a", "A\n"), write("b", "B\n"), session="s")
    change(client, write("c", "C\n"), session="s")
    change(client, Delete(path="b"))  # so that the rollback has nothing to do there
    rolled = client.rollback("s").transaction
    assert rolled is not None
    assert sorted(file.path for file in rolled.files) == ["a", "c"]
    client.undo(rolled.seq, paths=["c"])
    last = client.undo(rolled.seq, paths=["a"]).transaction
    assert last is not None
    assert client.show(rolled.seq).transaction.undone_by == last.seq
    shown = client.show(two).transaction
    assert shown.undone_by is None
    assert [file.path for file in shown.files if isinstance(file.undone_by, int)] == []
    client.undo(last.seq)
    shown = client.show(two).transaction
    assert shown.undone_by == rolled.seq
    before = client.log().transactions
    client.shutdown()
    assert place.process is not None
    place.process.wait(30)
    for file in place.state.glob("index.db*"):
        file.unlink()
    assert place.start().log().transactions == before


# ── A plan that cannot be carried out ──────────────────────────────────────────────────────────


def test_a_rollback_that_would_need_a_path_as_file_and_as_folder_is_a_conflict(
    place: Workplace, client: Client
) -> None:
    change(client, write("p", "P\n"))
    change(client, Delete(path="p"), session="s")
    made = change(client, write("p/x", "X\n"))
    change(client, Delete(path="p/x"), session="s")
    assert conflicts(client.rollback("s", dry_run=True)) == {"p/x": [made]}
    for on_conflict in ("fail", "force"):
        error = refused(lambda how=on_conflict: client.rollback("s", on_conflict=how))  # type: ignore[misc]
        assert error.name == "conflict"
        assert error.data["files"][0]["path"] == "p/x"
        assert error.data["files"][0]["blocking"] == [made]
    assert texts(place) == {"kept": LINES}
    client.undo(4)
    client.undo(made)
    client.rollback("s")
    assert texts(place) == {"kept": LINES, "p": "P\n"}


def test_what_the_history_does_not_know_in_a_folder_where_a_file_belongs_is_a_conflict(
    place: Workplace, client: Client
) -> None:
    place.git("init", "-q")
    change(client, write(".gitignore", "*.log\n"), write("p", "P\n"))
    gone = change(client, Delete(path="p"))
    place.write({"p/build.log": "mine\n"})
    attempts: list[Callable[[], object]] = [
        lambda: client.undo(gone),
        lambda: client.undo(gone, on_conflict="force"),
        lambda: client.restore(gone - 1),
        lambda: client.restore(gone - 1, dry_run=True),
    ]
    for attempt in attempts:
        error = refused(attempt)
        assert error.name == "conflict"
        assert [file["path"] for file in error.data["files"]] == ["p"]
        assert "same changeset" not in error.message
        assert "Move p away" in error.message
    assert conflicts(client.undo(gone, dry_run=True)) == {"p": []}
    assert texts(place)["p/build.log"] == "mine\n"


@pytest.mark.parametrize("on_conflict", ["fail", "force"])
def test_a_file_where_a_folder_belongs_is_a_conflict_that_names_who_made_it(
    place: Workplace, client: Client, on_conflict: str
) -> None:
    change(client, write("d/f", "F\n"))
    gone = change(client, Delete(path="d/f"))
    made = change(client, write("d", "a file\n"))
    error = refused(lambda: client.undo(gone, on_conflict=on_conflict))  # type: ignore[arg-type]
    assert (error.name, error.data["files"][0]["path"]) == ("conflict", "d")
    assert error.data["files"][0]["blocking"] == [made]
    assert texts(place)["d"] == "a file\n"


def test_a_dry_run_names_what_another_program_has_just_written(place: Workplace, client: Client) -> None:
    mine = change(client, replace("kept", "line 5\n", "mine\n"))
    place.write({"kept": LINES.replace("line 5\n", "theirs\n")})
    assert conflicts(client.undo(mine, dry_run=True)) == {"kept": [mine + 1]}
    assert client.show(mine + 1).transaction.kind == "outside"


def test_a_forced_undo_finds_no_room_where_its_file_was_moved_to(place: Workplace) -> None:
    place.write({"a": "old\n"})
    with place.start() as client:
        made = client.apply([write("a", "new\n")]).transaction
        assert made is not None
        client.apply([Move(path="a", to="d/f/inner")])
        client.apply([Delete(path="d/f/inner")])
        client.apply([write("d/f", "another\n")])
        with pytest.raises(EditdError) as refused:
            client.undo(made.seq, on_conflict="force")
    assert refused.value.name == "conflict"
    assert place.files() == {"d/f": b"another\n"}
