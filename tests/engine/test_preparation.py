"""engine.preparation: a request in slices comes out as if those that came in between had been before it."""

from __future__ import annotations

import itertools
import sys
from functools import partial
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from editd.edits.diff import unified_diff
from editd.engine.access import plan_undo
from editd.engine.commands import NeedsDelay, Undo
from editd.engine.undo_selection import BySession, ByTransaction, Latest
from editd.errors import Broken, NothingToUndo, Stale
from editd.values.transaction import Authorship, Outcome, Seq
from editd.wire import messages
from support import edit_messages
from support.harness import Harness, apply, done, names_below, path_of, write
from support.seeds import seed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import FrameType

    from editd.engine.commands import Result, Write
    from editd.engine.engine import Engine

FILES = {"a": "one\ntwo\nthree\n", "d/b": "b\n", "d/c": "c\n", "e/f": "f\n"}
LARGE = apply(
    write("a", "large\n"), write("d/b", "large\n"), write("new/g", "large\n"), session="large"
)  # fmt: skip
UNDO = Undo(Authorship("somebody", None, ""), "connection 1", BySession("large"))

EVERY = 3  # of the places in the short form, which the seed draws
BETWEEN: dict[str, list[Write]] = {
    "elsewhere": [apply(write("e/f", "other\n"))],
    "two elsewhere": [apply(write("e/f", "other\n")), apply(write("h", "other\n"))],
    "the same file": [apply(write("a", "other\n"))],
    "one that it makes": [apply(write("new/g", "other\n"))],
    "beside one that it makes": [apply(write("new/h", "other\n"))],
    "a file is moved away": [apply(edit_messages.move(path_of("d/b"), path_of("moved")))],
    "a file is deleted": [apply(edit_messages.delete(path_of("d/b")))],
    "a symlink": [apply(edit_messages.symlink(path_of("link"), "d"))],
    "the session's own": [apply(write("e/f", "other\n"), session="large")],
}


@pytest.fixture
def place(tmp_path: Path) -> Harness:
    return Harness(tmp_path / "place")


def in_slices(engine: Engine, request: Write, between: Callable[[], None], at: int) -> Result:
    """Carry out a large request, and call `between` in its breath of this number."""
    breaths = itertools.count()

    def yield_turn() -> None:
        if next(breaths) == at:
            between()

    (result,) = engine.run_large(request, yield_turn)
    return result


def some(engine: Engine, *requests: Write) -> None:
    for request in requests:
        done(engine, request)


def carried_out(engine: Engine, request: Write) -> Seq:
    (result,) = engine.run_large(request, lambda: None)
    assert isinstance(result, Outcome), result
    assert result.transaction is not None
    return result.transaction.seq


def check_serial(
    folder: Path, request: Write, between: list[Write], before: list[Write], *, is_long: bool
) -> None:
    """Compare a request in slices with one behind the others, for each place where others get in."""
    expected = Harness(folder / "expected")
    expected.baseline(FILES)
    with expected.engine() as engine:
        for other in (*before, *between):
            done(engine, other)
        (wanted,) = engine.run_batch([request])
    for at in range(30) if is_long else range(seed() % EVERY, 30, EVERY):
        place = Harness(folder / str(at))
        place.baseline(FILES)
        with place.engine() as engine:
            for other in before:
                done(engine, other)
            served = list[Seq]()

            def serve(engine: Engine = engine, served: list[Seq] = served) -> None:
                served.extend(done(engine, other).seq for other in between)

            result = in_slices(engine, request, serve, at)
            if not served:
                return
            if isinstance(wanted, Outcome) and isinstance(result, Outcome):
                is_first = result.transaction is not None and served[0] > result.transaction.seq
                assert is_first or [change.path for change in result.changes] == [
                    change.path for change in wanted.changes
                ]
            else:
                is_first = False
                assert type(result) is type(wanted), (result, wanted)
            if not is_first:
                assert place.files() == expected.files()
            assert not [name for name in names_below(place.root) if ".editd-" in name]
            assert engine.history.concluded is None
        with place.engine() as engine:  # what the journal has is what the files have
            assert engine.recorder.inspect().found == set()
    pytest.fail("it has more breaths than were tried")


@pytest.mark.parametrize("between", BETWEEN.values(), ids=BETWEEN)
def test_an_edit_in_slices_comes_behind_those_that_came_in_between(
    tmp_path: Path, between: list[Write], is_long: bool
) -> None:
    check_serial(tmp_path, LARGE, between, [], is_long=is_long)


@pytest.mark.parametrize("between", BETWEEN.values(), ids=BETWEEN)
def test_an_undo_in_slices_comes_behind_those_that_came_in_between(
    tmp_path: Path, between: list[Write], is_long: bool
) -> None:
    check_serial(tmp_path, UNDO, between, [LARGE], is_long=is_long)


def test_an_undo_of_the_newest_takes_back_one_that_came_in_between(place: Harness) -> None:
    place.baseline(FILES)
    newest = Undo(Authorship("somebody", None, ""), "connection 1", Latest(None))
    with place.engine() as engine:
        done(engine, LARGE)
        result = in_slices(engine, newest, lambda: some(engine, apply(write("e/f", "other\n"))), 1)
        assert isinstance(result, Outcome)
        assert [change.path.text for change in result.changes] == ["e/f"]


