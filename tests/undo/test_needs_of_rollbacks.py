"""Rollbacks of directed histories: once all that a rollback needs is undone, it is clean.

Two sessions change the same few files: they move files and whole folders, swap names, delete and write again,
change modes, undo each other, and touch a file whose contents the history does not keep.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from editd.engine.commands import Undo
from editd.engine.undo_selection import BySession, ByTransaction
from editd.errors import NothingToUndo
from editd.values.excluded_paths import ExcludedPaths
from editd.values.transaction import Authorship, Outcome
from editd.wire import messages
from support.harness import Harness, answer, apply, write

if TYPE_CHECKING:
    from pathlib import Path

    from editd.engine.commands import Result
    from editd.engine.engine import Engine
    from editd.engine.undo_selection import Scope

HISTORIES, HISTORIES_LONG = 40, 5000
STEPS_MAX = 14
SESSIONS = ("ann", "bob")
FOLDERS = ("", "d/", "e/")
NAMES = ("a", "b", ".env")
LINES = "".join(f"{number}\n" for number in range(8))
WORDS = ("one", "two", "three")


class History:
    """One random history of two sessions."""

    def __init__(self, engine: Engine, place: Harness, name: str) -> None:
        self.engine = engine
        self.place = place
        self.chance = random.Random(name)
        self.told: list[str] = []

    def step(self) -> None:
        """Draw one change of one session; one that is refused changes nothing."""
        session = self.chance.choice(SESSIONS)
        if self.chance.random() < 0.2:
            self._undo(session)
            return
        edits = self._edits()
        if not edits:
            return
        made = answer(self.engine, apply(*edits, session=session))
        if isinstance(made, Outcome) and made.transaction is not None:
            shown = [f"{touch.path}<{touch.source or ''}" for touch in made.transaction.touches]
            self.told.append(f"{made.transaction.seq} {session}: {edits} {shown}")

    def _undo(self, session: str) -> None:
        seq = self.chance.randint(1, max(1, int(self.engine.history.head)))
        transaction = self.engine.history.index.transaction(seq)
        if transaction is None:
            return
        paths = tuple(touch.path for touch in transaction.touches)
        chosen = (self.chance.choice(paths),) if paths and self.chance.random() < 0.4 else ()
        made = answer(self.engine, undo(ByTransaction(seq, chosen), session))
        if isinstance(made, Outcome) and made.transaction is not None:
            self.told.append(f"{made.transaction.seq} {session}: undo {seq} {chosen}")

    def _edits(self) -> list[messages.AnyEdit]:
        files = sorted(self.place.files())
        kind, path = self.chance.randrange(8), self.chance.choice(files or ["a"])
        new = self.chance.choice(FOLDERS) + self.chance.choice(NAMES)
        if kind == 0:
            return [write(new, self._text(new))]
        if kind == 1:
            return [messages.Delete(path=path)]
        if kind == 2:
            return [messages.Move(path=path, to=new, overwrite=self.chance.random() < 0.5)]
        if kind == 3:  # a whole folder
            source, target = self.chance.sample(FOLDERS[1:], 2)
            inside = [one for one in files if one.startswith(source)]
            return [messages.Move(path=one, to=target + one.removeprefix(source)) for one in inside]
        if kind == 4 and len(files) > 1:  # two names change places
            one, other = self.chance.sample(files, 2)
            return [
                messages.Move(path=one, to="spare"), messages.Move(path=other, to=one),
                messages.Move(path="spare", to=other),
            ]  # fmt: skip
        if kind == 5:
            return [messages.Chmod(path=path, executable=self.chance.random() < 0.5)]
        if kind == 6:  # a move with a change, and another file
            return [
                messages.Move(path=path, to=new, overwrite=True), write(new, self._text(new)),
                write(self.chance.choice(NAMES), self._text("a")),
            ]  # fmt: skip
        return [write(path, self._text(path))]

    def _text(self, path: str) -> str:
        """Return a text of few kinds, so that contents come back, with one changed line."""
        now = self.place.files().get(path, LINES)
        lines = now.splitlines(keepends=True) or [LINES]
        lines[self.chance.randrange(len(lines))] = self.chance.choice(WORDS) + "\n"
        return LINES if self.chance.random() < 0.2 else "".join(lines)

    def follow(self, session: str) -> bool:
        """Undo what a rollback needs, newest first; it is clean then. Return whether it needs any."""
        shown = answer(self.engine, undo(BySession(session), "owner", dry_run=True))
        if not isinstance(shown, Outcome) or not shown.conflicts:
            return False
        needs = sorted({seq for one in shown.conflicts for seq in one.needs}, reverse=True)
        self.told.append(f"rollback {session} needs {needs}: {shown.conflicts}")
        assert needs
        for seq in needs:
            made = answer(self.engine, undo(ByTransaction(seq), "owner"))
            assert isinstance(made, Outcome), f"{seq}: {made}"
        left = answer(self.engine, undo(BySession(session), "owner", dry_run=True))
        assert isinstance(left, NothingToUndo) or is_clean(left), left
        made = answer(self.engine, undo(BySession(session), "owner"))
        assert isinstance(made, Outcome | NothingToUndo), made
        return True


def undo(scope: Scope, session: str, *, dry_run: bool = False) -> Undo:
    return Undo(Authorship("somebody", session), f"session {session}", scope, dry_run=dry_run)


def is_clean(result: Result) -> bool:
    return isinstance(result, Outcome) and not result.conflicts


def played(folder: Path, name: str) -> bool:
    """Play one history; return whether its rollback needs others to be undone. Raises AssertionError."""
    place = Harness(folder / name, excluded=ExcludedPaths(["**/.env"]))
    place.baseline({"a": LINES, "b": "b\n", "d/a": LINES, ".env": "key\n"})
    with place.engine() as engine:
        history = History(engine, place, name)
        for _ in range(history.chance.randint(4, STEPS_MAX)):
            history.step()
        try:
            return history.follow(history.chance.choice(SESSIONS))
        except AssertionError as error:
            raise AssertionError(f"history {name}:\n" + "\n".join(history.told) + f"\n{error}") from error


@pytest.mark.timeout(3600)
def test_once_all_that_a_rollback_needs_is_undone_it_is_clean(tmp_path: Path, is_long: bool) -> None:
    needing = [played(tmp_path, f"n{number}") for number in range(HISTORIES_LONG if is_long else HISTORIES)]
    assert sum(needing) > len(needing) / 10, "too few rollbacks need anything"
