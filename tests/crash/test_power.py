"""Power cuts: all that was acknowledged is in history and files afterwards, no file torn (C1, C3, C5)."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

import pytest

import machine as machines
from authors import WRITERS, Writer, load, verify
from machine import Machine, machine
from torment import fsck, strays

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CUTS, CUTS_LONG = 3, 200
LOAD_SECONDS_MAX = 0.6  # under load, before the cut
REST_SECONDS_MAX = 1.5  # without load, while it is packed (0.15 s), synced (1 s), and segments come back
START_SECONDS_MAX = 0.6  # of a start that is itself cut off
PADDING_BYTES_MAX = 100_000  # a second of load fills more than a segment


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Machine]:
    reason = machines.missing()
    if reason is not None:
        pytest.skip(reason)
    with machine(tmp_path / "place") as made:
        yield made


@pytest.mark.timeout(3600)
def test_after_200_power_cuts_all_that_was_acknowledged_is_there_and_no_file_is_torn(
    disk: Machine, is_long: bool
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    writers = [
        Writer(f"w{number}", random.Random(chance.random()), padding_bytes_max=PADDING_BYTES_MAX)
        for number in range(WRITERS)
    ]
    place = disk.place
    wanted = CUTS_LONG if is_long else CUTS
    while disk.cuts < wanted:
        with disk.start() as client:
            client.settle()
            assert strays(place.root) == [], place.log()
            verify(place, client, writers)
            if disk.cuts % 10 == 0:
                assert client.check().problems == []

        def cut() -> None:
            time.sleep(chance.uniform(0, REST_SECONDS_MAX) if chance.random() < 0.5 else 0)
            disk.cut()

        load(place, writers, chance.uniform(0, LOAD_SECONDS_MAX), cut)
        if chance.random() < 0.3:
            disk.start_and_cut(chance.uniform(0, START_SECONDS_MAX))
    with disk.start() as client:
        client.settle()
        verify(place, client, writers)
        assert client.check().problems == []
    disk.end()
    fsck(place)
    assert strays(place.root) == []
