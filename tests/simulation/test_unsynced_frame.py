"""A kill between the write of a frame and its sync: the next start makes the frame durable before it counts.

One call writes and syncs on a Linux of today. A journal with `durability = "relaxed"`, and a kernel without
RWF_DSYNC, have the two apart.
"""

from __future__ import annotations

import pytest

from editd.values.transaction import Outcome
from simulation.calls import Killed
from simulation.world import KILL, worlds
from support.harness import answer, apply, done, write

CUTS = 20  # power cuts, each of which may keep the unsynced frame, tear it or lose it


def test_what_was_answered_from_a_frame_without_a_sync_outlives_a_power_cut() -> None:
    with worlds() as made:
        for seed in range(CUTS):
            with made.world(seed) as here:
                here.start()
                assert here.engine is not None
                done(
                    here.engine, apply(write("old.txt", "text\n"))
                )  # the mark names this segment from now on
                request = apply(write("new.txt", "text\n"), request_id="one")
                here.later_at("dsync", 1, KILL, here.die)
                with pytest.raises(Killed):
                    answer(here.engine, request)
                here.bury()
                here.start()
                assert isinstance(answer(here.engine, request), Outcome)
                with pytest.raises(Killed):
                    here.cut()
                here.bury()
                here.start()
                assert here.engine.history.head == 2, f"seed {seed}: the answered transaction is gone"
                assert here.files()["new.txt"] == b"text\n"
