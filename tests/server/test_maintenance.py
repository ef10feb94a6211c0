"""server.maintenance: what the background does while edits leave it no pause."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest

from editd.errors import Broken
from editd.server.engine_queue import EngineQueue
from editd.server.maintenance import PACK_QUIET_SECONDS, SYNC_SECONDS_MAX, Maintenance
from editd.store.history import PRESSING_TRANSACTIONS
from editd.workspace.replaced_files import BATCH, KEPT_SECONDS
from support.harness import FakeClock, Harness, apply, done, refused, write

if TYPE_CHECKING:
    from pathlib import Path


class StandingClock(FakeClock):
    """A clock by which the last edit is never over."""

    def monotonic(self) -> float:
        return 0.0


def test_files_are_synced_though_edits_come_without_a_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Harness(tmp_path / "place", StandingClock())
    place.baseline()

    async def check() -> None:
        loop = asyncio.get_running_loop()
        with place.engine() as engine:
            queue = EngineQueue(engine, cast("Any", None), cast("Any", None), cast("Any", None))
            maintenance = Maintenance(engine, queue, str(place.state))
            done(engine, apply(write("a", "1\n")))
            now = loop.time
            monkeypatch.setattr(loop, "time", lambda: now() + SYNC_SECONDS_MAX + 1)
            maintenance.start()
            async with asyncio.timeout(10):
                while engine.recorder.synced < 1:  # noqa: ASYNC110  # a sync is announced to nobody
                    await asyncio.sleep(0.01)
            await maintenance.finish()

    asyncio.run(check())


def spoil(place: Harness) -> None:
    """Change a content in the journal, as a disk may."""
    for segment in (place.state / "journal").glob("*.segment"):
        segment.write_bytes(segment.read_bytes().replace(b"one\n", b"odd\n"))


def test_a_journal_that_is_damaged_when_it_is_packed_takes_no_more_edits(tmp_path: Path) -> None:
    place = Harness(tmp_path / "place")
    place.baseline()

    async def check() -> None:
        with place.engine() as engine:
            queue = EngineQueue(engine, cast("Any", None), cast("Any", None), cast("Any", None))
            maintenance = Maintenance(engine, queue, str(place.state))
            done(engine, apply(write("a", "one\n")))
            spoil(place)
            with pytest.raises(Broken, match="Packing failed"):
                await maintenance.pack()
            assert "Packing failed" in refused(engine, apply(write("a", "two\n"))).message
            await maintenance.finish()

    asyncio.run(check())
    assert place.files() == {"a": "one\n"}


def test_in_a_pause_all_files_of_the_next_edits_are_prepared_in_one_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("editd.workspace.replaced_files.AHEAD", 3 * BATCH)
    place = Harness(tmp_path / "place", FakeClock())
    place.baseline()

    async def check() -> None:
        with place.engine() as engine:
            queue = EngineQueue(engine, cast("Any", None), cast("Any", None), cast("Any", None))
            maintenance = Maintenance(engine, queue, str(place.state))
            assert engine.files.make_ahead() is not None
            await maintenance._look()
            assert engine.files.make_ahead() is None

    asyncio.run(check())


class LaterClock(FakeClock):
    """A clock that a test puts forward."""

    later = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.later


def test_a_few_transactions_wait_for_a_long_pause_and_many_for_a_short_one(tmp_path: Path) -> None:
    clock = LaterClock()
    place = Harness(tmp_path / "place", clock)
    place.baseline()

    async def check() -> None:
        with place.engine() as engine:
            queue = EngineQueue(engine, cast("Any", None), cast("Any", None), cast("Any", None))
            maintenance = Maintenance(engine, queue, str(place.state))
            done(engine, apply(write("a", "0\n")))
            clock.later = 1.0
            await maintenance._tick()  # it syncs, and makes a segment
            assert engine.history.packed == 0
            due = maintenance._tick_due()
            assert due is not None
            assert 0 < due <= PACK_QUIET_SECONDS - 1.0
            for number in range(1, PRESSING_TRANSACTIONS):
                done(engine, apply(write("a", f"{number}\n")))
            clock.later = 2.0
            due = maintenance._tick_due()
            assert due is not None
            assert due <= 0
            await maintenance._tick()
            assert engine.history.packed == PRESSING_TRANSACTIONS
            clock.later += PACK_QUIET_SECONDS
            await maintenance._tick()  # it writes the index
            assert maintenance._tick_due() is None
            await maintenance.finish()

    asyncio.run(check())


def test_nothing_is_due_when_nothing_is_left_and_a_replaced_file_after_its_time(tmp_path: Path) -> None:
    clock = LaterClock()
    place = Harness(tmp_path / "place", clock)
    place.baseline({"a": "old\n"})

    async def check() -> None:
        with place.engine() as engine:
            queue = EngineQueue(engine, cast("Any", None), cast("Any", None), cast("Any", None))
            maintenance = Maintenance(engine, queue, str(place.state))
            clock.later = 1.0
            await maintenance._look()
            assert maintenance._look_due() is None
            done(engine, apply(write("a", "new\n")))
            due = maintenance._look_due()
            assert due is not None
            assert 0 < due <= KEPT_SECONDS
            clock.later += KEPT_SECONDS
            await maintenance._look()
            assert maintenance._look_due() is None

    asyncio.run(check())
