"""The way of an edit and of an undo through the daemon: few functions, of few modules."""

from __future__ import annotations

import pytest

from bench.calls import count, modules_of


@pytest.mark.parametrize(("is_undo", "calls_max", "modules_max"), [(False, 255, 40), (True, 290, 44)])
def test_the_commonest_requests_stay_short(is_undo: bool, calls_max: int, modules_max: int) -> None:
    counts = count(is_undo=is_undo, goes_on=False)
    assert sum(counts.values()) <= calls_max, counts
    assert len(modules_of(counts)) <= modules_max, sorted(modules_of(counts))
