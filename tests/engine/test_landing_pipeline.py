"""The table of gates says what each kind of change passes, and the engine does so."""

from __future__ import annotations

import re
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from editd.engine.access import EditPolicy
from editd.engine.commands import Arrive, Restore, Sender, Undo
from editd.engine.hooks import Hook
from editd.engine.landing_pipeline import GAPS, GATES, gates_of
from editd.engine.undo_selection import BySession
from editd.engine.unsaved import HeldDocument
from editd.errors import PermissionDenied, Refused
from editd.review.choice import ReviewedText
from editd.review.policy import ReviewPolicy
from editd.server.methods.sessions import open_guard
from editd.values.content import FileState, version_of
from editd.values.glob import Glob
from editd.values.transaction import Authorship, Outcome
from support.harness import Harness, answer, apply, done, path_of, write
from support.reviews import land, opened, propose, view

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path
    from types import FrameType

    from editd.engine.engine import Engine
    from editd.engine.landing_pipeline import Gate, LandingKind

FLOORS = re.compile("/editd/(engine|review)/")
FUNCTIONS: dict[str, Gate] = {
    "AccessControl.permit": "permit",
    "apply_hooks": "hooks",
    "judge": "review",
    "AccessControl.check_taken_back": "owner",
    "AccessControl.check_restored": "owner",
    "HeldDocuments.try_changes": "unsaved",
    "undo_conflicts": "conflicts",
    "Recorder.adopt_into": "adopt",
    "ReadVersions.outdated": "outdated",
    "EditPolicy.check_room": "quota",
    "propose": "propose",
    "collect": "propose",
    "Batch.stage": "stage",
}
NO_HOOK = Hook("none", (Glob.parse("no such file"),), ("true",))
ASKS, LANDS = ReviewPolicy("ask"), ReviewPolicy("land")
NOT_OTHERS = Sender(refusal=PermissionDenied("Not the work of others."))


@contextmanager
def gates_entered() -> Iterator[set[Gate]]:
    """Note the gates whose functions are entered meanwhile."""
    entered: set[Gate] = set()

    def note(frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        gate = FUNCTIONS.get(code.co_qualname) if event == "call" else None
        if gate is not None and FLOORS.search(code.co_filename):
            entered.add(gate)

    sys.setprofile(note)
    try:
        yield entered
    finally:
        sys.setprofile(None)


@contextmanager
def guarded(harness: Harness) -> Iterator[Engine]:
    """An engine whose gates all have something to ask."""
    harness.baseline({"f": "1\n2\n3\n", "held": "text\n"})
    with opened(harness) as engine:
        engine.landing.guard = open_guard(str(harness.state), engine.clock)
        engine.landing.rules = EditPolicy(quota=1 << 40)
        engine.landing.hooks = (NO_HOOK,)
        engine.landing.review = LANDS
        held = b"text\nmore\n"
        engine.landing.documents.hold(
            HeldDocument(path_of("held"), 1, "editor", None, version_of(b"text\n"), held, version_of(held), 0)
        )
        yield engine


def in_turn(engine: Engine, requests: Sequence[Callable[[], object]]) -> set[Gate]:
    """Carry out requests when rules ask for a review, and when not. Return the gates that were entered."""
    entered: set[Gate] = set()
    for policy in (ASKS, LANDS):
        engine.landing.review = policy
        for request in requests:
            with gates_entered() as now:
                result = request()
            entered |= now
            assert isinstance(result, Outcome | Refused | list), result
    return entered


def of_edit(engine: Engine) -> set[Gate]:
    texts = iter("abcdef")
    return in_turn(engine, [lambda: answer(engine, apply(write("f", next(texts))))])


def of_collected_edit(engine: Engine) -> set[Gate]:
    edit = replace(apply(write("f", "new"), session="s"), is_collected=True)
    return in_turn(engine, [lambda: answer(engine, edit)])


def of_undo(engine: Engine) -> set[Gate]:
    done(engine, apply(write("f", "one"), session="s"))
    done(engine, apply(write("f", "two"), session="s"))
    done(engine, apply(write("g", "three"), session="s"))
    undo = Undo(Authorship("me", "s"), "session s", BySession("s"), kind="rollback", on_conflict="skip")
    proved = replace(undo, sender=NOT_OTHERS)
    return in_turn(engine, [lambda: answer(engine, proved), lambda: answer(engine, undo)])


def of_restore(engine: Engine) -> set[Gate]:
    first = done(engine, apply(write("f", "one"), session="s"))
    done(engine, apply(write("f", "two"), session="s"))
    restore = Restore(Authorship("me", "s"), "session s", int(first.seq))
    again = apply(write("f", "three"), session="s")
    proved = replace(restore, sender=NOT_OTHERS)
    entered = in_turn(engine, [lambda: answer(engine, proved), lambda: answer(engine, restore)])
    engine.landing.review = LANDS
    done(engine, again)
    return entered | in_turn(engine, [lambda: answer(engine, restore)])


def of_approval(engine: Engine) -> set[Gate]:
    engine.landing.review = ASKS
    propose(engine, write("f", "new\n"))
    token = view(engine).token
    text = ReviewedText(path_of("f"), b"of the reviewer\n", version_of(b"1\n2\n3\n"))
    return in_turn(engine, [lambda: answer(engine, land(token=token, texts=(text,)))])


def of_arrival(engine: Engine) -> set[Gate]:
    path = path_of("arrived")
    arrival = Arrive(
        Authorship("her"), "edit", {path: None}, {path: FileState(b"x")}, int(engine.history.head)
    )
    return in_turn(engine, [lambda: answer(engine, arrival)])


def of_outside_change(engine: Engine) -> set[Gate]:
    return in_turn(engine, [lambda: engine.recorder.record({path_of("f"): FileState(b"by another program")})])


SEQUENCES: dict[LandingKind, Callable[[Engine], set[Gate]]] = {
    "edit": of_edit,
    "collected edit": of_collected_edit,
    "undo": of_undo,
    "restore": of_restore,
    "approval": of_approval,
    "arrival": of_arrival,
    "outside change": of_outside_change,
}


def test_each_kind_has_a_row_and_each_gap_a_reason() -> None:
    assert GAPS.keys() == SEQUENCES.keys()
    for kind, gaps in GAPS.items():
        assert gaps.keys() <= set(GATES), kind
        assert all(reason.endswith(".") for reason in gaps.values()), kind


@pytest.mark.parametrize("kind", SEQUENCES)
def test_a_kind_passes_the_gates_of_its_row_and_no_other(tmp_path: Path, kind: LandingKind) -> None:
    with guarded(Harness(tmp_path)) as engine:
        assert SEQUENCES[kind](engine) == gates_of(kind)
