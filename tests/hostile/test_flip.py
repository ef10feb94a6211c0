"""The symlink race through the real daemon: a folder that somebody flips to a symlink and back, all the time.

While a program lets `sub` and a symlink to a folder outside change places, every method and every tool is
asked about what is in `sub`. Nothing outside is created, changed, removed or read, whichever way folders are
opened: by openat2(2), or name by name where that is forbidden.
"""

from __future__ import annotations

import random
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support import without
from support.crash_checks import strays
from support.every_method import FOUND, METHODS
from support.outside import Outside, asked, history_tells, tells
from support.outsider import flipping
from support.workplace import write

if TYPE_CHECKING:
    from collections.abc import Callable

    from editd_client.client import Client
    from support.workplace import Workplace

ROUNDS, ROUNDS_LONG = 100, 20_000
INSIDE = ("sub/f", "sub/x", "sub/config", "sub/sub/f", "sub/g", "sub/new/f")  # some of them are outside, too
MAY_BE_SAID = {
    "path_outside", "file_missing", "file_exists", "not_a_file", "no_match", "no_change", "stale", "conflict",
    "io_error", "nothing_to_undo", "base_required", "unread", "malformed_edit", "permission_denied",
    "invalid_params",
}  # fmt: skip
BACK: dict[str, Callable[[Client, str, str], object]] = {
    "undo": lambda client, _, path: client.undo(),
    "undo last": lambda client, _, path: client.undo(last=3, on_conflict="force"),
    "redo": lambda client, _, path: client.redo(),
    "restore": lambda client, _, path: client.restore(1, paths=[path]),
    "settle": lambda client, _, path: client.settle(),
}


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("way", ["openat2", "walk", pytest.param("portable", marks=pytest.mark.long)])
def test_nothing_outside_is_touched_while_a_folder_is_flipped_to_a_symlink(
    place: Workplace, way: str, is_long: bool
) -> None:
    rounds = ROUNDS_LONG if is_long else ROUNDS
    place.write({"sub/f": FOUND, "sub/sub/f": FOUND, "sub/stays": "", "plain": FOUND})
    outside = Outside(place.folder / "outside")
    link = place.folder / "link"
    link.symlink_to(outside.folder)
    if way == "walk":
        place.launcher = without.launcher("openat2")
    if way == "portable":
        place.make_portable()
    chance = random.Random(rounds)
    said: Counter[str] = Counter()
    methods = [*METHODS.items(), *BACK.items()]
    with place.start() as client:
        client.apply([write("sub/f", FOUND), write("plain", FOUND)])
        assert place.process is not None
        mode = Path(f"/proc/{place.process.pid}/status").read_text().partition("\nSeccomp:\t")[2][:1]
        assert mode == ("2" if way == "walk" else "0"), "not the way that is meant"
        with flipping(place.root / "sub", link):
            for number in range(rounds):
                name, method = methods[number % len(methods)]
                path = chance.choice(INSIDE)
                if number % 3 == 0:
                    asked(lambda: client.apply([write("plain", FOUND), write("sub/f", f"{FOUND}\n")]))
                refusal, told = asked(partial(method, client, str(place.root), path))
                assert refusal is None or refusal in MAY_BE_SAID, (name, path, told)
                assert not tells(told), (name, path)
                said[refusal or "done"] += 1
                outside.check()
        client.settle()
        assert client.status().state == "ready", place.log()
    place.stop()
    with place.start() as client:
        assert client.check().problems == []
        assert strays(place.root) == []
    place.stop()
    outside.check()
    assert not history_tells(place)
    print(f"{way}: {rounds} rounds, {dict(said)}")
    assert said["done"] > rounds / 20
    assert said["path_outside"] > rounds / 20
