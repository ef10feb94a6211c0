"""An exception at each call of recording, arriving, undoing, restoring and landing: no history is wrong.

Before the commit point, history, index and memory are as before, and the engine goes on. After it, the engine
is closed for writes, and the next start recovers. The short form strikes some of the calls, the long one all.
"""

from __future__ import annotations

import contextlib
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from editd.engine.arrivals import arrival_of
from editd.engine.commands import ArrivalChain, Restore, Undo
from editd.engine.undo_selection import BySession, ByTransaction
from editd.errors import Broken, Refused
from editd.store.verify_history import verify_full
from editd.values.content import FileState, version_of
from editd.values.excluded_paths import ExcludedPaths
from editd.values.path import TEMPORARY_PREFIX
from editd.values.proposal import ProposalNumber
from editd.values.transaction import Authorship, Outcome
from editd.wire import messages
from support import reviews
from support.harness import Harness, answer, apply, done, path_of, write
from support.reviews import land, proposing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from types import FrameType

    from editd.engine.commands import UndoKind
    from editd.engine.engine import Engine
    from editd.engine.undo_selection import Scope

    Action = Callable[[], list[Any]]  # to be struck

STRIDE = 41  # of the short form: not each call is struck
RUNS_OF_A_PLACE = 40  # before a new workspace is made, and the history is opened again
ENDS = {"__exit__", "release", "close"}  # in C: these do not fail before they have let go of something
FILES = {"a": "a\n", "b": "b\n", "sub/c": "c\n", ".env": "key\n"}
AUTHOR = Authorship("somebody")


class Struck(Exception):
    """The exception that no code expects."""


@dataclass
class Strike:
    """Raise at the call with this number, of Python or C, once."""

    at: int
    calls: int = 0
    where: str = ""

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event not in ("call", "c_call") or (event == "c_call" and argument.__name__ in ENDS):
            return
        self.calls += 1
        if self.calls == self.at:
            name = getattr(argument, "__qualname__", frame.f_code.co_qualname)
            self.where = f"{name} in {frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}"
            raise Struck(self.where)

    @contextlib.contextmanager
    def armed(self) -> Any:
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(None)


def arrival(
    number: int,
    chain: ArrivalChain,
    changes: list[Any],
    undoes: tuple[int, ...] = (),
    parts: Sequence[Any] = (),
) -> Any:
    step = {
        "actor": "ann", "session": "s", "message": "from afar", "attribution": None, "number": number,
        "host": "other", "origin": f"{number:040x}", "time_us": 1, "kind": "undo" if undoes else "edit",
        "undoes": list(undoes), "parts": parts, "changes": changes,
    }  # fmt: skip
    return arrival_of(step, 1 << 40, chain)


def an_edit(engine: Engine, run: int) -> Action:
    return lambda: engine.run_batch([apply(write("a", f"a {run}\n"), write(f"new/{run}", "new\n"))])


def several_edits(engine: Engine, run: int) -> Action:
    return lambda: engine.run_batch([apply(write("a", f"a {run}\n")), apply(write("b", f"b {run}\n"))])


def arrivals(engine: Engine, run: int) -> Action:
    """Record two arrivals of one plan, and an undo of a transaction that has no effect here."""

    def act() -> list[Any]:
        chain, entry = ArrivalChain(), engine.history.entry(path_of("a"))
        known = None if entry is None else [entry.mode, entry.version]
        first, second = f"a {run}\n".encode(), f"A {run}\n".encode()
        later = [["a", [0o100644, version_of(first)], [0o100644, None], second, None]]
        return engine.run_batch([
            arrival(3 * run, chain, [["a", known, [0o100644, 0o600], first, None]]),
            arrival(3 * run + 1, chain, later),
            arrival(3 * run + 2, chain, [], (1,)),
        ])  # fmt: skip

    return act


