"""server.maintenance: what the background does while edits leave it no pause."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest

from editd.errors import Broken
from editd.server.engine_queue import EngineQueue
from editd.server.maintenance import SYNC_SECONDS_MAX, Maintenance
from editd.workspace.replaced_files import BATCH
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
