"""SIGKILL at any moment: each transaction is whole or not there, and there where it was acknowledged."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from support.authors import WRITERS, Writer, load, verify
from support.crash_checks import fsck, strays

if TYPE_CHECKING:
    from support.workplace import Workplace

pytestmark = pytest.mark.disk  # reuses the numbers of files at once

KILLS, KILLS_PORTABLE, KILLS_LONG = 4, 1, 200
LOAD_SECONDS_MAX = 0.25  # under load, before the kill
START_SECONDS_MAX = 0.3  # of a start that is itself killed


def start_and_kill(place: Workplace, seconds: float) -> None:
    """A daemon that is killed while it starts, perhaps while it recovers."""
    argv = [sys.executable, "-m", "editd", "--foreground", "-C", str(place.root)]
    place.process = subprocess.Popen(argv, env=place.environment, stderr=subprocess.DEVNULL)
    time.sleep(seconds)
    place.kill()


@pytest.mark.timeout(3600)
def test_200_kills_under_load_leave_every_transaction_whole_or_not_there(
    place: Workplace, is_long: bool
) -> None:
    place.is_forked = not is_long
    check_kills(place, KILLS_LONG if is_long else KILLS, is_long=is_long)


@pytest.mark.timeout(3600)
def test_kills_on_the_portable_system_leave_every_transaction_whole_or_not_there(
    place: Workplace, is_long: bool
) -> None:
    place.make_portable()
    check_kills(place, KILLS_LONG if is_long else KILLS_PORTABLE, is_long=is_long)


def check_kills(place: Workplace, kills: int, *, is_long: bool) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    writers = [Writer(f"w{number}", random.Random(chance.random())) for number in range(WRITERS)]
    for kill in range(kills):
        if chance.random() < 0.3:
            start_and_kill(place, chance.uniform(0, START_SECONDS_MAX))
        with place.start() as client:
            client.settle()
            assert strays(place.root) == []
            verify(place, client, writers)
            if not is_long or kill % 10 == 0:
                assert client.check().problems == []
        load(place, writers, chance.uniform(0, LOAD_SECONDS_MAX), place.kill)
    with place.start() as client:
        verify(place, client, writers)
        for writer in writers:
            if writer.unsure is not None:
                writer.ask(client, *writer.unsure)
        client.settle()
        verify(place, client, writers)
        assert client.check().problems == []
        made = client.status().head
    place.stop()
    fsck(place)
    assert strays(place.root) == []
    assert made > kills, "there must have been a load"
    assert int(place.git("rev-list", "--count", "history", store=True)) == made + 1