def arrival_of_a_part(engine: Engine, run: int) -> Action:
    """Record another host's undo of a transaction, one file of which stays here."""
    made = done(engine, apply(write("a", f"a {run}\n"), write("b", f"mine {run}\n")))
    touch = next(touch for touch in made.touches if touch.path == path_of("a"))
    before, after = touch.before, touch.after
    assert before is not None
    assert after is not None
    content = engine.history.content(before.version)
    change = ["a", [after.mode, after.version], [before.mode, None], content, None]
    parts = [[made.seq, "a", []]]
    return lambda: engine.run_batch([arrival(run, ArrivalChain(), [change], (made.seq,), parts)])


def outside_changes(engine: Engine, run: int) -> Action:
    """Record what another program wrote, and whose it is."""

    def act() -> list[Any]:
        content = f"outside {run}\n".encode()
        root = engine.recorder._root
        with open(f"{root}/.b", "wb") as file:  # the file itself may have a lease that nobody ends
            file.write(content)
        os.replace(f"{root}/.b", f"{root}/b")
        made = engine.recorder.record({path_of("b"): FileState(content)})
        engine.recorder.claim(Authorship("ann", "s"), [one.seq for one in made])
        return [Outcome((), transaction=one) for one in made]

    return act


def excluded_files(engine: Engine, run: int) -> Action:
    """Edit a file whose contents the history does not keep, together with another one."""
    return lambda: engine.run_batch([apply(write(".env", f"key {run}\n"), write("a", f"a {run}\n"))])


def an_undo(engine: Engine, run: int) -> Action:
    made = done(
        engine, apply(write("a", f"a {run}\n"), write(f"new/{run}", "new\n"), write(".env", f"{run}\n"))
    )
    return lambda: engine.run_batch([taking_back(ByTransaction(made.seq))])


def a_redo(engine: Engine, run: int) -> Action:
    made = done(engine, apply(write("a", f"a {run}\n"), write(f"new/{run}", "new\n")))
    undone = done(engine, taking_back(ByTransaction(made.seq)))
    return lambda: engine.run_batch([taking_back(ByTransaction(undone.seq), "redo")])


def a_rollback(engine: Engine, run: int) -> Action:
    """Roll back a session beside the edit of another session."""
    session = f"session {run}"
    done(engine, apply(write("a", f"a {run}\n"), write(f"new/{run}", "new\n"), session=session))
    done(engine, apply(write("sub/c", f"c {run}\n"), session="another"))
    done(engine, apply(messages.Move(path=f"new/{run}", to=f"moved/{run}"), session=session))
    return lambda: engine.run_batch([taking_back(BySession(session), "rollback")])


def a_restore(engine: Engine, run: int) -> Action:
    before = engine.history.head
    done(engine, apply(write("a", f"a {run}\n"), write(f"new/{run}", "new\n")))
    done(engine, apply(write("b", f"b {run}\n")))
    return lambda: engine.run_batch([Restore(AUTHOR, "connection 1", int(before))])


def a_landing(engine: Engine, run: int) -> Action:
    """Land a proposal. What the history has of it is landed for the proposals, too."""
    proposed = answer(engine, proposing(write("a", f"proposed {run}\n"), write(f"new/{run}", "new\n")))
    assert isinstance(proposed, Outcome)
    assert proposed.proposal is not None
    number = ProposalNumber(proposed.proposal)
    request = replace(land(token=reviews.view(engine, number).token), proposal=number)
    return lambda: engine.run_batch([request])


def taking_back(scope: Scope, kind: UndoKind = "undo") -> Undo:
    return Undo(AUTHOR, "connection 1", scope, kind)


PATHS = [
    an_edit, several_edits, arrivals, arrival_of_a_part, outside_changes, excluded_files, an_undo, a_redo,
    a_rollback, a_restore, a_landing,
]  # fmt: skip


def visible(place: Harness) -> dict[str, str]:
    """Return the files without the temporaries, which no program but editd reads."""
    return {path: text for path, text in place.files().items() if TEMPORARY_PREFIX not in path}


