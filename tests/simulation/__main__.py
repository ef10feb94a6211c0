"""Random histories on fake disks, of one engine or of several hosts: kills, power cuts, faults, programs.

    python -m tests.simulation --seeds 1000                # seeds 1 to 1000
    python -m tests.simulation --hosts --seeds 1000        # the same of three hosts that exchange
    python -m tests.simulation --seed 17                   # one of them, with its story if it fails
    python -m tests.simulation --seed 17 --shrink          # and the few steps of it that fail

The exit status is 1 if a history fails.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "differential"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from shrinking import shrunk
from simulation import history, network
from simulation.world import worlds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from simulation.history import Failure


def main() -> int:
    """Play the histories that the command line names."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--hosts", action="store_true", help="play histories of several hosts")
    parser.add_argument("--seed", type=int, help="play this seed alone")
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds to play (default: 100)")
    parser.add_argument("--first", type=int, default=1, help="the first of them (default: 1)")
    parser.add_argument("--steps", type=int, help="steps of a history (default: as in the tests)")
    parser.add_argument("--only", help="numbers of the steps to take, with commas between")
    parser.add_argument(
        "--shrink", action="store_true", help="leave out the steps that a failure does not need"
    )
    parser.add_argument("--stop", action="store_true", help="end with the first failure")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    with Player.of_hosts() if given.hosts else Player.of_one_engine() as player:
        steps = given.steps or player.steps
        if given.seed is not None:
            only = [int(number) for number in given.only.split(",")] if given.only else [*range(steps)]
            return one(player, given.seed, only, is_shrunk=given.shrink)
        return several(player, range(given.first, given.first + given.seeds), steps, stops=given.stop)


@dataclass(frozen=True)
class Player:
    """The kind of histories that are played, and their scratch folder."""

    option: str
    steps: int
    steps_of: Callable[[int, int], list[str]]
    play: Callable[[int, Sequence[str], Sequence[int]], Failure | None]

    @classmethod
    @contextlib.contextmanager
    def of_one_engine(cls) -> Iterator[Player]:
        with worlds() as made:
            yield cls("", history.STEPS, history.steps_of, partial(history.play, made))

    @classmethod
    @contextlib.contextmanager
    def of_hosts(cls) -> Iterator[Player]:
        with network.networks() as made:
            yield cls("--hosts ", network.STEPS, network.steps_of, partial(network.play, made))


def one(player: Player, seed: int, only: list[int], *, is_shrunk: bool) -> int:
    """Play one seed; shrink it if it fails and that is wanted."""
    kinds = player.steps_of(seed, max(only, default=0) + 1)
    failure = player.play(seed, kinds, only)
    if failure is not None and is_shrunk:
        only = shrunk(only, lambda steps: player.play(seed, kinds, steps) is not None)
        failure = player.play(seed, kinds, only)
        print(f"the steps that fail: --only {','.join(map(str, only))}")
    if failure is not None:
        print(told(failure, player.option))
    return int(failure is not None)


def several(player: Player, seeds: Sequence[int], steps: int, *, stops: bool) -> int:
    """Play these seeds, and print each failure and the pace."""
    began, failed, count = time.process_time(), 0, 0
    for seed in seeds:
        count += 1
        failure = player.play(seed, player.steps_of(seed, steps), range(steps))
        if failure is not None:
            failed += 1
            print(told(failure, player.option), flush=True)
            if stops:
                break
    seconds = time.process_time() - began
    print(f"{count} histories, {failed} failed, {60 * count / seconds:.0f} a minute of processor time")
    return int(failed > 0)


def told(failure: Failure, option: str = "") -> str:
    """Return a failure as text, with the command that plays it again."""
    again = f"python -m tests.simulation {option}--seed {failure.seed} --shrink"
    return "\n".join([f"seed {failure.seed}, step {failure.at}: {failure.message}", *failure.story, again])


if __name__ == "__main__":
    raise SystemExit(main())
