"""engine.arrivals: what another host has landed is recorded in order, and only on the files of its plan."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from editd.engine.arrivals import arrival_of
from editd.engine.commands import ArrivalChain
from editd.errors import IoError, Stale
from editd.values.content import version_of
from editd.values.transaction import Outcome
from support.harness import Harness, apply, write
from support.racing_disk import MeddlingDisk, failing

if TYPE_CHECKING:
    from pathlib import Path

    from editd.engine.commands import Arrive

FILES = {"a": "a\n", "b": "b\n", "c": "c\n"}


@pytest.fixture
def place(tmp_path: Path) -> Harness:
    made = Harness(tmp_path / "place")
    made.baseline(FILES)
    return made


def arrival(path: str, before: str, after: str, chain: ArrivalChain, number: int = 1) -> Arrive:
    change = [path, (0o100644, version_of(before.encode())), (0o100644, None), after.encode(), None]
    step = {
        "actor": "ann", "session": None, "message": "", "attribution": None, "number": number,
        "host": "other", "origin": f"{number:040x}", "time_us": 1, "kind": "edit", "undoes": [], "parts": [],
        "changes": [change],
    }  # fmt: skip
    return arrival_of(step, 0, chain)


def test_arrivals_of_one_plan_share_a_commit(place: Harness) -> None:
    chain = ArrivalChain()
    with place.engine() as engine:
        results = engine.run_batch(
            [
                arrival("a", "a\n", "1\n", chain),
                arrival("a", "1\n", "2\n", chain),
                apply(write("b", "edit\n")),
            ]
        )
        assert [getattr(one, "transaction", None) is not None for one in results] == [True] * 3
        assert place.files() == {"a": "2\n", "b": "edit\n", "c": "c\n"}


def test_behind_an_arrival_that_is_stale_no_later_one_of_its_plan_is_recorded(place: Harness) -> None:
    chain = ArrivalChain()
    with place.engine() as engine:
        first, stale, later = engine.run_batch(
            [
                arrival("a", "a\n", "1\n", chain),
                arrival("b", "x\n", "2\n", chain),
                arrival("c", "c\n", "3\n", chain),
            ]
        )
        assert isinstance(first, Outcome)
        assert (type(stale), type(later)) == (Stale, Stale)
        (next_turn,) = engine.run_batch([arrival("c", "c\n", "3\n", chain)])
        assert isinstance(next_turn, Stale)
        assert place.files() == {**FILES, "a": "1\n"}
        (planned_again,) = engine.run_batch([arrival("c", "c\n", "3\n", ArrivalChain())])
        assert isinstance(planned_again, Outcome)


@pytest.mark.needs("exchange")
def test_behind_an_arrival_that_cannot_be_written_no_later_one_is_recorded(place: Harness) -> None:
    def second_fails(root: str) -> MeddlingDisk:
        disk = MeddlingDisk(root)
        disk.meddle["exchange", 2] = failing(errno.EIO)
        return disk

    chain = ArrivalChain()
    with place.engine(make_disk=second_fails) as engine:
        first, failed, later = engine.run_batch(
            [
                arrival("a", "a\n", "1\n", chain),
                arrival("b", "b\n", "2\n", chain),
                arrival("c", "c\n", "3\n", chain),
            ]
        )
        assert isinstance(first, Outcome)
        assert (type(failed), type(later)) == (IoError, Stale)
        assert place.files() == {**FILES, "a": "1\n"}


def test_an_arrival_is_stale_if_edits_of_its_turn_have_brought_its_file_back(place: Harness) -> None:
    with place.engine() as engine:
        *_, result = engine.run_batch(
            [
                apply(write("a", "edit\n")),
                apply(write("a", "a\n")),
                arrival("a", "a\n", "1\n", ArrivalChain()),
            ]
        )
        assert isinstance(result, Stale), "it would come before the edits in the order of the log"
        assert place.files() == FILES
