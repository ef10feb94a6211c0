"""A crash while a history is repaired: SIGKILL at any call leaves one that is repaired, or can be."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from editd.store.journal import JournalPosition
from editd.store.pack_worker import Packer
from editd.store.repair import Repair
from editd.store.salvage import Salvage, open_history
from support import injection
from support.crash_checks import fsck
from support.damage import copy, prepare

if TYPE_CHECKING:
    from support.injection import Call
    from support.workplace import Workplace

LAST = 9  # the newest transaction of the prepared history
KILLS = 3  # of some 180 calls, in the short form

STEPS = """
import pathlib, sys
from editd.store.repair import Repair
root = pathlib.Path(sys.argv[2])
print("loaded", flush=True)
sys.stdin.readline()
Repair(sys.argv[1], lambda path: (root / path).read_bytes() if (root / path).is_file() else None).carry_out()
"""

pytestmark = pytest.mark.skipif(injection.missing() is not None, reason=f"{injection.missing()}")


def repair(place: Workplace, strikes: tuple[str, ...] = ()) -> tuple[int, list[Call]]:
    """Repair in a process of its own, struck so; the exit status, and the calls that were made."""
    return injection.carry_out(
        STEPS, str(place.state), str(place.root), environment=place.environment, strikes=strikes
    )


def spoil(place: Workplace) -> None:
    """An entry of a pack and its index, the newest record but one, head, and the mark."""
    packs = sorted((place.store / "objects/pack").glob("*.pack"))
    segment = max((place.state / "journal").glob("*.segment"))
    mark = place.state / "journal/acknowledged"
    for path, at in (
        (packs[0], 40),
        (packs[1].with_suffix(".idx"), 1030),
        (segment, segment.read_bytes().index(b"new2")),
        (mark, 30),
    ):
        content = bytearray(path.read_bytes())
        content[at] ^= 1
        path.write_bytes(content)
    (place.store / "refs/heads/history").write_text("nonsense")


@pytest.mark.timeout(3600)
def test_wherever_a_repair_is_killed_the_next_one_ends_it(
    tmp_path_factory: pytest.TempPathFactory, is_long: bool
) -> None:
    with copy(prepare(tmp_path_factory.mktemp("repair") / "made")) as place:
        spoil(place)
        files = place.files()
        base = place.folder / "base"
        shutil.copytree(place.state, base)
        assert Repair(str(place.state), files.get).lost == []
        status, calls = repair(place)
        assert status == 0
        tried = injection.changing(calls)
        if not is_long:
            tried = tried[len(tried) // KILLS // 2 :: len(tried) // KILLS]
        for call in tried:
            shutil.rmtree(place.state)
            shutil.copytree(base, place.state)
            status, _ = repair(place, (call.struck("signal=SIGKILL"),))
            assert status == -9, f"not struck: {call}"
            history = open_history(str(place.state))
            history.close()
            if isinstance(history, Salvage):
                again = Repair(str(place.state), files.get)
                assert again.lost == [], call
                again.carry_out()
            history = open_history(str(place.state))
            assert not isinstance(history, Salvage), (str(call), history.damage)
            assert int(history.head) == LAST, call
            end = history.journal.position
            history.close()
            Packer(str(place.state)).pack(JournalPosition(0, 0), end, LAST)  # so that git has all of it
            fsck(place)
        assert place.files() == files
        print(f"{len(tried)} kills")
