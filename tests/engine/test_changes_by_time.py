"""engine.changes_by_time: a rollback leaves alone what another program may have saved during a command."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING, Any

import pytest

from editd.engine.changes_by_time import ANOTHERS_SECONDS
from editd.engine.commands import Undo
from editd.engine.external_changes import AttributedChanges
from editd.engine.undo_selection import BySession
from editd.errors import NothingToUndo
from editd.values.content import FileState
from editd.values.transaction import Attribution, Authorship, Outcome
from support.harness import FakeClock, Harness, path_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from editd.engine.commands import Result
    from editd.engine.engine import Engine

SECOND = 1_000_000


class Commands:
    """Changes from outside, found during the commands of sessions, or of no session (None)."""

    def __init__(self, place: Harness, engine: Engine) -> None:
        self.place, self.engine = place, engine

    def change(self, session: str | None, files: Mapping[str, str | None]) -> None:
        """Write (None: delete) files, and record them as a change of the session's command."""
        for name, text in files.items():
            (self.place.root / name).unlink(missing_ok=True)
            self.place.write({} if text is None else {name: text})
        author = Authorship("claude", session, "command", attribution=Attribution(is_by_path=False))
        if session is not None:
            self.engine.recorder.outside_authorship = lambda changes: [
                AttributedChanges("exec", author, tuple(changes))
            ]
        states = {
            path_of(name): None if text is None else FileState(text.encode()) for name, text in files.items()
        }
        self.engine.recorder.record(states)
        self.engine.recorder.outside_authorship = lambda _changes: None

    def roll_back(self, session: str = "agent", since: int | None = None) -> Result:
        undo = Undo(Authorship("ann", None, ""), "connection 1", BySession(session, since))
        (result,) = self.engine.run_large(undo, lambda: None)
        return result


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(2_000_000_000 * SECOND)


@pytest.fixture
def commands(tmp_path: Path, clock: FakeClock) -> Iterator[Commands]:
    place = Harness(tmp_path / "place", clock)
    place.baseline({"kept": "kept\n"})
    with place.engine() as engine:
        yield Commands(place, engine)


def changed(result: Result) -> list[str]:
    assert isinstance(result, Outcome), result
    assert result.warnings == ()
    return [change.path.text for change in result.changes]


def test_a_save_by_another_program_shortly_before_is_left_alone(commands: Commands, clock: FakeClock) -> None:
    commands.change(None, {"saved": "by a person\n", "old": "by a person\n"})
    assert clock.us is not None
    clock.us += (ANOTHERS_SECONDS + 1) * SECOND
    commands.change(None, {"saved": "by a person, again\n"})
    commands.change("agent", {"saved": "?\n", "old": "by the command\n"})
    result = commands.roll_back()
    assert isinstance(result, Outcome)
    assert [change.path.text for change in result.changes] == ["old"]
    assert result.warnings == (
        "Left alone, because another program wrote these files shortly before: saved (3).",
    )


def test_a_file_that_was_seen_for_the_first_time_shortly_before_is_the_commands(
    tmp_path: Path, clock: FakeClock
) -> None:
    """The scan had left it out, so nobody wrote it when it was recorded."""
    place = Harness(tmp_path / "place", clock)
    place.baseline({"kept": "kept\n"})
    with place.engine(is_ours=lambda path: path.text != "ignored") as engine:
        commands = Commands(place, engine)
        commands.change(None, {"ignored": "there before\n"})
        assert engine.history.find(1).kind == "baseline"
        commands.change("agent", {"ignored": "by the command\n"})
        assert changed(commands.roll_back()) == ["ignored"]
    assert place.files() == {"kept": "kept\n", "ignored": "there before\n"}


def test_a_file_that_the_sessions_commands_made_and_deleted_is_its_own(commands: Commands) -> None:
    """A person installed a package and removed it again. Then the agent did the same, and kept one file."""
    package = {"node_modules/a": "a\n", "node_modules/b": "b\n"}
    gone = dict.fromkeys(package)
    commands.change(None, package)
    commands.change(None, gone)
    commands.change("agent", {**package, "own": "own\n"})
    commands.change("agent", {"node_modules/a": "a, built\n"})
    commands.change("agent", gone)
    assert changed(commands.roll_back()) == ["own"]
    assert commands.place.files() == {"kept": "kept\n"}


def test_a_file_is_doubtful_if_another_program_wrote_it_between_its_creation_and_its_deletion(
    commands: Commands,
) -> None:
    commands.change("agent", {"log": "made\n"})
    commands.change(None, {"log": "saved by a person\n"})
    commands.change("agent", {"log": None, "own": "own\n"})
    result = commands.roll_back(since=3)
    assert isinstance(result, Outcome)
    assert result.warnings == (
        "Left alone, because another program wrote these files shortly before: log (3).",
    )
    assert commands.place.files() == {"kept": "kept\n"}


def test_the_sessions_of_one_rollback_are_no_strangers_to_each_other(commands: Commands) -> None:
    commands.change("agent-1", {"made": "by the agent\n", "kept": "by the agent\n"})
    commands.change("agent-1-sub", {"made": None, "kept": "by its sub-agent\n"})
    assert changed(commands.roll_back("agent-1*")) == ["kept"]
    assert commands.place.files() == {"kept": "kept\n"}


def test_a_refusal_lists_ten_paths_and_a_count(commands: Commands) -> None:
    names = [f"{number:02}" for number in range(13)]
    commands.change(None, dict.fromkeys(names, "a person's\n"))
    commands.change("agent", dict.fromkeys(names))
    result = commands.roll_back()
    assert isinstance(result, NothingToUndo)
    listed = ", ".join(f"{name} (2)" for name in names[:10])
    assert result.message.endswith(f"shortly before: {listed} and 3 more.")
    assert result.hint == "Use include_by_time to take these changes back as well."


# The work grows with the number of files, and not with its square.


def calls_of(work: Callable[[], object]) -> int:
    """Count the calls of Python functions."""
    count = 0

    def note(_frame: object, event: str, _argument: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("author", ["the first scan", "a person", "the agent"])
def test_the_rollback_of_a_mass_deletion_is_linear(tmp_path: Path, author: str) -> None:
    def calls(count: int) -> int:
        files = {f"d/{number // 100}/{number}": f"{number}\n" for number in range(count)}
        place = Harness(tmp_path / str(count))
        place.baseline(files if author == "the first scan" else {"kept": "kept\n"})
        with place.engine() as engine:
            commands = Commands(place, engine)
            if author != "the first scan":
                commands.change(None if author == "a person" else "agent", files)
            shutil.rmtree(place.root / "d")
            commands.change("agent", dict.fromkeys(files))
            made = calls_of(commands.roll_back)
            is_back = author == "the first scan"
            assert place.files() == (files if is_back else {"kept": "kept\n"})
        return made

    assert calls(800) < 5 * calls(200)
