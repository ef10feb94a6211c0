"""What a conflict `needs`: once that is undone, one by one and newest first, the undo is clean."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from editd.wire.messages import Delete, Move
from editd_client.errors import EditdError
from workplace import replace, write

if TYPE_CHECKING:
    from collections.abc import Callable

    from editd.wire.messages import UndoResult
    from editd_client.client import Client
    from workplace import Workplace

LINES = "".join(f"line {n}\n" for n in range(1, 21))


@pytest.fixture
def client(place: Workplace) -> Client:
    place.write({"a": LINES, "b": LINES.upper(), "d/f": LINES})
    return place.start()


def change(client: Client, *edits: object, session: str | None = None) -> int:
    made = client.apply(list(edits), session=session).transaction  # type: ignore[arg-type]
    assert made is not None
    return made.seq


def needed(ask: Callable[..., UndoResult]) -> list[int]:
    shown = ask(dry_run=True)
    assert isinstance(shown.conflicts, list)
    assert all(one.blocking for one in shown.conflicts)
    with pytest.raises(EditdError) as refused:
        ask()
    assert [one["needs"] for one in refused.value.data["files"]] == [one.needs for one in shown.conflicts]
    return sorted({seq for one in shown.conflicts for seq in one.needs}, reverse=True)


def test_each_of_those_that_are_needed_has_room_when_it_is_undone_by_itself(client: Client) -> None:
    target = change(client, write("h", LINES))
    changed = change(client, replace("h", "line 5\n", "five\n"), Delete(path="d/f"))
    moved = change(client, Move(path="h", to="d/f/inner"))
    assert needed(lambda **more: client.undo(target, **more)) == [moved, changed]
    client.undo(moved)
    client.undo(changed)
    client.undo(target)


def test_what_is_in_force_again_without_a_needed_rollback_is_needed_too(
    place: Workplace, client: Client
) -> None:
    change(client, Delete(path="d/f"), session="bob")
    change(client, write("d", "D\n"))
    target = change(client, Delete(path="d"))
    mixed = change(client, replace("a", "line 5\n", "mixed\n"), write("d/g", "G\n"))
    over_it = change(client, replace("a", "mixed\n", "over it\n"), session="bob")
    rolled = client.rollback("bob").transaction
    assert rolled is not None
    assert needed(lambda **more: client.undo(target, **more)) == [rolled.seq, over_it, mixed]
    for seq in (rolled.seq, over_it, mixed, target):
        client.undo(seq)
    assert place.files() == {"a": LINES.encode(), "b": LINES.upper().encode(), "d": b"D\n"}


def test_a_rollback_needs_what_is_in_the_way_of_the_sessions_work_that_is_in_force_again(
    client: Client,
) -> None:
    change(client, replace("a", "line 5\n", "five\n"), Delete(path="d/f"), session="bob")
    theirs = change(client, replace("a", "five\n", "FIVE\n"))
    change(client, write("d", "D\n"))
    change(client, Delete(path="d"), session="bob")
    forced = client.undo(1, on_conflict="force").transaction
    assert forced is not None
    needs = needed(lambda **more: client.rollback("bob", **more))
    assert {theirs, forced.seq} <= set(needs)
    for seq in needs:
        client.undo(seq)
    assert client.rollback("bob", dry_run=True).conflicts == []


def test_a_restore_moves_one_file_back_to_one_path_and_can_be_undone(
    place: Workplace, client: Client
) -> None:
    change(client, Move(path="a", to="b", overwrite=True))
    client.restore(0, paths=["b"])
    change(client, Move(path="b", to="c"))
    before = place.files()
    made = client.restore(0).transaction
    assert made is not None
    assert [(one.path, one.from_) for one in made.files if isinstance(one.from_, str)] == [("b", "c")]
    client.undo(made.seq)
    assert place.files() == before
