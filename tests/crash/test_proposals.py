"""A crash at every step of a proposal: SIGKILL at each call of proposing, approving and rejecting.

Afterwards it is undecided or decided, and never half: what has landed is in the files, in the history and in
the verdicts, once, and anything else is in none of them. CI tries a sample of the calls.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from editd.values.transaction import Outcome
from support import injection
from support.harness import Harness, answer, done
from support.reviews import (
    BASE,
    FIRST,
    PROPOSED,
    ids,
    land,
    land_with_id,
    opened,
    proposals,
    propose,
    states,
    view,
)
from support.seeds import seed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from editd.engine.engine import Engine

SAMPLE = 2  # of the calls of each step, in CI, by the seed
STEPS = """
import sys
from pathlib import Path
from support.harness import Harness
from support.harness import answer
from support.reviews import ANN, FIRST, ids, land_with_id, opened, proposals, propose
with opened(Harness(Path(sys.argv[1]))) as engine:
    step = sys.argv[2]
    first = None if step == "propose" else ids(engine)[0]
    print("loaded", flush=True)
    sys.stdin.readline()
    if step == "propose":
        propose(engine)
    elif step == "approve":
        answer(engine, land_with_id(first))
    else:
        proposals(engine).reject(FIRST, ANN, frozenset({first}))
    print("done", flush=True)
"""
DECIDED = {"propose": [], "approve": ["landed"], "reject": ["rejected"]}

pytestmark = pytest.mark.skipif(injection.missing() is not None, reason=f"{injection.missing()}")


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("step", ["propose", "approve", "reject"])
def test_a_proposal_is_undecided_or_decided_wherever_the_engine_is_killed(
    tmp_path: Path, step: str, is_long: bool
) -> None:
    status, calls = carried_out(tmp_path / "whole", step)
    assert status == 0
    struck = injection.changing(calls)
    every = max(1, len(struck) // SAMPLE)
    tried = struck if is_long else struck[seed() % every :: every]
    assert tried
    outcomes = set()
    for number, call in enumerate(tried):
        folder = tmp_path / str(number)
        status, _ = carried_out(folder, step, [call.struck("signal=SIGKILL")])
        assert status == -signal.SIGKILL, call
        with opened(Harness(folder)) as engine:
            outcomes.add(verify(Harness(folder), engine, step))
    print(f"{step}: {len(tried)} kills, at {len(struck)} calls: {sorted(outcomes)}")


def carried_out(folder: Path, step: str, strikes: Sequence[str] = ()) -> tuple[int, list[injection.Call]]:
    harness = Harness(folder)
    harness.baseline({"f": BASE})
    if step != "propose":
        with opened(harness) as engine:
            propose(engine)
    paths = os.pathsep.join([str(Path(__file__).resolve().parent.parent), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": paths}
    return injection.carry_out(STEPS, str(folder), step, environment=environment, strikes=strikes)


def verify(harness: Harness, engine: Engine, step: str) -> str:
    """Verify that the step happened whole or not at all, and that the rest can be decided. Return which."""
    made = proposals(engine)
    if FIRST not in made.store.open:
        assert step == "propose"
        assert harness.files()["f"] == BASE
        propose(engine)
        assert made.store.open[FIRST].state == "open"
        return "nothing"
    first = states(engine)[0]
    is_landed = first == "landed"
    assert states(engine)[1:] == ["fits", "fits"]
    assert first in ("fits", *DECIDED[step])
    assert harness.files()["f"] == (PROPOSED[0] + BASE[1:] if is_landed else BASE)
    assert made.get(FIRST).landed == ((1,) if is_landed else ())
    assert engine.history.head == (1 if is_landed else 0)
    if is_landed:
        again = answer(engine, land_with_id(ids(engine)[0]))
        assert isinstance(again, Outcome)
        assert again.transaction == engine.history.find(1)
        assert proposals(engine).store.decisions(FIRST)[0].comment == "fine"
    is_rejected = first == "rejected"
    done(engine, land(token=view(engine).token))
    assert harness.files()["f"] == (BASE[0] + PROPOSED[1:] if is_rejected else PROPOSED)
    return first
