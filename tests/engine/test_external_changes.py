"""engine.external_changes: what others changed becomes history, in an order that can be rebuilt (C4, P4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from editd.engine.external_changes import WHOLE, AttributedChanges, Portion
from editd.errors import Broken, NotAFile
from editd.values.content import EXECUTABLE, FileState, version_of
from editd.values.transaction import Authorship
from support import edit_messages
from support.harness import Harness, apply, done, pack, path_of, refused, sync, write

if TYPE_CHECKING:
    from pathlib import Path

    from editd.engine.engine import Engine
    from editd.engine.external_changes import Reconciliation

A, B, C, D = map(path_of, "abcd")
TEXT = FileState(b"text\n")


@pytest.fixture
def place(tmp_path: Path) -> Harness:
    return Harness(tmp_path / "place")


def touched(engine: Engine, seq: int) -> list[str]:
    transaction = engine.history.index.transaction(seq)
    assert transaction is not None
    return sorted(touch.path.text for touch in transaction.touches)


def test_what_is_gone_is_recorded_before_what_took_its_place_as_the_commits_alone_tell(
    place: Harness,
) -> None:
    """A file gives way to a folder whose file git ignores, so that two transactions record it."""
    place.baseline({"d": "file\n"})
    with place.engine(is_ours=lambda path: not path.text.startswith("d/")) as engine:
        (place.root / "d").unlink()
        place.write({"d/x": "x\n"})
        engine.recorder.adopt({D: None, path_of("d/x"): FileState(b"x\n")})
        recorded = [touched(engine, seq) for seq in (1, 2)]
        pack(engine)
        sync(engine)
    for path in place.state.glob("index.db*"):
        path.unlink()
    with place.engine() as engine:
        assert [touched(engine, seq) for seq in (1, 2)] == recorded


def test_an_edit_puts_a_folder_in_the_place_of_a_file_that_was_never_recorded(place: Harness) -> None:
    place.baseline({})
    with place.engine() as engine:
        place.write({"d": "file\n"})
        done(engine, apply(edit_messages.delete(D), write("d/x", "x\n")))
        assert [touched(engine, seq) for seq in (1, 2)] == [["d"], ["d", "d/x"]]
    assert (place.root / "d/x").read_bytes() == b"x\n"


def test_a_file_that_was_copied_twice_and_removed_was_moved_to_neither(place: Harness) -> None:
    place.baseline({"a": "text\n"})
    with place.engine() as engine:
        (place.root / "a").unlink()
        place.write({"b": "text\n", "c": "text\n"})
        (transaction,) = engine.recorder.adopt({A: None, B: TEXT, C: TEXT})
    assert [touch.source for touch in transaction.touches] == [None] * 3


def test_a_file_that_was_edited_during_an_inspection_is_read_again(place: Harness) -> None:
    place.baseline({"a": "old\n"})
    with place.engine() as engine:
        place.write({"a": "theirs\n"})
        inspection = engine.recorder.inspect()
        inspection.look(A)
        done(engine, apply(write("a", "mine\n")))
        assert inspection.record() == []
        assert engine.history.head == 2


def test_a_file_that_was_moved_is_recorded_as_moved(place: Harness) -> None:
    place.baseline({"a": "text\n"})
    with place.engine() as engine:
        (place.root / "a").rename(place.root / "b")
        (transaction,) = engine.recorder.adopt({A: None, B: TEXT})
    assert [touch.source for touch in transaction.touches if touch.after is not None] == [A]


def test_a_file_whose_mode_alone_changed_has_not_moved_from_one_that_was_removed(place: Harness) -> None:
    place.write({"a": "text\n", "b": "text\n"})
    (place.root / "a").chmod(0o755)
    place.baseline()
    with place.engine() as engine:
        (place.root / "a").unlink()
        (place.root / "b").chmod(0o755)
        (transaction,) = engine.recorder.adopt({A: None, B: FileState(b"text\n", EXECUTABLE, 0o755)})
    assert {touch.path: touch.source for touch in transaction.touches} == {A: None, B: None}


@pytest.mark.parametrize("meet", ["edit", "notice"])
def test_a_file_that_became_an_empty_folder_is_recorded_as_deleted(place: Harness, meet: str) -> None:
    place.baseline({"a": "text\n"})
    with place.engine() as engine:
        (place.root / "a").unlink()
        (place.root / "a").mkdir()
        if meet == "edit":
            assert isinstance(refused(engine, apply(edit_messages.replace(A, "text", "new"))), NotAFile)
        else:
            inspection = engine.recorder.inspect()
            inspection.look(A)
            inspection.record()
        assert touched(engine, 1) == ["a"]
        assert engine.history.entry(A) is None


@pytest.mark.parametrize("how", ["read", "noticed", "edited"])
def test_an_outside_change_of_an_ignored_file_that_an_edit_has_touched_is_recorded_as_one(
    place: Harness, how: str
) -> None:
    place.baseline()
    with place.engine(is_ours=lambda _path: False) as engine:
        done(engine, apply(write("a", "ours\n")))
        place.write({"a": "theirs\n"})
        if how == "read":
            engine.read(A, "connection 1")
        elif how == "noticed":
            inspection = engine.recorder.inspect()
            inspection.look(A)
            inspection.record()
        else:
            done(engine, apply(write("a", "newer\n")))
        recorded = engine.history.find(2)
        assert (recorded.kind, [touch.path for touch in recorded.touches]) == ("outside", [A])
        assert engine.history.content(version_of(b"theirs\n")) == b"theirs\n"


def test_a_workspace_that_was_moved_away_is_not_recorded_as_deleted(place: Harness) -> None:
    place.baseline({"a": "1\n"})
    with place.engine() as engine:
        away = place.root.with_name("away")
        place.root.rename(away)
        assert engine.recorder.adopt({A: None}) == []
        assert engine.history.head == 0
        away.rename(place.root)


def test_what_was_written_too_late_stays_while_it_cannot_be_recorded(place: Harness) -> None:
    """Another program writes into the replaced file; then the daemon can record nothing any more."""
    place.baseline({"a": "old\n"})
    kept = place.state / "replaced"
    with place.killed() as engine:
        done(engine, apply(write("a", "new\n")))
        (replaced,) = kept.iterdir()
        replaced.write_bytes(b"theirs\n")
        look = engine.files.check_quarantine(None)
        assert look is not None
        engine.recorder.broken = Broken("The journal failed.")
        engine.recorder.record_late_writes(look())
    assert [path.read_bytes() for path in kept.iterdir()] == [b"theirs\n"]


def test_what_was_written_too_late_is_in_the_history_of_a_daemon_that_ends_at_once(place: Harness) -> None:
    place.baseline({"a": "old\n"})
    with place.engine() as engine:
        done(engine, apply(write("a", "new\n")))
        (replaced,) = (place.state / "replaced").iterdir()
        replaced.write_bytes(b"theirs\n")
    with place.engine() as engine:
        recorded = [engine.history.index.transaction(seq) for seq in range(1, int(engine.history.head) + 1)]
        kinds = [transaction.kind for transaction in recorded if transaction is not None]
    assert kinds == ["edit", "outside", "outside"]


def test_a_file_that_is_seen_for_the_first_time_is_nobodys_though_a_command_runs(place: Harness) -> None:
    """Its first content may be older than the command."""
    place.baseline({"a": "a\n"})
    command = Authorship("somebody", None, "make")
    with place.engine(is_ours=lambda path: path != B) as engine:
        engine.recorder.outside_authorship = lambda changes: [
            AttributedChanges("exec", command, tuple(changes))
        ]
        place.write({"a": "new\n", "b": "ignored\n"})
        engine.recorder.adopt({A: FileState(b"new\n"), B: FileState(b"ignored\n")})
        made = engine.history.index.transactions([1, 2])
    assert {(one.kind, one.authorship.actor) for one in made} == {
        ("exec", "somebody"),
        ("baseline", "outside"),
    }


def reconciled(place: Harness, engine: Engine, *paths: str) -> Reconciliation:
    inspection = engine.recorder.inspect()
    for path in paths:
        inspection.look(path_of(path))
    return inspection


def test_a_bulk_change_is_recorded_in_portions_whose_moves_stay_whole(place: Harness) -> None:
    place.baseline({f"old{number}": f"{number}\n" for number in range(4)})
    with place.engine() as engine:
        for number in range(4):
            (place.root / f"old{number}").rename(place.root / f"new{number}")
        place.write({"x": "x\n", "y": "y\n", "z": "z\n"})
        moved = [f"{name}{number}" for name in ("old", "new") for number in range(4)]
        inspection = reconciled(place, engine, *moved, "x", "y", "z")
        for paths in inspection.portions(Portion(3, 1000)):
            inspection.record(paths)
        assert not inspection.found
        assert touched(engine, 1) == ["x", "y", "z"]
        sources = [
            {str(touch.path): str(touch.source) for touch in transaction.touches if touch.source is not None}
            for seq in range(2, engine.history.head + 1)
            if (transaction := engine.history.index.transaction(seq)) is not None
        ]
        assert len(sources) > 1
        assert {path: source for some in sources for path, source in some.items()} == {
            f"new{number}": f"old{number}" for number in range(4)
        }


def test_a_portion_ends_with_the_bytes_that_it_may_have(place: Harness) -> None:
    place.baseline({})
    with place.engine() as engine:
        place.write(dict.fromkeys("abcd", "0123456789"))
        inspection = reconciled(place, engine, *"abcd")
        assert [len(paths) for paths in inspection.portions(Portion(100, 10))] == [2, 2]
        assert [len(paths) for paths in inspection.portions(WHOLE)] == [4]


def test_contents_beyond_the_limit_are_read_again_when_they_are_recorded(
    place: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("editd.engine.external_changes.READ_BYTES_MAX", 10)
    place.baseline({"c": "old\n"})
    with place.engine() as engine:
        place.write({"a": "0123456789", "b": "first\n", "c": "new\n", "d": "gone\n"})
        inspection = reconciled(place, engine, *"abcd")
        place.write({"b": "second\n"})
        (place.root / "d").unlink()
        inspection.record()
        assert touched(engine, 1) == ["a", "b", "c"]
        assert engine.history.content(version_of(b"second\n")) == b"second\n"
