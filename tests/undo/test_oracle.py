"""Undo against an oracle: what `git merge-file` makes of the same three texts, one after another.

Where that has a conflict of neighbouring lines only, the hunks of `git diff` are put into one text.

Random histories of four sessions on the same files. Every transaction and every session of each is undone
(as a dry run: the version is the hash of what would be there), and one of them in earnest. The long form
has 2,000 histories.
"""

from __future__ import annotations

import random
import subprocess
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from editd.values.content import version_of
from editd_client.errors import EditdError
from modelling import join_neighbours
from workplace import Workplace, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from editd.wire.messages import UndoResult
    from editd_client.client import Client

HISTORIES, HISTORIES_LONG = 30, 2000
SESSIONS = 4
WORDS = ["alpha", "beta", "gamma", "delta", "", "}", "return"]  # few, so that lines are alike

Texts = dict[str, bytes]


@dataclass
class Step:
    seq: int
    session: str
    changed: dict[str, tuple[bytes, bytes]]  # path: before and after


@dataclass
class Told:
    """A history as it was made: the steps, and what the files hold now."""

    name: str
    texts: Texts
    steps: list[Step] = field(default_factory=list)

    def undone(self, steps: Iterable[Step], folder: Path) -> dict[str, bytes | None]:
        """What the oracle makes of the files when `steps` are undone, newest first; None is a conflict."""
        made: dict[str, bytes | None] = {**self.texts}
        for step in sorted(steps, key=lambda step: -step.seq):
            for path, (before, after) in step.changed.items():
                now = made[path]
                made[path] = None if now is None else merge_file(folder, now, after, before)
        return made


def merge_file(folder: Path, ours: bytes, base: bytes, theirs: bytes) -> bytes | None:
    for name, text in (("ours", ours), ("base", base), ("theirs", theirs)):
        (folder / name).write_bytes(text)
    argv = ["git", "merge-file", "-p", "-q", "ours", "base", "theirs"]
    done = subprocess.run(argv, cwd=folder, capture_output=True, check=False)
    assert done.returncode < 128, done.stderr
    return done.stdout if done.returncode == 0 else join_neighbours(folder, ours, base, theirs)


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


def tell(name: str, texts: Texts, client: Client, chance: random.Random) -> Told:
    """Make a history: each step is by one of the sessions and changes one or two of the files."""
    told = Told(name, dict(texts))
    for _ in range(chance.randrange(3, 9)):
        session = f"{name}-{chance.randrange(SESSIONS)}"
        paths = chance.sample(sorted(told.texts), chance.choice([1, 1, 2]))
        after = {path: edited(told.texts[path], chance) for path in paths}
        changed = {path: (told.texts[path], text) for path, text in after.items() if text != told.texts[path]}
        if not changed:
            continue
        edits = [write(path, after.decode()) for path, (_, after) in changed.items()]
        made = client.apply(edits, session=session).transaction
        assert made is not None
        told.steps.append(Step(made.seq, session, changed))
        told.texts |= {path: after for path, (_, after) in changed.items()}
    return told


def check(shown: UndoResult, told: Told, expected: dict[str, bytes | None]) -> None:
    """The daemon says the same of each file: what it would hold, or that it conflicts."""
    assert isinstance(shown.conflicts, list)
    assert {one.path for one in shown.conflicts} == {path for path, text in expected.items() if text is None}
    versions = {path: version_of(text) for path, text in told.texts.items()}
    versions |= {file.path: file.version for file in shown.files}  # type: ignore[misc]
    for path, text in expected.items():
        if text is not None:
            assert versions[path] == version_of(text), (path, text)


def by_session(told: Told) -> dict[str, list[Step]]:
    return {
        session: [step for step in told.steps if step.session == session]
        for session in sorted({step.session for step in told.steps})
    }


@pytest.fixture
def histories(is_long: bool) -> list[str]:
    return [f"h{number}" for number in range(HISTORIES_LONG if is_long else HISTORIES)]


@pytest.mark.timeout(3600)  # the long form takes some ten minutes
def test_any_transaction_or_session_is_undone_as_git_merge_file_has_it(
    place: Workplace, tmp_path: Path, histories: list[str]
) -> None:
    chances = {name: random.Random(name) for name in histories}
    first = {
        name: {f"{name}/{file}": a_text(chances[name]) for file in ("a", "b", "c")} for name in histories
    }
    place.write({path: text for texts in first.values() for path, text in texts.items()})
    conflicts = merged = recipes = 0
    with place.start() as client:
        for name in histories:
            told = tell(name, first[name], client, chances[name])
            for step in told.steps:
                expected = told.undone([step], tmp_path)
                if all(text == told.texts[path] for path, text in expected.items()):
                    continue
                shown = client.undo(step.seq, dry_run=True)
                check(shown, told, expected)
                check_needs(shown, step, told, tmp_path)
                conflicts += bool(shown.conflicts)
            sessions = by_session(told)
            for session, steps in sessions.items():
                expected = told.undone(steps, tmp_path)
                if all(text == told.texts[path] for path, text in expected.items()):
                    continue  # which is refused, being without effect
                check(client.undo(session=session, dry_run=True), told, expected)
                check(client.rollback(session, dry_run=True), told, expected)
            undone = {session: told.undone(steps, tmp_path) for session, steps in sessions.items()}
            clean = [s for s, texts in undone.items() if None not in texts.values() and texts != told.texts]
            if clean:
                merged += 1
                roll_back_and_forth(place, client, told, clean[0], tmp_path)
            for session, texts in undone.items():
                if None in texts.values():
                    recipes += 1
                    follow_the_recipe(client, session)
                    break
    assert conflicts > len(histories) / 2, "they have to be common for this to be a test"
    assert merged > len(histories) / 2
    assert recipes > len(histories) / 4


def check_needs(shown: UndoResult, step: Step, told: Told, folder: Path) -> None:
    """With all that is needed taken along there is no conflict any more, and nothing older is needed."""
    assert isinstance(shown.conflicts, list)
    needs = {seq for one in shown.conflicts for seq in one.needs}
    assert all(seq > step.seq for seq in needs)
    assert bool(needs) == bool(shown.conflicts)
    together = [other for other in told.steps if other.seq in needs | {step.seq}]
    assert None not in told.undone(together, folder).values()


def follow_the_recipe(client: Client, session: str) -> None:
    """What a rollback needs is undone first, newest first; then the rollback is clean."""
    with pytest.raises(EditdError) as refused:
        client.rollback(session)
    files = refused.value.data["files"]
    assert all(file["blocking"] and file["needs"] for file in files)
    for seq in sorted({seq for file in files for seq in file["needs"]}, reverse=True):
        undo(lambda seq=seq: client.undo(seq))  # type: ignore[misc]
    undo(lambda: client.rollback(session))


def undo(attempt: Callable[[], object]) -> None:
    """Undo; what has no effect any more is refused, which is as good."""
    try:
        attempt()
    except EditdError as error:
        if error.name != "nothing_to_undo":
            raise


def roll_back_and_forth(place: Workplace, client: Client, told: Told, session: str, folder: Path) -> None:
    """In earnest: the files hold what the oracle says, and an undo of it brings back what was there."""
    rolled = client.rollback(session).transaction
    assert rolled is not None
    expected = told.undone(by_session(told)[session], folder)
    assert {path: (place.root / path).read_bytes() for path in expected} == expected
    client.undo(rolled.seq)
    assert {path: (place.root / path).read_bytes() for path in told.texts} == told.texts