def test_an_undo_of_what_was_undone_in_between_is_refused(place: Harness) -> None:
    place.baseline(FILES)
    named = Undo(Authorship("somebody", None, ""), "connection 1", ByTransaction(1))
    with place.engine() as engine:
        done(engine, LARGE)
        result = in_slices(engine, named, lambda: some(engine, named), 1)
        assert not isinstance(result, Outcome)
        assert place.files() == FILES


def test_an_edit_with_a_base_that_another_has_changed_in_between_is_refused(place: Harness) -> None:
    place.baseline(FILES)
    with place.engine() as engine:
        base = engine.read(path_of("a"), "connection 1")[1].version
        based = apply(messages.Write(path="a", content="large\n", base=base), write("d/b", "large\n"))
        for at in range(8):
            other = apply(write("a", f"other {at}\n"))
            result = in_slices(engine, based, partial(some, engine, other), at)
            assert isinstance(result, Stale)
        assert place.files()["d/b"] == "b\n"


def test_a_request_in_slices_is_not_done_if_the_engine_breaks_in_between(place: Harness) -> None:
    place.baseline(FILES)
    with place.killed() as engine:

        def fail() -> None:
            engine.recorder.broken = Broken("The disk failed.")

        assert in_slices(engine, LARGE, fail, 6) is engine.recorder.broken
        assert place.files() == FILES
        assert not [name for name in names_below(place.root) if ".editd-" in name]


def test_a_repeated_request_in_slices_has_the_answer_of_the_first(place: Harness) -> None:
    place.baseline(FILES)
    once = apply(write("a", "large\n"), write("d/b", "large\n"), request_id="once")
    with place.engine() as engine:
        result = in_slices(engine, once, lambda: some(engine, once), 3)
        assert isinstance(result, Outcome)
        assert result.transaction is not None
        assert result.transaction.seq == engine.history.head == 1


def test_a_file_that_needs_the_room_of_staged_ones_waits_and_is_not_refused(tmp_path: Path) -> None:
    two = apply(write("d/b", "large\n"), write("d/c", "large\n"))
    results: list[Result] = []
    for at in range(20):
        place = Harness(tmp_path / str(at))
        place.baseline(FILES)
        with place.engine() as engine:

            def serve(engine: Engine = engine) -> None:
                gone = [edit_messages.delete(path_of(path)) for path in ("d/b", "d/c")]
                done(engine, apply(*gone))
                results.extend(engine.run_batch([apply(write("d", "a file\n"))]))

            in_slices(engine, two, serve, at)
    assert {type(result) for result in results} == {Outcome, NeedsDelay}


def test_dry_runs_in_slices_tell_the_same(place: Harness) -> None:
    place.baseline(FILES)
    with place.engine() as engine:
        done(engine, LARGE)
        for request in (
            Undo(UNDO.authorship, UNDO.reader, UNDO.scope, dry_run=True),
            replace(apply(write("a", "dry\n")), dry_run=True),
        ):
            (wanted,) = engine.run_batch([request])
            (result,) = engine.run_large(request, lambda: None)
            assert isinstance(result, Outcome)
            assert replace(result, diffs={}) == wanted
        assert carried_out(engine, UNDO) == 2


def test_others_are_served_between_the_diffs_of_a_dry_run(place: Harness) -> None:
    place.baseline(FILES)
    with place.engine() as engine:
        request, breaths = replace(LARGE, dry_run=True), list[None]()
        (before,) = engine.run_large(request, lambda: breaths.append(None))
        last = len(breaths) - 1
        result = in_slices(engine, request, lambda: some(engine, apply(write("a", "another's\n"))), last)
        assert place.files()["a"] == "another's\n"
        assert isinstance(result, Outcome)
        assert result == before  # it was planned, so the other edit is not in it
        assert result.diffs == {
            change.path: unified_diff(change.path, change.before, change.after) for change in result.changes
        }


def test_an_undo_of_nothing_is_planned_once(place: Harness) -> None:
    """The refusal of the preparation is the answer, if nothing was made meanwhile."""
    place.baseline(FILES)
    with place.engine() as engine:
        done(engine, apply(write("a", "x\n"), session="large"))
        done(engine, apply(write("a", FILES["a"]), session="large"))
        plans = 0

        def count(frame: FrameType, event: str, _argument: object) -> None:
            nonlocal plans
            plans += event == "call" and frame.f_code is plan_undo.__code__

        sys.setprofile(count)
        try:
            (result,) = engine.run_large(UNDO, lambda: None)
        finally:
            sys.setprofile(None)
        assert isinstance(result, NothingToUndo), result
        assert plans == 1
        served = itertools.count()

        def serve() -> None:
            if next(served) == 0:
                done(engine, apply(write("d/b", "large\n"), session="large"))

        result = in_slices(engine, UNDO, serve, 0)
        assert isinstance(result, Outcome), "the refusal is no longer true"
        assert place.files()["d/b"] == FILES["d/b"]
