"""exec brackets against a model: who made each change, through random brackets of three sessions, and kills.

The model is written from docs/protocol.md. It knows the open brackets, and for each write the set of its
possible authors at that moment. A look at the files is forced after each write, so that the moment is known.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from msgspec import Struct, field

from editd_client.errors import EditdError

if TYPE_CHECKING:
    from support.workplace import Workplace

SESSIONS = ("ann", "bob", "cy")
FILES = ("a", "b", "d/c", "d/e")
STEPS = 60
Author = tuple[str, str | None, str | None, tuple[str, ...]]  # kind, session, by, candidates


class Model(Struct):
    """The open brackets: by key, their session and paths, in the order of their beginning."""

    brackets: dict[str, tuple[str, frozenset[str] | None]] = field(default_factory=dict)
    log: list[tuple[str, Author]] = field(default_factory=list)
    early: set[str] = field(default_factory=set)  # keys whose end met no bracket: the next beginning is late
    lost: set[str] = field(default_factory=set)  # keys whose bracket ended before the end of its call

    def begin(self, key: str, session: str, paths: frozenset[str] | None) -> None:
        is_late = key in self.early
        self.early.discard(key)
        self.lost.discard(key)
        if is_late or key in self.brackets:
            return
        if paths is not None:
            for other, (owner, named) in tuple(self.brackets.items()):
                if owner == session and named is not None and named & paths:
                    self.lose(other)
        self.brackets[key] = session, paths

    def end(self, key: str) -> None:
        if self.brackets.pop(key, None) is not None:
            return
        if key not in self.lost:
            self.early.add(key)
        self.lost.discard(key)

    def end_turn(self, session: str) -> None:
        for key, (owner, _) in tuple(self.brackets.items()):
            if owner == session:
                self.lose(key)

    def lose(self, key: str) -> None:
        del self.brackets[key]
        self.lost.add(key)

    def restart(self) -> None:
        """Forget what the daemon keeps in memory alone."""
        self.early.clear()
        self.lost.clear()

    def write(self, path: str) -> None:
        named = [owner for owner, paths in self.brackets.values() if paths is not None and path in paths]
        by = "path" if named else "time"
        owners = list(
            dict.fromkeys(named or [owner for owner, paths in self.brackets.values() if paths is None])
        )
        author: Author = ("outside", None, None, ())
        if len(owners) == 1:
            author = "exec", owners[0], by, ()
        elif owners:
            author = "outside", None, by, tuple(owners)
        self.log.append((path, author))


def recorded(place: Workplace) -> list[tuple[str, Author]]:
    """Each file of each transaction, the oldest first, with the author."""
    with place.client() as client:
        made = client.log(after=0, limit=1000).transactions
    return [
        (
            file.path,
            (
                one.kind,
                one.session,
                one.by if isinstance(one.by, str) else None,
                tuple(one.candidates) if isinstance(one.candidates, list) else (),
            ),
        )
        for one in reversed(made)
        for file in one.files
    ]


def look(place: Workplace, path: str) -> None:
    """Have the daemon look at one file now."""
    with place.client() as client:
        client.read(path)


@pytest.mark.parametrize("seed", range(4))
def test_each_change_has_the_author_that_the_model_says(place: Workplace, seed: int) -> None:
    chance, model = random.Random(seed), Model()
    place.write(dict.fromkeys(FILES, "0\n"))
    with place.start() as client:
        client.settle()
    keys = [f"{session}:{number}" for session in SESSIONS for number in range(3)]
    for step in range(STEPS):
        act = chance.choices(("begin", "command", "end", "turn", "write", "kill"), (6, 1, 4, 1, 8, 0.4))[0]
        session = chance.choice(SESSIONS)
        key = chance.choice([one for one in keys if one.startswith(session)])
        if act == "write":
            path = chance.choice(FILES)
            whole = place.folder / "whole"  # in one step, so that it is one change
            whole.write_text(f"step {step}\n")
            whole.replace(place.root / path)
            model.write(path)
            look(place, path)
        elif act == "kill":
            place.kill()
            place.start().close()
            model.restart()
        else:
            _tell(place, model, chance, act, session, key)
        assert recorded(place) == model.log, (seed, step, act)


def _tell(place: Workplace, model: Model, chance: random.Random, act: str, session: str, key: str) -> None:
    """Begin or end brackets, on a connection of their own."""
    with place.client() as hook:
        if act == "turn":
            hook.exec_end(every=True, session=session, status=0)
            model.end_turn(session)
        elif act == "end":
            hook.exec_end(key=key, session=session, status=0)
            model.end(key)
        else:
            paths = None if act == "command" else frozenset(chance.sample(FILES, chance.randint(1, 2)))
            named = None if paths is None else sorted(paths)
            hook.exec_begin(act, paths=named, key=key, session=session, wait=0.0)
            model.begin(key, session, paths)


def test_a_key_of_another_session_changes_nothing(place: Workplace) -> None:
    place.write({"a": "0\n"})
    with place.start() as client:
        client.exec_begin("edit", paths=["a"], key="k", session="ann")
        with pytest.raises(EditdError, match="in use"):
            client.exec_begin("edit", paths=["a"], key="k", session="bob", wait=0.0)
        assert client.exec_end(key="k", session="bob").transaction is None
        place.write({"a": "1\n"})
        assert client.exec_end(key="k", session="ann").transactions == [1]
