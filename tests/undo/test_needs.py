"""What a conflict `needs`: once that is undone, one by one and newest first, the undo is clean."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from editd.engine import undo_conflicts
from editd.engine.commands import Undo
from editd.engine.undo_selection import BySession, ByTransaction
from editd.errors import NothingToUndo
from editd.values.transaction import Authorship, Outcome
from editd.wire.messages import Delete, Move
from editd_client.errors import EditdError
from support import edit_messages
from support.harness import Harness, answer, apply, done, path_of, refused
from support.harness import write as overwrite
from support.workplace import replace, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from editd.engine.commands import Result
    from editd.engine.engine import Engine
    from editd.engine.undo_selection import Scope
    from editd.wire.messages import UndoResult
    from editd_client.client import Client
    from support.workplace import Workplace

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


# ── Long recipes ───────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def place_here(tmp_path: Path) -> Harness:
    place = Harness(tmp_path)
    place.baseline({"a": LINES})
    return place


@pytest.fixture
def engine(place_here: Harness) -> Iterator[Engine]:
    with place_here.engine() as engine:
        yield engine


def edit(engine: Engine, session: str | None = None, **files: str) -> int:
    return int(done(engine, apply(*(overwrite(*one) for one in files.items()), session=session)).seq)


def request(scope: Scope, *, dry_run: bool = False) -> Undo:
    return Undo(Authorship("ann", None, "", None), "connection 1", scope, dry_run=dry_run)


def dry_run(engine: Engine, scope: Scope) -> Result:
    return answer(engine, request(scope, dry_run=True))


def recipe(engine: Engine, scope: Scope) -> list[int]:
    shown = dry_run(engine, scope)
    assert isinstance(shown, Outcome)
    assert all(one.blocking for one in shown.conflicts)
    return sorted({seq for one in shown.conflicts for seq in one.needs}, reverse=True)


def follow(engine: Engine, needs: list[int], scope: Scope) -> None:
    for seq in needs:
        done(engine, request(ByTransaction(seq)))
    shown = dry_run(engine, scope)
    assert isinstance(shown, NothingToUndo) or (isinstance(shown, Outcome) and not shown.conflicts)


def chain(engine: Engine, count: int) -> list[int]:
    """Transactions that change two files each, one of them the next transaction's."""
    return [edit(engine, **{f"f{n}": f"{n}\n", f"f{n + 1}": f"{n}\n"}) for n in range(count)]


def test_a_recipe_of_more_than_a_hundred_transactions_has_only_those_that_depend_on_each_other(
    engine: Engine,
) -> None:
    target = edit(engine, a=LINES.replace("line 5\n", "0\n"))
    needs = list[int]()
    for number in range(1, 121):
        text = LINES.replace("line 5\n", f"{number}\n")
        needs.append(edit(engine, a=text))
        if number == 60:
            edit(engine, a=text.replace("line 15\n", "fifteen\n"))
            edit(engine, a=text)
    assert recipe(engine, ByTransaction(target)) == needs[::-1]
    follow(engine, needs[::-1], ByTransaction(target))


@pytest.mark.parametrize("selective", [0, undo_conflicts.COST_SELECTIVE_MAX])
def test_a_long_recipe_takes_what_is_connected_and_is_tried_out_all_the_same(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, selective: int
) -> None:
    monkeypatch.setattr(undo_conflicts, "COST_SELECTIVE_MAX", selective)
    target, *later = chain(engine, 30)
    edit(engine, other="x\n")
    assert recipe(engine, ByTransaction(target)) == later[::-1]
    follow(engine, later[::-1], ByTransaction(target))


def test_a_rollback_that_needs_a_newer_transaction_of_the_session_undone_first(engine: Engine) -> None:
    edit(engine, p="P\n")
    mine = done(engine, apply(edit_messages.delete(path_of("p")), session="s"))
    theirs = edit(engine, **{"p/x": "X\n"})
    newer = done(engine, apply(edit_messages.delete(path_of("p/x")), session="s"))
    assert recipe(engine, BySession("s")) == [newer.seq, theirs]
    follow(engine, [int(newer.seq), theirs], BySession("s"))
    assert done(engine, request(BySession("s"))).undoes == (mine.seq,)


def test_where_no_clean_recipe_is_found_needs_is_empty_and_the_hint_names_another_way(
    place_here: Harness, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, *later = chain(engine, 10)
    monkeypatch.setattr(undo_conflicts, "COST_MAX", 20)
    assert recipe(engine, ByTransaction(target)) == []
    refusal = refused(engine, request(ByTransaction(target)))
    assert refusal.data["files"][0]["blocking"] == [later[0]]
    assert refusal.hint.startswith("Use on_conflict: force")
    monkeypatch.undo()
    assert recipe(engine, ByTransaction(target)) == later[::-1]
    place_here.write({"f10": "an outside change that is not recorded yet\n"})
    assert recipe(engine, ByTransaction(target)) == []
