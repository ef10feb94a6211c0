"""A crash while the history is compacted: SIGKILL at any call leaves the old history or the new.

The steps are those of the daemon (`server.retention`): prepare, the floor, the index, sweep; here in one
process, so that every call of them can be struck in turn. Then the real daemon opens what is left.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

from support import injection
from support.workplace import write

if TYPE_CHECKING:
    from support.injection import Call
    from support.workplace import Workplace

TRANSACTIONS, FLOOR = 12, 8

STEPS = f"""
import sys
from editd.store.compaction import CompactionLimits, Compactor
from editd.store.history import History
folder = sys.argv[1]
print("loaded", flush=True)
sys.stdin.readline()
history = History.open(folder)
compactor = Compactor(folder)
plan = compactor.prepare(CompactionLimits({FLOOR}, {FLOOR}, None), is_dry=False)
history.compact(plan["commit"])
while history.forget_compacted(3):
    continue
compactor.sweep(plan["packs"])
history.reopen_packs()
history.close()
"""

pytestmark = pytest.mark.skipif(injection.missing() is not None, reason=f"{injection.missing()}")


def compact(place: Workplace, strikes: tuple[str, ...] = ()) -> tuple[int, list[Call]]:
    """Take the steps, struck so; returns the exit status and the calls that were made."""
    return injection.carry_out(STEPS, str(place.state), environment=place.environment, strikes=strikes)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_wherever_it_is_killed_there_is_the_old_history_or_the_new(place: Workplace, is_long: bool) -> None:
    place.write({"kept.txt": "as it was\n"})
    versions = [os.urandom(300).hex() + "\n" for _ in range(TRANSACTIONS)]
    with place.start() as client:
        for version in versions:
            client.apply([write("a.txt", version)])
    place.stop()
    base = place.folder / "base"
    shutil.copytree(place.state, base)

    status, calls = compact(place)
    assert status == 0
    tried = injection.changing(calls)
    rename = next(
        at for at, call in enumerate(tried) if "shallow.lock" in call.text and "rename" in call.name
    )
    if not is_long:  # one before the floor is written, one as it is, one after it
        tried = [tried[rename // 2], tried[rename], tried[-4]]
    floors = [_look(place, versions)]
    for call in tried:
        shutil.rmtree(place.state)
        shutil.copytree(base, place.state)
        status, _ = compact(place, (call.struck("signal=SIGKILL"),))
        assert status == -9, f"not struck: {call}"
        floors.append(_look(place, versions))
    assert set(floors) == {0, FLOOR}, "neither before nor after was met"
    print(f"{len(tried)} kills: {floors.count(0)} times the old history, {floors.count(FLOOR) - 1} the new")


def _look(place: Workplace, versions: list[str]) -> int:
    """Open what is left, and find it whole; returns where the history begins."""
    with place.start() as client:
        floor = client.status().history["oldest"]
        assert floor in (0, FLOOR)
        assert client.check().problems == []
        seqs = [transaction.seq for transaction in client.log().transactions]
        assert seqs == list(range(TRANSACTIONS, floor - 1 if floor else -1, -1))
        for seq in range(floor or 1, TRANSACTIONS + 1):
            assert client.read("a.txt", at=seq).content == versions[seq - 1]
        assert client.read("kept.txt", at=floor).content == "as it was\n"
        assert place.files() == {"a.txt": versions[-1].encode(), "kept.txt": b"as it was\n"}
        assert client.undo(TRANSACTIONS).transaction is not None
        client.gc()  # which frees what was left
        assert not any(".lock" in file.name for file in place.store.rglob("*"))
        assert not (place.state / "compacting").exists()
        assert client.check().problems == []
        client.redo()
    place.stop()
    place.git("fsck", "--full", "--strict", store=True)
    return int(floor)
