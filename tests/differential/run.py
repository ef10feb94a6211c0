"""Random runs of a real daemon against a model of it: edits, sessions, shells, git, undo, kills.

    python tests/differential/run.py --seeds 100 --steps 500
    python tests/differential/run.py --seed 17 --steps 500             # one run again, with its story
    python tests/differential/run.py --seed 17 --steps 500 --shrink    # and the few steps of it that fail

A run is a list of steps that its seed gives. `--only` takes the numbers of some of them and leaves out the
others, which is what `--shrink` prints. The exit status is 1 if a run fails, and 2 if nothing fails that was
to be shrunk.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from drawing import Drawing
from editd_client.errors import EditdError, Unreachable
from shrinking import shrunk
from steps import WEIGHTS, Steps
from support.workplace import workplace
from world import Disagreement, World

if TYPE_CHECKING:
    from collections.abc import Sequence

    Attempt = partial["Failure | None"]

RUN = "python tests/differential/run.py"
STORY_LINES = 40
LOG_CHARACTERS = 3000
TRIES = 1  # of a run while it is shrunk; what others did is seen a little later at times


@dataclass(frozen=True)
class Failure:
    """How a run ended that did not go well."""

    at: int | None  # the number of its last step; None once all are done
    what: str  # alike for failures of one kind
    message: str
    story: Sequence[str]


def steps_of(seed: int, count: int) -> list[str]:
    """The kinds of steps of a run: a longer run of the same seed begins with the same ones."""
    chance = Random(seed)
    return [chance.choices([*WEIGHTS], [*WEIGHTS.values()])[0] for _ in range(count)]


def run(seed: int, kinds: Sequence[str], only: Sequence[int], *, is_strict: bool = True) -> Failure | None:
    """One run in a scratch folder of its own: the steps of these numbers."""
    start = Drawing(Random(f"{seed} files"))
    with (
        # The last child of a killed daemon may still write: its end is not waited for.
        tempfile.TemporaryDirectory(prefix="editd-differential-", ignore_cleanup_errors=True) as folder,
        workplace(Path(folder) / "place") as place,
    ):
        world = World(place, is_strict=is_strict)
        at: int | None = -1
        try:
            world.begin({path: start.lines() for path in ("a", "b", "d/a", "d/f")})
            steps = Steps(world, start, start.chance)
            for at in only:
                world.note(f"── {at} {kinds[at]}")
                steps.take(kinds[at], Random(f"{seed} {at}"))
            at = None
            world.note("── end")
            world.end()
        except (Disagreement, EditdError, Unreachable, AssertionError) as error:
            frames = traceback.extract_tb(error.__traceback__)
            ours = [frame.name for frame in frames if Path(frame.filename).parent == Path(__file__).parent]
            shown = "".join(traceback.format_exception(error)) if not isinstance(error, Disagreement) else ""
            shown += f"The end of the daemon's log:\n{place.log()[-LOG_CHARACTERS:]}"
            what = f"{type(error).__name__} {getattr(error, 'name', '')} in {ours[-1]}"
            return Failure(at, what, f"{error}\n{shown}", list(world.story))
    return None


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, help="run this seed alone, and tell its story if it fails")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds to run (default: 1)")
    parser.add_argument("--first", type=int, default=1, help="the first of several seeds (default: 1)")
    parser.add_argument("--steps", type=int, default=500, help="steps in a run (default: 500)")
    parser.add_argument("--seconds", type=float, help="go on to further seeds for so long")
    parser.add_argument("--only", help="numbers of the steps to take, with commas between")
    parser.add_argument("--shrink", action="store_true", help="leave out what the failure does not need")
    parser.add_argument("--list", action="store_true", help="print the steps of a seed, and run none")
    parser.add_argument("--story", action="store_true", help="tell the whole story of a run that fails")
    parser.add_argument(
        "--strict",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="check that what a conflict says to undo first makes the undo clean (default: --strict)",
    )

    given = parser.parse_args()
    attempt = partial(run, is_strict=given.strict)
    if given.seed is not None:
        only = [int(number) for number in given.only.split(",")] if given.only else range(given.steps)
        kinds = steps_of(given.seed, max(only, default=0) + 1)
        if given.list:
            print("\n".join(f"{number} {kinds[number]}" for number in only))
            return 0
        return (shrink if given.shrink else one)(attempt, given.seed, kinds, list(only))
    return several(attempt, given.first, given.seeds, given.steps, given.seconds, is_whole=given.story)


def one(attempt: Attempt, seed: int, kinds: Sequence[str], only: Sequence[int]) -> int:
    failure = attempt(seed, kinds, only)
    if failure is None:
        print(f"seed {seed}: {len(only)} steps, no failure")
        return 0
    tell(failure, is_whole=True)
    return 1


def several(
    attempt: Attempt, first: int, count: int, steps: int, seconds: float | None, *, is_whole: bool
) -> int:
    began, failed, done = time.monotonic(), list[int](), 0
    seed = first
    while seed < first + count if seconds is None else time.monotonic() - began < seconds:
        failure = attempt(seed, steps_of(seed, steps), range(steps))
        done += steps
        if failure is not None:
            failed.append(seed)
            tell(failure, is_whole=is_whole)
            again = (
                f"{RUN} --seed {seed} --steps {steps} --shrink{'' if is_strict(attempt) else ' --no-strict'}"
            )
            print(f"seed {seed} fails at step {failure.at}: {failure.what}\nshrink it: {again}", flush=True)
        else:
            print(f"seed {seed}: {steps} steps, {time.monotonic() - began:.0f} s", flush=True)
        seed += 1
    print(f"{seed - first} seeds, {done} steps, {len(failed)} failed {failed or ''}")
    return 1 if failed else 0


def shrink(attempt: Attempt, seed: int, kinds: Sequence[str], only: list[int]) -> int:
    first = attempt(seed, kinds, only)
    if first is None:
        print(f"seed {seed}: no failure")
        return 2
    print(f"fails at step {first.at}: {first.what}", flush=True)

    def fails(numbers: Sequence[int]) -> bool:
        for _ in range(TRIES):
            failure = attempt(seed, kinds, numbers)
            if failure is not None and failure.what == first.what:
                print(f"{len(numbers)} steps fail", flush=True)
                return True
        return False

    few = shrunk([number for number in only if first.at is None or number <= first.at], fails)
    failure = attempt(seed, kinds, few) or first
    tell(failure, is_whole=True)
    numbers = ",".join(map(str, few)) + ("" if is_strict(attempt) else " --no-strict")
    print(f"{len(few)} steps: {RUN} --seed {seed} --only {numbers}")
    return 1


def is_strict(attempt: Attempt) -> bool:
    return bool(attempt.keywords["is_strict"])


def tell(failure: Failure, *, is_whole: bool) -> None:
    print("\n".join(failure.story if is_whole else failure.story[-STORY_LINES:]))
    print(f"step {failure.at}: {failure.what}\n{failure.message}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
