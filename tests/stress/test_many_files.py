"""What a transaction of many files costs grows with their number, not with its square.

A folder that is removed, a branch that is checked out or a tool that formats everything is one transaction of
thousands of files: while it is worked out, everybody waits.
"""

from __future__ import annotations

import os
import shutil
import time
from typing import TYPE_CHECKING

import pytest

from editd.wire.messages import Filter, Move, Replace
from editd_client.errors import EditdError
from support.workplace import workplace, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from editd_client.client import Client
    from support.workplace import Workplace

FEW, TIMES = 1_000, 10
GROWTH_MAX = 6 * TIMES  # in time, for `TIMES` as many files; their square would be TIMES * TIMES. ext4 makes
# files more slowly where many were just removed
FLOOR_SECONDS = 0.05  # less is not measured: a sync, a notice that is waited for


@pytest.mark.long
def test_ten_times_as_many_files_take_ten_times_as_long(tmp_path: Path) -> None:
    fast, slow = (measured(tmp_path / str(count), count) for count in (FEW, TIMES * FEW))
    for name, seconds in slow.items():
        print(f"{name:40} {fast[name]:8.3f} s at {FEW} files, {seconds:8.3f} s at {TIMES * FEW}")
    grown = {name: slow[name] / max(fast[name], FLOOR_SECONDS) for name in slow}
    assert max(grown.values()) < GROWTH_MAX, grown


def measured(folder: Path, count: int) -> dict[str, float]:
    """The seconds that each of `STEPS` takes, one after the other in one workspace of so many files."""
    with workplace(folder) as place, place.start() as client:
        seconds: dict[str, float] = {}
        for name, step in STEPS.items():
            began = time.perf_counter()
            step(place, client, count)
            seconds[name] = time.perf_counter() - began
        assert client.check().problems == []
        place.stop()
    return seconds


def path_of(number: int, top: str = "here") -> str:
    return f"{top}/{number // 100}/{number}"


def create(_place: Workplace, client: Client, count: int) -> None:
    client.apply([write(path_of(number), f"{number}\none\n") for number in range(count)], session="s")


def change(_place: Workplace, client: Client, count: int) -> None:
    client.apply([Replace(path=path_of(number), old="one", new="two") for number in range(count)])


def move(_place: Workplace, client: Client, count: int) -> None:
    client.apply([Move(path=path_of(number), to=path_of(number, "there")) for number in range(count)])


def undo_move(_place: Workplace, client: Client, _count: int) -> None:
    client.undo(3)


def undo_some(_place: Workplace, client: Client, count: int) -> None:
    client.undo(2, paths=[path_of(number) for number in range(0, count, 2)])


def try_undo(_place: Workplace, client: Client, count: int) -> None:
    found = client.undo(filter=Filter(session="s"), dry_run=True).conflicts
    assert isinstance(found, list)
    assert len(found) == count / 2


def fail_to_undo(_place: Workplace, client: Client, _count: int) -> None:
    with pytest.raises(EditdError, match="overlap") as refused:
        client.undo(1)
    assert refused.value.name == "conflict"


def restore(_place: Workplace, client: Client, count: int) -> None:
    client.restore(1, paths=[path_of(number) for number in range(count)])


def show(_place: Workplace, client: Client, _count: int) -> None:
    client.show(2)
    client.log()
    client.diff(paths=["here"])


def save_outside(place: Workplace, client: Client, _count: int) -> None:
    for above, _, names in os.walk(place.root / "here"):
        for name in names:
            with open(os.path.join(above, name), "a") as file:
                file.write("more\n")
    client.settle()


def remove_outside(place: Workplace, client: Client, count: int) -> None:
    shutil.rmtree(place.root / "here")
    client.settle()
    newest = client.show(client.status().head, diff=False).transaction
    assert (newest.kind, len(newest.files)) == ("outside", count)


def undo_newest(_place: Workplace, client: Client, _count: int) -> None:
    client.undo(client.status().head)


STEPS: dict[str, Callable[[Workplace, Client, int], None]] = {
    "create": create,
    "change": change,
    "move": move,
    "undo the move": undo_move,
    "undo half of the change": undo_some,
    "look what is in the way of an undo": try_undo,
    "be refused for it": fail_to_undo,
    "restore": restore,
    "show": show,
    "others save all": save_outside,
    "others remove all": remove_outside,
    "undo that": undo_newest,
}
