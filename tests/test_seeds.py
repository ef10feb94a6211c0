"""What the random tests of a commit play: over time, all that the long form has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support import seeds

if TYPE_CHECKING:
    import pytest


def test_each_number_and_each_parameter_is_drawn_by_some_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers, values, shares = set[int](), set[object](), set[str]()
    for seed in range(10):
        monkeypatch.setattr(seeds, "seed", lambda seed=seed: seed)
        drawn = seeds.drawn(5, 2)
        assert len(drawn) == 2
        numbers |= set(drawn)
        shares |= set(seeds.share("abcdefg", 3))
        values |= {one.values[0] for one in seeds.one_of("abc") if not one.marks}
    assert (numbers, values, shares) == (set(range(5)), set("abc"), set("abcdefg"))


def test_all_are_drawn_if_as_many_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeds, "seed", lambda: 17)
    assert seeds.drawn(3, 3) == range(3)
