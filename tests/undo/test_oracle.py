"""Undo against an oracle that follows files through moves, and merges with git: `lineages`.

Random histories of several sessions: files are written, copied, moved, swapped, deleted, made again and made
executable. Undone are transactions, some paths of them, sessions, what fits a filter, and undos.
Each is shown first, as a dry run, and then made if it is clean. The long form has 3,000 histories.
`pytest --history N` plays one of them again, and `--history N-M` any number of others.
Two more tests need no oracle: they follow what a conflict needs, and undo all of a history.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import pytest

from editd.engine.commands import Undo
from editd.engine.undo_selection import ByFilter, BySession, ByTransaction, Latest
from editd.errors import NothingToUndo, Refused
from editd.values.transaction import Authorship, Outcome
from support import edit_messages
from support.file_systems import mounted_kind
from support.harness import Harness, answer, apply, done, path_of
from support.lineages import Collision, Files, Held, Lineages, NoOpinion
from support.seeds import drawn
from support.workplace import FILE_SYSTEM_VARIABLE, files_below

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from editd.engine.engine import Engine
    from editd.engine.undo_selection import Scope
    from editd.wire.messages import AnyEdit
    from support.lineages import FileId, Targets

HISTORIES, HISTORIES_LONG = 8, 3000
MANY = 24  # histories, of which the shares are worth a look
WRONG_RECIPES = {10, 263}  # histories whose recipes a mistake has led to a conflict
CHANGES = 12
SESSIONS = ("ann", "bob", "cid")
PATHS = ("a", "b", "c", "d", "e", "f/g", "f/h", "f/i")
WORDS = ("alpha", "beta", "gamma", "delta", "", "}", "return")  # few, so that lines are alike


@pytest.fixture(autouse=True)
def _disk(tmp_path: Path) -> Iterator[None]:
    """Have the workspaces on the file system that the environment names."""
    kind = os.environ.get(FILE_SYSTEM_VARIABLE)
    with mounted_kind(kind, tmp_path / "disk", tmp_path) if kind else contextlib.nullcontext():
        yield


def a_text(chance: random.Random) -> bytes:
    """Some lines, the last one now and then without an end."""
    lines = [
        chance.choice(WORDS) + (str(chance.randrange(9)) if chance.random() < 0.5 else "") for _ in range(18)
    ]
    return "\n".join(lines).encode() + (b"\n" if chance.random() < 0.9 else b"")


def edited(text: bytes, chance: random.Random) -> bytes:
    """One or two places of a text changed: lines put in, taken out or written anew."""
    lines = text.split(b"\n")
    for _ in range(chance.choice([1, 1, 2])):
        start = chance.randrange(len(lines))
        end = min(len(lines), start + chance.randrange(3))
        new = [f"{chance.choice(WORDS)}{chance.randrange(99)}".encode() for _ in range(chance.randrange(3))]
        lines[start:end] = new
    return b"\n".join(lines)


class Draft:
    """A transaction while it is drawn: the edits, and what the files are after them."""

    def __init__(self, model: Lineages, chance: random.Random) -> None:
        self.model, self.chance = model, chance
        self.files: Files = dict(model.files)
        self.edits: list[AnyEdit] = []
        self.paths: list[str] = list(PATHS)  # those that no edit has touched yet
        chance.shuffle(self.paths)

    def take(self, *, is_there: bool) -> str | None:
        """Choose a path, or None if there is none of the kind; each is chosen once."""
        there = self.model.tree()
        path = next((path for path in self.paths if (path in there) is is_there), None)
        if path is not None:
            self.paths.remove(path)
        return path

    def put(self, file: FileId, held: Held) -> None:
        self.files[file] = held

    def change(self, file: FileId | None = None) -> None:
        """Write a file anew, in one or two places."""
        if file is None:
            path = self.take(is_there=True)
            if path is None:
                return
            file = self.model.file_at(path)
        held = self.files[file]
        self._write(file, held.path, edited(held.content, self.chance), is_executable=held.is_executable)

    def _write(self, file: FileId, path: str, content: bytes, *, is_executable: bool = False) -> None:
        self.edits.append(edit_messages.write(path_of(path), content, force=True))
        self.put(file, Held(path, content, is_executable))

    def _move(self, path: str, to: str, *, overwrite: bool = False) -> FileId:
        self.edits.append(edit_messages.move(path_of(path), path_of(to), overwrite=overwrite))
        file = next(file for file, held in self.files.items() if held.path == path)
        if overwrite:
            del self.files[next(file for file, held in self.files.items() if held.path == to)]
        held = self.files[file]
        self.put(file, Held(to, held.content, held.is_executable))
        return file

    def move(self) -> None:
        path, to = self.take(is_there=True), self.take(is_there=False)
        if path is not None and to is not None:
            file = self._move(path, to)
            if self.chance.random() < 0.3:
                self.change(file)

    def move_over_another(self) -> None:
        path, to = self.take(is_there=True), self.take(is_there=True)
        if path is not None and to is not None:
            self._move(path, to, overwrite=True)

    def swap(self) -> None:
        one, other, aside = self.take(is_there=True), self.take(is_there=True), self.take(is_there=False)
        if one is not None and other is not None and aside is not None:
            self._move(one, aside)
            self._move(other, one)
            self._move(aside, other)

    def make_room(self) -> None:
        """Move a file away, and another one to its path."""
        to, path, away = self.take(is_there=True), self.take(is_there=True), self.take(is_there=False)
        if to is not None and path is not None and away is not None:
            self._move(to, away)
            self._move(path, to)

    def delete(self) -> None:
        path = self.take(is_there=True)
        if path is not None:
            self.edits.append(edit_messages.delete(path_of(path)))
            del self.files[self.model.file_at(path)]

    def chmod(self) -> None:
        path = self.take(is_there=True)
        if path is not None:
            file = self.model.file_at(path)
            held = self.files[file]
            self.edits.append(edit_messages.chmod(path_of(path), executable=not held.is_executable))
            self.put(file, Held(path, held.content, not held.is_executable))

    def _make(self, path: str, content: bytes) -> None:
        file = self.model.arriving(path, content)
        self._write(
            max([file, *(one + 1 for one in self.files if one > max(self.model.last))]), path, content
        )

    def make(self) -> None:
        path = self.take(is_there=False)
        if path is not None:
            self._make(path, a_text(self.chance))

    def copy(self) -> None:
        path = self.take(is_there=False)
        if path is not None and self.model.files:
            content = self.chance.choice(list(self.model.files.values())).content
            self._make(path, content if self.chance.random() < 0.5 else edited(content, self.chance))

    def make_again(self) -> None:
        """Write a file that is gone, as it was or another way."""
        gone = [
            held
            for file, held in self.model.last.items()
            if file not in self.model.files and held.path in self.paths and held.path not in self.model.tree()
        ]
        if gone:
            held = self.chance.choice(gone)
            self.paths.remove(held.path)
            self._make(
                held.path, held.content if self.chance.random() < 0.7 else edited(held.content, self.chance)
            )


KINDS = {
    Draft.change: 12, Draft.move: 4, Draft.move_over_another: 2, Draft.swap: 1, Draft.make_room: 1,
    Draft.delete: 3, Draft.make_again: 3, Draft.chmod: 2, Draft.make: 1, Draft.copy: 2,
}  # fmt: skip


@dataclass
class Run:
    """One history: an engine, what the model has of it, and what was drawn."""

    name: str
    place: Harness
    engine: Engine
    model: Lineages
    chance: random.Random
    counts: Counter[str]
    told: list[str] = field(default_factory=list)

    def play(self) -> None:
        """Take all the steps: changes, and undos of some of them."""
        for _ in range(CHANGES):
            self.change()
            if self.chance.random() < 0.6:
                self.undo()

    def change(self) -> None:
        """Commit one or two changes as a transaction of a session."""
        draft = Draft(self.model, self.chance)
        for kind in self.chance.choices(
            list(KINDS), list(KINDS.values()), k=self.chance.choice([1, 1, 2, 3])
        ):
            with contextlib.suppress(NoOpinion):
                kind(draft)
        if self.model.tree(draft.files) == self.model.tree():  # as after a swap of two files that are alike
            return
        session = self.chance.choice(SESSIONS)
        self.told.append(f"{session}: {draft.edits}")
        seq = int(done(self.engine, apply(*draft.edits, session=session)).seq)
        self.told[-1] = f"{seq} {self.told[-1]}"
        self.model.record(seq, draft.files, session, [])
        self.look()
        self.counts["changes"] += 1

    def look(self) -> None:
        """The files are what the model has."""
        there = {
            path: (content, bool((self.place.root / path).stat().st_mode & 0o100))
            for path, content in files_below(self.place.root)
        }
        assert there == self.model.tree()

    def undo(self) -> None:
        """Draw an undo, compare what it would do, and make it."""
        try:
            scope, targets = self.a_scope()
        except NoOpinion:
            self.counts["no opinion"] += 1
            return
        if not targets:
            return
        self.told.append(f"undo {scope}: {targets}")
        kind: Literal["undo", "rollback"] = "rollback" if isinstance(scope, BySession) else "undo"
        request = Undo(Authorship("somebody", None, "", None), "connection 1", scope, kind)
        try:
            files, undoes = self.model.without(targets)
        except NoOpinion:
            self.counts["no opinion"] += 1
            return
        except Collision as collision:
            self.collides(request, targets, collision.paths)
            return
        shown = self.answer(request, is_dry=True)
        if self.model.tree(files) == self.model.tree():
            assert isinstance(shown, NothingToUndo), shown
            self.counts["without effect"] += 1
            return
        assert isinstance(shown, Outcome), shown
        assert not shown.conflicts, shown.conflicts
        expected, now = self.model.tree(files), self.model.tree()
        would = {
            change.path.text: None
            if change.after is None
            else (change.after.content, change.after.is_executable)
            for change in shown.changes
        }
        should = {
            path: expected.get(path) for path in expected.keys() | now if expected.get(path) != now.get(path)
        }
        assert would == should, f"would: {would}\nshould: {should}"
        self.counts[type(scope).__name__] += 1
        if self.chance.random() < 0.7:
            self.make(request, files, undoes)
            if self.chance.random() < 0.3:
                self.back_and_forth()

    def make(self, request: Undo, files: Files, undoes: list[tuple[int, FileId, FileId]]) -> None:
        made = self.answer(request, is_dry=False)
        assert isinstance(made, Outcome), made
        assert made.transaction is not None
        seq = int(made.transaction.seq)
        self.told.append(f"  as {seq}")
        self.model.record(seq, files, None, undoes)
        self.look()
        self.look_at_marks()

    def look_at_marks(self) -> None:
        """The same transactions are undone."""
        undone = {
            seq
            for seq in self.model.steps
            if self.engine.history.index.transactions([seq])[0].undone_by is not None
        }
        assert undone == {seq for seq, step in self.model.steps.items() if not step.in_force}

    def back_and_forth(self) -> None:
        """The newest undo is undone: that brings back what was there before."""
        seq = max(self.model.steps)
        step = self.model.steps[seq]
        before = {file: held for file, held in self.model.files.items() if file not in step.changes}
        before |= {file: held for file, (held, _) in step.changes.items() if held is not None}
        files, undoes = self.model.without([(seq, step.in_force)])
        assert files == before
        self.told.append(f"undo {seq}")
        request = Undo(Authorship("somebody", None, "", None), "connection 1", ByTransaction(seq))
        self.make(request, files, undoes)

    def answer(self, request: Undo, *, is_dry: bool) -> object:
        return answer(
            self.engine,
            Undo(request.authorship, request.reader, request.scope, request.kind, dry_run=is_dry),
        )

    def collides(self, request: Undo, targets: Targets, paths: set[str]) -> None:
        """It is refused, and its dry run names the paths."""
        self.counts["conflicts"] += 1
        shown = self.answer(request, is_dry=True)
        assert isinstance(shown, Outcome), shown
        assert paths <= {one.path.text for one in shown.conflicts}, (paths, shown.conflicts)
        assert len(targets) > 1 or paths == {one.path.text for one in shown.conflicts}, (
            paths,
            shown.conflicts,
        )
        # Among deletions and moves `needs` can still lack a transaction, as in history h2.
        if {one.reason for one in shown.conflicts} == {"lines"}:
            self.look_at_needs(request.scope, targets, {seq for one in shown.conflicts for seq in one.needs})
        refusal = self.answer(request, is_dry=False)
        assert isinstance(refusal, Refused)
        assert refusal.code == "conflict"

    def look_at_needs(self, scope: Scope, targets: Targets, needs: set[int]) -> None:
        """What a transaction needs is newer; with all of it taken along there is no conflict any more."""
        assert needs
        if not isinstance(scope, ByTransaction) or scope.paths:
            return
        ((seq, files),) = targets
        assert min(needs) > seq
        self.counts["needs"] += 1
        taken = [(seq, files)]
        for need in needs:
            step = self.model.steps[need]
            again = {file for file, by in step.undone.items() if by in needs}  # without those undos
            taken.append((need, step.in_force | again))
        with contextlib.suppress(NoOpinion):
            try:
                self.model.without(taken)
            except Collision as left:
                raise AssertionError(f"{needs} are needed, and {left.paths} collide all the same") from left

    def a_scope(self) -> tuple[Scope, Targets]:
        """Something to undo, and what of which transactions that is."""
        in_force = {seq: step for seq, step in self.model.steps.items() if step.in_force}
        if not in_force:
            return Latest(None), []
        seq = self.chance.choice(sorted(in_force))
        step = in_force[seq]
        edits = {seq: step for seq, step in in_force.items() if step.session is not None}
        kind = self.chance.randrange(6)
        session = self.chance.choice(SESSIONS)
        of_session = [(seq, step.in_force) for seq, step in edits.items() if step.session == session]
        if kind <= 1:
            return ByTransaction(seq), [(seq, step.in_force)]
        if kind == 2:
            paths = sorted({path for file in step.in_force for path in step.paths_of(file)})
            chosen = self.chance.sample(paths, self.chance.randint(1, len(paths)))
            return ByTransaction(seq, tuple(map(path_of, chosen))), [(seq, step.joined(chosen))]
        if kind == 3:
            return Latest(session, None), of_session
        if kind == 4:
            return BySession(session), of_session
        since, until = sorted(self.chance.choices(sorted(self.model.steps), k=2))
        paths = self.chance.sample(PATHS, self.chance.randint(1, 4))
        parts = [
            (seq, step.joined(paths))
            for seq, step in edits.items()
            if since <= seq <= until and step.joined(paths)
        ]
        return ByFilter(since=since, until=until, paths=tuple(map(path_of, paths)), kinds=("edit",)), parts

    def follow_a_recipe(self) -> None:
        """Draw an undo; with all that it needs undone, one by one and newest first, it is clean."""
        try:
            scope, _ = self.a_scope()
        except NoOpinion:
            return
        request = Undo(Authorship("somebody", None, "", None), "connection 1", scope)
        shown = self.answer(request, is_dry=True)
        if not isinstance(shown, Outcome) or not shown.conflicts:
            return
        needs = sorted({seq for one in shown.conflicts for seq in one.needs}, reverse=True)
        self.told.append(f"undo {scope} needs {needs}")
        assert needs
        for seq in needs:
            step = Undo(Authorship("somebody", None, "", None), "connection 1", ByTransaction(seq))
            made = self.answer(step, is_dry=False)
            assert isinstance(made, Outcome), f"{seq}: {made}"
        shown = self.answer(request, is_dry=True)
        assert isinstance(shown, NothingToUndo) or not shown.conflicts, shown  # type: ignore[attr-defined]
        self.counts["recipes"] += 1

    def unwind(self) -> None:
        """Undo everything, newest first: each finds the files as it left them."""
        history = self.engine.history
        for seq in range(history.head, 0, -1):
            self.told.append(f"undo {seq}")
            request = Undo(Authorship("somebody", None, "", None), "connection 1", ByTransaction(seq))
            made = self.answer(request, is_dry=False)
            assert isinstance(made, Outcome), f"{seq}: {made}"
            for touch in history.index.transactions([seq])[0].touches:
                held, before = history.entry(touch.path), touch.before
                assert (held and (held.version, held.mode)) == (before and (before.version, before.mode)), seq


@contextlib.contextmanager
def a_history(folder: Path, name: str, counts: Counter[str]) -> Iterator[Run]:
    """Begin the history of this name. A failure in it has its story, and leaves its folders."""
    chance = random.Random(name)
    place = Harness(folder / name, root=folder / "disk" / name)
    texts = {path: a_text(chance) for path in PATHS[:5]}
    for path, text in texts.items():
        (place.root / path).write_bytes(text)
    place.baseline()
    with place.engine() as engine:
        history = Run(name, place, engine, Lineages.of(folder, texts), chance, counts)
        try:
            yield history
        except AssertionError as error:
            told = "\n".join(history.told)
            again = f"pytest tests/undo/test_oracle.py --history {name[1:]}"
            raise AssertionError(f"history {name} ({again}):\n{told}\n{error}") from error
    for made in (place.folder, place.root):  # 8 MB each, mostly the journal
        shutil.rmtree(made)


def play(folder: Path, name: str, counts: Counter[str], end: Callable[[Run], None]) -> None:
    """Play one history, as far as the model follows it, and then its end."""
    with a_history(folder, name, counts) as history:
        # A failure before the end is the business of the first test.
        with contextlib.suppress(NoOpinion, Collision, AssertionError):
            history.play()
        end(history)


def run(folder: Path, name: str, counts: Counter[str]) -> None:
    """Play one history against the model."""
    with a_history(folder, name, counts) as history:
        try:
            history.play()
        except NoOpinion:
            counts["ended"] += 1


@pytest.fixture
def histories(request: pytest.FixtureRequest, is_long: bool) -> Sequence[int]:
    """Return the numbers of the histories: those of this form, or those of `--history`."""
    first, _, last = (request.config.getoption("--history") or "").partition("-")
    return (
        range(int(first), int(last or first) + 1)
        if first
        else range(HISTORIES_LONG)
        if is_long
        else drawn(HISTORIES_LONG, HISTORIES)
    )


def none_is_wrong(histories: Iterable[int], play_one: Callable[[int], None]) -> None:
    """Play these histories, and fail with the stories of those that fail."""
    wrong: list[str] = []
    for number in histories:
        try:
            play_one(number)
        except AssertionError as error:
            wrong.append(str(error))
    assert not wrong, f"{len(wrong)} histories are wrong:\n\n" + "\n\n".join(wrong)


@pytest.mark.timeout(7200)  # the long form takes some minutes
def test_any_undo_is_what_an_oracle_makes_of_it(tmp_path: Path, histories: Sequence[int]) -> None:
    counts: Counter[str] = Counter()
    none_is_wrong(histories, lambda number: run(tmp_path, f"h{number}", counts))
    print(*(f"{count} {what}" for what, count in counts.most_common()), sep=", ")
    if len(histories) >= MANY:
        drawn = sum(counts.values()) - counts["changes"]
        assert counts["conflicts"] > drawn / 10, "they have to be common for this to be a test"
        assert counts["no opinion"] < drawn / 5
        assert all(counts[scope.__name__] for scope in (ByTransaction, Latest, BySession, ByFilter)), counts


@pytest.mark.timeout(7200)
def test_once_all_that_an_undo_needs_is_undone_it_is_clean(tmp_path: Path, histories: Sequence[int]) -> None:
    counts: Counter[str] = Counter()
    more = WRONG_RECIPES if len(histories) >= HISTORIES else set[int]()
    none_is_wrong(
        sorted({*histories} | more),
        lambda number: play(tmp_path, f"r{number}", counts, Run.follow_a_recipe),
    )
    assert counts["recipes"] > MANY / 10 or len(histories) < MANY


@pytest.mark.timeout(7200)
def test_undone_newest_first_each_transaction_finds_the_files_as_it_left_them(
    tmp_path: Path, histories: Sequence[int]
) -> None:
    none_is_wrong(histories, lambda number: play(tmp_path, f"u{number}", Counter(), Run.unwind))
