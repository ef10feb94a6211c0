"""Random histories on the fake disk: after each kill, power cut and fault the rules of `rules` hold."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from shrinking import shrunk
from simulation.__main__ import told
from simulation.history import STEPS, History, play, steps_of
from simulation.world import SCRATCH, World, worlds
from support.seeds import drawn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from simulation.world import Worlds

HISTORIES, HISTORIES_LONG = 50, 10_000
FIRST = 1  # of the long form; the short form plays some of these


@pytest.fixture
def made() -> Iterator[Worlds]:
    logging.disable(logging.CRITICAL)  # each fault is logged
    try:
        with worlds() as one:
            yield one
    finally:
        logging.disable(logging.NOTSET)


@pytest.mark.timeout(3600)
def test_each_history_keeps_what_was_acknowledged_once_and_whole(made: Worlds, is_long: bool) -> None:
    seeds = range(FIRST, FIRST + HISTORIES_LONG) if is_long else drawn(HISTORIES_LONG, HISTORIES)
    print(f"seeds {seeds[0]} to {seeds[-1]}")
    for seed in seeds:
        failure = play(made, seed, steps_of(seed), range(STEPS))
        assert failure is None, told(failure)


def test_a_seed_gives_the_same_history_each_time(
    made: Worlds, monkeypatch: pytest.MonkeyPatch, collecting: Callable[[], object]
) -> None:
    stories: list[object] = []

    def keep(self: History) -> None:
        stories.append((list(self.story), self.world.count, self.world.files()))
        collecting()

    monkeypatch.setattr(History, "end", keep)
    for _ in range(2):
        for seed in range(FIRST, FIRST + 10):
            play(made, seed, steps_of(seed), range(STEPS))
    assert len(stories) == 20
    assert stories[:10] == stories[10:]


def test_a_failing_history_is_shrunk_to_the_steps_that_fail(
    made: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(World, "cut", World.die)  # no power cut in this test, and:
    monkeypatch.setattr(History, "_rest", lambda _self, _chance: pytest.fail("a mistake"))
    monkeypatch.setattr(History, "end", lambda _self: None)
    seed = next(seed for seed in range(100) if "rest" in steps_of(seed)[3:])
    kinds = steps_of(seed)

    def fails(steps: list[int]) -> bool:
        try:
            return play(made, seed, kinds, steps) is not None
        except pytest.fail.Exception:
            return True

    (at,) = shrunk(range(STEPS), fails)
    assert kinds[at] == "rest"


def test_nothing_is_left_of_a_world() -> None:
    with worlds() as one:
        folder = Path(one.folder)
        assert play(one, FIRST, steps_of(FIRST), range(STEPS)) is None
        assert SCRATCH is None or folder.is_relative_to(SCRATCH)
    assert not folder.parent.exists()