def is_consistent(place: Harness, *, is_scanned: bool) -> list[str]:
    """Open the history again, as the next start does, and return the problems of a whole check.

    A start finds by its scan what another program wrote before an exception.
    """
    with reviews.opened(place) as engine:
        assert engine.recorder.broken is None
        assert_proposals_follow(engine)
        if is_scanned:
            engine.recorder.record({path_of("b"): FileState(place.files()["b"].encode())})
        done(engine, apply(write("sub/c", f"later {engine.history.head}\n")))
        head = engine.history.head
        assert engine.history.index.count(0) == head, "the index lacks a transaction"
        for path, text in visible(place).items():
            entry = engine.history.entry(path_of(path))
            assert entry is not None, f"{path} is not in the history"
            assert entry.version == version_of(text.encode()), f"{path} is not as in the history"
    problems, _ = verify_full(str(place.state))
    return problems


def struck_run(place: Harness, engine: Engine, path: Callable[[Engine, int], Action], strike: Strike) -> bool:
    """Strike one run; return whether the engine is to be opened again. Raises AssertionError."""
    history, act = engine.history, path(engine, strike.at)
    head, commit, root, files = history.head, history.head_commit, history._trees.root, visible(place)
    index, held = history.index.count(0), history.pending.bytes
    try:
        with strike.armed():
            results = act()
    except (Struck, Broken):
        results = []
    recorded = [one for one in results if isinstance(one, Outcome) and one.transaction is not None]
    assert strike.where or recorded, f"without an exception, it records nothing: {results}"
    if engine.recorder.broken is not None:
        return True
    assert history.head >= head + len(recorded), "an answer without a transaction"
    if history.head == head:
        assert history.head_commit == commit
        assert history._trees.root == root
        assert history.index.count(0) == index
        assert history.pending.bytes == held, "contents of what was not recorded stay in memory"
        if path is not outside_changes:
            assert visible(place) == files, "files of what was not recorded"
    made = done(engine, apply(write("sub/c", f"after {strike.at}\n")))
    assert made.seq == history.head
    assert history.index.count(0) == history.head, "the index lacks a transaction"
    assert_proposals_follow(engine)
    return False


def assert_proposals_follow(engine: Engine) -> None:
    """Assert that each open proposal knows its hunks that the history has landed."""
    known = reviews.proposals(engine)
    for proposal in known.waiting():
        landed = set(engine.history.index.of_proposal(proposal.number))
        assert landed <= set(proposal.landed), f"proposal {proposal.number} has landed, and is open"


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("path", PATHS)
def test_an_exception_at_each_call_leaves_a_right_history(
    tmp_path: Path, path: Callable[[Engine, int], Action], is_long: bool
) -> None:
    number, at, closed = 0, 1, 0
    is_over = False
    while not is_over:
        place = Harness(tmp_path / f"place{number}", excluded=ExcludedPaths(["**/.env"]))
        place.baseline(FILES)
        number += 1
        with contextlib.ExitStack() as parts:
            engine = opened(place, parts)
            for _ in range(RUNS_OF_A_PLACE):
                strike = Strike(at)
                at += 1 if is_long else STRIDE
                try:
                    is_closed = struck_run(place, engine, path, strike)
                except (AssertionError, Refused) as error:
                    raise AssertionError(f"call {strike.at}, {strike.where}: {error!r}") from error
                is_over = not strike.where
                if is_closed or is_over:
                    closed += is_closed
                    break
        is_scanned = path is outside_changes
        assert is_consistent(place, is_scanned=is_scanned) == [], f"before call {at}"
    print(f"{path.__name__}: {at} calls, the engine was closed {closed} times, {number} histories")


def opened(place: Harness, parts: contextlib.ExitStack) -> Engine:
    """Open an engine that ends as by a kill, with its proposals and a first transaction."""
    engine = parts.enter_context(reviews.opened(place))
    engine.recorder._root = str(place.root)
    for path in (an_edit, arrivals, outside_changes):
        path(engine, 0)()
    return engine
